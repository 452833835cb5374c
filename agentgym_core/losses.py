# pyright: basic
# Nothing is imported, the types of tensors included: any torch backend can call this.
"""The terms of a policy-gradient loss, token by token, for every algorithm.

Arguments are tensors of N rows padded to T tokens, of which only `logprobs_NT` and `values_NT` have
a gradient; `mask_NT` is boolean. Where it is False a term and its gradient are exactly 0 whatever
the padding holds: inputs are masked before `exp`, because masking an infinity afterwards gives
0 x inf = NaN.

Nothing is averaged here. `agentgym_core.batching.token_weights` gives each token its share, and the
backend sums.
"""

KL_ESTIMATORS = ("k2", "k3", "k3-plain")


def policy_gradient(logprobs_NT, advantages_NT, mask_NT):
    """The loss of REINFORCE: -A log pi, right where pi is the policy that sampled.

    Returns:
        loss_NT.
    """
    return -logprobs_NT.masked_fill(~mask_NT, 0.0) * advantages_NT.masked_fill(~mask_NT, 0.0)


def clipped_surrogate(
    logprobs_NT, old_logprobs_NT, advantages_NT, mask_NT, *, low, high, dual=None
):
    """PPO's clipped objective, negated: -min(r A, clip(r, 1 - low, 1 + high) A).

    The ratio r is pi(token) / pi_old(token). With `dual`, a number above 1, the objective of a
    negative A is at least dual x A, so that a token that has become far likelier does not outweigh
    all others. Sources: equation 7 of arXiv 1707.06347; the two separate bounds are the "clip
    higher" of DAPO (arXiv 2503.14476), the third is the dual clip of arXiv 1912.09729.

    Returns:
        loss_NT, and detached _NT metrics to be averaged over the mask: `ratio`; `clip_fraction`,
        1 where clipping took the gradient away; `old_kl`, the k3 estimate of KL(old || pi).
    """
    log_ratio_NT = (logprobs_NT - old_logprobs_NT).masked_fill(~mask_NT, 0.0)
    advantages_NT = advantages_NT.masked_fill(~mask_NT, 0.0)
    ratio_NT = log_ratio_NT.exp()
    objective_NT, clipped_NT = _pessimistic(ratio_NT, advantages_NT, low, high, dual)
    return -objective_NT, _ratio_metrics(ratio_NT, clipped_NT, log_ratio_NT)


def sequence_surrogate(
    logprobs_NT, old_logprobs_NT, advantages_NT, mask_NT, *, low, high, dual=None
):
    """The clipped objective with one ratio for a whole row, the geometric mean of its tokens'.

        s = exp(mean over the row's trained tokens of log pi - log pi_old)

    takes the place of r in `clipped_surrogate`. Its gradient in a token is s A grad log pi of that
    token, as in GSPO-token (arXiv 2507.18071, equations 13 and 14). Where A is the same for all
    tokens of a row, and their weights are, this is the gradient of GSPO itself (equation 5).

    A row is one token sequence. An episode in several sequences has as many ratios, each of what
    was sampled in one context; the tokens' weights keep the episode's share what it is.

    Returns:
        As `clipped_surrogate`, where `ratio` is s.
    """
    log_ratio_NT = (logprobs_NT - old_logprobs_NT).masked_fill(~mask_NT, 0.0)
    advantages_NT = advantages_NT.masked_fill(~mask_NT, 0.0)
    num_tokens_N1 = mask_NT.sum(-1, keepdim=True).clamp(min=1)
    mean_N1 = log_ratio_NT.detach().sum(-1, keepdim=True) / num_tokens_N1
    # The value is the row's, the gradient the token's own.
    ratio_NT = (mean_N1 + log_ratio_NT - log_ratio_NT.detach()).exp()
    objective_NT, clipped_NT = _pessimistic(ratio_NT, advantages_NT, low, high, dual)
    return -objective_NT, _ratio_metrics(ratio_NT, clipped_NT, log_ratio_NT)


def weighted_policy_gradient(logprobs_NT, old_logprobs_NT, advantages_NT, mask_NT, *, low, high):
    """The loss of CISPO: -clip(r, 1 - low, 1 + high) A log pi, where the ratio has no gradient.

    A clipped token keeps its gradient, with a bounded weight. Source: equations 4 and 5 of
    arXiv 2506.13585.

    Returns:
        As `clipped_surrogate`; `clip_fraction` is 1 where the weight is not the ratio.
    """
    log_ratio_NT = (logprobs_NT - old_logprobs_NT).masked_fill(~mask_NT, 0.0)
    ratio_NT = log_ratio_NT.exp().detach()
    weight_NT = ratio_NT.clamp(1.0 - low, 1.0 + high)
    loss_NT = weight_NT * policy_gradient(logprobs_NT, advantages_NT, mask_NT)
    return loss_NT, _ratio_metrics(ratio_NT, weight_NT != ratio_NT, log_ratio_NT)


