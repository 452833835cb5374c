import asyncio
import json

import pytest

from agentgym_core.agents.act import Act
from agentgym_core.conversations import read_conversations
from agentgym_core.demonstrations import demonstration_row, expert_episodes
from agentgym_core.evaluate import choose_tasks, evaluation_orders, format_table, summarize
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.settings import EvaluationConfig
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Ending, Sampling


def demonstrate(world=None, *, num=1, max_rounds=9, **demonstrator):
    world = world or Countdown()
    table = Table(
        environments={"countdown": world},
        agent=Act(),
        policy=ExpertPolicy(demonstrator=Demonstrator(**demonstrator)),
        max_retries=0,
    )
    orders = [
        Attempts(
            environment="countdown",
            task=task,
            num=num,
            max_rounds=max_rounds,
            sampling=Sampling(),
            seed=index,
        )
        for index, task in enumerate(world.tasks("train"))
    ]
    return asyncio.run(play_groups(table, orders, 4))


def test_the_expert_speaks_as_the_policy_will():
    episodes = expert_episodes(demonstrate())
    assert all(episode.success and episode.ending is Ending.DONE for episode in episodes)
    assert [episode.num_rounds for episode in episodes] == [2, 3, 4, 5]
    row = demonstration_row(episodes[0])
    assert row["item_id"] == "countdown_1"
    assert [m["role"] for m in row["messages"]] == [
        "system", "user", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert [m["content"] for m in row["messages"][2::2]] == ["Action: down", "Action: lift off"]
    assert all("loss" not in m for m in row["messages"])


def test_mistakes_are_made_at_their_rate_and_marked():
    groups = demonstrate(Countdown(longest=40), num=10, max_rounds=100, mistakes=0.25)
    replies = [m for e in expert_episodes(groups) for m in e.messages if m.role == "assistant"]
    wrong = sum(not m.loss for m in replies)
    # binomial: 4 standard deviations
    assert abs(wrong / len(replies) - 0.25) < 4 * (0.25 * 0.75 / len(replies)) ** 0.5
    assert any('"loss": false' in json.dumps(demonstration_row(e)) for e in expert_episodes(groups))
    learned = demonstrate(Countdown(longest=40), mistakes=0.25, learn_mistakes=True)
    assert all(m.loss for e in expert_episodes(learned) for m in e.messages)


def test_a_world_without_an_expert_cannot_demonstrate(monkeypatch):
    async def unknown(self):
        return None

    monkeypatch.setattr(CountdownSession, "expert_action", unknown)
    with pytest.raises(
        RuntimeError, match=r"countdown cannot demonstrate countdown_1: .*there is no expert"
    ):
        expert_episodes(demonstrate())


def test_demonstrations_are_read_back(tmp_path):
    episodes = expert_episodes(demonstrate(mistakes=0.5))
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(json.dumps(demonstration_row(e)) + "\n" for e in episodes))
    for episode, found in zip(episodes, read_conversations(str(path)), strict=True):
        messages = found.messages
        assert messages == episode.messages[: len(messages)]
        assert (found.success, found.reward) == (episode.success, episode.reward)
        assert messages[-1].role == "assistant"


def test_evaluation_has_its_own_horizon_tasks_and_seeds():
    settings = EvaluationConfig(max_rounds=3, num_tasks=20, num_samples=2, seed=5)
    environments = {"countdown": Countdown(longest=90)}
    orders = evaluation_orders(environments, settings, 0.0)
    assert orders == evaluation_orders(environments, settings, 0.0)
    assert len(orders) == 20
    assert {(o.max_rounds, o.num) for o in orders} == {(3, 2)}
    assert len({o.seed for o in orders}) == 20
    other = evaluation_orders(environments, EvaluationConfig(max_rounds=3, num_tasks=20, seed=6),
                              1.0)  # fmt: skip
    assert [o.task.id for o in other] != [o.task.id for o in orders]
    assert choose_tasks(Countdown(longest=4), "test", 9, 0) == Countdown().tasks("test")


def test_success_is_counted_over_tasks_and_by_category():
    # With 3 rounds the expert reaches the lift-off from 1 and 2, not from 3 and 4.
    found = summarize(demonstrate(num=2, max_rounds=3), "greedy")
    assert found.overall.success == 0.5
    assert found.overall.num_tasks == 4
    assert found.num_episodes == 8
    # Wilson for 2 of 4: center 0.5, margin 1.96 sqrt(1/16 + 3.8416/64) / (1 + 0.9604) = 0.34997
    assert found.overall.low == pytest.approx(0.15003, abs=1e-4)
    assert found.overall.high == pytest.approx(0.84997, abs=1e-4)
    assert {name: rate.success for name, rate in found.categories.items()} == {
        "countdown/even": 0.5,
        "countdown/odd": 0.5,
    }
    assert found.pass_at == {1: 0.5, 2: 0.5}
    assert found.endings == {"done": 4, "out-of-rounds": 4}
    assert "greedy                           0.500 [0.150, 0.850] of 4 tasks" in format_table(
        {"greedy": found}
    )


def test_failed_episodes_are_in_no_statistic():
    found = summarize(demonstrate(Countdown(fault="step"), num=2), "greedy")
    assert (found.overall.success, found.overall.num_tasks) == (1.0, 2)
    assert (found.num_episodes, found.num_dropped) == (4, 4)
