"""`agentgym new`."""

import ast
import builtins
import importlib.metadata
import keyword
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

import click

from agentgym_core.errors import ConfigError
from agentgym_core.files import new_folder
from agentgym_core.plugins import HOOKS, KEBAB_CASE, NOUNS, Kind, installed_plugins

TEMPLATES = Path(__file__).parent.parent / "templates"
KINDS: tuple[Kind, ...] = ("environment", "agent", "algorithm", "advantage", "rounds", "reward")
TEST_NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "agent": ("agentgym-core[hf]",),  # its suite speaks through a real tokenizer
    "algorithm": ("torch>=2.4",),
}
"""What the tests of a kind need beside pytest."""


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="The folder to write.  [default: agentgym-NAME]",
)
def new(kind: Kind, name: str, into: Path | None) -> None:
    """Write a package to begin with: a component that works, and its tests.

    NAME is what runs will call it: agentgym new environment guess-number
    """
    files = _fill(kind, name)
    folder = into or Path(f"agentgym-{name}")
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists: remove it, or write another folder with --into")
    _refuse_taken(name)
    with new_folder(folder) as aside:
        for path, text in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text, encoding="utf-8")
    place = shlex.quote(str(folder))
    click.echo(
        f"{folder} holds the {NOUNS[kind]} {name}. Next (in an environment of uv: uv pip):\n"
    )
    click.echo(f"  pip install -e {shlex.quote(f'{folder}[test]')}")
    click.echo(f"  pytest {place}")
    click.echo(f"  agentgym check {name}")
    click.echo(f"\nIn the YAML file of a run:\n\n{_example(files[Path('README.md')])}", nl=False)


def _fill(kind: Kind, name: str) -> Mapping[Path, str]:
    """The package's files.

    Raises:
        ConfigError: no component, or none of that kind, can be called so.
    """
    if not KEBAB_CASE.fullmatch(name):
        raise ConfigError(f"names are kebab-case, such as 'guess-number', got {name!r}")
    if len(name) > 60:
        raise ConfigError(f"{name[:20]}… has {len(name)} letters: choose a name of at most 60")
    if keyword.iskeyword(name):
        raise ConfigError(f"{name!r} is a keyword of Python: choose another name, say 'my-{name}'")
    class_name = "".join(word.capitalize() for word in name.split("-"))
    made = {class_name, f"{class_name}Session", f"Test{class_name}"}
    taken = _names(dict(_files(kind, _values(kind, "x", "_")))) | set(dir(builtins))
    if made & taken:
        raise ConfigError(
            f"{name!r} would make a class {min(made & taken)}, a name that the code of "
            f"{NOUNS[kind]}s needs for something else: choose another one, say 'my-{name}'"
        )
    return dict(_files(kind, _values(kind, name, class_name)))


def _values(kind: Kind, name: str, class_name: str) -> Mapping[str, str]:
    """What the placeholders of the templates stand for."""
    core = importlib.metadata.metadata("agentgym-core")
    snake_name = name.replace("-", "_")
    return {
        "kind": kind,
        "noun": NOUNS[kind],
        "hook": next(hook for hook, hooked in HOOKS.items() if hooked == kind),
        "name": name,
        "snake_name": snake_name,
        "class_name": class_name,
        "package": f"agentgym-{name}",
        "module": f"agentgym_{snake_name}",
        "python": core["Requires-Python"],
        "core_versions": _compatible(core["Version"]),
        "test_needs": ", ".join(f'"{need}"' for need in (*TEST_NEEDS.get(kind, ()), "pytest>=8.3")),
    }


def _compatible(version: str) -> str:
    """From this version on, up to the next one that may break: `>=0.1.0,<0.2`."""
    release = re.match(r"(\d+)\.(\d+)", version)
    assert release is not None, version
    major, minor = map(int, release.groups())
    end = f"{major + 1}" if major else f"0.{minor + 1}"
    return f">={version.partition('+')[0]},<{end}"


def _files(kind: Kind, values: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The filled templates, those that all kinds share and those of the kind."""
    for folder in (TEMPLATES / "package", TEMPLATES / kind):
        for path in sorted(folder.rglob("*.tmpl")):
            target = str(path.relative_to(folder).with_suffix(""))
            text = Template(path.read_text(encoding="utf-8")).substitute(values)
            yield Path(target.replace("NAME", values["snake_name"])), text


def _names(files: Mapping[Path, str]) -> set[str]:
    """Every name that the package's code uses, imports or makes."""
    sources = [text for path, text in files.items() if path.suffix == ".py"]
    found: set[str] = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias | ast.ClassDef):
            found.add(node.name)
    return found


def _refuse_taken(name: str) -> None:
    """Two installed packages cannot share a name, nor two components of a kind.

    Raises:
        ConfigError: whose it is.
    """
    for known in installed_plugins().registrations:
        if known.name == name:
            raise ConfigError(
                f"{name!r} is taken by the {NOUNS[known.kind]} of that name in {known.package} "
                f"{known.version}: choose another name"
            )
    try:
        version = importlib.metadata.version(f"agentgym-{name}")
    except importlib.metadata.PackageNotFoundError:
        return
    raise ConfigError(f"agentgym-{name} {version} is installed already: choose another name")


def _example(readme: str) -> str:
    """The YAML of a README, which is what a run says."""
    _, _, rest = readme.partition("```yaml\n")
    return rest.partition("```")[0]
