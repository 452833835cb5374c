from agentgym_core.testing import EnvironmentConformance
from agentgym_searchqa.environment import SearchQA


class TestSearchQA(EnvironmentConformance):
    environment = SearchQA()


class TestWithLimits(EnvironmentConformance):
    environment = SearchQA(
        sets=("two-hop",),
        num_questions=20,
        max_searches=1,
        num_passages=1,
        max_passage_chars=80,
        endless_guesses=True,
    )
