"""Imports point one way, and the heavy ones wait."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentgym_core

CORE = Path(agentgym_core.__file__).parent
PLUGINS = CORE.parent / "plugins"
PLUGIN_SOURCES = sorted(PLUGINS.glob("*/src/*"))

LAYERS = [
    "errors wording files ranks lock watchdog stopping hookspecs types actions model seeds "
    "settings commands builtin",
    "protocols contract",
    "hf renderer handler session sequences rewards rollout batching losses importance kl_rewards "
    "credit rounds samplers task_files curriculum agents expert demonstrations supervised "
    "data_files conversations explored imitation statistics diagnosis records tracking trackers",
    "on_policy",
    "plugins structure document stages catalog serving environments config",
    "player evaluate checkpoint metrics learning_curve fork run run_directory loop train testing",
    "cli",
]
"""A module imports from its own layer and those above it in this list, and never in a circle."""
LAYER_OF = {name: index for index, layer in enumerate(LAYERS) for name in layer.split()}

HEAVY = {
    "torch", "transformers", "tokenizers", "jinja2", "matplotlib", "tensorboardX", "wandb",
    "fastapi", "uvicorn", "starlette", "pydantic", "prometheus_client",
}  # fmt: skip
"""Extras of the core, and what only plugins need."""


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST, *, whole: bool) -> Iterator[ast.AST]:
    """Everything in a file, or only what runs when it is imported."""
    for child in ast.iter_child_nodes(node):
        if whole or not (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(child)
        ):
            yield child
            yield from statements(child, whole=whole)


def imported(path: Path, *, whole: bool = True) -> set[str]:
    """Dotted names of what a file imports; `from a import b` may name a module a.b: both count."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), whole=whole):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            assert node.module is not None
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def core_module(dotted: str) -> str:
    """`agentgym_core.agents.act` -> agents; nothing for names outside the core."""
    root, *rest = dotted.split(".")
    return rest[0] if root == "agentgym_core" and rest else ""


def core_edges() -> dict[str, set[str]]:
    """By module or package of the core: those that it imports."""
    edges: dict[str, set[str]] = {}
    for path in sources(CORE):
        own = path.relative_to(CORE).with_suffix("").parts[0]
        if own == "__init__":
            continue
        targets = {core_module(dotted) for dotted in imported(path)}
        edges.setdefault(own, set()).update((targets & set(LAYER_OF)) - {own})
    return edges


def test_every_module_has_its_layer():
    assert set(core_edges()) - set(LAYER_OF) == set(), "say in LAYERS where it belongs"


def test_the_core_imports_one_way():
    wrong = [
        f"{module} imports {target}"
        for module, targets in core_edges().items()
        for target in sorted(targets)
        if LAYER_OF[target] > LAYER_OF[module]
    ]
    assert wrong == []


def test_the_core_has_no_circle():
    edges = core_edges()
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " imports ".join((*trail, module))
        if module not in done:
            for target in edges.get(module, ()):
                visit(target, (*trail, module))
            done.add(module)

    for module in edges:
        visit(module, ())


SERVERS = {"server", "upstream_server", "bodies", "guard"}
"""Modules of `serving` that only `agentgym serve` imports."""


@pytest.mark.parametrize(
    "path",
    [path for path in sources(CORE) if path.stem not in SERVERS],
    ids=lambda path: str(path.relative_to(CORE)),
)
def test_the_core_imports_what_is_heavy_only_when_it_needs_it(path):
    roots = {dotted.split(".")[0] for dotted in imported(path, whole=False)}
    assert roots & HEAVY == set()


def test_only_a_server_imports_the_servers():
    wrong = [
        f"{path.relative_to(CORE)} imports {dotted}"
        for path in sources(CORE)
        if path.stem not in SERVERS
        for dotted in imported(path, whole=False)
        if dotted.rpartition(".")[2] in SERVERS and dotted.startswith("agentgym_core.serving")
    ]
    assert wrong == []


def test_losses_import_nothing():
    assert imported(CORE / "losses.py") == set()


def test_the_plugins_of_this_repository_are_found():
    assert {path.name for path in PLUGIN_SOURCES} >= {"agentgym_grpo", "agentgym_textcraft"}


@pytest.mark.parametrize("package", PLUGIN_SOURCES, ids=lambda path: path.name)
def test_a_plugin_imports_the_core_and_no_other_plugin(package):
    roots = {dotted.split(".")[0] for path in sources(package) for dotted in imported(path)}
    ours = {root for root in roots if root.startswith("agentgym_")}
    assert ours <= {"agentgym_core", package.name}


@pytest.mark.parametrize("package", PLUGIN_SOURCES, ids=lambda path: path.name)
def test_a_plugin_module_is_light(package):
    """`plugin.py` is imported by every command, and the package's `__init__` with it."""
    assert (package / "__init__.py").read_text(encoding="utf-8").strip() == ""
    assert imported(package / "plugin.py") <= {
        "agentgym_core",
        "agentgym_core.hookimpl",
        "agentgym_core.hookspecs",
        "agentgym_core.hookspecs.Register",
    }
