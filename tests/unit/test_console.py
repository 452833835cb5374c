import logging
import os
import subprocess
import sys

import pytest

from agentgym_core.cli.console import Console, notes_shown

ROW = {
    "stage": "grpo",
    "phase": "train",
    "step": 1,
    "horizon": 5,
    "tokens_per_second": 900.0,
    "seconds": 1.0,
}


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({"tokens_cut": 0.2, "update_skipped": 0.0, "dropped": 0.0}, "tokens/s  0s left"),
        ({"update_skipped": 1.0}, "tokens/s  no update  0s left"),
        ({"tokens_cut": 1.0}, "tokens/s  100% out of tokens  0s left"),
        ({"dropped": 0.125}, "tokens/s  12% dropped  0s left"),
    ],
)
def test_what_a_step_should_not_be_silent_about(facts, end, capsys):
    Console({"grpo": 1})(ROW | facts)
    assert capsys.readouterr().out.rstrip().endswith(end)


def test_a_console_that_nobody_reads_stops_nothing(monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError("the reader is gone")

    monkeypatch.setattr("click.echo", gone)
    Console({"grpo": 1})(ROW)


def test_a_working_directory_that_is_gone_is_one_clean_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; os.rmdir(os.getcwd()); from agentgym_core.cli import main; "
        "main(['plugins'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=gone,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == ("error: the working directory is gone: change into one that exists\n")


@pytest.mark.parametrize(("first", "said"), [(True, "a\nc\nd\n"), (False, "c\nd\n")])
def test_notes_of_our_own_and_warnings_of_all_are_shown(first, said, capsys):
    level = logging.getLogger().level
    with notes_shown(first=first):
        logging.getLogger("agentgym_evol.evol").info("a")
        logging.getLogger("httpx").info("b")
        logging.getLogger("httpx").warning("c")
        logging.getLogger("agentgym_core.lock").warning("d")
    logging.getLogger("httpx").warning("e")
    assert capsys.readouterr().err == said
    assert logging.getLogger().level == level
