"""A client of a server holds what any environment must hold."""

import pytest

from agentgym_core.serving.client import RemoteEnvironment
from agentgym_core.testing import EnvironmentConformance


class TestTextCraftBehindAServer(EnvironmentConformance):
    environment = None

    @pytest.fixture(autouse=True)
    def _behind(self, textcraft_server):
        self.environment = RemoteEnvironment(use="textcraft", env_addr=[textcraft_server])
