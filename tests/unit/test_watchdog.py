import subprocess
import sys
import threading
import time

from agentgym_core.watchdog import EXIT_CODE, Progress, watched


def test_a_report_says_who_waits_for_what():
    progress = Progress()
    assert progress.report() == "nothing is being waited for"
    with progress.waiting("step 7 of grpo"):
        assert progress.report() == "step 7 of grpo"
        with progress.waiting("Maze.step", "maze_2"), progress.waiting("the engine", "maze_3"):
            assert progress.report() == (
                "1 episode waits for Maze.step (task maze_2), "
                "1 episode waits for the engine (task maze_3)"
            )
            with progress.waiting("Maze.step", "maze_1"):
                assert "2 episodes wait for Maze.step (tasks maze_1, maze_2)" in progress.report()
    assert progress.report() == "nothing is being waited for"


def test_what_goes_on_is_left_alone():
    progress, stopped = Progress(), []
    with watched(progress, 0.2, stopped.append):
        for _ in range(10):
            time.sleep(0.05)
            progress.beating(lambda: None)()
    with watched(progress, None, stopped.append):
        time.sleep(0.01)
    assert stopped == []
    assert all(thread.name != "watchdog" for thread in threading.enumerate())


def test_what_does_not_is_told_to_stop():
    progress, stopped = Progress(), threading.Event()
    reasons = []

    def stop(reason):
        reasons.append(reason)
        stopped.set()

    with watched(progress, 0.05, stop), progress.waiting("the moon"):
        assert stopped.wait(5)
    assert reasons == ["nothing made progress for 0.05 s: the moon"]


def test_a_thread_that_is_stuck_is_ended_with_its_stack():
    code = (
        "import time\n"
        "from agentgym_core.watchdog import *\n"
        "def stuck_in_here(): time.sleep(60)\n"
        "with watched(Progress(), 0.05, lambda reason: None, grace=0.05): stuck_in_here()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert result.returncode == EXIT_CODE
    assert "error: nothing made progress for 0.05 s" in result.stderr
    assert "in stuck_in_here" in result.stderr
