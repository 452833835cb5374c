"""A run directory takes one configuration, and says how another differs."""

import pytest
import yaml

from agentgym_core.config import load_config, resolved
from agentgym_core.errors import ConfigError, RankError
from agentgym_core.run_directory import check_resume, check_same, open_folder

from .conftest import BASE


def test_a_run_directory_is_made_and_gone_on_with(load, tmp_path, catalog):
    overrides = [f"output={tmp_path}/runs"]
    config = load(BASE, *overrides)
    folder = open_folder(config)
    assert folder == tmp_path / "runs" / "quick"
    assert load_config(folder / "config.yaml", [], catalog) == config
    assert open_folder(load(BASE, *overrides)) == folder


def test_a_run_goes_on_with_other_trackers(load, tmp_path):
    overrides = [f"output={tmp_path}/runs"]
    (open_folder(load(BASE, *overrides)) / "metrics.jsonl").write_text("{}\n")
    open_folder(load(BASE, *overrides, "trackers=[quiet]"))


def test_a_run_directory_of_an_earlier_form_is_gone_on_with(load, tmp_path):
    """A list of one environment stood there."""
    folder = open_folder(load(BASE, f"output={tmp_path}"))
    written = yaml.safe_load((folder / "config.yaml").read_text())
    written["environments"] = [written.pop("environment")]
    (folder / "config.yaml").write_text(yaml.safe_dump(written))
    assert open_folder(load(BASE, f"output={tmp_path}")) == folder


def test_a_run_directory_may_be_moved(load, tmp_path):
    open_folder(load(BASE, f"output={tmp_path}/old"))
    (tmp_path / "old").rename(tmp_path / "new")
    assert open_folder(load(BASE, f"output={tmp_path}/new")) == tmp_path / "new" / "quick"


def test_a_run_directory_of_another_run_is_refused(load, tmp_path):
    overrides = [f"output={tmp_path}/runs"]
    (open_folder(load(BASE, *overrides)) / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError) as caught:
        open_folder(load(BASE, *overrides, "environment.dark=true"))
    assert str(caught.value) == (
        f"{tmp_path}/runs/quick holds a run with another configuration: environment.dark is "
        "False there and True here. Give this run another name, or begin a new one from that "
        "one's state with --fork NAME"
    )
    with pytest.raises(ConfigError, match=r"seed is 0 there and 1 here; .*dark is False there"):
        open_folder(load(BASE, *overrides, "environment.dark=true", "seed=1"))
    with pytest.raises(RankError, match=r"temperatures is \[0\.0\] there and 1\.0 here"):
        check_same([{"temperatures": 1.0}, {"temperatures": [0.0]}])
    with pytest.raises(ConfigError, match=r"advantage is .*credit.* there and nothing here"):
        open_folder(load(BASE, *overrides, "advantage=null"))


def test_a_run_may_be_told_to_begin_or_to_go_on(load, tmp_path):
    config = load(BASE, f"output={tmp_path}/runs")
    with pytest.raises(ConfigError, match=r"there is no run in .*/quick to go on with"):
        check_resume(config, "always")
    assert not config.folder.exists()
    check_resume(config, "never")
    open_folder(config)
    check_resume(config, "always")
    with pytest.raises(ConfigError, match=r"quick holds a run already.*--resume"):
        check_resume(config, "never")


@pytest.mark.parametrize(
    "result", ["metrics.jsonl", "checkpoints/learn/step-000001/manifest.json", "policies/learn/x"]
)
def test_what_came_to_nothing_takes_another_configuration(load, tmp_path, result):
    folder = open_folder(load(BASE, f"output={tmp_path}"))
    for made in ("model/config.json", "demonstrations/learn.jsonl", "mine/notes.txt"):
        (folder / made).parent.mkdir(parents=True)
        (folder / made).touch()
    (folder / "metrics.jsonl").touch()
    mended = load(BASE, f"output={tmp_path}", "seed=1")
    assert open_folder(mended) == folder
    assert yaml.safe_load((folder / "config.yaml").read_text()) == resolved(mended)
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "metrics.jsonl", "mine"}

    (folder / result).parent.mkdir(parents=True, exist_ok=True)
    (folder / result).write_text("{}\n")
    with pytest.raises(ConfigError, match="seed is 1 there and 2 here"):
        open_folder(load(BASE, f"output={tmp_path}", "seed=2"))


def test_results_without_their_configuration_are_nobodys(load, tmp_path):
    folder = open_folder(load(BASE, f"output={tmp_path}"))
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"quick holds results, but no config\.yaml"):
        open_folder(load(BASE, f"output={tmp_path}", "seed=1"))
    assert not (folder / "config.yaml").exists()
