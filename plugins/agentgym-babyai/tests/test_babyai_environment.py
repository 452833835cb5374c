"""Options, splits and tasks, and that nothing but the task decides what a game is like."""

import asyncio
import importlib
import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest

from agentgym_babyai import plugin
from agentgym_babyai.environment import BabyAI
from agentgym_babyai.levels import LEVELS
from agentgym_babyai.tasks import make_task
from agentgym_core.actions import ActionLine, WholeReply
from agentgym_core.types import Task


def run(coroutine):
    return asyncio.run(coroutine)


async def opening(environment, task, seed=0):
    session = await environment.open()
    return await session.reset(task, seed)


def test_the_plugin_registers_the_class():
    found = {}
    plugin.register_environments(found.__setitem__)
    module, _, name = found.pop("babyai").partition(":")
    assert getattr(importlib.import_module(module), name) is BabyAI
    assert not found


def test_the_default_splits():
    environment = BabyAI()
    split = {name: environment.tasks(name) for name in environment.splits}
    assert Counter(task.category for task in split["test"]) == {  # the paper's sizes
        "GoTo": 55,
        "Pickup": 15,
        "ActionObjDoor": 5,
        "FindObjS7": 5,
        "OneRoomS20": 5,
        "SynthLoc": 5,
    }
    assert [task.id for task in split["all"]] == [f"babyai_{index}" for index in range(4000)]
    train, test = ({task.id for task in split[name]} for name in ("train", "test"))
    assert train.isdisjoint(test)
    # those that cannot be won: seeds 6, 14, 35 and 63 of level 7, and seed 63 of level 24
    lost = {f"babyai_{40 * seed + 6}" for seed in (6, 14, 35, 63)} | {f"babyai_{40 * 63 + 23}"}
    assert train | test == {task.id for task in split["all"]} - lost


def test_the_test_tasks_stay_the_same():
    """A figure on them is only comparable as long as they do."""
    ids = [int(task.id.removeprefix("babyai_")) for task in BabyAI().tasks("test")]
    assert ids[:6] == [88, 136, 161, 248, 287, 320]
    assert sum(ids) == 169375
    assert BabyAI(num_seeds=3).tasks("test") == BabyAI().tasks("test")


def test_chosen_levels():
    environment = BabyAI(levels=[12, "GoToObjS6", "BabyAI-Open"], num_seeds=5, num_test_seeds=2)
    assert [task.id for task in environment.tasks("all")] == [
        f"babyai_{40 * seed + level - 1}" for seed in range(5) for level in (4, 12)
    ]
    test = environment.tasks("test")
    assert Counter(task.data["level"] for task in test) == {"GoToObjS6": 2, "Open": 2}
    train = environment.tasks("train")
    assert {task.id for task in train} == {t.id for t in environment.tasks("all")} - {
        task.id for task in test
    }
    more = BabyAI(levels=[4], num_test_seeds=3).tasks("test")
    assert {t.id for t in test if t.category == "GoTo"} < {t.id for t in more}


def test_ids_are_agentgyms():
    # level 123 % 40 + 1 = 4, seed 123 // 40 = 3
    assert BabyAI().task("babyai_123") == Task(
        id="babyai_123", category="GoTo", data={"level": "GoToObjS6", "seed": 3}
    )
    by_id = run(opening(BabyAI(), Task(id="babyai_123")))
    assert by_id.info["level"] == "GoToObjS6"
    assert by_id == run(opening(BabyAI(), Task(id="mine", data={"level": 4, "seed": 3})))
    assert by_id != run(opening(BabyAI(), Task(id="babyai_163")))


@pytest.mark.parametrize(
    "task",
    [
        Task(id="babyai_"),
        Task(id="babyai_-1"),
        Task(id="textcraft_1"),
        Task(id="mine", data={"level": "Open"}),
        Task(id="mine", data={"seed": 1}),
        Task(id="babyai_1", data={"seed": -1}),
        Task(id="babyai_1", data={"seed": True}),
    ],
)
def test_tasks_of_no_level(task):
    with pytest.raises(ValueError, match=r"names no level and seed: write an id such as"):
        run(opening(BabyAI(), task))


