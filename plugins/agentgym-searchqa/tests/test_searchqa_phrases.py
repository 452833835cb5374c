"""How passages are cut."""

import pytest

from agentgym_searchqa.phrases import shortened


@pytest.mark.parametrize(
    ("text", "max_chars", "shown"),
    [
        ("one two", 7, "one two"),
        ("one two", 6, "one…"),
        ("one two three", 8, "one two…"),
        ("one two three", 9, "one two…"),
        ("one\n two\t three", 13, "one two three"),
        ("abcdefgh", 5, "abcd…"),  # one long word is cut within
        ("", 5, ""),
    ],
)
def test_shortened(text, max_chars, shown):
    assert shortened(text, max_chars) == shown
    assert len(shown) <= max_chars
