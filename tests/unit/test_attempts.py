"""An episode of several attempts: what is paid, what is dropped, what record and table say."""

import asyncio
import json

import attrs
import numpy as np
import pytest

from agentgym_core.agents.plan_act import PlanAct
from agentgym_core.agents.reflect import Reflect
from agentgym_core.conversations import read_conversations
from agentgym_core.demonstrations import demonstration_row, expert_episodes
from agentgym_core.evaluate import format_table, summarize
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.handler import ModelPolicy
from agentgym_core.records import group_rows, read_groups
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.statistics import episode_metrics
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Ending, Message, Sampling

ROOMY = Limits(max_prompt_tokens=1000, max_response_tokens=4000, max_tokens=60)
FAILS, WINS = ("Action: lift off",), ("Action: down", "Action: lift off")
FAILS_LATE = ("Action: down", "Action: lift off")  # of the number 2
REFLECTS = "I was too early."


@attrs.frozen(kw_only=True)
class Moody(Countdown):
    """Pays for each count, and may fail in the second attempt: at its reset, or at its step."""

    breaks: str = ""
    recovers: bool = False
    """Only the first session fails."""
    sessions: list = attrs.field(factory=list)
    ends_as: str = "terminated"

    async def open(self):
        self.sessions.append(MoodySession(self, len(self.sessions)))
        return self.sessions[-1]


class MoodySession(CountdownSession):
    def __init__(self, world, number):
        super().__init__("")
        self.world = world
        self.attempt = 0
        self.fails = not (world.recovers and number)

    def check(self, place):
        if (self.world.breaks, self.attempt, self.fails) == (place, 2, True):
            raise ConnectionError("the pad is gone")

    async def reset(self, task, seed):
        self.attempt += 1
        self.check("reset")
        return await super().reset(task, seed)

    async def step(self, action):
        self.check("step")
        seen = await super().step(action)
        paid = seen.reward + sum(seen.rewards.values())
        if self.world.breaks == "nan" and self.attempt == 2:
            paid = float("nan")
        if self.world.ends_as == "truncated" and seen.terminated and not seen.success:
            seen = attrs.evolve(seen, terminated=False, truncated=True)
        return attrs.evolve(seen, reward=paid)


def table(world, policy, agent, retries=0):
    return Table(environments={"moody": world}, agent=agent, policy=policy, max_retries=retries)


def orders(world, number, *, num=1, max_rounds=9):
    task = world.tasks("train")[number - 1]
    return [
        Attempts(environment="moody", task=task, num=num, max_rounds=max_rounds,
                 sampling=Sampling(), seed=4)
    ]  # fmt: skip


def play(
    replies, *, number=1, world=None, limits=ROOMY, retries=0, agent=None, num=1, max_rounds=9
):
    """A group whose policy says `replies`, or `replies(sample)`, from the first at each try."""
    world = world or Moody()
    renderer = Renderer(byte_tokenizer())
    said: dict[str, int] = {}
    tries: dict[str, int] = {}

    def script(request):
        key = request.key
        if len(world.sessions) != tries.get(key) and num == 1:  # a try begins: say it all again
            tries[key], said[key] = len(world.sessions), 0
        lines = replies(int(key.split("/")[1])) if callable(replies) else replies
        reply = lines[said.setdefault(key, 0)]
        said[key] += 1
        if isinstance(reply, Exception):
            raise reply
        return renderer.reply_ids(Message("assistant", reply))

    sampler = ScriptedSampler(script=script)
    policy = ModelPolicy(renderer=renderer, sampler=sampler, limits=limits)
    playing = table(world, policy, agent or Reflect(), retries)
    [group] = asyncio.run(
        play_groups(playing, orders(world, number, num=num, max_rounds=max_rounds), 4)
    )
    return group, sampler


@pytest.mark.parametrize(
    ("breaks", "ending"),
    [
        ("reset", Ending.ENVIRONMENT_FAILED),
        ("step", Ending.ENVIRONMENT_FAILED),
        ("nan", Ending.INVALID_REWARD),
    ],
)
def test_a_failure_in_the_second_attempt_drops_the_whole_episode(breaks, ending):
    """What the first attempt earned, and its verdict, go with it."""
    group, _ = play([*FAILS_LATE, REFLECTS, *WINS], number=2, world=Moody(breaks=breaks))
    assert group.episodes == ()
    [failed] = group.failures
    assert (failed.ending, failed.success, failed.retries) == (ending, False, ())
    assert to_sequences([group]) == ()
    metrics = episode_metrics([group])
    assert metrics["episodes"] == 0
    assert metrics[f"dropped/{ending.value}"] == 1
    assert "reward" not in metrics


