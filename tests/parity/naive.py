"""The papers' formulas once more, slowly: plain lists and loops, nothing of this project.

A chain is the trained tokens of one episode in the order in which they were sampled, all sequences
together: one list for each quantity. Losses are built from scalars of torch in float64, so that
autograd gives the gradient of the formula as it stands.
"""

import math

import torch

# --- Credit ---------------------------------------------------------------------------------------


def gae(rewards, values, end, gamma, lam):
    """arXiv 1506.02438, equation 16, as the sum that it is: A_t = sum_l (gamma lam)^l delta_{t+l}.

    `end` is the value of the state after the last token, 0 where the episode came to its end.
    """
    following = [*values[1:], end]
    deltas = [r + gamma * v1 - v for r, v1, v in zip(rewards, following, values, strict=True)]
    return [
        sum((gamma * lam) ** (later - now) * deltas[later] for later in range(now, len(deltas)))
        for now in range(len(deltas))
    ]


def returns_to_go(rewards, gamma):
    """sum_l gamma^l r_{t+l}"""
    return [
        sum(gamma ** (later - now) * rewards[later] for later in range(now, len(rewards)))
        for now in range(len(rewards))
    ]


def deviation(numbers, less):
    """Standard deviation with n - less in the denominator."""
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - less))


def group_relative(rewards, scale, eps):
    """arXiv 2402.03300, section 4.1.2; `scale` none is arXiv 2503.20783.

    The deviation is that of a sample (n - 1), as torch's `std` has it.
    """
    mean = sum(rewards) / len(rewards)
    if len(rewards) < 2 or max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    divisor = deviation(rewards, 1) + eps if scale == "std" else 1.0
    return [(reward - mean) / divisor for reward in rewards]


def leave_one_out(rewards):
    """arXiv 2402.14740, equation 6; an episode without others has no baseline, and no credit."""
    credit = []
    for own, reward in enumerate(rewards):
        others = [r for other, r in enumerate(rewards) if other != own]
        credit.append(reward - sum(others) / len(others) if others else 0.0)
    return credit


def normalised(chains, eps, less):
    """Every token less the mean of all tokens, over their deviation."""
    every = [value for chain in chains for value in chain]
    if len(every) < 2:
        return chains
    mean, std = sum(every) / len(every), deviation(every, less)
    return [[(value - mean) / (std + eps) for value in chain] for chain in chains]


# --- One token's loss -----------------------------------------------------------------------------


def effective_ratio(ratio, advantage, low, high, dual=None):
    """The ratio that PPO's minimum leaves: arXiv 1707.06347, equation 7, case by case.

    `dual` is arXiv 1912.09729, equation 5.
    """
    if advantage >= 0:
        return ratio if ratio <= 1 + high else torch.tensor(1.0 + high).double()
    if ratio < 1 - low:
        return torch.tensor(1.0 - low).double()
    if dual is not None and ratio > dual:
        return torch.tensor(float(dual)).double()
    return ratio


def clipped(logprob, old, advantage, low, high, dual=None):
    """-r A, where the clip leaves r."""
    ratio = torch.exp(logprob - old)
    return -effective_ratio(ratio, advantage, low, high, dual) * advantage


def cispo(logprob, old, advantage, low, high):
    """arXiv 2506.13585, equations 4 and 5: the clipped ratio as a constant."""
    ratio = math.exp(logprob.item() - old.item())
    return -min(max(ratio, 1 - low), 1 + high) * advantage * logprob


def kl(logprob, old, reference, estimator):
    """Schulman's k2 and k3; `k3` weighted by the ratio (arXiv 2512.02556, equation 7)."""
    d = reference - logprob
    if estimator == "k2":
        return d * d / 2
    plain = torch.exp(d) - d - 1
    return plain if estimator == "k3-plain" else torch.exp(logprob - old) * plain


def value(value_now, old_value, target, clip):
    """The clipped value loss of OpenAI's baselines, with the half of a squared error."""
    error = (value_now - target) ** 2
    if clip is not None:
        moved = value_now - old_value
        bounded = old_value + (moved if abs(moved) <= clip else math.copysign(clip, moved.item()))
        error = max(error, (bounded - target) ** 2)
    return error / 2


# --- Whole losses ---------------------------------------------------------------------------------


def aggregated(losses, aggregation, constant=None):
    """One number of the losses of each episode's trained tokens; episodes without any are left out.

    token-mean: arXiv 2503.14476, equation 8. episode-mean: arXiv 2402.03300, equation 3. constant:
    arXiv 2503.20783.
    """
    losses = [episode for episode in losses if episode]
    if aggregation == "token-mean":
        every = [loss for episode in losses for loss in episode]
        return sum(every) / len(every)
    if aggregation == "episode-mean":
        return sum(sum(episode) / len(episode) for episode in losses) / len(losses)
    return sum(sum(episode) / constant for episode in losses) / len(losses)


def gspo(episodes, low, high):
    """arXiv 2507.18071, equation 5: one ratio and one term for each episode.

    Args:
        episodes: for each, its tokens' log-probabilities and old ones, and its advantage.
        low: the ratio may fall to 1 - low.
        high: it may rise to 1 + high.
    """
    terms = []
    for logprobs, olds, advantage in episodes:
        gaps = [new - old for new, old in zip(logprobs, olds, strict=True)]
        ratio = torch.exp(sum(gaps) / len(gaps))
        terms.append(-effective_ratio(ratio, advantage, low, high) * advantage)
    return sum(terms) / len(terms)


def reinforce(episodes):
    """Minus the mean over episodes of A log pi(episode): an episode is one action."""
    return -sum(advantage * sum(logprobs) for logprobs, advantage in episodes) / len(episodes)


def implied_reward(tokens, beta):
    """arXiv 2305.18290, section 4: beta log (pi / pi_ref) of a trajectory.

    Args:
        tokens: of each token that the policy said, the log-probability and the reference's.
        beta: of the equation.
    """
    return beta * sum(own - reference for own, reference in tokens)


def dpo(pairs, beta, smoothing):
    """arXiv 2305.18290, equation 7, with labels that are wrong with probability `smoothing`.

    Args:
        pairs: the tokens of the chosen and of the rejected, as for `implied_reward`.
        beta: of the equation.
        smoothing: conservative DPO, equation 3 of https://ericmitchell.ai/cdpo.pdf
    """
    total = 0.0
    for chosen, rejected in pairs:
        margin = implied_reward(chosen, beta) - implied_reward(rejected, beta)
        right, wrong = 1 / (1 + torch.exp(-margin)), 1 / (1 + torch.exp(margin))
        total = total - (1 - smoothing) * torch.log(right) - smoothing * torch.log(wrong)
    return total / len(pairs)
