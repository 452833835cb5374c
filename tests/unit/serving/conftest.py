import pytest

from agentgym_core.testing.servers import serving


@pytest.fixture(scope="session")
def textcraft_server():
    with serving("textcraft", "num_goals=20", "depths=[1,2]", "--port", "0") as (address, _):
        yield address
