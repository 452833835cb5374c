import contextlib
import os
import re
import subprocess
import sys

import pytest


@contextlib.contextmanager
def serving(*arguments, **environ):
    """`agentgym serve`, until it says where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym_core.cli", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environ},
    )
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"http://\S+", line)
            if found and "see /docs" in line:
                yield found.group(), process
                break
        else:
            raise AssertionError(f"it ended: {''.join(lines)}")
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="session")
def textcraft_server():
    with serving("textcraft", "num_goals=20", "depths=[1,2]", "--port", "0") as (address, _):
        yield address
