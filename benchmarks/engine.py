"""How fast the engine `local` samples, against `generate` of transformers, and how fast we train.

    OMP_NUM_THREADS=2 python benchmarks/engine.py

Both sample from the same random model of about a million parameters, in turns, so that whatever
else the machine does hits both. Speeds are medians in sampled tokens per second, prompts included
in the time. Over several turns `generate` reads the whole conversation again at every turn, which
is what a rollout built on it does.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from agentgym_core import hf
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.protocols import Sampler, StartContext
from agentgym_core.types import Batch, Minibatch, Request, Row
from agentgym_torch.backend import TorchBackend
from agentgym_torch.engine import LocalEngine

NUM_WORDS = 360


@attrs.frozen(kw_only=True)
class Shape:
    """What is sampled: lengths in tokens."""

    episodes: int
    prompt: int
    reply: int
    turns: int = 1
    observation: int = 0

    def __str__(self) -> str:
        text = f"{self.episodes} x ({self.prompt} + {self.reply})"
        if self.turns > 1:
            text += f", {self.turns} turns, observations of {self.observation}"
        return text

    @property
    def sampled(self) -> int:
        """Tokens that the policy says."""
        return self.episodes * self.turns * self.reply


SHAPES = (
    Shape(episodes=128, prompt=70, reply=8),
    Shape(episodes=64, prompt=64, reply=32),
    Shape(episodes=128, prompt=70, reply=8, turns=8, observation=20),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the engine and the trainer.")
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        model = ModelConfig(path=str(Path(folder) / "model"))
        words = (f"w{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqr")
        hf.build_scratch(ScratchModel(), [" ".join(words)], Path(folder) / "model", seed=0)
        print(f"{torch.get_num_threads()} threads\n")
        print(f"{'sampling, tokens/s':52}{'engine':>8}{'generate':>10}{'ratio':>7}")
        for shape in SHAPES:
            compare(model, shape, repeat)
        print(f"\n{'training, tokens/s':52}{train_speed(model, repeat):8.0f}")


def compare(model: ModelConfig, shape: Shape, repeat: int) -> None:
    policy = hf.load_causal_lm(model)
    with asyncio.Runner() as runner:
        context = StartContext(model=model, seed=0)
        sampler = runner.run(LocalEngine(device="cpu").start(context))

        def engine(seed: int) -> None:
            runner.run(play(sampler, shape, seed))
            runner.run(sampler.load(list(policy.named_parameters()), version=seed))

        ours, theirs = alternate(engine, lambda seed: generate(policy, shape, seed), repeat)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    speeds = [shape.sampled / statistics.median(seconds) for seconds in (ours, theirs)]
    print(f"{shape!s:52}{speeds[0]:8.0f}{speeds[1]:10.0f}{ratio:7.1f}")


def alternate(
    first: Callable[[int], None], second: Callable[[int], None], repeat: int
) -> tuple[list[float], list[float]]:
    """Seconds of each, taken by turns after one run of each that does not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for seed in range(repeat + 1):
        for work, measured in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            work(seed)
            if seed:
                measured.append(time.perf_counter() - start)
    return seconds


async def play(sampler: Sampler, shape: Shape, seed: int) -> None:
    async def episode(number: int) -> None:
        words = random.Random(1000 * seed + number)
        ids: list[int] = []
        for turn in range(shape.turns):
            ids += random_ids(words, shape.observation if turn else shape.prompt)
            request = Request(
                token_ids=tuple(ids),
                max_tokens=shape.reply,
                stop_ids=frozenset(),
                seed=words.getrandbits(62),
                key=str(number),
            )
            ids += (await sampler.complete(request)).token_ids
        sampler.release(str(number))

    await asyncio.gather(*(episode(number) for number in range(shape.episodes)))


@torch.inference_mode()
def generate(policy: Any, shape: Shape, seed: int) -> None:
    words = random.Random(seed)
    ids = torch.empty(shape.episodes, 0, dtype=torch.long)
    for turn in range(shape.turns):
        length = shape.observation if turn else shape.prompt
        new = [random_ids(words, length) for _ in range(shape.episodes)]
        ids = torch.cat([ids, torch.tensor(new)], dim=1)
        ids = policy.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=shape.reply,
            max_new_tokens=shape.reply,
            pad_token_id=0,
        )


def train_speed(model: ModelConfig, repeat: int) -> float:
    """Tokens per second of one optimizer step over the episodes of the last shape."""
    shape = SHAPES[-1]
    trainer = TorchBackend(device="cpu").start(StartContext(model=model, seed=0))
    rows = tuple(training_row(shape, seed) for seed in range(shape.episodes))
    batch = Batch(step=0, minibatches=(Minibatch(rows=rows),))
    seconds: list[float] = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        trainer.update(batch, lambda tokens: (-tokens.logprobs_NT * tokens.advantages_NT, {}))
        seconds.append(time.perf_counter() - start)
    return sum(map(len, rows)) / statistics.median(seconds[1:])


def training_row(shape: Shape, seed: int) -> Row:
    words = random.Random(seed)
    ids: list[int] = []
    mask: list[bool] = []
    for turn in range(shape.turns):
        length = shape.observation if turn else shape.prompt
        ids += random_ids(words, length + shape.reply)
        mask += [False] * length + [True] * shape.reply
    zeros = np.zeros(len(ids))
    return Row(
        token_ids=np.array(ids),
        mask=np.array(mask),
        weights=np.array(mask) / shape.sampled,
        advantages=np.array(mask) * words.gauss(0, 1),
        old_logprobs=zeros,
        sampled_logprobs=zeros,
    )


def random_ids(words: random.Random, length: int) -> list[int]:
    return [words.randrange(10, NUM_WORDS) for _ in range(length)]


if __name__ == "__main__":
    main()
