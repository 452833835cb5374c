"""The last words of a run."""

import sys

from agentgym_core.cli.train import _summarize
from agentgym_core.files import write_json_lines


def test_a_run_without_matplotlib_still_ends_with_its_summary(tmp_path, monkeypatch, capsys):
    row = {"stage": "grpo", "phase": "train", "step": 1, "horizon": 3, "reward": 0.5}
    write_json_lines(tmp_path / "metrics.jsonl", [row])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _summarize(tmp_path, "small", 3.0)
    said = capsys.readouterr().out
    assert 'learning.png needs matplotlib: pip install "agentgym-core[plot]"' in said
    assert f"Next: agentgym eval {tmp_path}" in said
    assert "policies/\n" in said
    assert not (tmp_path / "learning.png").exists()
