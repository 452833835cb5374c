"""The task sampler that plays what a file names."""

import json
from collections import Counter

import pytest

from agentgym_core.errors import ConfigError
from agentgym_core.task_files import FileTaskSampler

from .test_samplers import pool


def ids(sampler, pools, num_tasks, step, seed=0):
    state = json.loads(json.dumps(sampler.initial_state()))
    chosen = sampler.select(pools, num_tasks, step=step, seed=seed, state=state)
    assert all(task in pool.tasks for pool, task in chosen)
    return [task.id for _, task in chosen]


@pytest.fixture
def file(tmp_path):
    def file(content, **fields):
        path = tmp_path / "tasks.txt"
        path.write_text(content, encoding="utf-8")
        return FileTaskSampler(path=path, **fields)

    return file


@pytest.mark.parametrize(
    "content",
    [
        '[{"item_id": "room_7"}, {"item_id": "room_2"}, {"item_id": "room_5"}]',
        '["room_7",\n "room_2",\n "room_5"]\n',
        '{"item_id": "room_7", "x": []}\n\n{"item_id": "room_2"}\n{"item_id": "room_5"}',
        "room_7\n  room_2\r\n\nroom_5",
        "\ufeffroom_7\nroom_2\nroom_5\n",
    ],
)
def test_every_form_of_file(file, content):
    sampler = file(content, shuffle=False)
    played = [id_ for step in range(3) for id_ in ids(sampler, [pool("room", 9)], 2, step)]
    assert played == ["room_7", "room_2", "room_5"] * 2


def test_epochs_are_shuffled_and_whole(file):
    sampler = file("\n".join(f"room_{n}" for n in range(7)))
    played = [id_ for step in range(14) for id_ in ids(sampler, [pool("room", 20)], 3, step)]
    epochs = [played[start : start + 7] for start in range(0, 42, 7)]
    assert {frozenset(epoch) for epoch in epochs} == {frozenset(f"room_{n}" for n in range(7))}
    assert len({tuple(epoch) for epoch in epochs}) == 6


def test_an_id_that_stands_twice_is_played_twice_an_epoch(file):
    counts = Counter(ids(file("room_1\nroom_1\nroom_2"), [pool("room", 3)], 6, 0))
    assert counts == {"room_1": 4, "room_2": 2}


def test_a_function_of_pools_step_and_seed(file):
    sampler = file("\n".join(f"room_{n}\nshop_{n}" for n in range(9)))
    pools = [pool("room", 9), pool("shop", 9, weight=2.0)]
    order = [ids(sampler, pools, 4, step) for step in range(12)]
    assert [ids(sampler, pools, 4, step) for step in reversed(range(12))] == order[::-1]
    assert [ids(sampler, pools, 4, step, seed=1) for step in range(12)] != order


@pytest.mark.parametrize("shuffle", [True, False])
def test_pools_are_given_their_own_tasks_and_mix_by_weight(file, shuffle):
    sampler = file("shop_3\nroom_8\nroom_0\nroom_4\nshop_1", shuffle=shuffle)
    pools = [pool("room", 9, weight=3.0), pool("shop", 9)]
    counts = Counter(id_ for step in range(6) for id_ in ids(sampler, pools, 4, step))
    assert counts == {"room_8": 6, "room_0": 6, "room_4": 6, "shop_3": 3, "shop_1": 3}
    if not shuffle:
        assert ids(sampler, pools, 4, 0) == ["room_8", "room_0", "room_4", "shop_3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "tasks.txt names no tasks"),
        ("[]", "tasks.txt names no tasks"),
        ('[{"item_id": "room_1"}', "tasks.txt: no JSON: Expecting ',' delimiter: line 1"),
        (
            '[{"item_id": "room_1"}, {"id": "room_2"}]',
            "tasks.txt: entry 1: expected {\"item_id\": \"…\"}, got {'id': 'room_2'}",
        ),
        ('{"item_id": "room_1"}\n{"item_id"', "tasks.txt:2: no JSON: Expecting ':' delimiter"),
        ('{"item_id": 3}', 'tasks.txt:1: expected {"item_id": "…"}, got {\'item_id\': 3}'),
    ],
)
def test_a_file_that_names_no_tasks_is_refused_at_the_start(file, content, message):
    with pytest.raises(ConfigError) as error:
        file(content).initial_state()
    assert message in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no file .*nothing, from which tasks"):
        FileTaskSampler(path=tmp_path / "nothing").initial_state()


def test_unknown_tasks_name_the_file_the_first_and_what_is_near(file):
    sampler = file("room_1\nroom_77\nshop_4\nelsewhere")
    with pytest.raises(ConfigError) as error:
        ids(sampler, [pool("room", 8), pool("shop", 8)], 2, 0)
    assert str(error.value) == (
        f"{sampler.path} names 'room_77', which is no task of 'room', 'shop', and 1 more. Is it of "
        "another `split`? Did you mean room_7?"
    )


def test_an_environment_without_tasks_in_the_file(file):
    with pytest.raises(ConfigError, match=r"tasks.txt names no task of environment 'shop'$"):
        ids(file("room_1"), [pool("room", 2), pool("shop", 2)], 2, 0)


def test_a_run_does_not_go_on_with_another_file(file):
    sampler = file("room_1")
    state = sampler.initial_state()
    sampler.path.write_text("room_1\nroom_2")
    with pytest.raises(ConfigError, match=r"tasks.txt has changed since the run began"):
        sampler.select([pool("room", 3)], 1, step=0, seed=0, state=state)
