"""Seeds are derived, never drawn: the same parts give the same seed in every process."""

import hashlib
import json


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from its parts, such as (run seed, step, task id, sibling, turn).

    Example: derive_seed(42, "sample", 7, "textcraft_12", 0) is the same number on every machine.
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
