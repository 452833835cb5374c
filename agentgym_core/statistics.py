"""What is counted and reported: of the episodes of a step, and of success in evaluation."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import comb, sqrt

import numpy as np

from agentgym_core.diagnosis import DIAGNOSES, diagnose
from agentgym_core.types import Ending, Episode, Group, Scores, TokenSequence


def episode_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Describe the episodes that were played; failed ones appear in `dropped` alone.

    Returns:
        `episodes`, their number; `dropped`, the share of attempts that failed, and by cause, such
        as `dropped/engine-failed`; by cause as well, how many tries failed and were played anew,
        `retried/<cause>`; causes that did not occur are left out. If there are
        episodes, their means: `success` (of the first attempt), `success_best` (of any attempt),
        `attempts`, `reward`, `rounds` (actions taken), `tokens` (sampled), `contexts` (that it was
        played in);
        the standard deviation `reward_std`; the shares `horizon_cut` and `tokens_cut` that ended
        out of rounds or tokens; `format_errors`, the share of turns whose reply did not name an
        action; for each named part of the reward the mean of its sum, `reward/<name>`; and for
        each of `diagnosis.DIAGNOSES` the share of episodes with it, `diagnosis/<name>`.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    num_dropped = sum(group.num_dropped for group in groups)
    metrics = {
        "episodes": float(len(episodes)),
        "dropped": num_dropped / max(1, len(episodes) + num_dropped),
    }
    failures = [episode for group in groups for episode in group.failures]
    for cause, num in sorted(Counter(e.ending.value for e in failures).items()):
        metrics[f"dropped/{cause}"] = num / (len(episodes) + num_dropped)
    tries = Counter(t.value for e in [*episodes, *failures] for t in e.failed_tries)
    metrics |= {f"retried/{cause}": float(num) for cause, num in sorted(tries.items())}
    if not episodes:
        return metrics

    def mean(value: Callable[[Episode], float]) -> float:
        return float(np.mean([value(episode) for episode in episodes]))

    turns = [turn for episode in episodes for turn in episode.turns]
    metrics |= {
        "success": mean(lambda episode: episode.success),
        "success_best": mean(lambda episode: episode.success_best),
        "attempts": mean(lambda episode: episode.num_attempts),
        "reward": mean(lambda episode: episode.reward),
        "reward_std": float(np.std([episode.reward for episode in episodes])),
        "rounds": mean(lambda episode: episode.num_rounds),
        "tokens": mean(lambda episode: episode.num_tokens),
        "contexts": mean(lambda episode: len({turn.sequence for turn in episode.turns})),
        "horizon_cut": mean(lambda episode: episode.ending is Ending.OUT_OF_ROUNDS),
        "tokens_cut": mean(lambda episode: episode.ending is Ending.OUT_OF_TOKENS),
        "format_errors": sum(turn.format_error for turn in turns) / max(1, len(turns)),
    }
    for name in sorted({name for turn in turns for name in turn.rewards}):
        total = sum(turn.rewards.get(name, 0.0) for turn in turns)
        metrics[f"reward/{name}"] = total / len(episodes)
    found = Counter(name for episode in episodes for name in diagnose(episode))
    metrics |= {f"diagnosis/{name}": found[name] / len(episodes) for name in DIAGNOSES}
    return metrics


def sampling_gap(sequences: Sequence[TokenSequence], scores: Scores) -> dict[str, float]:
    """How far the engine's log-probabilities are from the trainer's, on the trained tokens.

    Returns:
        Mean and largest absolute difference in nats, `sampling_gap` and `sampling_gap_max`; empty
        if the trainer did not score. Both should be near 0: a gap means that engine and trainer
        differ in weights, temperature or precision.
    """
    if scores.logprobs is None:
        return {}
    pairs = zip(sequences, scores.logprobs, strict=True)
    gaps = [np.abs(scored - seq.logprobs)[seq.mask] for seq, scored in pairs]
    gap = np.concatenate(gaps) if gaps else np.zeros(0)
    if not gap.size:
        return {}
    return {"sampling_gap": float(gap.mean()), "sampling_gap_max": float(gap.max())}


def wilson_interval(successes: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Confidence interval of a success rate (Wilson, 1927); z = 1.96 is 95 %.

    Unlike the normal approximation it stays within [0, 1] and is right for few attempts and for
    rates near 0 or 1. No attempts tell nothing: (0, 1). Successes may be fractions, where each of
    the n is itself a mean.

    Raises:
        ValueError: not 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} attempts: expected 0 <= successes <= n")
    if n == 0:
        return 0.0, 1.0
    rate = successes / n
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    margin = z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, center - margin), min(1.0, center + margin)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that one of k attempts succeeds, where c of n did.

    Source: Chen et al. 2021 (arXiv 2107.03374), equation 1: 1 - C(n - c, k) / C(n, k).

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} successes of {n} attempts: expected 0 <= c <= n")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} attempts: play at least k of them, k >= 1")
    return 1.0 - comb(n - c, k) / comb(n, k)
