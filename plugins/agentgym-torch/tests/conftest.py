import asyncio
import copy
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentgym_core import hf
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.protocols import StartContext
from agentgym_core.types import Batch, Minibatch, Request, Row, TokenSequence
from agentgym_torch.backend import TorchBackend
from agentgym_torch.engine import LocalEngine

VOCABULARY = 60


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> ModelConfig:
    """A tiny model whose distributions are far from flat, so that a wrong token shows."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    words = [f"w{'abcdefgh'[i // 8]}{'abcdefgh'[i % 8]}" for i in range(40)]
    sizes = ScratchModel(
        hidden_size=32, num_layers=2, intermediate_size=48, max_position_embeddings=600
    )
    hf.build_scratch(sizes, [" ".join(words)], folder, seed=1)
    config = ModelConfig(path=str(folder))
    assert hf.load_causal_lm(config).config.vocab_size > VOCABULARY
    return config


@pytest.fixture
def context(model):
    def build(**changes) -> StartContext:
        return StartContext(**{"model": model, "seed": 0, "num_steps": 10} | changes)

    return build


@pytest.fixture
def start_engine(context):
    """Start the engine `local`: `await start_engine(max_batch_size=2)`."""

    async def start(model_config: ModelConfig | None = None, **options):
        changes = {} if model_config is None else {"model": model_config}
        return await LocalEngine(device="cpu", **options).start(context(**changes))

    return start


@pytest.fixture
def start_trainer(context):
    """Start the backend `torch`: `start_trainer(learning_rate=0.1, context={...})`."""

    def start(changes=None, **options):
        return TorchBackend(device="cpu", **options).start(context(**(changes or {})))

    return start


def random_ids(seed: int, low: int, high: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(VOCABULARY) for _ in range(numbers.randint(low, high))]


@pytest.fixture
def play():
    """Play episodes of several turns at once; returns their sequences, as training sees them."""

    async def episode(sampler, number: int, turns: int, temperature: float):
        ids, mask, logprobs = [], [], []
        for turn in range(turns):
            prompt = random_ids(1000 * number + turn, 3, 20)
            ids += prompt
            mask += [False] * len(prompt)
            logprobs += [0.0] * len(prompt)
            completion = await sampler.complete(
                Request(
                    token_ids=tuple(ids),
                    max_tokens=random.Random(number + turn).randint(2, 7),
                    stop_ids=frozenset({5}),
                    temperature=temperature,
                    seed=77 * number + turn,
                    key=str(number),
                )
            )
            ids += completion.token_ids
            mask += [True] * len(completion.token_ids)
            logprobs += completion.logprobs
        sampler.release(str(number))
        return make_sequence(ids, mask, logprobs, number)

    async def play(sampler, numbers, turns=3, temperature=1.0):
        return await asyncio.gather(
            *(episode(sampler, number, turns, temperature) for number in numbers)
        )

    return play


def make_sequence(ids, mask, logprobs=None, number=0) -> TokenSequence:
    zeros = np.zeros(len(ids))
    return TokenSequence(
        token_ids=np.array(ids, np.int64),
        mask=np.array(mask, np.bool_),
        logprobs=zeros if logprobs is None else np.array(logprobs),
        rewards=zeros,
        turns=np.where(mask, 0, -1),
        versions=np.where(mask, 0, -1),
        episode=number,
        group=number,
    )


@pytest.fixture
def sequence():
    return make_sequence


@pytest.fixture
def plain_logprobs():
    """Log-probability of each token by one forward pass of the whole sequence, alone, uncached."""

    def compute(policy, token_ids, temperature: float = 1.0) -> np.ndarray:
        ids = torch.as_tensor(np.asarray(token_ids))
        with torch.no_grad():
            logits = policy(input_ids=ids[None], use_cache=False).logits[0, :-1]
        table = torch.log_softmax(logits.double() / temperature, dim=-1)
        return np.concatenate([[0.0], table.gather(1, ids[1:, None])[:, 0].numpy()])

    return compute


def make_rows(number: int, seed: int = 0) -> list[Row]:
    """Rows of several turns and very different lengths."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        mask = np.concatenate(
            [
                np.repeat([False, True], [random.integers(1, 12), random.integers(1, 6)])
                for _ in range(random.integers(1, 5))
            ]
            + [np.zeros(random.integers(0, 4), np.bool_)]
        )
        rows.append(
            Row(
                token_ids=random.integers(0, 60, len(mask)),
                mask=mask,
                weights=mask * random.random(len(mask)) / 50,
                advantages=mask * random.normal(size=len(mask)),
                old_logprobs=mask * -4.0,
                sampled_logprobs=mask * -4.0,
            )
        )
    return rows


def policy_gradient(tokens):
    """A loss that is not linear in the logprobs."""
    loss_NT = -(tokens.logprobs_NT - tokens.old_logprobs_NT).exp() * tokens.advantages_NT
    return loss_NT, {"logprob": tokens.logprobs_NT}


def make_batch(*minibatches, step=0) -> Batch:
    return Batch(step=step, minibatches=tuple(Minibatch(rows=tuple(rows)) for rows in minibatches))


def gradients(trainer, rows, loss=policy_gradient, learner=0) -> list[torch.Tensor]:
    """What an update feeds its optimizer: the policy's, or with `learner=1` the critic's."""
    caught = []
    learner = trainer._learners[learner]

    def catch(*_):
        caught.extend(p.grad.clone() for p in learner.parameters)

    hook = learner.optimizer.register_step_pre_hook(catch)
    trainer.update(make_batch(rows), loss)
    hook.remove()
    return caught


def difference(left, right) -> float:
    scale = max(float(tensor.abs().max()) for tensor in right)
    pairs = zip(left, right, strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs) / scale


def copy_state(trainer):
    """Weights and optimizer of the policy and, if there is one, of the critic."""
    weights = [dict(trainer.weights()), trainer._critic.state() if trainer._critic else {}]
    learners = trainer._learners
    states = [learner.optimizer.state_dict()["state"] for learner in learners]
    return copy.deepcopy(list(zip(weights, states, strict=False)))


def assert_same_state(left, right):
    for (weights, moments), (other_weights, other_moments) in zip(left, right, strict=True):
        for name, tensor in weights.items():
            assert torch.equal(tensor, other_weights[name]), name
        assert moments.keys() == other_moments.keys()
        for index, values in moments.items():
            for name, tensor in values.items():
                assert torch.equal(tensor, other_moments[index][name]), (index, name)


@pytest.fixture
def training():
    """What the tests of the trainer share."""
    return SimpleNamespace(
        rows=make_rows,
        batch=make_batch,
        loss=policy_gradient,
        gradients=gradients,
        difference=difference,
        state=copy_state,
        assert_same_state=assert_same_state,
    )
