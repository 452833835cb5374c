"""The suite of backends."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import attrs
import numpy as np

from agentgym_core import hf
from agentgym_core.model import ModelConfig
from agentgym_core.protocols import Backend, StartContext, Trainer
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.testing.conformance.models import plain_logprobs, tiny_model
from agentgym_core.types import (
    Batch,
    FloatArray,
    Minibatch,
    Row,
    Scores,
    TokenSequence,
    TokenTensors,
)

_LOGPROBS = frozenset({"logprobs"})
_VALUES = frozenset({"values", "final_values"})
_REFERENCE = frozenset({"logprobs", "reference_logprobs"})


class BackendConformance(ComponentConformance):
    """What training relies on in every backend, tried on a tiny model with random weights.

    Example:
        class TestMine(BackendConformance):
            backend = Mine(learning_rate=0.01)
            smaller_micro_batches = Mine(learning_rate=0.01, tokens_per_micro_batch=16)
    """

    kind: ClassVar[str] = "backend"
    backend: Backend
    smaller_micro_batches: ClassVar[Backend | None] = None
    """The same backend, told to compute less at once: must learn the same."""
    tolerance: ClassVar[float] = 1e-4
    """Between its log-probabilities, or weights, and what they must equal."""

    def test_scores_are_those_of_a_plain_forward_pass(self) -> None:
        """Padding, packing and temperature must leave no trace."""
        policy: Any = hf.load_causal_lm(tiny_model())
        trainer = self._start()
        rows = _rows()
        scores = trainer.score([_sequence(row) for row in rows], frozenset({"logprobs"})).logprobs
        assert scores is not None, "asked for logprobs, gave none"
        for row, line in zip(rows, scores, strict=True):
            plain = plain_logprobs(policy, row.token_ids.tolist())
            gap = np.abs((plain - line)[row.mask]).max()
            assert gap <= self.tolerance, f"scores are {gap:.3g} nats from a plain forward pass"
        trainer.close()

    def test_an_update_moves_the_weights(self) -> None:
        """And `weights` gives the new ones."""
        trainer = self._start()
        before = _weights(trainer)
        trainer.update(_batch(_rows()), _loss)
        moved = _distance(before, _weights(trainer))
        assert moved > 0, "update leaves the weights, or weights() gives old ones"
        trainer.close()

    def test_masked_tokens_do_not_matter(self) -> None:
        """Nor do their advantages or old log-probabilities."""
        rows = _rows()
        loud = [
            attrs.evolve(
                row,
                advantages=np.where(row.mask, row.advantages, 50.0),
                old_logprobs=np.where(row.mask, row.old_logprobs, -9.0),
            )
            for row in rows
        ]
        moved = _distance(self._learned(rows), self._learned(loud))
        assert moved <= self.tolerance, "masked tokens reach the loss: apply the mask"

    def test_micro_batches_do_not_matter(self) -> None:
        """The loss is a plain sum over the minibatch, however it is cut."""
        if self.smaller_micro_batches is None:
            raise SkipTest("smaller_micro_batches is not given")
        plain, cut = self._learned(_rows()), self._learned(_rows(), self.smaller_micro_batches)
        moved = _distance(plain, cut)
        assert moved <= self.tolerance, (
            f"weights differ by {moved:.3g} with smaller micro-batches: sum weight x loss, and "
            "divide by nothing"
        )

    def test_a_loss_that_is_not_finite_leaves_the_weights(self) -> None:
        """A run can go on from there."""
        trainer = self._start()
        before = _weights(trainer)

        def broken(tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
            return tokens.logprobs_NT * float("nan"), {}

        try:
            trainer.update(_batch(_rows()), broken)
        except FloatingPointError:
            pass
        else:
            raise AssertionError("a loss of NaN must raise FloatingPointError")
        assert _distance(before, _weights(trainer)) == 0, "a loss of NaN changed the weights"
        trainer.close()

    def test_goes_on_from_what_it_saved(self) -> None:
        """Bit for bit, the optimizer included."""
        with tempfile.TemporaryDirectory() as folder:
            trainer = self._start()
            trainer.update(_batch(_rows()), _loss)
            trainer.save(Path(folder) / "saved")
            trainer.update(_batch(_rows(1), step=1), _loss)
            resumed = self._start()
            resumed.load(Path(folder) / "saved")
            resumed.update(_batch(_rows(1), step=1), _loss)
            moved = _distance(_weights(trainer), _weights(resumed))
        assert moved == 0, f"a resumed trainer differs by {moved:.3g}: save the optimizer as well"

    def test_exports_what_transformers_loads(self) -> None:
        """The policy as it stands, with its tokenizer."""
        with tempfile.TemporaryDirectory() as folder:
            trainer = self._start()
            trainer.update(_batch(_rows()), _loss)
            path = Path(folder) / "policy"
            trainer.export(path)
            tokenizer, policy = _loaded(path)
            given: Any = hf.load_tokenizer(tiny_model())
            assert tokenizer.get_vocab() == given.get_vocab(), (
                "the tokenizer was not exported, or with other words: save it with the policy"
            )
            own = dict(policy.named_parameters())
            for name, tensor in trainer.weights():
                gap = float((own[name].detach().cpu() - tensor.cpu()).abs().max())
                assert gap == 0, f"{name} was exported with a difference of {gap:.3g}"

    def test_values_are_of_the_state_before_the_token(self) -> None:
        """A critic that saw the token could not be a baseline for it."""
        trainer = self._start_with(_VALUES)
        trainer.update(_batch(_rows()), _both_losses)  # a head may begin at 0
        for row in _rows():
            told = _sequence(row, truncated=True)
            changed = row.token_ids.copy()
            changed[-1] = (changed[-1] + 1) % 40
            other = attrs.evolve(told, token_ids=changed)
            longer = _sequence(_longer(row))
            scores = trainer.score([told, other, longer], _VALUES)
            assert scores.values is not None, "asked for values, gave none"
            assert scores.final_values is not None, "asked for final_values, gave none"
            own, others, onward = (value[row.mask.nonzero()[0][-1]] for value in scores.values)
            assert abs(own - others) <= self.tolerance, (
                f"another last token changes the value of the state before it by {own - others:.3g}"
            )
            assert abs(own - onward) <= self.tolerance, "later tokens change the value of a state"
            gap = abs(scores.values[2][-1] - scores.final_values[0])
            assert gap <= self.tolerance, (
                f"the final value of a truncated sequence is {gap:.3g} from the value of that "
                "state where the sequence goes on"
            )
            assert scores.final_values[2] == 0, "a final value where nothing was truncated"
        trainer.close()

    def test_values_are_those_before_the_update(self) -> None:
        """A clipped value loss compares the two, as a ratio does logprobs."""
        trainer = self._start_with(_VALUES)
        sequences = [_sequence(row) for row in _rows()]
        trainer.update(_batch(_rows()), _both_losses)
        before = trainer.score(sequences, _VALUES).values
        assert before is not None, "asked for values, gave none"
        gaps: list[float] = []

        def loss(tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
            gap_NT = (tokens.values_NT - tokens.old_values_NT).detach().abs()
            gaps.append(float((gap_NT * tokens.mask_NT).max()))
            return _both_losses(tokens)

        rows = [attrs.evolve(r, old_values=v) for r, v in zip(_rows(), before, strict=True)]
        trainer.update(_batch(rows), loss)
        assert max(gaps) <= self.tolerance, (
            f"values that were scored before the update are {max(gaps):.3g} from those that it "
            "begins with"
        )
        moved = _gap(before, trainer.score(sequences, _VALUES).values)
        assert moved > 0, "the critic does not learn, or old values are scored"
        trainer.close()

    def test_a_step_for_the_critic_only_leaves_the_policy(self) -> None:
        """Also where an optimizer has momentum from before."""
        trainer = self._start_with(_VALUES)
        sequences = [_sequence(row) for row in _rows()]
        trainer.update(_batch(_rows()), _both_losses)
        weights, values = _weights(trainer), trainer.score(sequences, _VALUES).values
        trainer.update(attrs.evolve(_batch(_rows(1)), critic_only=True), _both_losses)
        moved = _distance(weights, _weights(trainer))
        assert moved == 0, f"critic_only: the policy's weights moved by {moved:.3g}, leave them"
        learned = _gap(values, trainer.score(sequences, _VALUES).values)
        assert learned > 0, "critic_only: the critic did not learn"
        trainer.close()

    def test_a_refreshed_reference_is_the_policy(self) -> None:
        """As it stood then, before and after; a resumed run has the same one."""
        trainer = self._start_with(_REFERENCE)
        sequences = [_sequence(row) for row in _rows()]

        def scored(one: Trainer) -> Scores:
            return one.score(sequences, _REFERENCE)

        start = scored(trainer)
        gap = _gap(start.logprobs, start.reference_logprobs)
        assert gap <= self.tolerance, f"the reference begins {gap:.3g} nats from the policy"
        trainer.update(_batch(_rows()), _loss)
        kept = _gap(start.reference_logprobs, scored(trainer).reference_logprobs)
        assert kept <= self.tolerance, "an update moves the reference: keep it apart"
        try:
            trainer.refresh_reference()
        except ValueError as error:
            raise SkipTest(str(error)) from error
        policy = scored(trainer).logprobs
        gap = _gap(policy, scored(trainer).reference_logprobs)
        assert gap <= self.tolerance, f"a refreshed reference is {gap:.3g} nats from the policy"
        trainer.update(_batch(_rows(1), step=1), _loss)
        kept = _gap(policy, scored(trainer).reference_logprobs)
        assert kept <= self.tolerance, "a refreshed reference follows the policy: copy its weights"
        with tempfile.TemporaryDirectory() as folder:
            trainer.save(Path(folder) / "saved")
            resumed = self._start_with(_REFERENCE)
            resumed.load(Path(folder) / "saved")
        kept = _gap(policy, scored(resumed).reference_logprobs)
        assert kept <= self.tolerance, "a resumed trainer has another reference: save it as well"

    def _start(self, backend: Backend | None = None, needs: frozenset[str] = _LOGPROBS) -> Trainer:
        context = StartContext(model=tiny_model(), seed=0, num_steps=4, needs=needs)
        return (backend or self.backend).start(context)

    def _start_with(self, needs: frozenset[str]) -> Trainer:
        try:
            return self._start(needs=needs)
        except ValueError as error:
            raise SkipTest(f"this backend offers no {', '.join(sorted(needs))}: {error}") from error

    def _learned(self, rows: list[Row], backend: Backend | None = None) -> dict[str, Any]:
        trainer = self._start(backend)
        trainer.update(_batch(rows), _loss)
        weights = _weights(trainer)
        trainer.close()
        return weights


def _loaded(path: Path) -> tuple[Any, Any]:
    """Tokenizer and model of an exported policy."""
    exported = ModelConfig(path=str(path))
    try:
        return hf.load_tokenizer(exported), hf.load_causal_lm(exported)
    except Exception as error:
        raise AssertionError(f"transformers cannot load what was exported: {error}") from error


def _rows(seed: int = 0) -> list[Row]:
    draw, draw_returns = np.random.default_rng(seed), np.random.default_rng(seed + 100)
    rows: list[Row] = []
    for length in (5, 19, 11, 30):
        mask = draw.random(length) < 0.5
        mask[0], mask[-1] = False, True
        rows.append(
            Row(
                token_ids=draw.integers(0, 40, length),
                mask=mask,
                weights=mask / 60,
                advantages=mask * draw.normal(size=length),
                old_logprobs=np.where(mask, -4.0, 0.0),
                sampled_logprobs=np.where(mask, -4.0, 0.0),
                returns=mask * draw_returns.normal(size=length),
                old_values=np.zeros(length),
            )
        )
    return rows


def _longer(row: Row) -> Row:
    """With one trained token more."""
    return attrs.evolve(
        row,
        token_ids=np.append(row.token_ids, 7),
        mask=np.append(row.mask, True),
        sampled_logprobs=np.append(row.sampled_logprobs, -4.0),
    )


def _sequence(row: Row, *, truncated: bool = False) -> TokenSequence:
    return TokenSequence(
        token_ids=row.token_ids,
        mask=row.mask,
        logprobs=row.sampled_logprobs,
        rewards=np.zeros(len(row)),
        turns=np.where(row.mask, 0, -1),
        versions=np.where(row.mask, 0, -1),
        episode=0,
        group=0,
        truncated=truncated,
    )


def _batch(rows: list[Row], step: int = 0) -> Batch:
    return Batch(step=step, minibatches=(Minibatch(rows=tuple(rows)),))


def _loss(tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
    ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
    return -ratio_NT * tokens.advantages_NT, {}


def _both_losses(tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
    """Of policy and critic."""
    error_NT = tokens.values_NT - tokens.returns_NT
    return _loss(tokens)[0] + error_NT * error_NT, {}


def _gap(left: tuple[FloatArray, ...] | None, right: tuple[FloatArray, ...] | None) -> float:
    """The largest difference between two scores."""
    assert left is not None, "a score that was asked for is missing"
    assert right is not None, "a score that was asked for is missing"
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))


def _weights(trainer: Trainer) -> dict[str, Any]:
    return {name: tensor.detach().cpu().clone() for name, tensor in trainer.weights()}


def _distance(left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
    return max(float((left[name] - right[name]).abs().max()) for name in left)
