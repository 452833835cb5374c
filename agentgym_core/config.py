"""What a YAML file composes: a run, as frozen data with all its components built.

`docs/configuration.md` describes every key, and how includes, stages and overrides combine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from agentgym_core.catalog import Catalog
from agentgym_core.document import Document, is_block, parse_overrides, read_document
from agentgym_core.environments import EnvironmentBlock, environment_block
from agentgym_core.errors import ConfigError
from agentgym_core.model import ModelConfig
from agentgym_core.on_policy import OnPolicy
from agentgym_core.plugins import Kind
from agentgym_core.protocols import (
    AdvantageEstimator,
    Agent,
    Algorithm,
    Backend,
    Engine,
    RoundScheduler,
    TaskSampler,
    Tracker,
)
from agentgym_core.rewards import RewardBlock
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig
from agentgym_core.stages import (
    COMPONENTS,
    SETTINGS,
    StageDocument,
    distinct,
    folder_name,
    required,
    split_stages,
    stage_names,
)
from agentgym_core.structure import construct, join, structure, unstructure
from agentgym_core.wording import did_you_mean

Resume = Literal["auto", "always", "never"]
"""Whether a run goes on with the directory that exists, must do so, or must not."""


@attrs.frozen(kw_only=True)
class TrackerBlock:
    """One place where metrics go beside `metrics.jsonl`."""

    use: str
    component: Tracker


@attrs.frozen(kw_only=True)
class StageConfig:
    """One stage of a run, with every key resolved."""

    name: str
    from_base: bool
    """Whether it starts from the run's `model`; otherwise from the stage before it."""
    model: ModelConfig
    """The run's. It is the same in all stages."""
    seed: int
    environments: tuple[EnvironmentBlock, ...]
    agent: Agent
    algorithm: Algorithm
    advantage: AdvantageEstimator | None
    rounds: RoundScheduler
    tasks: TaskSampler
    reward: tuple[RewardBlock, ...]
    """Terms of the reward; none is the environment's own."""
    engine: Engine
    backend: Backend
    limits: Limits
    training: TrainingConfig
    evaluation: EvaluationConfig | None
    uses: Mapping[str, str]
    """Registered name of each component, such as {"algorithm": "grpo"}."""


@attrs.frozen(kw_only=True)
class RunConfig:
    """Everything that a run is made of."""

    name: str
    output: Path
    """The folder of all runs."""
    trackers: tuple[TrackerBlock, ...] = ()
    stages: tuple[StageConfig, ...]
    """In order; at least one. Their names differ."""

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self.output / self.name


def load_config(path: Path | str, overrides: Sequence[str], catalog: Catalog) -> RunConfig:
    """Read a YAML file, put the overrides over it, and build every component it names.

    Raises:
        ConfigError: a file, key or value is wrong; names the file or the key's path.
        ComponentNotFoundError: nothing is registered under a name in it.
        PluginError: a component it names cannot be imported.
    """
    return compose(read_document(Path(path)), parse_overrides(overrides), catalog)


def compose(document: Document, changes: Document, catalog: Catalog) -> RunConfig:
    """Build a run from a document and the overrides on it; raises as `load_config` does."""
    run, stages = split_stages(document, changes)
    name = folder_name(run, "name")
    output = structure(Path, run["output"], "output")
    model = structure(ModelConfig, required(run, "model"), "model")
    parts = [_build_stage(stage, catalog) for stage in stages]
    names = stage_names(stages, [part["uses"]["algorithm"] for part in parts])
    _check_learns_from(stages, parts, names)
    built = [
        StageConfig(name=stage_name, model=model, **part)
        for stage_name, part in zip(names, parts, strict=True)
    ]
    trackers = _trackers(run["trackers"], catalog)
    return RunConfig(name=name, output=output, trackers=trackers, stages=tuple(built))


