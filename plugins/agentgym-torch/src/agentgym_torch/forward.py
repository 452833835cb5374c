"""Policy, reference and critic on a micro-batch."""

import contextlib
from typing import Any

import attrs
import torch
from torch import Tensor

from agentgym_torch.critic import Critic, head_input_kept
from agentgym_torch.language_model import forward_at
from agentgym_torch.micro_batches import MicroBatch


@attrs.frozen(kw_only=True, eq=False)
class Forward:
    """Evaluates M tokens of N sequences: each from the position before it."""

    policy: Any
    critic: Critic | None
    temperature: float
    half: bool
    """Compute in bfloat16."""

    def logprobs(self, model: Any, micro: MicroBatch) -> Tensor:
        """logprobs_M of each evaluated token at the sampling temperature."""
        with self._precision(micro):
            logits_MV, _ = forward_at(
                model,
                micro.rows_M,
                micro.columns_M - 1,
                input_ids=micro.token_ids_NT[:, :-1],
                use_cache=False,
            )
        targets_M = micro.token_ids_NT[micro.rows_M, micro.columns_M]
        scaled_MV = logits_MV.float() / self.temperature
        return -torch.nn.functional.cross_entropy(scaled_MV, targets_M, reduction="none")

    def values(self, micro: MicroBatch) -> Tensor:
        """values_M of the state in which each evaluated token was sampled."""
        assert self.critic is not None
        if self.critic.trunk is None:
            return self.logprobs_and_values(micro)[1]
        with self._precision(micro):
            outputs = self.critic.trunk(input_ids=micro.token_ids_NT[:, :-1], use_cache=False)
            hidden_MH = outputs.last_hidden_state[micro.rows_M, micro.columns_M - 1]
        return self.critic.values(hidden_MH)

    def logprobs_and_values(
        self, micro: MicroBatch, *, critic_only: bool = False
    ) -> tuple[Tensor, Any]:
        """logprobs_M, and values_M if there is a critic.

        With `critic_only` no gradient reaches the policy, a trunk that the critic shares included.
        """
        policy_learns = torch.is_grad_enabled() and not critic_only
        shares = self.critic is not None and self.critic.trunk is None
        keep = head_input_kept(self.policy) if shares else contextlib.nullcontext([])
        with torch.set_grad_enabled(policy_learns), keep as hidden:
            logprobs_M = self.logprobs(self.policy, micro)
        if self.critic is None:
            return logprobs_M, None
        return logprobs_M, self.critic.values(hidden[0]) if shares else self.values(micro)

    def _precision(self, micro: MicroBatch) -> Any:
        return torch.autocast(micro.mask_NT.device.type, torch.bfloat16, enabled=self.half)
