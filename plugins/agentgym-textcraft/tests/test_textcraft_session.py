"""Games: what sessions say and do, word for word and in every process the same."""

import asyncio
import os
import random
import re
import subprocess
import sys

import attrs
import pytest

from agentgym_core.types import Task
from agentgym_textcraft.environment import TextCraft

SMALL = TextCraft(
    prompt="short",
    tags=False,
    plan_lengths=(3, 6),
    num_goals=40,
    held_out="instances",
    train_instances=8,
    test_instances=2,
    num_distractors=3,
    alternatives=False,
)


def run(coroutine):
    return asyncio.run(coroutine)


def words(text):
    """As a word-level tokenizer that splits digits sees them."""
    return re.findall(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]", text)


def test_available_actions_all_succeed():
    async def play(session, task):
        await session.reset(task, 0)
        chance = random.Random(task.id)
        for _ in range(12):
            actions = await session.available_actions()
            assert len(set(actions)) == len(actions)
            observation = await session.step(chance.choice(actions))
            assert re.match("You (got|crafted|have) ", observation.text)
            if observation.terminated:
                assert await session.available_actions() == ()
                assert await session.expert_action() is None
                return

    async def play_all():
        session = await TextCraft().open()
        for task in TextCraft().tasks("all")[::9]:
            await play(session, task)

    run(play_all())


def test_what_winning_looks_like():
    async def play():
        session = await TextCraft().open()
        goal = "andesite"
        first = await session.reset(Task(id="mine", data={"goal": goal}), 0)
        assert first.info == {"goal": goal, "plan_length": 4}
        seen = [first]
        for action in ("get 2 quartz", "get 3 cobblestone", "craft 2 diorite using 2 quartz, "):
            seen.append(await session.step(action))
        seen.append(await session.step("craft 2 diorite using 2 quartz, 2 cobblestone"))
        for observation in seen:
            assert (observation.reward, observation.terminated, observation.success) == (
                0,
                False,
                False,
            )
        last = await session.step("craft andesite using 1 cobblestone, 1 diorite")
        assert last.text == "You crafted 2 andesite."
        assert (last.reward, last.terminated, last.truncated, last.success) == (
            1,
            True,
            False,
            True,
        )

    run(play())


def test_steps_without_a_task_say_what_to_do():
    async def play():
        session = await TextCraft().open()
        assert await session.expert_action() is None
        assert await session.available_actions() == ()
        with pytest.raises(RuntimeError, match=r"call reset\(task, seed\) before step"):
            await session.step("inventory")
        task = Task(id="mine", data={"goal": "oak planks"})
        await session.reset(task, 0)
        await session.step("get 1 oak logs")
        await session.step("craft 4 oak planks using 1 oak logs")
        with pytest.raises(RuntimeError, match=r"the task is done .* call reset\(task, seed\)"):
            await session.step("inventory")
        await session.reset(task, 0)
        assert (await session.step("inventory")).text == "You have nothing."
        await session.close()
        await session.close()
        with pytest.raises(RuntimeError, match="no task is under way"):
            await session.step("inventory")

    run(play())


def test_sessions_do_not_see_each_other():
    async def play(number):
        environment = TextCraft()
        session = await environment.open()
        observation = await session.reset(environment.task(f"textcraft_{number}"), 0)
        texts = [observation.text]
        while not observation.terminated:
            texts.append((await session.step("inventory")).text)
            await asyncio.sleep(0)  # the others' turn
            observation = await session.step(await session.expert_action())
            texts.append(observation.text)
        return texts

    async def together():
        return await asyncio.gather(*(play(number) for number in [500, 500, *range(501, 507)]))

    alone = [run(play(number)) for number in [500, 500, *range(501, 507)]]
    assert run(together()) == alone
    assert alone[0] == alone[1]


def test_the_short_form_is_short():
    async def play():
        session = await SMALL.open()
        for task in SMALL.tasks("train"):
            observation = await session.reset(task, 0)
            lengths["opening"].append(len(words(observation.text)))
            while not observation.terminated:
                action = await session.expert_action()
                observation = await session.step(action)
                lengths["action"].append(len(words(action)))
                lengths["answer"].append(len(words(observation.text)))

    lengths = {"opening": [], "action": [], "answer": []}
    run(play())
    means = {name: sum(values) / len(values) for name, values in lengths.items()}
    assert means["opening"] < 70
    assert means["action"] < 8
    assert means["answer"] < 5
    assert max(lengths["opening"]) < 100


@pytest.mark.parametrize("environment", [SMALL, attrs.evolve(SMALL, prompt="long")])
def test_the_corpus_holds_every_word(environment):
    """Of what is shown, done, and answered to babble made of the same words."""
    known = {word for text in environment.corpus() for word in words(text)}
    vocabulary = sorted(word for word in known if word == word.lower())
    chance = random.Random(0)
    heard = set()

    def babble():
        verb = chance.choice(["get", "get 1", "craft", "craft 4", ""])
        return " ".join([verb, *chance.choices(vocabulary, k=chance.randrange(6))])

    async def play(task):
        session = await environment.open()
        observation = await session.reset(task, 0)
        heard.update(words(observation.text))
        for _ in range(20):
            expert = await session.expert_action()
            others = await session.available_actions()
            using = f"{expert} using {babble()}"
            action = chance.choice([expert, chance.choice(others), babble(), using])
            observation = await session.step(action)
            heard.update(words(observation.text), words(expert), *map(words, others))
            if observation.terminated:
                return

    async def play_all():
        for task in environment.tasks("all"):
            await play(task)

    run(play_all())
    assert heard <= known
    for thought in (False, True):
        assert known.issuperset(words(environment.action_format.instructions(thought)))
    assert known.issuperset("0123456789")
    # The world's 676 names make more than 300 words; those of forty goals far fewer.
    assert len({word for text in SMALL.corpus() for word in words(text)}) < 300


FINGERPRINT = """
import asyncio, hashlib
from agentgym_textcraft.environment import TextCraft

async def main():
    digest = hashlib.sha256()
    for options in (
        {},
        {"prompt": "short", "tags": False, "plan_lengths": [3, 6], "num_goals": 40},
        {"held_out": "instances", "train_instances": 3, "alternatives": False, "depths": [3, 4]},
    ):
        environment = TextCraft(**options)
        session = await environment.open()
        for split in ("train", "test", "all"):
            digest.update(repr(environment.tasks(split)).encode())
        digest.update("".join(environment.corpus()).encode())
        for task in environment.tasks("all")[::3]:
            observation = await session.reset(task, 0)
            digest.update(observation.text.encode())
            while not observation.terminated:
                digest.update(repr(await session.available_actions()).encode())
                observation = await session.step(await session.expert_action())
                digest.update(observation.text.encode())
    print(digest.hexdigest())

asyncio.run(main())
"""


def test_the_same_under_every_hash_seed():
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(found) == 1


def test_the_seed_of_an_episode_changes_nothing():
    async def opening(seed):
        session = await TextCraft().open()
        return await session.reset(TextCraft().task("textcraft_300"), seed)

    assert run(opening(0)) == run(opening(99))
