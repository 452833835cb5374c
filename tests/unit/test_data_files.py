"""Which files `data` names, and where in them each row stands."""

import pytest

from agentgym_core.data_files import find_files, read_rows


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jsonl", "a.json", "notes.txt", "step2/0.json", "evaluation-000004-t1.jsonl",
                 ".step-000003.jsonl.half"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def names(folder, data):
    return [str(path.relative_to(folder)) for path in find_files(data)]


def test_a_folder_gives_its_rows_but_not_those_of_evaluations(folder):
    assert names(folder, str(folder)) == ["a.json", "b.jsonl", "step2/0.json"]


def test_files_patterns_and_lists(folder):
    assert names(folder, f"{folder}/notes.txt") == ["notes.txt"]
    assert names(folder, f"{folder}/**/*.json") == ["a.json", "step2/0.json"]
    listed = [f"{folder}/b.jsonl", f"{folder}/*.jsonl"]
    assert names(folder, listed) == ["b.jsonl", "evaluation-000004-t1.jsonl"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.jsonl", "data: there is no file .*no.jsonl"),
        ("*.yaml", r"data: there is no file .*\*.yaml"),
        ("empty", "data: the folder .*empty holds no .json and no .jsonl file"),
    ],
)
def test_a_name_that_leads_nowhere(folder, name, says):
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match=says):
        find_files(str(folder / name))
    with pytest.raises(ValueError, match="data: names no file"):
        find_files([])


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('{"a": 1}\n\n{"a": 2}\n', [1, 3]),
        ('[{"a": 1},\n {"a": 2}]', [1, 2]),
        ('\ufeff[\n{"a": 1}\n,\n{\n"a": 2}\n]\n', [2, 4]),
        ('{\n"a": 1\n}\n{"a": 2}', [1, 4]),
    ],
)
def test_rows_know_their_line(tmp_path, text, places):
    path = tmp_path / "f.json"
    path.write_text(text)
    rows = [({"a": 1}), ({"a": 2})]
    expected = [(f"{path}:{line}", row) for line, row in zip(places, rows, strict=True)]
    assert read_rows(path) == expected


def test_a_line_ends_at_a_line_feed_and_at_nothing_else(tmp_path):
    (tmp_path / "f.jsonl").write_text('{"a": "x\u2028y\x85"}\n{"a": 1}')
    assert [row["a"] for _, row in read_rows(tmp_path / "f.jsonl")] == ["x\u2028y\x85", 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f.json is empty: there is nothing to learn from"),
        ("[]", "f.json is empty"),
        ('{"a": 1}\n{"a":', "f.json:2: no JSON: Expecting value"),
        ('[{"a": 1}\n{"a": 2}]', "f.json:2: no JSON: the list does not go on"),
        ('[{"a": 1},\n{"a": 2}', "f.json:2: no JSON: the list does not go on"),
        ('[{"a": 1}]\n3', "f.json:2: no JSON: something follows the list"),
        ("textcraft_0", "f.json:1: no JSON"),
        ('{"a": 1}\n' + "[" * 100_000, "f.json:2: no JSON: .*recursion"),
    ],
)
def test_what_is_no_json_is_named_with_its_line(tmp_path, text, says):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(ValueError, match=says):
        read_rows(tmp_path / "f.json")