def resolved(config: RunConfig) -> Document:
    """The whole configuration as plain YAML values, which `compose` to an equal one."""
    stages = [_resolved_stage(stage) for stage in config.stages]
    run = {
        "name": config.name,
        "output": str(config.output),
        "trackers": [
            {"use": block.use, **unstructure(block.component)} for block in config.trackers
        ],
        "model": unstructure(config.stages[0].model),
    }
    if len(stages) == 1 and stages[0]["name"] == config.stages[0].uses["algorithm"]:
        del stages[0]["name"], stages[0]["model"]
        return {**run, **stages[0]}
    return {**run, "stages": stages}


def _resolved_stage(stage: StageConfig) -> Document:
    environments = [block.to_document() for block in stage.environments]
    components = {key: getattr(stage, key) for key in COMPONENTS}
    return {
        "name": stage.name,
        "model": "base" if stage.from_base else "previous",
        "seed": stage.seed,
        **_one_or_several(environments),
        **{
            key: None if part is None else {"use": stage.uses[key], **unstructure(part)}
            for key, part in components.items()
        },
        "reward": [
            {"use": block.use, "weight": block.weight, **unstructure(block.component)}
            for block in stage.reward
        ]
        or None,
        **{key: unstructure(getattr(stage, key)) for key in SETTINGS},
    }


def _one_or_several(environments: list[Document]) -> Document:
    """Under the key that a user would write, so that overrides find it."""
    if len(environments) == 1:
        return {"environment": environments[0]}
    return {"environments": environments}


def _build_stage(stage: StageDocument, catalog: Catalog) -> dict[str, Any]:
    """The fields of a `StageConfig`, but for its name and the run's model."""
    blocks = {key: required(stage.values, key) for key in COMPONENTS if key != "advantage"}
    parts = {
        key: catalog.build(COMPONENTS[key], block, stage.path(key)) for key, block in blocks.items()
    }
    try:
        parts["algorithm"].check(parts["engine"])
    except ValueError as error:
        raise ConfigError(f"{stage.path('engine')}: {error}") from error
    parts["advantage"] = None
    block = _advantage_block(stage, parts["algorithm"], _use(blocks["algorithm"]))
    if block is not None:
        blocks["advantage"] = block
        parts["advantage"] = catalog.build("advantage", block, stage.path("advantage"))
    settings = {
        key: structure(annotation, required(stage.values, key), stage.path(key))
        for key, annotation in SETTINGS.items()
    }
    if parts["advantage"] is None and isinstance(parts["algorithm"], OnPolicy):
        raise ConfigError(
            f"{stage.path('advantage')}: {_use(blocks['algorithm'])} learns from advantages: name "
            "an estimator, or leave the key out for its own"
        )
    _check_critic(stage, parts, blocks)
    if settings["training"].group_size == 1 and getattr(parts["advantage"], "compares_groups", 0):
        raise ConfigError(
            f"{join(stage.path('training'), 'group_size')}: {_use(block)} compares the attempts at "
            "one task, and one attempt teaches nothing: set it to at least 2"
        )
    return {
        **parts,
        **settings,
        "from_base": stage.from_base,
        "seed": _seed(stage.values["seed"], stage.path("seed")),
        "environments": _environments(stage, catalog),
        "reward": _rewards(stage, catalog),
        "uses": {key: _use(block) for key, block in blocks.items()},
    }


def _check_critic(
    stage: StageDocument, parts: Mapping[str, Any], blocks: Mapping[str, Any]
) -> None:
    """A critic needs targets, which the estimator gives, and a loss, which the algorithm has."""
    if parts["advantage"] is None:
        return
    trained, read = ("values" in parts[key].needs for key in ("algorithm", "advantage"))
    algorithm, advantage = _use(blocks["algorithm"]), _use(blocks["advantage"])
    if trained and not read:
        raise ConfigError(
            f"{stage.path('advantage')}: {algorithm} trains a critic, for which {advantage} has no "
            "use and gives no targets: choose an estimator that learns from values, such as gae, "
            "or an algorithm without a critic"
        )
    if read and not trained:
        raise ConfigError(
            f"{stage.path('advantage')}: {advantage} reads the values of a critic, and {algorithm} "
            "trains none: choose an algorithm that does, such as ppo, or an estimator that needs "
            "no critic"
        )


