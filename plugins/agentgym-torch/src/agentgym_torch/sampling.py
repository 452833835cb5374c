"""Drawing token ids from logits, row by row, each with a random number of its own."""

import torch
from torch import Tensor


def sample(
    logits_NV: Tensor,
    uniforms_N: Tensor,
    temperatures_N: Tensor,
    top_ps_N: Tensor,
    top_ks_N: Tensor,
) -> tuple[Tensor, Tensor]:
    """Draw one id for each row by inverting its cumulative distribution.

    The draw depends on the row's own logits and random number alone, whatever else is in the
    batch. Temperature 0 takes the most probable id.

    Args:
        logits_NV: of the next token.
        uniforms_N: float64, in [0, 1).
        temperatures_N: float32; they divide the logits.
        top_ps_N: float64; only the fewest most probable ids that reach this share; 1 is off.
        top_ks_N: int64; only that many most probable ids; 0 is off.

    Returns:
        ids_N, and logprobs_N in float32: under the temperature (1 where it is 0), before top-p
        and top-k, as training computes them.

    Raises:
        FloatingPointError: the logits are not finite.
    """
    greedy_N = temperatures_N == 0
    scale_N = torch.where(greedy_N, torch.ones_like(temperatures_N), temperatures_N)
    logprobs_NV = torch.log_softmax(logits_NV.float() / scale_N[:, None], dim=-1)
    probs_NV = logprobs_NV.double().exp()
    if bool((top_ks_N > 0).any()) or bool((top_ps_N < 1).any()):
        probs_NV = _most_probable(probs_NV, top_ps_N, top_ks_N)
    cumulative_NV = probs_NV.cumsum(dim=-1)
    total_N = cumulative_NV[:, -1]
    if not bool(total_N.isfinite().all()):
        raise FloatingPointError("the model's logits are NaN or infinite")
    # A number of at most 1 - 2^-53 times the total stays below it even when rounded, so that an id
    # of probability 0 is never drawn.
    places_N1 = (uniforms_N * total_N)[:, None]
    ids_N = torch.searchsorted(cumulative_NV, places_N1, right=True)[:, 0]
    if bool(greedy_N.any()):
        ids_N = torch.where(greedy_N, logits_NV.argmax(dim=-1), ids_N)
    return ids_N, logprobs_NV.gather(1, ids_N[:, None])[:, 0]


def _most_probable(probs_NV: Tensor, top_ps_N: Tensor, top_ks_N: Tensor) -> Tensor:
    """Zero all but the top k, and of those all but the fewest that hold a share of top p."""
    sorted_NV, order_NV = probs_NV.sort(dim=-1, descending=True, stable=True)
    rank_V = torch.arange(probs_NV.shape[1], device=probs_NV.device)
    within_k_NV = (rank_V < top_ks_N[:, None]) | (top_ks_N == 0)[:, None]
    sorted_NV = torch.where(within_k_NV, sorted_NV, 0.0)
    before_NV = sorted_NV.cumsum(dim=-1) - sorted_NV
    share_N = top_ps_N * sorted_NV.sum(dim=-1)
    within_p_NV = (before_NV < share_N[:, None]) | (top_ps_N >= 1)[:, None]
    sorted_NV = torch.where(within_p_NV, sorted_NV, 0.0)
    return torch.zeros_like(probs_NV).scatter(1, order_NV, sorted_NV)