def test_the_seed_of_an_episode_changes_nothing():
    task = BabyAI().task("babyai_40")
    assert run(opening(BabyAI(), task, seed=0)) == run(opening(BabyAI(), task, seed=99))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ()}, "`levels` is ().*a list of names or numbers"),
        ({"levels": "Open"}, "`levels` is 'Open'.*a list of names or numbers"),
        ({"levels": ("Opne",)}, "`levels`: there is no level 'Opne'.*Did you mean Open"),
        ({"levels": (41,)}, "`levels`: there is no level 41"),
        ({"num_seeds": 0}, "`num_seeds` is 0: give a whole number of at least 1"),
        ({"num_test_seeds": 1.5}, "`num_test_seeds` is 1.5: give a whole number"),
        ({"num_test_seeds": 101}, "`num_test_seeds` is 101: give at most 100"),
        ({"reward": "none"}, "`reward` is 'none': give minigrid or success"),
        ({"show_actions": "yes"}, "`show_actions` is 'yes': give true or false"),
        ({"prompt": "medium"}, "`prompt` is 'medium': give long or short"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        BabyAI(**options)


def test_splits_without_tasks():
    with pytest.raises(ValueError, match="no split 'dev': it has train, test, all"):
        BabyAI().tasks("dev")
    with pytest.raises(ValueError, match=r"no task for the split 'test'.*num_test_seeds"):
        BabyAI(levels=["Open"]).tasks("test")


def test_what_is_said_and_how_replies_look():
    long, short = BabyAI(), BabyAI(prompt="short")
    assert long.action_format == ActionLine()
    assert short.action_format == WholeReply(instruction="")
    assert short.instructions() == ""
    for verb in ("go to", "pick up", "drop", "toggle", "go through", "toggle and go through",
                 "turn left", "turn right", "move forward", "check available actions"):  # fmt: skip
        assert verb in long.instructions()


def test_where_it_runs():
    assert (BabyAI().runs_in, BabyAI().sessions_per_process) == ("process", 16)


LIGHT = """
import sys
from agentgym_babyai import plugin
from agentgym_babyai.environment import BabyAI
environment = BabyAI()
environment.tasks("test"), environment.instructions(), list(environment.corpus())
print(sorted({"minigrid", "gymnasium", "pygame", "numpy"} & set(sys.modules) - {"numpy"}))
"""


def test_the_simulator_is_imported_only_to_play():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


async def walk(session, task, number):
    """A careless game, drawn from its number alone."""
    chance = random.Random(number)
    observation = await session.reset(task, 0)
    yield observation
    for _ in range(15):
        if observation.terminated or observation.truncated:
            return
        action = chance.choice(list(await session.available_actions()))
        if chance.random() < 0.5:
            action = await session.expert_action()
        observation = await session.step(action)
        yield observation


TASKS = [make_task(level, seed) for seed, level in enumerate(LEVELS[1::5])]


def test_eight_games_at_once_are_eight_games():
    async def alone():
        return [[o async for o in walk(await BabyAI().open(), t, n)] for n, t in enumerate(TASKS)]

    async def beside():
        walks = [walk(await BabyAI().open(), task, number) for number, task in enumerate(TASKS)]
        seen = [[] for _ in walks]
        for _ in range(16):
            for number, steps in enumerate(walks):
                async for observation in steps:
                    seen[number].append(observation)
                    break
        return seen

    assert run(alone()) == run(beside())


HASHED = """
import asyncio, hashlib
from agentgym_babyai.environment import BabyAI
from agentgym_babyai.levels import LEVELS
from agentgym_babyai.tasks import make_task

async def main():
    said = hashlib.sha256()
    session = await BabyAI().open()
    for level in LEVELS:
        for seed in range(4):
            said.update(repr(await session.reset(make_task(level, seed), 0)).encode())
    for level in LEVELS[::3]:
        observation = await session.reset(make_task(level, 5), 0)
        for _ in range(10):
            said.update(repr(observation).encode())
            if observation.terminated or observation.truncated:
                break
            said.update(repr(await session.available_actions()).encode())
            observation = await session.step(await session.expert_action())
    print(said.hexdigest())

asyncio.run(main())
"""


def test_the_same_in_every_process_and_silent():
    """And nothing but the digest is printed: neither greetings nor rejected layouts."""
    digests = set()
    bare = {key: text for key, text in os.environ.items() if not key.startswith("PYGAME")}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", HASHED],
            env={**bare, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        digests.add(done.stdout)
    assert len(digests) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", digests.pop())


@pytest.mark.parametrize("options", [{}, {"prompt": "short"}, {"show_actions": True}])
def test_the_corpus_has_every_word(options):
    environment = BabyAI(**options)

    def words(text):
        return set(re.findall(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]", text))

    known = words("\n".join(environment.corpus()))

    async def said():
        for task in (make_task(level, seed) for level in LEVELS for seed in range(5)):
            yield (await opening(environment, task)).text
        for number, task in enumerate(TASKS):
            session = await environment.open()
            async for observation in walk(session, task, number):
                yield observation.text
                for action in await session.available_actions():
                    yield action

    async def unknown():
        return {word async for text in said() for word in words(text) - known}

    assert run(unknown()) == set()
