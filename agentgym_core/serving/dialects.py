"""How AgentGym's own servers speak: one row for each environment.

AgentGym is the earlier project; its clients and servers are called "upstream" here. Both directions
read the same rows: `upstream_server`, which answers its clients, and `upstream_client`, which plays
on its servers.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import attrs

from agentgym_core.errors import ConfigError
from agentgym_core.serving.protocol import Json

GREETING = re.compile(r"This is environment (.+)\.|ok")
"""What all of its servers answer to `GET /`."""


@attrs.frozen(kw_only=True)
class Verdict:
    """What an answer to a step means."""

    reward: float
    terminated: bool
    truncated: bool = False
    success: bool


@attrs.frozen(kw_only=True)
class Row:
    """How the server of one environment speaks."""

    use: str
    greeting: str
    """What `GET /` answers."""
    session: Literal["id", "env_idx"] = "id"
    """The field that holds a session's number."""
    index: Literal["data_idx", "id", "idx"] = "data_idx"
    """The field of a reset that holds the task's number."""
    create_with: Mapping[str, Any] | None = None
    """The body that a create must have."""
    created_bare: bool = False
    """A create answers the session's number alone, and a reset the text alone."""
    begins: bool = False
    """A create begins a task as well."""
    reset_with: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """What a reset holds beside the numbers."""
    opening: tuple[str, ...] = ()
    """Fields of the answer to a reset."""
    answer: tuple[str, ...]
    """Fields of the answer to a step."""
    observed: tuple[str, ...] = ()
    """Fields of the answer to `GET /observation`; none for the text alone."""
    observes_opening: bool = False
    """`GET /observation` answers the first observation again, not the last."""
    opens_with_observation: bool = False
    """What the policy reads first is `GET /observation`: the reset's text lacks the goal."""
    takes: Literal["action", "reply"] = "action"
    """What a step is sent: the action that a reply names, or a reply."""
    renames: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """How actions begin in this project's words, and there."""
    last_word: str = ""
    """An action that holds this is the policy's last, also where the server would go on."""
    points: float = 1.0
    """What a reward of 1 is there."""
    info: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Fields of its answers, and the keys of `Observation.info` that they stand for."""
    extras: tuple[str, ...] = ()
    """Other paths that are asked with a session's number."""
    closed: Mapping[str, str] | None = None
    """What a close answers; None for whether there was such a session."""
    judge: Callable[[Json, float], Verdict]
    """What the answer to a step means; the number is the score before it."""
    fault: Callable[[Any], str]
    """What went wrong, if an answer says so; nothing else of it is to be believed then."""
    error: Callable[[str, str], tuple[int, Any]]
    """How a path answers what went wrong: the status and the body."""


def row_of(use: str, where: str) -> Row:
    """The row of an environment.

    Args:
        use: its registered name.
        where: the key or option that asks for it, for the error.

    Raises:
        ConfigError: AgentGym has no server for it.
    """
    if use not in ROWS:
        raise ConfigError(
            f"{where}: AgentGym's own servers and clients are known for {', '.join(ROWS)}, and "
            f"{use} is none of these: leave it out, to speak this project's protocol"
        )
    return ROWS[use]


def number_of(use: str, task_id: str) -> int | None:
    """The number by which its servers know a task; None if they know it by none.

    Example: number_of("textcraft", "textcraft_12") is 12, and of "textcraft_12-3" it is None
    """
    match = re.fullmatch(rf"{re.escape(use)}_([0-9]{{1,9}})", task_id)
    return int(match.group(1)) if match else None


# What an answer to a step means.


def _judge_textcraft(answer: Json, before: float) -> Verdict:
    del before
    reward, done = answer["reward"], answer["done"]
    return Verdict(reward=reward, terminated=done, success=done and reward == 1)


def _judge_babyai(answer: Json, before: float) -> Verdict:
    """Its reward is above 0 from the moment that the mission is accomplished, and never before.

    `done` is not said if that reward is 0.5 or less, and `score` adds the reward up again with
    every step that follows: neither is a verdict.
    """
    del before
    won = answer["reward"] > 0
    return Verdict(reward=min(answer["reward"], 1.0), terminated=won or answer["done"], success=won)


def _judge_sciworld(answer: Json, before: float) -> Verdict:
    """The score is 100 when all is done, and -100 after an action that spoils the task.

    The simulator ends for no other reason, so an end in between is its limit of steps.
    """
    score = answer["score"]
    failed, won = score < 0, score == 100
    return Verdict(
        reward=0.0 if failed else (score - before) / 100,
        terminated=failed or won,
        truncated=answer["done"] and not failed and not won,
        success=won,
    )


