"""What the pages say of the code is so."""

import re
from pathlib import Path

import attrs
import pytest

from agentgym_core import protocols, types

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "types.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]*))?\)")


@pytest.mark.parametrize(("name", "section"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_the_fields_of_a_type(name, section):
    cls = getattr(types, name, None) or getattr(protocols, name)
    fields = [field.name for field in attrs.fields(cls)]
    properties = [name for name, value in vars(cls).items() if isinstance(value, property)]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == fields + properties


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"),
     *ROOT.glob("plugins/*/README.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)  # fmt: skip
def test_links_lead_somewhere(page):
    for target, heading in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} leads to {target}"
        if heading:
            text = (page.parent / target).read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)$", text, re.M)
            anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            assert heading in anchors, f"{page.name} leads to {target}#{heading}"


def test_every_page_and_plugin_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    led = {(ROOT / "docs" / target).resolve() for target, _ in LINK.findall(index)}
    pages = {*ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")}
    assert {page.resolve() for page in pages} - led == {ROOT / "docs" / "index.md"}
