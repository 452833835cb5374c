import pytest
from click.testing import CliRunner

from agentgym_core.cli import main


@pytest.mark.parametrize("command", [["fixed", "rounds=5"], ["textcraft", "num_goals=20"], ["act"]])
def test_a_sound_component_passes(command):
    result = CliRunner().invoke(main, ["check", *command])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    num = len([line for line in lines if line.startswith("  ")])
    assert num >= 7
    assert lines[-1] == f"{command[0]}: {num} of {num} checks hold"
    assert "  ok      pickles" in lines


def test_a_check_that_does_not_apply_does_not_hold(monkeypatch):
    monkeypatch.setattr("agentgym_grpo.group_relative.GroupRelative.compares_groups", False)
    result = CliRunner().invoke(main, ["check", "group-relative"])
    assert result.exit_code == 0, result.output
    skipped = [line for line in result.output.splitlines() if line.startswith("  -  ")]
    assert len(skipped) == 2
    assert all("does not say compares_groups" in line for line in skipped)
    assert result.output.splitlines()[-1].endswith("13 of 15 checks hold, 2 do not apply")


def test_a_faulty_one_fails_with_the_reason(monkeypatch):
    monkeypatch.setattr(
        "agentgym_core.rounds.FixedRoundsScheduler.max_rounds", lambda self, step, state: 0
    )
    result = CliRunner().invoke(main, ["check", "fixed", "rounds=5"])
    assert result.exit_code == 1
    assert "  FAILED  horizons are positive whole numbers: " in result.output


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            ["webarena"],
            "It ships in agentgym-webarena: pip install agentgym-webarena, or from a clone pip",
        ),
        (["textcarft"], "error: no component is called 'textcarft'. Did you mean textcraft?"),
        (["fixed"], "error: fixed.rounds: required field missing"),
        (["act", "--kind", "environment"], "error: no environment is called 'act'"),
        (["fixed", "rounds"], "error: override 'rounds': expected key=value"),
    ],
)
def test_wrong_calls(command, says):
    result = CliRunner().invoke(main, ["check", *command])
    assert result.exit_code == 2
    assert says in result.output
