"""What `mutations.py` prints, and the faults that are listed because no test can catch them."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutants import Mutant

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = ROOT / ".ci" / "mutations_equivalent.toml"


def equivalent(mutants: Sequence[Mutant], files: Sequence[Path]) -> set[tuple[str, str, str]]:
    """File, source line and change of the faults that change no result."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    names = {str(path.relative_to(ROOT)) for path in files}
    found = {(e["file"], e["line"], e["change"]) for e in listed if e["file"] in names}
    if stale := found - {key(mutant) for mutant in mutants}:
        sys.exit(f"{EQUIVALENT.name} lists what is no fault any more: {sorted(stale)}")
    return found


def key(mutant: Mutant) -> tuple[str, str, str]:
    return (str(Path(mutant.path).relative_to(ROOT)), mutant.text, mutant.change)


def report(mutants: Sequence[Mutant], left: Sequence[Mutant], same: set[Any]) -> float:
    """Print what was caught; returns the share over all files, of which `same` were not."""
    print("\n| file | faults | caught | change nothing |\n|---|---|---|---|")
    for path in dict.fromkeys(mutant.path for mutant in mutants):
        num = sum(mutant.path == path for mutant in mutants)
        here = [mutant for mutant in left if mutant.path == path]
        listed = sum(key(mutant) in same for mutant in here)
        share = (num - len(here)) / num
        print(f"| {Path(path).relative_to(ROOT)} | {num} | {share:.0%} | {listed} |")
    share = 1 - len(left) / max(1, len(mutants))
    print(f"| all | {len(mutants)} | {share:.1%} | {sum(key(m) in same for m in left)} |")
    for mutant in left:
        file, text, change = key(mutant)
        if key(mutant) not in same:
            print(f"\nnot caught: {file}:{mutant.line}\n  {text}\n  {change}")
    if wrong := (same & {key(mutant) for mutant in mutants}) - {key(mutant) for mutant in left}:
        sys.exit(f"{EQUIVALENT.name} lists what is caught: {sorted(wrong)}")
    return share
