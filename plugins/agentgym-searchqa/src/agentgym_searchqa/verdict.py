"""When an answer is right: as the question-answering sets are scored."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and surplus space.

    Source: the evaluation of SQuAD (Rajpurkar et al., 2016, https://arxiv.org/abs/1606.05250).
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Iterable[str]) -> float:
    """1 if the answer is one of those accepted, normalized; else 0.

    An answer of which nothing is left, such as `the`, is never right.
    """
    given = normalized(answer)
    return float(bool(given) and any(given == normalized(other) for other in accepted))


def token_f1(answer: str, accepted: Iterable[str]) -> float:
    """The largest F1 of the normalized words that an answer shares with one accepted, 0 to 1."""
    return max(
        (_f1(normalized(answer).split(), normalized(a).split()) for a in accepted), default=0
    )


def _f1(given: list[str], wanted: list[str]) -> float:
    num_shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * num_shared / (len(given) + len(wanted)) if num_shared else 0.0