def _check_learns_from(
    stages: Sequence[StageDocument], parts: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> None:
    """Refuse an algorithm that learns from the episodes of a stage which does not come before."""
    for index, (stage, part) in enumerate(zip(stages, parts, strict=True)):
        earlier = names[:index]
        for name in part["algorithm"].learns_from:
            if name not in earlier:
                raise ConfigError(
                    f"{stage.path('algorithm')}: learns from stage {name!r}, and no stage before "
                    f"it is called so: {', '.join(earlier) or 'it is the first'}."
                    f"{did_you_mean(name, earlier)}"
                )


def _seed(value: Any, path: str) -> int:
    seed = structure(int, value, path)
    if not 0 <= seed < 2**63:
        raise ConfigError(f"{path}: expected a whole number from 0 to 2^63 - 1, got {seed}")
    return seed


def _advantage_block(stage: StageDocument, algorithm: Algorithm, use: str) -> Any:
    """What is given, or the algorithm's default; None if it is switched off or there is none."""
    default: str | None = getattr(type(algorithm), "default_advantage", None)
    block = stage.values.get("advantage", default)
    if default is None and not isinstance(algorithm, OnPolicy):
        if block is not None and (stage.index is None or "advantage" in stage.own):
            raise ConfigError(
                f"{stage.path('advantage')}: {use} learns without advantages: leave the key out"
            )
        return None  # what the run says is for its other stages
    if is_block(block) and "use" not in block and default is not None:
        return {"use": default, **block}
    return block


def _environments(stage: StageDocument, catalog: Catalog) -> tuple[EnvironmentBlock, ...]:
    if "environment" in stage.values and "environments" in stage.values:
        raise ConfigError("environments: give `environment` or `environments`, not both")
    if "environments" in stage.values:
        path = stage.path("environments")
        value = structure(tuple[Any, ...], stage.values["environments"], path)
        if not value:
            raise ConfigError(f"{path}: expected at least one environment, got none")
        blocks = _numbered_blocks(list(value), path)
    else:
        blocks = {stage.path("environment"): required(stage.values, "environment")}
    built = [environment_block(block, path, catalog) for path, block in blocks.items()]
    names = distinct([None] * len(built), [block.use for block in built])
    return tuple(attrs.evolve(block, name=name) for name, block in zip(names, built, strict=True))


def _rewards(stage: StageDocument, catalog: Catalog) -> tuple[RewardBlock, ...]:
    value, path = stage.values["reward"], stage.path("reward")
    if value == []:
        raise ConfigError(
            f"{path}: expected at least one reward, got none. Leave the key out to train on the "
            "environment's own"
        )
    blocks = {} if value is None else _numbered_blocks(value, path)
    return tuple(
        construct(RewardBlock, _component("reward", block, at, catalog, weight=float), at)
        for at, block in blocks.items()
    )


def _trackers(value: Any, catalog: Catalog) -> tuple[TrackerBlock, ...]:
    blocks = {} if value is None else _numbered_blocks(value, "trackers")
    return tuple(
        TrackerBlock(**_component("tracker", block, path, catalog))
        for path, block in blocks.items()
    )


def _numbered_blocks(value: Any, path: str) -> dict[str, Any]:
    """By their paths: the blocks of a list, or the one block that stands in place of a list."""
    if not isinstance(value, list):
        return {path: value}
    return {join(path, index): block for index, block in enumerate(cast("list[Any]", value))}


def _component(
    kind: Kind, block: Any, path: str, catalog: Catalog, **reserved: type
) -> dict[str, Any]:
    """Build the block's component; the reserved keys, which belong to the run, stand beside it."""
    parts: dict[str, Any] = {}
    fields: Any = dict(block) if is_block(block) else block
    for key, annotation in reserved.items():
        if is_block(fields) and key in fields:
            parts[key] = structure(annotation, fields.pop(key), join(path, key))
    component = catalog.build(kind, fields, path)
    return {"use": _use(block), "component": component, **parts}


def _use(block: Any) -> str:
    return block if isinstance(block, str) else block["use"]
