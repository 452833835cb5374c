"""What AgentGym's `item_id` means, the same everywhere: in a task file, in Python, on its servers.

The right values are AgentGym's own: an id is `<environment>_<number>`, and the number counts
goals, levels and seeds, variations or questions.
"""

import json

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.contract import tasks_of
from agentgym_core.protocols import TaskPool
from agentgym_core.serving.dialects import ROWS, number_of
from agentgym_core.task_files import FileTaskSampler

CATALOG = Catalog.installed()
SPLITS = {
    "textcraft": ("all",),
    "babyai": ("all",),
    "sciworld": ("index",),
    "searchqa": ("test", "train"),
}
"""In which AgentGym's tasks lie, held out or not."""
TEXTCRAFT = [
    # The items that can be crafted by the depth of their recipe trees, 125, 291, 117 and 11 of
    # them, and in each depth as the files of recipes come, by name.
    (0, "depth-1", {"goal": "acacia planks", "instance": 0}),
    (124, "depth-1", {"goal": "yellow dye", "instance": 0}),
    (125, "depth-2", {"goal": "acacia boat", "instance": 0}),
    (415, "depth-2", {"goal": "yellow wool", "instance": 0}),
    (416, "depth-3", {"goal": "activator rail", "instance": 0}),
    (532, "depth-3", {"goal": "yellow carpet", "instance": 0}),
    (533, "depth-4", {"goal": "cyan banner", "instance": 0}),
    (543, "depth-4", {"goal": "purple banner", "instance": 0}),
]
BABYAI = [
    # Level number % 40 + 1, seed number // 40.
    (0, "GoTo", {"level": "GoToRedBallGrey", "seed": 0}),
    (39, "BossLevel", {"level": "BossLevelNoUnlock", "seed": 0}),
    (40, "GoTo", {"level": "GoToRedBallGrey", "seed": 1}),
    (123, "GoTo", {"level": "GoToObjS6", "seed": 3}),
    (1016, "Pickup", {"level": "Pickup", "seed": 25}),
    (3831, "KeyCorridor", {"level": "KeyCorridorS6R3", "seed": 95}),
]
SCIWORLD = [
    # Variations of the tasks in the simulator's order, 30 of each of the first four; without
    # 5-1, 5-2, 9-1, 9-2, 9-3, 10-1 and 10-2, 4639 in all.
    (0, "boil", {"task": "boil", "variation": 0}),
    (29, "boil", {"task": "boil", "variation": 29}),
    (30, "melt", {"task": "melt", "variation": 0}),
    (120, "use-thermometer", {"task": "use-thermometer", "variation": 0}),
    (4135, "find-animal", {"task": "find-animal", "variation": 299}),
    (4136, "chemistry-mix", {"task": "chemistry-mix", "variation": 0}),
    (4638, "identify-life-stages-2", {"task": "identify-life-stages-2", "variation": 9}),
]
QUESTIONS = [
    # Of each set the first number, and of the short ones the last; the last of a set, the next is
    # the first of another.
    (0, "nq", 0),
    (3609, "nq", 3609),
    (3610, "triviaqa", 0),
    (14923, "popqa", 0),
    (29190, "hotpotqa", 0),
    (36595, "2wikimultihopqa", 0),
    (49171, "musique", 0),
    (51587, "musique", 2416),
    (51588, "bamboogle", 0),
    (51712, "bamboogle", 124),
    (51713, "nq", 0),
    (130881, "hotpotqa", 0),
]
FILES = {
    "nq/test": 3610,
    "triviaqa/test": 1,
    "popqa/test": 1,
    "hotpotqa/dev": 1,
    "2wikimultihopqa/dev": 1,
    "musique/dev": 2417,
    "bamboogle/test": 125,
    "nq/train": 1,
    "hotpotqa/train": 1,
}
"""Questions in each file; a set that is cut short keeps its first number."""


def questions():
    """What each number asks, by the file and the line where it stands."""
    found = []
    for number, name, line in QUESTIONS:
        file = next(f for f in FILES if f.startswith(f"{name}/"))
        file = f"{name}/train" if number > 51712 else file
        data = {"question": f"{file} {line}?", "answers": ["yes"]}
        found.append((number, name, data))
    return found


CASES = {
    "textcraft": TEXTCRAFT,
    "babyai": BABYAI,
    "sciworld": SCIWORLD,
    "searchqa": questions(),
}
EVERY = [(name, *case) for name, cases in CASES.items() for case in cases]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The environments, each with all its tasks."""
    folder = tmp_path_factory.mktemp("questions")
    for file, size in FILES.items():
        path = folder / f"{file}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [{"question": f"{file} {n}", "golden_answers": ["yes"]} for n in range(size)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    retriever = {"server": {"url": "http://127.0.0.1:9/retrieve"}}
    blocks = {"searchqa": {"data": str(folder), "retriever": retriever}}
    return {
        name: CATALOG.build("environment", {"use": name, **blocks.get(name, {})}, "environment")
        for name in CASES
    }


def test_every_environment_of_agentgyms_that_is_here_has_its_ids():
    assert set(CASES) == set(ROWS) & set(CATALOG.names("environment"))


@pytest.mark.parametrize(("name", "number", "category", "data"), EVERY)
def test_an_id_names_its_task(worlds, name, number, category, data):
    task = worlds[name].task(f"{name}_{number}")
    assert task.id == f"{name}_{number}"
    assert (task.category, {key: task.data[key] for key in data}) == (category, data)
    assert number_of(name, task.id) == number  # what a reset on AgentGym's servers is given


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_ids_plays_those_tasks(worlds, name, tmp_path):
    world, path = worlds[name], tmp_path / f"{name}_train.json"
    played = []
    for split in SPLITS[name]:
        pool = TaskPool(environment=name, weight=1.0, tasks=tasks_of(world, split))
        held = {task.id for task in pool.tasks}
        ids = [id_ for number, *_ in CASES[name] if (id_ := f"{name}_{number}") in held]
        path.write_text(json.dumps([{"item_id": id_} for id_ in ids]))
        sampler = FileTaskSampler(path=path, shuffle=False)
        chosen = sampler.select([pool], len(ids), step=0, seed=0, state=sampler.initial_state())
        assert [task for _, task in chosen] == [world.task(id_) for id_ in ids]
        played += ids
    assert played == [f"{name}_{number}" for number, *_ in CASES[name]]


def test_numbers_beyond_the_last(worlds):
    """TextCraft's begin anew, BabyAI's never end; the others refuse."""
    assert worlds["textcraft"].task("textcraft_544").data["goal"] == "acacia planks"
    assert worlds["babyai"].task("babyai_4000").data == {"level": "GoToRedBallGrey", "seed": 100}
    for id_ in ("sciworld_4639", "searchqa_221328"):
        with pytest.raises(ValueError, match=f"{id_}"):
            worlds[id_.partition("_")[0]].task(id_)
