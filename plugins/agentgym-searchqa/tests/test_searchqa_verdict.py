"""Which answers are right, and how near the others come."""

import pytest

from agentgym_searchqa.verdict import exact_match, normalized, token_f1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Paris", "paris"),
        ("  The  Eiffel\tTower. ", "eiffel tower"),
        ("a man, a plan: an idea", "man plan idea"),
        ("theatre and Athens", "theatre and athens"),  # articles are whole words
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),
        ("Nuku'alofa", "nukualofa"),
        (".fr", "fr"),
        ("São Tomé", "são tomé"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("The", ""),
        ("?!", ""),
        ("", ""),
    ],
)
def test_normalization(text, left):
    assert normalized(text) == left


@pytest.mark.parametrize(
    ("answer", "accepted", "right"),
    [
        ("paris", ["Paris"], 1),
        ("The euro.", ["EUR", "euro"], 1),
        ("euros", ["euro"], 0),
        ("Paris, France", ["Paris"], 0),
        ("Pari", ["Paris"], 0),
        ("the", ["a"], 0),  # nothing is left of either
        ("", [""], 0),
        ("Paris", [], 0),
    ],
)
def test_exact_match(answer, accepted, right):
    assert exact_match(answer, accepted) == right


@pytest.mark.parametrize(
    ("answer", "accepted", "f1"),
    [
        ("Paris", ["Paris"], 1.0),
        # 1 word shared; precision 1/2, recall 1: 2 * 1/2 / (3/2) = 2/3
        ("Paris, France", ["Paris"], 2 / 3),
        # precision 2/3, recall 2/4: 2 * 1/3 / (7/6) = 4/7
        ("new york city", ["New York of old"], 4 / 7),
        ("new new york", ["new york york"], 2 / 3),  # shared as often as both have them: 2 of 3
        ("Rome", ["Paris", "City of Rome"], 1 / 2),  # the best of them: 2 * 1 / (1 + 3)
        ("Rome", ["Paris"], 0.0),
        ("the", ["the"], 0.0),
        ("Rome", [], 0.0),
    ],
)
def test_token_f1(answer, accepted, f1):
    assert token_f1(answer, accepted) == pytest.approx(f1, abs=1e-12)
