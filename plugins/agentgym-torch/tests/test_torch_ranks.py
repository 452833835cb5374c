import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_core.ranks import ALONE
from agentgym_torch.backend import TorchBackend

PROGRAM = Path(__file__).with_name("rank_process.py")


def run_ranks(size: int, *arguments: str | Path) -> list[tuple[int, str]]:
    """What a launcher does. Returns the exit code and the output of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
            },
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    return [(process.returncode, words) for process, words in zip(processes, said, strict=True)]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_score_and_learn_as_one_process_does(model, tmp_path, size):
    """Numbers to 1e-6, also with fewer rows than ranks and with one row that is not finite."""
    for code, words in run_ranks(size, model.path, tmp_path, "stay"):
        assert code == 0, words
        assert "RankError" not in words


def test_a_rank_that_leaves_is_missed(model, tmp_path):
    (code, words), (_, others) = run_ranks(2, model.path, tmp_path, "leave")
    assert code == 0, words + others
    assert "RankError: rank 0: rank 1 is gone" in words


def test_one_process_is_alone(monkeypatch):
    assert TorchBackend().connect() is ALONE
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert TorchBackend().connect() is ALONE


def test_a_launcher_that_says_half_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(
        ValueError, match=r"2 processes of the launcher do not find each other.*RANK"
    ):
        TorchBackend().connect()
