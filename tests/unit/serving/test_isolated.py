"""An environment that another interpreter holds; here it is the same one, started anew."""

import asyncio
import pickle
import sys

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.environments import environment_block
from agentgym_core.errors import ConfigError
from agentgym_core.serving.host import Host, HostSettings
from agentgym_core.serving.isolated import IsolatedEnvironment
from agentgym_core.testing import EnvironmentConformance
from agentgym_textcraft.environment import TextCraft

OPTIONS = {"num_goals": 20, "depths": [1, 2]}
BLOCK = {"use": "textcraft", "python": sys.executable, **OPTIONS}


def built(block):
    return environment_block(block, "environments.1", Catalog.of_modules())


class TestTextCraftInAnotherInterpreter(EnvironmentConformance):
    environment = IsolatedEnvironment.found("textcraft", sys.executable, OPTIONS, "environment")
    num_tasks = 1


def test_it_need_not_be_installed_here():
    """The catalog of this interpreter is empty."""
    there, here = built(BLOCK).component, TextCraft(**OPTIONS)
    assert there.tasks("test") == here.tasks("test")
    assert there.splits == tuple(here.splits)
    assert there.instructions() == here.instructions()
    assert there.action_format == here.action_format
    assert list(there.corpus()) == list(here.corpus())
    assert (there.runs_in, there.sessions_per_process) == ("process", 64)


def test_its_block_is_written_down_whole():
    block = built({**BLOCK, "weight": 2.0, "host": {"workers": 3}})
    document = block.to_document()
    assert document["python"] == sys.executable
    assert document["num_distractors"] == 10, "what it resolved"
    assert document["host"]["workers"] == 3
    assert built(document) == block
    assert pickle.loads(pickle.dumps(block)) == block


def test_a_wrong_key_keeps_its_path():
    with pytest.raises(ConfigError, match=r"^environments\.1\.num_gaols: unknown key\. Did you me"):
        built({**BLOCK, "num_gaols": 3})
    with pytest.raises(ConfigError, match=r"^environments\.1: `num_goals` is 0: give a whole"):
        built({**BLOCK, "num_goals": 0})


def test_a_name_that_nobody_registers_there():
    with pytest.raises(ConfigError, match=r"^environments\.1: no env.* Did you mean textcraft"):
        built({**BLOCK, "use": "textcarft"})


def test_a_run_shares_its_workers():
    async def pids():
        block = built(BLOCK)
        place = block.component.place(HostSettings(workers=1), 60.0)
        assert isinstance(place, Host)
        async with place:
            sessions = await asyncio.gather(*(place.open() for _ in range(3)))
            return {session._process.pids for session in sessions}

    assert len(asyncio.run(pids())) == 1