def _pessimistic(ratio_NT, advantages_NT, low, high, dual):
    """The clipped objective, and where its gradient is gone."""
    free_NT = ratio_NT * advantages_NT
    objective_NT = free_NT.minimum(ratio_NT.clamp(1.0 - low, 1.0 + high) * advantages_NT)
    if dual is not None:
        bounded_NT = objective_NT.maximum(dual * advantages_NT)
        objective_NT = bounded_NT.where(advantages_NT < 0, objective_NT)
    return objective_NT, objective_NT != free_NT


def _ratio_metrics(ratio_NT, clipped_NT, log_ratio_NT):
    return {
        "ratio": ratio_NT.detach(),
        "clip_fraction": clipped_NT.to(ratio_NT.dtype),
        "old_kl": (log_ratio_NT.expm1() - log_ratio_NT).detach(),
    }


def kl_to_reference(logprobs_NT, old_logprobs_NT, reference_logprobs_NT, mask_NT, *, estimator):
    """Estimate KL(pi || reference) at each token, for use as a term of the loss.

    With d = log reference - log pi and r = pi / pi_old at the sampled token:

        k2        d^2 / 2                  gradient: -d grad log pi
        k3        r (exp(d) - 1 - d)       gradient: -r d grad log pi
        k3-plain  exp(d) - 1 - d           gradient: (1 - exp(d)) grad log pi

    The gradient of the KL itself is the expectation of -d grad log pi under pi. `k3` (equation 7 of
    arXiv 2512.02556) meets it in expectation over tokens that pi_old sampled; `k2` does where
    pi = pi_old, and drifts as they part. `k3-plain`, the penalty of most GRPO code, follows
    KL(reference || pi) instead: it is here for comparison with such runs. All three hold the
    states that were visited fixed: how a token changes later states is not in the gradient.

    Returns:
        kl_NT, 0 where the mask is.
    """
    d_NT = (reference_logprobs_NT - logprobs_NT).masked_fill(~mask_NT, 0.0)
    if estimator == "k2":
        return 0.5 * d_NT.square()
    k3_NT = d_NT.expm1() - d_NT
    if estimator == "k3-plain":
        return k3_NT
    assert estimator == "k3", estimator
    # The gradient must flow through the ratio: it is what turns (1 - exp(d)) into -d.
    return (logprobs_NT - old_logprobs_NT).masked_fill(~mask_NT, 0.0).exp() * k3_NT


def clipped_value_loss(values_NT, old_values_NT, returns_NT, mask_NT, *, clip):
    """Half the squared error of a critic, of which a large move in one step gains nothing.

        max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2

    V_old is the value before the step's first update, R the return. `clip` is in units of reward;
    without one it is the plain squared error, halved. Sources: equation 9 of arXiv 1707.06347; the
    clipping is in the code of its authors (arXiv 2005.12729).

    Returns:
        loss_NT, 0 where the mask is; and detached _NT metrics to be averaged over the mask:
        `value_loss`, and `value_clip_fraction`, 1 where clipping took the gradient away.
    """
    values_NT = values_NT.masked_fill(~mask_NT, 0.0)
    old_values_NT = old_values_NT.masked_fill(~mask_NT, 0.0)
    returns_NT = returns_NT.masked_fill(~mask_NT, 0.0)
    error_NT = (values_NT - returns_NT).square()
    if clip is None:
        worst_NT = error_NT
    else:
        near_NT = old_values_NT + (values_NT - old_values_NT).clamp(-clip, clip)
        worst_NT = error_NT.maximum((near_NT - returns_NT).square())
    loss_NT = 0.5 * worst_NT
    return loss_NT, {
        "value_loss": loss_NT.detach(),
        "value_clip_fraction": (worst_NT > error_NT).to(error_NT.dtype),
    }


def check_kl_estimator(estimator):
    """Refuse an estimator that is unknown.

    `k1` is no term of a loss, where its expected gradient is 0: `agentgym_core.kl_rewards` puts it
    into the reward.

    Raises:
        ValueError: names those that there are.
    """
    known = ("k1", *KL_ESTIMATORS)
    if estimator not in known:
        raise ValueError(f"kl_estimator is {estimator!r}; expected one of {', '.join(known)}")
