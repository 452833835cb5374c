"""docs/serving.md says what the code says, and its Python runs."""

import re
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.cli.serve import serve
from agentgym_core.serving import bodies, sessions
from agentgym_core.serving.host import HostSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("field", attrs.fields(HostSettings), ids=lambda field: field.name)
def test_a_row_for_every_key_of_host(field):
    default = yaml.safe_dump(field.default).split("\n")[0]
    assert f"\n| `{field.name}` | {default} | " in PAGE


def test_a_row_for_every_option():
    options = {option.opts[0]: option for option in serve.params if option.opts[0][:2] == "--"}
    rows = dict(re.findall(r"\n\| `(--[a-z-]+)` \| ([^|]*?) ?\| ", PAGE))
    assert rows.keys() == options.keys()
    for name, told in rows.items():
        default = options[name].default
        if not isinstance(default, str | int | float):
            assert told == ""
        else:
            assert told == (f"{default:g}" if isinstance(default, float) else str(default))


def test_a_row_for_every_status():
    named = {int(status) for status in re.findall(r"\n\| (\d{3}) \| ", PAGE)}
    assert named == set(bodies.ERRORS)


def test_every_type_of_error_is_listed():
    source = "".join(
        (ROOT / "agentgym_core" / "serving" / f"{name}.py").read_text(encoding="utf-8")
        for name in ("sessions", "server", "guard")
    )
    kinds = set(re.findall(r"[45]\d\d, \"([a-z-]+)\"", source))
    assert {"full", "wrong-step", "unknown-split"} <= kinds
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in PAGE] == []
    assert sessions.Refused(429, "full", "").kind == "full"


def test_the_python_runs(textcraft_server, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(code.replace("http://127.0.0.1:8000", textcraft_server), {"__name__": "page"})
    assert capsys.readouterr().out == "1.0 True\n"
