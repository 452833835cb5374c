"""What a parent starts: a small process that holds the worker and leaves nothing behind.

    parent ── supervisor ── worker ── whatever the simulator starts

The supervisor waits on a pipe whose other end only the parent holds. When the parent closes it, or
dies of whatever cause, the pipe ends, and the supervisor kills the worker and all that came of it.
On Linux it also adopts what the worker leaves, so that a JVM whose worker died is reaped here and
does not wait as a zombie for a first process that reaps nobody.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_REAP_SECONDS = 5.0


def main() -> None:
    """`python -m agentgym_core.serving.supervisor LIFE PIPE`, two file descriptors."""
    life, pipe = int(sys.argv[1]), int(sys.argv[2])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    worker = os.fork()
    if worker == 0:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should the supervisor itself be killed
        os.close(life)
        os.setpgid(0, 0)
        from agentgym_core.serving.worker import serve

        serve(pipe)
        return
    os.close(pipe)
    with contextlib.suppress(OSError):  # the worker may have done it, or be gone
        os.setpgid(worker, worker)
    _wait(worker, life)
    _end(worker)


def _prctl(option: int, value: int) -> None:
    """Linux alone has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wait(worker: int, life: int) -> None:
    """Until the parent is gone or the worker is."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _hear)
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if ended == worker:
                    return
        ready, _, _ = select.select([life, woken], [], [])
        if life in ready:
            return
        os.read(woken, 4096)


def _hear(number: int, frame: object) -> None:
    """A signal that nobody handles does not wake `select`."""


def _end(worker: int) -> None:
    """Kill the worker's group and its descendants, and reap them."""
    deadline = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        for child in _descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _descendants() -> list[int]:
    """Also those that left the group."""
    import psutil

    return [child.pid for child in psutil.Process().children(recursive=True)]


if __name__ == "__main__":
    main()
