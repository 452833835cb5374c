"""Build the index of a corpus before a run: `python -m agentgym_searchqa.build CORPUS [FOLDER]`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agentgym_searchqa.bm25 import Bm25, open_index


def main(arguments: Sequence[str]) -> str:
    """Build it, unless it is there; say what is in it."""
    if not 1 <= len(arguments) <= 2:
        raise SystemExit("usage: python -m agentgym_searchqa.build CORPUS [FOLDER]")
    start = time.perf_counter()
    settings = Bm25(corpus=arguments[0], index=Path(arguments[1]) if arguments[1:] else None)
    try:
        num_passages = len(open_index(settings))
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from error
    return f"{settings.folder}: {num_passages:,} passages, {time.perf_counter() - start:.1f} s"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
