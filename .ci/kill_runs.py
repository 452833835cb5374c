"""Kill one run in each of its twelve steps, and once while it saves; it must end as if it had not.

About two minutes on two cores: python .ci/kill_runs.py [SEED]
"""

import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.integration.facts import facts
from tests.integration.test_kill import assert_equal, kill_in, run_whole, start


def main() -> None:
    """Run whole, run killed, compare."""
    seed = int(sys.argv[1]) if sys.argv[1:] else 0
    draws = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = facts(run_whole(folder))
        for step in range(1, 13):
            kill_in(step, folder, draws.uniform(0, 0.2))
            if step == 6:
                kill_in(step, folder, -1)
            print(f"killed in step {step}", flush=True)
        last = start(folder)
        said, _ = last.communicate()
        assert last.returncode == 0, said
        assert_equal(facts(folder / "runs" / "killed"), whole)
    print(f"{len(whole)} files are equal")


if __name__ == "__main__":
    main()
