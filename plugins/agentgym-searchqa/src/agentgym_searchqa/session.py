"""One question, from the first search to the answer."""

import re
from collections.abc import Callable, Sequence
from typing import Literal

import attrs

from agentgym_core.protocols import Session
from agentgym_core.types import Observation, Task
from agentgym_searchqa import phrases
from agentgym_searchqa.questions import Question, to_question
from agentgym_searchqa.retrieval import Retriever
from agentgym_searchqa.verdict import exact_match, token_f1

_ACTION = re.compile(r"\s*<(search|answer)>(.*)</\1>\s*", re.S)


@attrs.frozen(kw_only=True)
class Rules:
    """How a question is played and paid."""

    num_passages: int
    max_passage_chars: int
    max_searches: int | None
    reward: Literal["em", "f1"]
    endless_guesses: bool


@attrs.define(kw_only=True)
class Game:
    """A question under way."""

    question: Question
    num_searches: int = 0
    to_look_up: list[str] = attrs.field(factory=list[str])
    """What an expert would still search for."""
    ended: bool = False


@attrs.define
class SearchQASession(Session):
    """One reader at one desk."""

    rules: Rules
    retriever: Retriever
    find: Callable[[str], Question]
    """The question of an id, for tasks that carry none."""
    _game: Game | None = attrs.field(default=None, init=False)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Ask the task's question. Nothing here is left to chance.

        Raises:
            ValueError: the task asks nothing.
        """
        del seed
        question = to_question(task) if "question" in task.data else self.find(task.id)
        searches = question.searches or (question.text,)
        self._game = Game(question=question, to_look_up=list(searches))
        text = phrases.QUESTION.format(question=question.text)
        return Observation(messages=text, info={"question": question.text})

    async def step(self, action: str) -> Observation:
        """Search or answer; anything else is answered with the form of both.

        Raises:
            RuntimeError: there is no task under way.
            RetrievalError: the search came to no result.
        """
        game = self._under_way()
        match = _ACTION.fullmatch(action)
        content = " ".join(match[2].split()) if match else ""
        if match is None or not content:
            return Observation(messages=phrases.NO_ACTION)
        return await self._search(game, content) if match[1] == "search" else self._answer(content)

    async def available_actions(self) -> Sequence[str]:
        """Searches that make sense: the expert's, and one for the question as it stands.

        Answers are not listed: a wrong one would end the task.
        """
        game = self._game
        if game is None or game.ended or not self._may_search(game):
            return ()
        searches = dict.fromkeys((*game.question.searches, game.question.text))
        return tuple(f"<search>{query}</search>" for query in searches)

    async def expert_action(self) -> str | None:
        """The next search that has not been made, then the answer; None if no task is on."""
        game = self._game
        if game is None or game.ended or not game.question.answers:
            return None
        if game.to_look_up and self._may_search(game):
            return f"<search>{game.to_look_up[0]}</search>"
        return f"<answer>{game.question.answers[0]}</answer>"

    async def close(self) -> None:
        """Forget the task and let the retriever go."""
        self._game = None
        await self.retriever.close()

    def _under_way(self) -> Game:
        if self._game is None:
            raise RuntimeError("no task is under way: call reset(task, seed) before step(action)")
        if self._game.ended:
            raise RuntimeError(
                "the question was answered and nothing can follow: call reset(task, seed) to begin "
                "another"
            )
        return self._game

    def _may_search(self, game: Game) -> bool:
        return self.rules.max_searches is None or game.num_searches < self.rules.max_searches

    async def _search(self, game: Game, query: str) -> Observation:
        if not self._may_search(game):
            return Observation(messages=phrases.NO_SEARCH_LEFT)
        (passages,) = await self.retriever.search([query], self.rules.num_passages)
        game.num_searches += 1
        game.to_look_up = [other for other in game.to_look_up if other != query]
        return Observation(
            messages=phrases.information(passages, self.rules.max_passage_chars),
            info={"query": query, "passages": [passage.id for passage in passages]},
        )

    def _answer(self, answer: str) -> Observation:
        game = self._under_way()
        accepted = game.question.answers
        parts = {"em": exact_match(answer, accepted), "f1": token_f1(answer, accepted)}
        right = parts["em"] == 1
        game.ended = right or not self.rules.endless_guesses
        wrong = phrases.WRONG if game.ended else phrases.WRONG_GO_ON
        return Observation(
            messages=phrases.RIGHT if right else wrong,
            reward=parts[self.rules.reward],
            rewards=parts,
            terminated=game.ended,
            success=right,
            info={"answer": answer, "accepted": list(accepted)},
        )
