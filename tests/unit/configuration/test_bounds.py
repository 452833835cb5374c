"""What the keys of algorithms and estimators may be: the last value inside, and one outside."""

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.errors import ConfigError

CLIPPED = [
    ("clip_low", 1.0, 1.01),
    ("clip_low", 0.001, 0),
    ("clip_high", 0.001, 0),
]
ON_POLICY = [
    ("num_epochs", 1, 0),
    ("num_minibatches", 1, 0),
    ("old_logprobs", "sampled", "guessed"),
    ("kl_coef", 0, -0.001),
    ("reference_every", 0, -1),
    ("correction", "mask", "clip"),
    ("correction", "sequence", "turn"),
]
GAE = [
    ("gamma", 0, -0.001),
    ("gamma", 1, 1.01),
    ("lam", 0, -0.001),
    ("lam", 1, 1.01),
]
BOUNDS = {
    ("algorithm", "grpo"): [
        *CLIPPED,
        *ON_POLICY,
        ("surrogate", "clip", "clipped"),
        ("surrogate", "gspo", "sequence"),
        ("dual_clip", 1.01, 1.0),
        ("overlong", "mask", "drop"),
        ("max_refills", 0, -1),
    ],
    ("algorithm", "ppo"): [
        *CLIPPED,
        *ON_POLICY,
        ("value_coef", 0.001, 0),
        ("value_clip", 0.001, 0),
        ("critic_warmup", 0, -1),
    ],
    ("algorithm", "rloo"): [*ON_POLICY, ("clip", 1.0, 1.01), ("clip", 0.001, 0)],
    ("algorithm", "reinforce-pp"): [*CLIPPED, *ON_POLICY],
    ("algorithm", "dpo"): [
        ("beta", 0.001, 0),
        ("label_smoothing", 0, -0.001),
        ("label_smoothing", 0.499, 0.5),
        ("pairing", "all", "best"),
        ("margin", 0, -0.001),
        ("explored", ["first"], "first"),
    ],
    ("algorithm", "evol"): [
        ("explored", ["first"], []),
        ("weighting", "one", "none"),
        ("batch_size", 1, 0),
    ],
    ("algorithm", "sft"): [("num_demonstrations", 1, 0)],
    ("advantage", "group-relative"): [("scale", "none", "mean"), ("eps", 0, -1e-9)],
    ("advantage", "gigpo"): [
        ("step_weight", 0, -0.001),
        ("gamma", 0, -0.001),
        ("gamma", 1, 1.01),
        ("scale", "none", "mean"),
    ],
    ("advantage", "gae"): GAE,
    ("advantage", "gae-turn"): GAE,
    ("advantage", "reinforce-pp"): [
        ("gamma", 0.001, 0),
        ("gamma", 1, 1.01),
        ("eps", 0, -1e-9),
    ],
    ("advantage", "reinforce-pp-baseline"): [("eps", 0, -1e-9)],
    ("reward", "soft-overlong"): [("max_tokens", 1, 0), ("margin", 1, 0)],
}
REQUIRED = {"evol": {"explored": ["first"]}, "soft-overlong": {"max_tokens": 2, "margin": 1}}
CASES = [
    pytest.param(kind, use, *case, id=f"{use}-{case[0]}-{case[2]}")
    for (kind, use), cases in BOUNDS.items()
    for case in cases
]


def build(kind, use, key, value):
    block = {"use": use, **REQUIRED.get(use, {}), key: value}
    return Catalog.installed().build(kind, block, kind)


@pytest.mark.parametrize(("kind", "use", "key", "inside", "outside"), CASES)
def test_the_last_value_inside_is_taken_and_one_outside_is_refused_by_name(
    kind, use, key, inside, outside
):
    built = build(kind, use, key, inside)
    assert getattr(built, key) == (tuple(inside) if isinstance(inside, list) else inside)
    with pytest.raises(ConfigError, match=key):
        build(kind, use, key, outside)


@pytest.mark.parametrize(
    ("algorithm", "estimator"),
    [
        ("grpo", "group-relative"),
        ("ppo", "gae"),
        ("rloo", "leave-one-out"),
        ("reinforce-pp", "reinforce-pp"),
        ("dpo", None),
        ("evol", None),
    ],
)
def test_the_estimator_that_an_algorithm_has_unless_told_otherwise(algorithm, estimator):
    block = {"use": algorithm, **REQUIRED.get(algorithm, {})}
    built = Catalog.installed().build("algorithm", block, "algorithm")
    assert built.default_advantage == estimator


@pytest.mark.parametrize(
    ("estimator", "compares"),
    [
        ("group-relative", True),
        ("gigpo", True),
        ("leave-one-out", True),
        ("reinforce-pp", False),
        ("reinforce-pp-baseline", True),
        ("gae", False),
        ("gae-turn", False),
    ],
)
def test_estimators_that_need_several_attempts_say_so(estimator, compares):
    built = Catalog.installed().build("advantage", {"use": estimator}, "advantage")
    assert built.compares_groups is compares
