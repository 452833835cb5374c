"""The README's commands are run, in small."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = [
    "stages.0.algorithm.num_demonstrations=32",
    "stages.0.training.num_steps=3",
    "stages.0.backend.warmup_steps=1",
    "stages.1.algorithm.num_demonstrations=32",
    "stages.1.training.num_steps=2",
    "stages.1.backend.warmup_steps=1",
    "stages.2.training.num_steps=2",
    "stages.2.training.tasks_per_step=2",
    "stages.2.training.group_size=2",
    "stages.2.rounds.steps_per_stage=1",
    "evaluation.num_tasks=4",
]


def commands() -> list[list[str]]:
    """What follows `uv run` in the bash blocks."""
    blocks = re.findall(r"```bash\n(.*?)```", README, re.S)
    lines = [line for block in blocks for line in block.splitlines() if line]
    return [shlex.split(line.split("&&")[-1]) for line in lines]


def test_the_first_command_trains_and_ends_with_its_table(tmp_path):
    prefix, command = commands()[0][:2], commands()[0][2:]
    assert prefix == ["uv", "run"]
    assert command == ["agentgym", "train", "recipes/quickstart.yaml"]
    result = subprocess.run(
        [sys.executable, "-m", "agentgym_core.cli", *command[1:], f"output={tmp_path}", *SMALL],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    said = result.stdout
    for words in (
        "demonstrator of imitate",
        "learn after 3 steps",
        "imitate after 2 steps",
        "reinforce after 2 steps",
        "greedy",
    ):
        assert words in said.partition("Success on held-out tasks")[2]
    assert re.search(r"reinforce +1/2  success .* reward .* horizon +\d+ .* tokens/s .* left", said)
    assert f"Next: agentgym eval {tmp_path / 'quickstart'}" in said
    png = (tmp_path / "quickstart" / "learning.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_the_second_command_is_the_test_suite():
    assert commands()[1] == ["uv", "run", "pytest"]
    assert len(commands()) == 2


def test_every_link_leads_somewhere():
    pages = [
        p for where in ("*.md", "docs/**/*.md", "plugins/*/README.md") for p in ROOT.glob(where)
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
    for path in re.findall(r"^\| `([^`]+)` \|", README, re.M):
        assert (ROOT / path).exists(), path
