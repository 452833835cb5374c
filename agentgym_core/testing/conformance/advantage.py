"""The suite of advantage estimators."""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, get_args
from unittest import SkipTest

import attrs
import numpy as np

from agentgym_core.protocols import AdvantageEstimator, Need
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence

KNOWN_NEEDS = frozenset(get_args(Need))
_ARRAYS = ("token_ids", "mask", "logprobs", "rewards", "turns", "versions", "states")
"""The fields of a token sequence that hold a value for each token."""


class AdvantageEstimatorConformance(ComponentConformance):
    """What training relies on in every advantage estimator.

    Example:
        class TestGroupRelative(AdvantageEstimatorConformance):
            estimator = GroupRelative()
    """

    kind: ClassVar[str] = "estimator"
    estimator: AdvantageEstimator

    def test_needs_are_known(self) -> None:
        """The trainer computes only what it knows."""
        unknown = set(self.estimator.needs) - KNOWN_NEEDS
        assert not unknown, f"needs {sorted(unknown)}: choose among {sorted(KNOWN_NEEDS)}"

    def test_one_finite_value_for_each_token(self) -> None:
        """Whatever the length, the reward or the number of trained tokens."""
        for sequences in (make_sequences(), make_sequences(1), *_tiny_batches()):
            values = self._estimate(sequences).values
            assert len(values) == len(sequences), (
                f"{len(values)} arrays for {len(sequences)} sequences: give one for each"
            )
            for sequence, value in zip(sequences, values, strict=True):
                assert value.shape == (len(sequence),), (
                    f"advantages of shape {value.shape} for {len(sequence)} tokens"
                )
                assert value.dtype == np.float64, f"advantages are {value.dtype}, not float64"
                assert np.isfinite(value).all(), f"advantages are not finite: {value}"

    def test_zero_where_the_mask_is(self) -> None:
        """The policy is not answerable for what it did not sample."""
        sequences = make_sequences()
        for sequence, value in zip(sequences, self._estimate(sequences).values, strict=True):
            assert not value[~sequence.mask].any(), (
                "credit on tokens that were not sampled: multiply by the mask"
            )

    def test_a_pure_function(self) -> None:
        """The same batch gives the same credit, and stays as it was."""
        sequences = make_sequences()
        before = copy.deepcopy(sequences)
        first = self._estimate(sequences).values
        for old, new in zip(before, sequences, strict=True):
            for field in _ARRAYS:
                assert np.array_equal(getattr(old, field), getattr(new, field)), (
                    f"it changes the {field} it was given: work on a copy"
                )
        again = self._estimate(sequences).values
        assert all(map(np.array_equal, first, again)), "the same batch gives other advantages"

    def test_the_order_of_the_sequences_does_not_matter(self) -> None:
        """Episodes finish in any order."""
        sequences = make_sequences()
        order: list[int] = np.random.default_rng(3).permutation(len(sequences)).tolist()
        plain = self._estimate(sequences).values
        shuffled = self._estimate([sequences[place] for place in order]).values
        for place, value in zip(order, shuffled, strict=True):
            _assert_close(value, plain[place], "advantages depend on the order of the batch")

    def test_observations_do_not_matter(self) -> None:
        """Neither how long they are nor what a critic thinks of them."""
        sequences = make_sequences()
        plain = self._estimate(sequences).values
        loud = self._estimate(sequences, observation_value=1e6).values
        stretched = [_with_longer_observations(sequence) for sequence in sequences]
        longer = self._estimate(stretched).values
        for i, sequence in enumerate(sequences):
            credit = plain[i][sequence.mask]
            _assert_close(
                loud[i][sequence.mask],
                credit,
                "advantages depend on the values of observation tokens: bootstrap from the next "
                "sampled token",
            )
            _assert_close(
                longer[i][stretched[i].mask],
                credit,
                "advantages depend on the length of observations: step from sampled token to "
                "sampled token",
            )

    def test_contexts_do_not_matter(self) -> None:
        """An episode is what it is, whether its turns lie in one sequence or in several."""
        whole = [
            _sequence([2, 1, 3], [0.5, 0.0, float(n)], episode=n, states=[0, 5, 5 + n])
            for n in range(3)
        ]
        cut = [part for sequence in whole for part in _cut_after_turns(sequence)]
        credit: dict[int, list[FloatArray]] = {}
        for sequence, value in zip(cut, self._values(cut), strict=True):
            credit.setdefault(sequence.episode, []).append(value)
        for sequence, value in zip(whole, self._values(whole), strict=True):
            _assert_close(
                np.concatenate(credit[sequence.episode]),
                value,
                "credit depends on how an episode is cut into sequences: sum rewards over the "
                "episode, and let time run on from one of its turns to the next",
            )

    def test_a_reward_reaches_the_policy(self) -> None:
        """The reward lies on the last sampled token of a turn."""
        sequences = [_sequence([2, 2], [0.0, float(n)], episode=n, group=0) for n in range(2)]
        credit = [
            value[s.mask] for s, value in zip(sequences, self._values(sequences), strict=True)
        ]
        assert any(value.any() for value in credit), (
            "a reward on the last sampled token gives no credit: do not shift it away"
        )
        assert not np.allclose(credit[0], credit[1]), "success and failure get the same credit"

    def test_a_group_of_one_is_defined(self) -> None:
        """Failures of the machinery can leave one attempt."""
        (value,) = self._values([_sequence([3], [1.0])])
        assert np.isfinite(value).all(), f"a group of one attempt gives {value}"

    def test_equal_rewards_give_nothing(self) -> None:
        """For estimators with `compares_groups`."""
        if not self.estimator.compares_groups:
            raise SkipTest(
                "the estimator does not say compares_groups: nothing is compared within a group"
            )
        sequences = [_sequence([2, 3], [0.1, 0.2], episode=n) for n in range(3)]
        assert not any(value.any() for value in self._values(sequences)), (
            "a group of equal rewards must give exactly 0, not rounding noise divided by it"
        )

    def test_an_episode_counts_once(self) -> None:
        """For estimators with `compares_groups`: statistics are over episodes, not turns."""
        if not self.estimator.compares_groups:
            raise SkipTest(
                "the estimator does not say compares_groups: nothing is compared within a group"
            )
        short = [_sequence([2], [float(n == 0)], episode=n) for n in range(3)]
        cut = [
            _sequence([2], [0.0], episode=0),
            _sequence([2], [1.0], episode=0, first_turn=1),
            *(_sequence([2, 1, 1], [0.0, 0.0, 0.0], episode=n) for n in (1, 2)),
        ]
        expected = self._values(short)[0][short[0].mask]
        for value, sequence in list(zip(self._values(cut), cut, strict=True))[:2]:
            _assert_close(
                value[sequence.mask],
                expected,
                "credit depends on how many turns or sequences episodes have: count each once",
            )

    def _values(self, sequences: Sequence[TokenSequence]) -> tuple[FloatArray, ...]:
        return self._estimate(sequences).values

    def _estimate(
        self, sequences: Sequence[TokenSequence], observation_value: float = 0.0
    ) -> Advantages:
        needs = self.estimator.needs

        def score(name: str, make: Callable[[TokenSequence], FloatArray]):
            return tuple(map(make, sequences)) if name in needs else None

        return self.estimator(
            sequences,
            Scores(
                logprobs=score("logprobs", lambda s: np.where(s.mask, -0.5, 0.0)),
                reference_logprobs=score(
                    "reference_logprobs", lambda s: np.where(s.mask, -0.7, 0.0)
                ),
                values=score("values", lambda s: _values_of(s, observation_value)),
                final_values=_final_values(sequences) if "final_values" in needs else None,
            ),
        )