def test_an_engine_that_fails_at_the_reflection_drops_the_whole_episode():
    group, _ = play([*FAILS, ConnectionError("no engine")])
    assert group.episodes == ()
    assert group.failures[0].ending is Ending.ENGINE_FAILED


@pytest.mark.parametrize("breaks", ["reset", "step"])
def test_it_is_retried_whole_from_its_first_attempt(breaks):
    """In a fresh session and with the same seeds; nothing of the failed try is in the record."""
    replies = [*FAILS, REFLECTS, *WINS]
    world = Moody(breaks=breaks, recovers=True)
    group, sampler = play(replies, world=world, retries=2)
    [episode] = group.episodes
    assert episode.failed_tries == (Ending.ENVIRONMENT_FAILED,)
    assert len(world.sessions) == 2
    assert all(session.closed for session in world.sessions)
    sound, alone = play(replies)
    told = {"seconds": 0.0, "failed_tries": ()}
    assert attrs.evolve(episode, **told) == attrs.evolve(sound.episodes[0], **told)
    assert sampler.requests[-len(alone.requests) :] == alone.requests
    first = len(sampler.requests) - len(alone.requests)
    assert sampler.requests[:first] == alone.requests[:first], "a retry drew other tokens"


def test_what_an_abandoned_attempt_earned_is_no_reward():
    """Every count pays 0.1 in part `progress`. Two attempts with one count, then one that wins."""
    lines = [*FAILS_LATE, REFLECTS, *FAILS_LATE, REFLECTS, "Action: down", *WINS]
    group, _ = play(lines, number=2)
    [episode] = group.episodes
    assert (episode.success, episode.retries) == (False, (False, True))
    assert [turn.attempt for turn in episode.turns] == [1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert [turn.reward for turn in episode.turns] == pytest.approx([0] * 6 + [0.1, 0.1, 1.0])
    assert [dict(turn.rewards) for turn in episode.turns] == [
        {"progress": 0.1, "abandoned": 0.1},
        {"abandoned": 0.0},
        {},
        {"progress": 0.1, "abandoned": 0.1},
        {"abandoned": 0.0},
        {},
        {"progress": 0.1},
        {"progress": 0.1},
        {},
    ]
    assert episode.reward == pytest.approx(1.2)


def test_a_last_attempt_that_fails_keeps_what_it_earned():
    group, _ = play([*FAILS, REFLECTS, *FAILS_LATE], number=2, agent=Reflect(attempts=2))
    [episode] = group.episodes
    assert [turn.reward for turn in episode.turns] == pytest.approx([0, 0, 0.1, 0])
    assert "abandoned" in episode.turns[0].rewards
    assert all("abandoned" not in turn.rewards for turn in episode.turns[1:])


def _leaves(room):
    """Limits under which that many tokens are left for the reflection."""
    _, sampler = play([*FAILS, REFLECTS, *WINS])
    first, reflection = (len(sampler.requests[index].token_ids) for index in (0, 1))
    return attrs.evolve(ROOMY, max_response_tokens=reflection - first + room)


@pytest.mark.parametrize(("ends_as", "ending"), [("terminated", Ending.DONE),
                                                 ("truncated", Ending.STEP_LIMIT)])  # fmt: skip
@pytest.mark.parametrize("room", [-1, 0, 5])
def test_a_reflection_that_does_not_fit_leaves_the_first_attempt(ends_as, ending, room):
    """The engine is not asked for it, or it is cut; the attempt counts as if none had followed."""
    limits = _leaves(room)
    group, sampler = play([*FAILS, REFLECTS], limits=limits, world=Moody(ends_as=ends_as))
    [episode] = group.episodes
    assert (episode.ending, episode.success, episode.retries) == (ending, False, ())
    assert len(sampler.requests) == len(episode.turns) == (2 if room > 0 else 1)
    assert all("abandoned" not in turn.rewards for turn in episode.turns)
    assert [turn.rounds for turn in episode.turns] == [1, 0][: len(episode.turns)]
    [sequence] = to_sequences([group])
    assert sequence.truncated == (ends_as == "truncated")
    end = np.flatnonzero(sequence.mask)[-1] + 1
    assert end <= len(sampler.requests[0].token_ids) + limits.max_response_tokens


def test_a_first_attempt_that_failed_pays_what_it_did_where_no_other_could_begin():
    """The reflection fits, and the prompt of the second attempt does not: its notes are long."""
    agent = Reflect(heading="x" * 3000)
    limits = attrs.evolve(ROOMY, max_response_tokens=1000)
    group, _ = play([*FAILS_LATE, REFLECTS], number=2, limits=limits, agent=agent)
    [episode] = group.episodes
    assert (episode.ending, episode.retries, episode.num_attempts) == (Ending.DONE, (), 1)
    assert [turn.reward for turn in episode.turns] == pytest.approx([0.1, 0, 0])
    assert episode.final_ids == ()


def test_the_record_of_attempts_is_read_back(tmp_path):
    group, _ = play([*FAILS, REFLECTS, *WINS])
    cut, _ = play(["Action: down"] * 2, number=4, max_rounds=2)
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in group_rows([group, cut])))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (rows[0]["success"], rows[0]["success_best"]) == (False, True)
    assert (rows[0]["attempts"], rows[0]["retries"]) == (2, [True])
    found = read_groups(rows)
    for read, played in zip(found, (group, cut), strict=True):
        assert read.episodes[0].turns == played.episodes[0].turns
        assert read.episodes[0].retries == played.episodes[0].retries
        assert read.episodes[0].final_ids == played.episodes[0].final_ids
    assert found[0].episodes[0].turns[1].attempt == 2
    assert len(found[1].episodes[0].final_ids) > 0
    for one, other in zip(to_sequences(found), to_sequences([group, cut]), strict=True):
        assert attrs.asdict(one).keys() == attrs.asdict(other).keys()
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.states.tolist() == other.states.tolist()
        assert one.truncated == other.truncated


