"""What each shape of row becomes, and what is said of a row of none."""

import json

import pytest

from agentgym_core.conversations import read_conversations, selected, to_conversation

ASK = {"role": "user", "content": "go"}
SAY = {"role": "assistant", "content": "left"}
TURN = {"trained": True}


def learned(row):
    """The messages of a row as role and text, with a star where it is learned."""
    found = to_conversation(row, "f:1")
    return [f"{m.role}{'*' * (m.role == 'assistant' and m.loss)}: {m.text}" for m in found.messages]


def test_openai_messages_with_text_or_parts():
    parts = [{"type": "text", "text": "le"}, {"type": "text", "text": "ft"}]
    row = {"messages": [{"role": "system", "content": "s"}, ASK, {**SAY, "content": parts}]}
    assert learned(row) == ["system: s", "user: go", "assistant*: left"]


@pytest.mark.parametrize("mark", [{"loss": False}, {"weight": 0}])
def test_an_openai_reply_may_be_left_out(mark):
    assert learned({"messages": [ASK, {**SAY, **mark}, ASK, SAY]}) == [
        "user: go", "assistant: left", "user: go", "assistant*: left",
    ]  # fmt: skip


def test_of_agenttraj_only_replies_with_loss_true_are_learned():
    turns = [
        {"from": "human", "loss": None, "value": "rules"},
        {"from": "gpt", "loss": False, "value": "OK."},
        {"from": "human", "loss": None, "value": "a door"},
        {"from": "gpt", "loss": True, "value": "open"},
        {"from": "gpt", "loss": None, "value": "wait"},
        {"from": "gpt", "value": "sleep"},
    ]
    assert learned({"conversations": turns, "item_id": "babyai_3"}) == [
        "user: rules", "assistant: OK.", "user: a door", "assistant*: open",
        "assistant: wait", "assistant: sleep",
    ]  # fmt: skip


def test_the_acknowledgement_of_a_rollout_log_is_not_learned():
    said = {"role": "assistant", "content": "OK. I'll follow your instructions."}
    row = {"item_id": "x_1", "conversations": [ASK, said, ASK, SAY], "reward": 0.5}
    assert learned(row)[1::2] == ["assistant: OK. I'll follow your instructions.",
                                  "assistant*: left"]  # fmt: skip
    assert learned({"conversations": [ASK, SAY]})[1] == "assistant*: left"
    assert to_conversation(row, "").reward == 0.5


def test_an_episode_of_ours_learns_the_turns_that_were_trained():
    row = {"messages": [ASK, SAY, ASK, SAY], "turns": [TURN, {"trained": False}], "ending": "done"}
    assert learned(row)[1::2] == ["assistant*: left", "assistant: left"]
    assert to_conversation({**row, "ending": "engine-failed"}, "f:1") is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (3, "f:1: expected `messages`.*TypeError: got 3"),
        ({"text": "x"}, "it has the keys text$"),
        ({}, "it has the keys none$"),
        ({"chosen": [], "rejected": []}, "it has the keys chosen, rejected: pairs are for `dpo`"),
        ({"messages": "x"}, "TypeError: 'x' is no list"),
        ({"messages": [{"role": "user"}]}, "KeyError: 'content'"),
        ({"messages": [{**ASK, "role": "gpt"}]}, "`role` is 'gpt', expected one of system, user"),
        ({"messages": [{**SAY, "content": None}]}, "`content` is nothing, expected text"),
        ({"messages": [{**ASK, "content": [{"type": "image_url"}]}]}, "a part that is no text"),
        ({"messages": [{**SAY, "loss": "no"}]}, "`loss` is 'no', expected true or false"),
        ({"conversations": [{"from": "user", "value": "x"}]}, "`from` is 'user', expected human"),
        ({"messages": [SAY], "success": 1}, "`success` is 1, expected true or false"),
        ({"messages": [SAY], "reward": "high"}, "`reward` is 'high', expected a number"),
        ({"messages": [SAY], "reward": float("nan")}, "`reward` is nan, expected a number"),
        ({"messages": [SAY], "reward": 10**400}, "`reward` is 1000.*, expected a number"),
        ({"messages": [SAY], "turns": [], "ending": "well"}, "'well' is not a valid Ending"),
    ],
)
def test_a_row_of_no_shape_is_named_with_its_place(row, says):
    with pytest.raises(ValueError, match=says):
        to_conversation(row, "f:1")


def rows(**columns):
    ((name, values),) = columns.items()
    return [to_conversation({"messages": [SAY], name: value}, "") for value in values]


def test_rows_are_chosen_by_their_verdict_and_those_without_stay():
    found = rows(success=[True, False, None])
    assert selected(found, only_success=True, min_reward=None) == [found[0], found[2]]
    found = rows(reward=[0.5, 0.4, None])
    assert selected(found, only_success=False, min_reward=0.5) == [found[0], found[2]]


@pytest.mark.parametrize(
    ("asked", "found", "says"),
    [
        ({"only_success": True}, rows(reward=[1.0]), "only_success: no row has `success`"),
        ({"min_reward": 0.5}, rows(success=[True]), "min_reward: no row has a `reward`"),
        ({"only_success": True}, rows(success=[False]), "none of 1 conversations passes"),
    ],
)
def test_a_choice_without_effect_or_remainder_is_refused(asked, found, says):
    with pytest.raises(ValueError, match=says):
        selected(found, **{"only_success": False, "min_reward": None, **asked})


def test_files_of_different_shapes_are_read_together(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [ASK, SAY]}) + "\n")
    log = [{"item_id": "x_1", "conversations": [ASK, SAY], "reward": 1}]
    (tmp_path / "step1").mkdir()
    (tmp_path / "step1" / "0.json").write_text(json.dumps(log))
    found = read_conversations(str(tmp_path))
    assert [c.reward for c in found] == [None, 1.0]
    assert [c.place for c in found] == [f"{tmp_path}/a.jsonl:1", f"{tmp_path}/step1/0.json:1"]


def test_a_file_from_which_nothing_is_learned_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [ASK]}))
    with pytest.raises(ValueError, match=r"a\.jsonl holds no assistant message to learn from"):
        read_conversations(str(tmp_path / "a.jsonl"))
