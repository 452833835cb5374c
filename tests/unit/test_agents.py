"""The keys of agents: what is refused, and what comes back from YAML."""

import attrs
import pytest
import yaml

from agentgym_core.agents.act import Act
from agentgym_core.agents.context import ContextPolicy, policy_of
from agentgym_core.agents.plan_act import PlanAct
from agentgym_core.agents.react import React
from agentgym_core.agents.reflect import Reflect
from agentgym_core.errors import ConfigError
from agentgym_core.structure import structure, unstructure

BLOCKS = (
    "drop",
    ContextPolicy(),
    ContextPolicy(when_full="drop", keep=0.25, note="(gone)"),
    ContextPolicy(when_full="summarise", request="Sum up.", heading="Before:"),
)


def build(cls, text):
    return structure(cls, yaml.safe_load(text), "agent")


@pytest.mark.parametrize(
    ("cls", "text", "message"),
    [
        (PlanAct, "{revise_after_failures: 0, revise_request: Again.}",
         "revise_request has no effect with revise_every: 0 and revise_after_failures: 0"),
        (PlanAct, "{heading: Mine}", "heading has no effect with context: stop"),
        (PlanAct, "{heading: Mine, context: {when_full: drop}}",
         "heading has no effect with context: drop"),
        (PlanAct, "{plan_request: ''}", "plan_request must not be empty"),
        (PlanAct, "{revise_request: ' '}", "revise_request must not be empty"),
        (Reflect, "{request: ' '}", "request must not be empty"),
        (Reflect, "{loop_request: ''}", "loop_request must not be empty"),
        (PlanAct, "{revise_every: -1}", "revise_every must be at least 0, got -1"),
        (PlanAct, "{revise_after_failures: -1}", "revise_after_failures must be at least 0"),
        (Reflect, "{attempts: 1, request: Why.}", "request has no effect with attempts: 1"),
        (Reflect, "{attempts: 1, heading: Notes}", "heading has no effect with attempts: 1"),
        (Reflect, "{attempts: 0}", "attempts must be at least 1, got 0"),
        (Reflect, "{loop_after: 0, go: Act.}", "go has no effect with loop_after: 0"),
        (Reflect, "{loop_after: 0, loop_request: L.}",
         "loop_request has no effect with loop_after: 0"),
        (Reflect, "{loop_after: 1}", "loop_after must be 0, or at least 2: once is no loop"),
        (Reflect, "{attempts: 1, context: {keep: 0.2}}", "keep has no effect with when_full: stop"),
        (Act, "{context: {when_full: summarise, note: x}}",
         "note has no effect with when_full: summarise"),
        (React, "{context: {when_full: drop, request: x}}",
         "request has no effect with when_full: drop"),
        (React, "{context: {when_full: drop, heading: x}}",
         "heading has no effect with when_full: drop"),
        (React, "{context: {when_full: drop, keep: 1.5}}", "keep is a share from 0 to 1, got 1.5"),
        (React, "{context: {when_full: drop, note: ' '}}", "note must not be empty"),
        (React, "{context: {when_full: summarise, request: ''}}", "request must not be empty"),
        (React, "{context: {when_ful: drop}}", "agent.context.when_ful: unknown key"),
        (React, "{context: {when_full: dropp}}", "agent.context.when_full: expected"),
        (React, "{context: dropp}", "agent.context: expected"),
    ],
)  # fmt: skip
def test_a_key_that_is_wrong_or_without_effect_is_refused(cls, text, message):
    with pytest.raises(ConfigError) as caught:
        build(cls, text)
    assert message in str(caught.value)


def test_what_has_an_effect_is_taken():
    assert build(PlanAct, "{context: summarise, heading: Mine}").heading == "Mine"
    assert build(PlanAct, "{revise_after_failures: 0, revise_every: 2, revise_request: A}")
    assert build(Reflect, "{attempts: 1, loop_after: 2, go: Act.}").attempts == 1
    assert build(Reflect, "{loop_after: 0, request: Why}").request == "Why"


@pytest.mark.parametrize("context", BLOCKS)
@pytest.mark.parametrize("cls", [Act, React, PlanAct, Reflect])
def test_context_comes_back_from_yaml(cls, context):
    agent = cls(context=context)
    text = yaml.safe_dump(unstructure(agent))
    again = build(cls, text)
    assert again == agent
    assert type(again.context) is type(context)


@pytest.mark.parametrize("name", ["stop", "drop", "summarise"])
def test_a_name_is_short_for_a_block(name):
    short, long = (
        build(React, text) for text in (f"context: {name}", f"context: {{when_full: {name}}}")
    )
    assert policy_of(short.context) == policy_of(long.context) == ContextPolicy(when_full=name)


@pytest.mark.parametrize("agent", [PlanAct(), Reflect()])
def test_every_default_is_taken_as_it_is(agent):
    """`config.yaml` of a run writes all keys, those without effect included."""
    blocks = [agent, attrs.evolve(agent, context="drop")]
    blocks += [PlanAct(revise_after_failures=0), Reflect(attempts=1), Reflect(loop_after=0)]
    for block in blocks:
        assert build(type(block), yaml.safe_dump(unstructure(block))) == block