def test_a_row_of_before_there_were_attempts_is_read():
    group, _ = play([*WINS], number=1)
    [row] = group_rows([group])
    del row["retries"]
    for turn in row["turns"]:
        del turn["attempt"]
    [episode] = read_groups([row])[0].episodes
    assert (episode.retries, {turn.attempt for turn in episode.turns}) == ((), {1})


def test_a_table_keeps_the_first_attempt_apart_from_the_best():
    """Four samples: one wins at once, two at the second attempt, one in none of two."""
    plans = {
        0: WINS,
        1: (*FAILS, REFLECTS, *WINS),
        2: (*FAILS, REFLECTS, *WINS),
        3: (*FAILS, REFLECTS, *FAILS),
    }
    group, _ = play(lambda sample: plans[sample], num=4, agent=Reflect(attempts=2))
    found = summarize([group], "t1.0")
    assert found.overall.success == 0.25
    assert found.pass_at == pytest.approx({1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0})
    assert found.success_best == 0.75
    assert found.attempts == 1.75
    lines = format_table({"t1.0": found}).splitlines()
    assert lines[0].split()[:2] == ["t1.0", "0.250"]
    assert lines[1].endswith(
        "best of its attempts           0.750, with 1.75 attempts an episode on the environment's "
        "verdict"
    )
    metrics = found.metrics()
    keys = ("success", "success_best", "attempts")
    assert [metrics[key] for key in keys] == [0.25, 0.75, 1.75]
    once, _ = play(lambda sample: WINS, num=4)
    assert len(format_table({"t1.0": summarize([once], "t1.0")}).splitlines()) == 1


def demonstrate(agent, **demonstrator):
    world = Moody()
    policy = ExpertPolicy(demonstrator=Demonstrator(**demonstrator))
    playing = table(world, policy, agent)
    return asyncio.run(play_groups(playing, orders(world, 3, num=20, max_rounds=30), 4))


@pytest.mark.parametrize(
    "agent",
    [
        PlanAct(),
        PlanAct(revise_every=1, context="summarise"),
        Reflect(),
        Reflect(context="drop", loop_after=2),
    ],
)
def test_an_expert_is_asked_for_actions_only(agent, tmp_path):
    """No plan, reflection or summary, nor a request for one, is there to imitate."""
    episodes = expert_episodes(demonstrate(agent))
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(json.dumps(demonstration_row(e)) + "\n" for e in episodes))
    for conversation in read_conversations(str(path)):
        assert [message.role for message in conversation.messages] == [
            "system",
            *["user", "assistant"] * 4,
        ]
        assert [m.text for m in conversation.messages if m.role == "assistant"] == [
            *["Action: down"] * 3,
            "Action: lift off",
        ]
        assert conversation.success


def test_an_expert_that_fails_by_mistake_does_not_try_again():
    """Its episode stands as it ended, and is no success."""
    episodes = expert_episodes(demonstrate(Reflect(), mistakes=0.2))
    failed = [episode for episode in episodes if not episode.success]
    assert failed
    assert len(failed) < len(episodes)
    for episode in failed:
        assert (episode.ending, episode.retries) == (Ending.DONE, ())
        assert episode.messages[-1].text == "Too early."
        assert {turn.attempt for turn in episode.turns} == {1}
