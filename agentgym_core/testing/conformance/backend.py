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
from agentgym_core.types import Batch, Minibatch, Row, TokenSequence, TokenTensors


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

    def _start(self, backend: Backend | None = None) -> Trainer:
        context = StartContext(
            model=tiny_model(), seed=0, num_steps=4, needs=frozenset({"logprobs"})
        )
        return (backend or self.backend).start(context)

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
    draw = np.random.default_rng(seed)
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
            )
        )
    return rows


def _sequence(row: Row) -> TokenSequence:
    return TokenSequence(
        token_ids=row.token_ids,
        mask=row.mask,
        logprobs=row.sampled_logprobs,
        rewards=np.zeros(len(row)),
        turns=np.where(row.mask, 0, -1),
        versions=np.where(row.mask, 0, -1),
        episode=0,
        group=0,
    )


def _batch(rows: list[Row], step: int = 0) -> Batch:
    return Batch(step=step, minibatches=(Minibatch(rows=tuple(rows)),))


def _loss(tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
    ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
    return -ratio_NT * tokens.advantages_NT, {}


def _weights(trainer: Trainer) -> dict[str, Any]:
    return {name: tensor.detach().cpu().clone() for name, tensor in trainer.weights()}


def _distance(left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
    return max(float((left[name] - right[name]).abs().max()) for name in left)
