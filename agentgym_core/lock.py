"""One process at a time works on a run directory."""

import contextlib
import errno
import fcntl
import logging
import os
import socket
from collections.abc import Generator
from pathlib import Path

from agentgym_core.errors import RunLockedError
from agentgym_core.files import writing

log = logging.getLogger(__name__)

_BUSY = (errno.EAGAIN, errno.EACCES)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold `<folder>/.lock`; the operating system frees it when the process ends, however it ends.

    The file stays, and names the process that held it last. Where the file system knows no locks
    there is a warning, and no protection.

    Raises:
        RunLockedError: another process holds it; names that process and its machine.
        CheckpointError: the file cannot be written.
    """
    path = folder / ".lock"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                file.seek(0)
                raise RunLockedError(
                    f"{folder} is being worked on by {file.read().strip() or 'another process'}. "
                    "Wait for it or stop it, or give this run another name"
                ) from error
            log.warning(
                "%s cannot be locked (%s): see to it yourself that no second process works on "
                "that run",
                folder,
                error.strerror,
            )
        with writing(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        yield
