"""TRL's own loss functions, called on our tensors.

TRL keeps its losses in methods of its trainers. Here they are called with a stand-in for the
trainer, which has the options that the method reads and says what its model would.
"""

import warnings
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl", reason="needs TRL: uv run --group parity pytest tests/parity")
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.rloo_trainer import RLOOTrainer


class Alone:
    """A process without others."""

    num_processes = 1
    device = torch.device("cpu")

    def reduce(self, tensor, reduction):
        """What all others, of whom there are none, add to it."""
        return tensor

    def gather(self, tensor):
        """What all have."""
        return tensor

    gather_for_metrics = gather


def _stand_in(**options):
    metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    common = {"accelerator": Alone(), "aux_loss_enabled": False, "_metrics": metrics}
    return SimpleNamespace(**common, model=SimpleNamespace(training=False), **options)


def _says(logprobs_NT):
    """In place of the forward pass: log-probabilities, entropies and an auxiliary loss."""
    return lambda *_, **__: (logprobs_NT, torch.zeros_like(logprobs_NT), None)


def _inputs(tokens, **more):
    empty = torch.zeros(len(tokens.mask_NT), 0, dtype=torch.long)
    mask = tokens.mask_NT.double()
    ids = torch.zeros(tokens.mask_NT.shape, dtype=torch.long)
    return {
        "prompt_ids": empty,
        "prompt_mask": empty,
        "completion_ids": ids,
        "completion_mask": mask,
        **more,
    }


def grpo_loss(
    tokens,
    *,
    loss_type,
    level="token",
    low=0.2,
    high=0.2,
    delta=None,
    beta=0.0,
    weighted_kl=False,
    max_tokens=None,
):
    """`GRPOTrainer._compute_loss`.

    TRL multiplies by the mask after `exp`, so the padding must be finite: it is 0 here.
    """
    kept = {
        name: getattr(tokens, f"{name}_NT").masked_fill(~tokens.mask_NT, 0.0)
        for name in ("logprobs", "old_logprobs", "reference_logprobs", "advantages")
    }
    trainer = _stand_in(
        args=SimpleNamespace(delta=delta, use_bias_correction_kl=weighted_kl),
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=low,
        epsilon_high=high,
        beta=beta,
        max_completion_length=max_tokens,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _get_per_token_logps_and_entropies=_says(kept["logprobs"]),
    )
    inputs = _inputs(
        tokens,
        advantages=kept["advantages"],
        old_per_token_logps=kept["old_logprobs"],
        ref_per_token_logps=kept["reference_logprobs"],
        num_items_in_batch=tokens.mask_NT.sum(),
    )
    return GRPOTrainer._compute_loss(trainer, None, inputs)


def rloo_loss(tokens, advantages_N, *, clip):
    """`RLOOTrainer._compute_loss`, whose ratio is that of a whole row."""
    logprobs_NT = tokens.logprobs_NT.masked_fill(~tokens.mask_NT, 0.0)
    old_NT = tokens.old_logprobs_NT.masked_fill(~tokens.mask_NT, 0.0)
    trainer = _stand_in(
        epsilon_low=clip,
        epsilon_high=clip,
        _get_per_token_logps_and_entropies=_says(logprobs_NT),
    )
    inputs = _inputs(tokens, advantages=advantages_N, old_logps=old_NT.sum(1))
    return RLOOTrainer._compute_loss(trainer, None, inputs)


def dpo_loss(logprobs_NT, reference_NT, mask_NT, *, loss_type, beta, smoothing=0.0):
    """`DPOTrainer._compute_loss`, whose first half of rows is chosen, and the second rejected.

    Returns:
        The loss, and the metrics that TRL logs with it.
    """
    silent_NT = torch.zeros_like(logprobs_NT)
    said = SimpleNamespace(
        log_probs=logprobs_NT.masked_fill(~mask_NT, 0.0),
        entropy=silent_NT,
        mean_logits=silent_NT,
        is_top1=mask_NT,
    )
    chosen, rejected = reference_NT.masked_fill(~mask_NT, 0.0).sum(1).chunk(2)
    trainer = _stand_in(
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=smoothing,
        use_weighting=False,
        _total_train_tokens=0,
        _tp_size=1,
    )
    trainer.model.training = True
    # TRL leaves out the first token, which nothing predicts.
    first = torch.zeros(len(mask_NT), 1, dtype=torch.long)
    completion = torch.cat([first, mask_NT.long()], 1)
    inputs = {
        "input_ids": torch.zeros_like(completion),
        "attention_mask": torch.ones_like(completion),
        "completion_mask": completion,
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    loss = DPOTrainer._compute_loss(trainer, lambda **_: said, inputs, False)
    return loss, {name: values[-1] for name, values in trainer._metrics["train"].items()}