def _judge_searchqa(answer: Json, before: float) -> Verdict:
    """The reward of a wrong answer may be above 0, for its form."""
    del before
    reward = answer["reward"]
    return Verdict(reward=reward, terminated=answer["done"], success=reward == 1)


def _judge_webarena(answer: Json, before: float) -> Verdict:
    del before
    ended = answer["terminated"]
    reward = answer["reward"] if ended else 0.0
    return Verdict(
        reward=reward,
        terminated=ended,
        truncated=answer["truncated"] and not ended,
        success=reward > 0,
    )


# What went wrong, if an answer says so.


def _said_error(answer: Any) -> str:
    """`{"error": …}`, with status 200."""
    if isinstance(answer, dict) and "error" in (said := cast("Json", answer)):
        return str(said["error"]) or "an error without a word"
    return ""


_OWN_MISTAKES = re.compile(r"Invalid (\w+ )?action|Cannot parse action")
"""How WebArena's errors begin that the policy's action is to blame for."""


def _said_in_words(answer: Any) -> str:
    """WebArena catches everything: a step that raised has the error for its text, and no info."""
    if not isinstance(answer, dict):
        return ""
    said = cast("Json", answer)
    text = said.get("observation")
    if text == "TimeoutError":
        return "it could not load the page: TimeoutError"
    raised = "info" in said and said["info"] is None
    if raised and not _OWN_MISTAKES.match(str(text)):
        return str(text) or "an error without a word"
    return ""


# How what went wrong is answered.


def _in_the_body(path: str, message: str) -> tuple[int, Any]:
    del path
    return 200, {"error": message}


def _raised(path: str, message: str) -> tuple[int, Any]:
    del path
    return 500, message


def _in_words(path: str, message: str) -> tuple[int, Any]:
    if path == "/step":
        flags = {"reward": 0, "terminated": False, "truncated": False, "info": None}
        return 200, {"observation": message, **flags}
    if path == "/reset":
        return 200, {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
    return 500, message


_TEXTCRAFT = Row(
    use="textcraft",
    greeting="This is environment TextCraft.",
    create_with={},
    begins=True,
    opening=("id", "observation", "done", "reward"),
    answer=("observation", "reward", "done"),
    info={"goal": "goal"},
    extras=("detail", "goal"),
    judge=_judge_textcraft,
    fault=_said_error,
    error=_in_the_body,
)
_BABYAI = Row(
    use="babyai",
    greeting="This is environment BabyAI.",
    opening=("observation", "reward", "score", "deleted", "done"),
    answer=("observation", "reward", "score", "done"),
    observed=("observation", "reward", "score", "done", "deleted"),
    renames={"pick up ": "pickup "},
    judge=_judge_babyai,
    fault=_said_error,
    error=_in_the_body,
)
_SCIWORLD = Row(
    use="sciworld",
    greeting="This is environment ScienceWorld.",
    opening=(
        "task_name", "var_num", "task_description", "observation", "reward", "score", "deleted",
        "done",
    ),
    answer=("observation", "reward", "score", "done"),
    points=100.0,
    info={
        "task_name": "task_name",
        "var_num": "variation",
        "task_description": "task_description",
        "score": "score",
    },
    extras=("detail", "task_description", "action_hint"),
    judge=_judge_sciworld,
    fault=_said_error,
    error=_in_the_body,
)  # fmt: skip
_SEARCHQA = Row(
    use="searchqa",
    greeting="ok",
    session="env_idx",
    index="id",
    create_with={"id": 0},
    created_bare=True,
    begins=True,
    answer=("observation", "reward", "done", "info"),
    observes_opening=True,
    takes="reply",
    last_word="<answer>",
    judge=_judge_searchqa,
    fault=_said_error,
    error=_raised,
)
_WEBARENA = Row(
    use="webarena",
    greeting="ok",
    session="env_idx",
    index="idx",
    reset_with={"seed": 0},
    opening=("observation", "sites", "object"),
    answer=("observation", "reward", "terminated", "truncated", "info"),
    opens_with_observation=True,
    takes="reply",
    info={"sites": "sites", "object": "intent"},
    closed={"closed": "closed"},
    judge=_judge_webarena,
    fault=_said_in_words,
    error=_in_words,
)

ROWS: Mapping[str, Row] = {
    row.use: row for row in (_TEXTCRAFT, _BABYAI, _SCIWORLD, _SEARCHQA, _WEBARENA)
}
"""By the name of the environment."""
