import math

import numpy as np
import pytest
import torch

from agentgym_torch.sampling import sample


def draw(probs, uniforms, temperature=1.0, top_p=1.0, top_k=0):
    """Rows of one distribution, one for each random number."""
    n = len(uniforms)
    logits = torch.log(torch.tensor(probs, dtype=torch.float64)).float().expand(n, -1)
    ids, logprobs = sample(
        logits,
        torch.tensor(uniforms, dtype=torch.float64),
        torch.full((n,), temperature),
        torch.full((n,), top_p, dtype=torch.float64),
        torch.full((n,), top_k),
    )
    return ids.tolist(), logprobs.tolist()


def test_inverts_the_cumulative_distribution():
    # cumulative 0.5, 0.75, 1: below 0.5 is id 0, from there to 0.75 id 1, above id 2
    ids, logprobs = draw([0.5, 0.25, 0.25], [0.0, 0.4999, 0.5001, 0.7499, 0.7501, 0.9999])
    assert ids == [0, 0, 1, 1, 2, 2]
    expected = [math.log(0.5)] * 2 + [math.log(0.25)] * 4
    assert logprobs == pytest.approx(expected, abs=1e-6)


def test_evenly_spread_numbers_give_every_id_its_share():
    probs = np.random.default_rng(0).dirichlet(np.ones(17))
    ids, _ = draw(probs, (np.arange(20_000) + 0.5) / 20_000)
    counts = np.bincount(ids, minlength=17)
    assert np.abs(counts - 20_000 * probs).max() <= 1.01  # each end of its interval: half a number


def test_the_engines_random_numbers_sample_the_softmax():
    probs = np.random.default_rng(1).dirichlet(np.ones(12))
    uniforms = [np.random.Generator(np.random.Philox(key=seed)).random() for seed in range(20_000)]
    ids, _ = draw(probs, uniforms)
    expected = 20_000 * probs
    chi_square = ((np.bincount(ids, minlength=12) - expected) ** 2 / expected).sum()
    assert chi_square < 31.3  # 11 degrees of freedom, p = 0.001


def test_temperature_sharpens_and_is_in_the_logprob():
    # p^2 of (0.6, 0.4) is (0.36, 0.16): at temperature 0.5 the shares are 9/13 and 4/13
    ids, logprobs = draw([0.6, 0.4], [0.69, 0.70], temperature=0.5)
    assert ids == [0, 1]
    assert logprobs == pytest.approx([math.log(9 / 13), math.log(4 / 13)], abs=1e-6)


def test_temperature_0_is_greedy_with_the_logprob_of_temperature_1():
    ids, logprobs = draw([0.2, 0.5, 0.3], [0.01, 0.99], temperature=0.0)
    assert ids == [1, 1]
    assert logprobs == pytest.approx([math.log(0.5)] * 2, abs=1e-6)


def test_top_k_keeps_the_most_probable_and_the_logprob_of_all():
    # the two most probable are ids 3 and 1: shares 0.4/0.7 = 0.571 and 0.3/0.7, in id order 1, 3
    ids, logprobs = draw([0.1, 0.3, 0.2, 0.4], [0.0, 0.42, 0.43, 0.99], top_k=2)
    assert ids == [1, 1, 3, 3]
    assert logprobs[0] == pytest.approx(math.log(0.3), abs=1e-6)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.4, {3}), (0.41, {1, 3}), (0.7, {1, 3}), (0.71, {1, 2, 3}), (1.0, {0, 1, 2, 3})],
)
def test_top_p_keeps_the_fewest_that_reach_the_share(top_p, kept):
    # in order of probability: 0.4, 0.3, 0.2, 0.1; running sums 0.4, 0.7, 0.9, 1
    probs = [0.1 + 1e-9, 0.3 + 1e-7, 0.2, 0.4 + 1e-7]
    ids, _ = draw(probs, np.linspace(0, 0.9999, 400), top_p=top_p)
    assert set(ids) == kept


def test_top_p_counts_shares_of_what_top_k_left():
    # top 2 are 0.4 and 0.3, of 0.7: the first holds 0.571 of it, which reaches 0.55 but not 0.6
    probs, uniforms = [0.1, 0.3, 0.2, 0.4], np.linspace(0, 0.9999, 50)
    assert set(draw(probs, uniforms, top_p=0.55, top_k=2)[0]) == {3}
    assert set(draw(probs, uniforms, top_p=0.6, top_k=2)[0]) == {1, 3}


def test_an_id_of_probability_0_is_never_drawn():
    ids, _ = draw([0.0, 0.3, 0.7, 0.0], [0.0, 1 - 2**-53])
    assert ids == [1, 2]
    random = np.random.default_rng(0)
    for _ in range(200):  # totals that round to a little more or less than 1
        probs = np.append(random.dirichlet(np.ones(30)), 0.0)
        assert draw(probs, [1 - 2**-53])[0] == [29]


def test_a_row_does_not_depend_on_its_neighbours():
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(9, 50, generator=generator)
    uniforms = torch.rand(9, dtype=torch.float64, generator=generator)
    temperatures = torch.tensor([1.0, 0.0, 0.5] * 3)
    top_ps = torch.tensor([1.0, 1.0, 0.7] * 3, dtype=torch.float64)
    top_ks = torch.tensor([0, 0, 5] * 3)
    together = sample(logits, uniforms, temperatures, top_ps, top_ks)
    for i in range(9):
        one = slice(i, i + 1)
        alone = sample(logits[one], uniforms[one], temperatures[one], top_ps[one], top_ks[one])
        assert torch.equal(alone[0], together[0][one])
        assert torch.equal(alone[1], together[1][one])


def test_logits_that_are_not_finite_are_an_error():
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        draw([float("nan"), 1.0], [0.5])
