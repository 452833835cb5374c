"""`agentgym check`."""

from collections import Counter
from collections.abc import Mapping
from unittest import SkipTest

import click

from agentgym_core import testing
from agentgym_core.catalog import Catalog, how_to_install, shipped_by
from agentgym_core.document import parse_overrides
from agentgym_core.errors import ComponentNotFoundError, ConfigError
from agentgym_core.plugins import Kind
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.wording import did_you_mean, one_line

SUITES: Mapping[Kind, type[ComponentConformance]] = {
    "environment": testing.EnvironmentConformance,
    "agent": testing.AgentConformance,
    "algorithm": testing.AlgorithmConformance,
    "advantage": testing.AdvantageEstimatorConformance,
    "rounds": testing.RoundSchedulerConformance,
    "task-sampler": testing.TaskSamplerConformance,
    "reward": testing.RewardConformance,
    "engine": testing.EngineConformance,
    "backend": testing.BackendConformance,
}


@click.command()
@click.argument("name")
@click.argument("fields", nargs=-1)
@click.option("--kind", type=click.Choice(list(SUITES)), help="Where a name is of several kinds.")
@click.pass_context
def check(context: click.Context, name: str, fields: tuple[str, ...], kind: Kind | None) -> None:
    """Hold an installed component to the contract of its kind.

    FIELDS are the component's keys: agentgym check textcraft num_goals=20

    Prints a line for each check and exits with 1 if one fails.
    """
    catalog = Catalog.installed()
    kind = _kind(catalog, name, kind)
    component = catalog.build(kind, {"use": name, **parse_overrides(fields)}, name)
    suite = SUITES[kind]
    instance = type("Suite", (suite,), {suite.kind: component})()
    checks = [check for check in dir(suite) if check.startswith("test_")]
    results = Counter(_try(instance, check) for check in checks)
    skipped = f", {results['-']} do not apply" if results["-"] else ""
    click.echo(f"\n{name}: {results['ok']} of {len(checks)} checks hold{skipped}")
    context.exit(1 if results["FAILED"] else 0)


def _kind(catalog: Catalog, name: str, kind: Kind | None) -> Kind:
    """The kind that was asked for, or the only one with that name."""
    if kind is not None:
        return kind
    kinds: list[Kind] = [k for k in SUITES if name in catalog.names(k)]
    if not kinds:
        names = {known for k in SUITES for known in catalog.names(k)}
        package = shipped_by(name)
        ships = f" It ships in {package}: {how_to_install(package)}." if package else ""
        raise ComponentNotFoundError(
            f"no component is called {name!r}.{did_you_mean(name, names)}{ships} "
            "`agentgym plugins` lists what is installed"
        )
    if len(kinds) > 1:
        raise ConfigError(f"{name!r} is of several kinds, {', '.join(kinds)}: choose by --kind")
    return kinds[0]


def _try(suite: ComponentConformance, check: str) -> str:
    """Run one check and print its line; returns `ok`, `FAILED`, or `-` if it does not apply."""
    result, reason = "ok", ""
    try:
        getattr(suite, check)()
    except SkipTest as skipped:
        result, reason = "-", f": {one_line(skipped)}"
    except Exception as error:  # a faulty component may raise anything
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        result, reason = "FAILED", f": {kind}{one_line(error)}"
    click.echo(f"  {result:<6}  {check.removeprefix('test_').replace('_', ' ')}{reason}")
    return result
