"""Requests and answers of the server, as `/docs` describes them."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _is_utf8(text: str) -> str:
    """Half a character, which JSON can carry, cannot be answered."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_is_utf8)]


class TaskBody(BaseModel):
    """A task, as `GET /tasks` lists it."""

    id: Text
    category: Text = ""
    data: dict[str, Any] = {}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CreateBody(_Body):
    """Open a session."""

    key: Text = Field(
        "", max_length=200, description="Asking again with it gives the same session."
    )


class IdBody(_Body):
    """Of a session."""

    id: Text


class ResetBody(IdBody):
    """Begin a task."""

    task: TaskBody | Text = Field(description="A task of `GET /tasks`, or its id.")
    seed: int = Field(0, ge=0, lt=2**63)
    episode: int | None = Field(
        None, ge=0, lt=2**63, description="Grows with each reset; one number is begun once."
    )


class StepBody(IdBody):
    """Take an action."""

    action: Text
    step: int | None = Field(
        None, ge=1, lt=2**63, description="1 after a reset; one number is applied once."
    )


class ParseBody(_Body):
    """A reply of the policy."""

    text: Text


class RenderBody(_Body):
    """An action to write as a reply."""

    action: Text
    thought: Text = ""


class ErrorBody(BaseModel):
    """Every error of this server."""

    error: dict[str, str]


class CreatedBody(BaseModel):
    """A session."""

    id: str


class MessageBody(BaseModel):
    """What the policy will read."""

    role: str
    content: str | list[dict[str, Any]]


class ObservationBody(BaseModel):
    """What the world answered; fields that are 0, false or empty are left out."""

    messages: list[MessageBody]
    reward: float | str = Field(0.0, description='"nan", "inf" or "-inf" if it is no number.')
    rewards: dict[str, float | str] = {}
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    info: dict[str, Any] = {}


class SeenBody(BaseModel):
    """Where the episode stands."""

    step: int
    observation: ObservationBody


class ClosedBody(BaseModel):
    """Whether there was such a session."""

    closed: bool


class ActionsBody(BaseModel):
    """Actions that make sense now."""

    actions: list[str]


class ActionBody(BaseModel):
    """One action, or none."""

    action: str | None


class TasksBody(BaseModel):
    """A page of tasks."""

    split: str
    total: int
    tasks: list[TaskBody]


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody}
    for status in (400, 401, 404, 405, 409, 413, 422, 429, 500, 503, 504)
}
