"""What went wrong in an episode, in a word: a pure function of its record."""

from collections import Counter

from agentgym_core.types import Ending, Episode

DIAGNOSES = ("loop", "premature-stop", "context-overflow", "format-errors", "horizon-cut")
LOOP = 3
"""So often the same action met the same answer."""


def diagnose(episode: Episode) -> tuple[str, ...]:
    """Those of `DIAGNOSES` that hold, in that order; none for an episode that failed.

    `loop`: in one attempt, one action was taken three times, and each time the world gave the same
    answer.
    `premature-stop`: the agent stopped with rounds left, and without success. `context-overflow`:
    the tokens ran out. `format-errors`: a reply did not name an action. `horizon-cut`: the rounds
    ran out, without success.
    """
    if episode.ending.is_failure:
        return ()
    answers = Counter(
        (turn.attempt, turn.action, turn.observation)
        for turn in episode.turns
        if turn.action is not None
    )
    stopped = episode.ending is Ending.AGENT_STOPPED
    holds = {
        "loop": any(num >= LOOP for num in answers.values()),
        "premature-stop": stopped
        and not episode.success_best
        and episode.num_rounds < episode.max_rounds,
        "context-overflow": episode.ending is Ending.OUT_OF_TOKENS,
        "format-errors": any(turn.format_error for turn in episode.turns),
        "horizon-cut": episode.ending is Ending.OUT_OF_ROUNDS and not episode.success_best,
    }
    return tuple(name for name in DIAGNOSES if holds[name])