def make_sequences(num_groups: int = 3) -> list[TokenSequence]:
    """Groups of four attempts of different lengths, turns and rewards.

    Two of the four were cut; one of these is in two sequences.
    """
    draw = np.random.default_rng(num_groups)
    made: list[TokenSequence] = []
    for group in range(num_groups):
        for attempt in range(4):
            first_turn = 0
            for _ in range(2 if attempt == 3 else 1):
                turns = draw.integers(1, 5, size=draw.integers(1, 4)).tolist()
                rewards = draw.choice([0.0, 0.0, 0.5, 1.0], size=len(turns)).tolist()
                one = _sequence(
                    turns,
                    rewards,
                    episode=4 * group + attempt,
                    group=group,
                    first_turn=first_turn,
                    states=draw.integers(0, 3, size=len(turns)).tolist(),
                )
                made.append(attrs.evolve(one, truncated=attempt > 1))
                first_turn += len(turns)
    return made


def _sequence(
    turns: Sequence[int],
    rewards: Sequence[float],
    *,
    episode: int = 0,
    group: int = 0,
    first_turn: int = 0,
    states: Sequence[int] | None = None,
) -> TokenSequence:
    """Turns of so many sampled tokens, two observation tokens before each."""
    lengths = [n for turn in turns for n in (2, turn)]
    mask = np.repeat([False, True] * len(turns), lengths)
    sizes = [2 + n for n in turns]
    number = np.repeat(first_turn + np.arange(len(turns)), sizes)
    state = np.repeat([-1] * len(turns) if states is None else states, sizes)
    reward = np.zeros(len(mask))
    reward[np.cumsum(sizes) - 1] = rewards
    return TokenSequence(
        token_ids=np.arange(len(mask)) % 7,
        mask=mask,
        logprobs=-0.5 * mask,
        rewards=reward,
        turns=np.where(mask, number, -1),
        versions=np.where(mask, 0, -1),
        states=np.where(mask, state, -1),
        episode=episode,
        group=group,
    )


def _tiny_batches() -> list[list[TokenSequence]]:
    """None, one and two trained tokens in all."""
    nothing = _sequence([1], [0.0])
    nothing = attrs.evolve(
        nothing, mask=np.zeros(3, np.bool_), logprobs=np.zeros(3), turns=np.full(3, -1)
    )
    return [
        [nothing],
        [_sequence([1], [1.0])],
        [_sequence([1], [1.0]), _sequence([1], [0.0], episode=1)],
    ]


def _with_longer_observations(sequence: TokenSequence) -> TokenSequence:
    """The same turns with three more tokens before each observation token."""
    repeats = np.where(sequence.mask, 1, 4)
    return attrs.evolve(
        sequence,
        **{name: np.repeat(getattr(sequence, name), repeats) for name in _ARRAYS},
    )


def _cut_after_turns(sequence: TokenSequence) -> list[TokenSequence]:
    """A sequence for each turn."""
    ends = np.flatnonzero(sequence.mask[:-1] & ~sequence.mask[1:]) + 1
    arrays = {name: np.split(getattr(sequence, name), ends) for name in _ARRAYS}
    return [
        attrs.evolve(sequence, **{name: parts[index] for name, parts in arrays.items()})
        for index in range(len(ends) + 1)
    ]


def _values_of(sequence: TokenSequence, observation_value: float) -> FloatArray:
    """A value for each sampled token that follows from its episode, turn and place in the turn."""
    values = np.full(len(sequence), observation_value)
    turns = sequence.turns[sequence.mask]
    place = np.arange(len(turns)) - np.searchsorted(turns, turns)
    values[sequence.mask] = np.sin(7 * turns + place + sequence.episode)
    return values


def _final_values(sequences: Sequence[TokenSequence]) -> FloatArray:
    return np.array([0.5 + s.mask.sum() / 10 if s.truncated else 0.0 for s in sequences])


def _assert_close(value: FloatArray, expected: FloatArray, problem: str) -> None:
    assert np.allclose(value, expected, rtol=1e-7, atol=1e-9), f"{problem}: {value}, {expected}"
