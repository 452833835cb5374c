"""Build every package, and install each plugin alone where nothing else is.

Wheels are built from the source distributions. A plugin that leaned on its neighbours, or on what
only the repository has, would fail here. Two minutes on two cores: python .ci/packages.py
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLUGINS = sorted((ROOT / "plugins").iterdir())
FIELDS = {
    "babyai": ["num_seeds=2"],
    "evol": ["explored=[explore-1]"],
    "scaling-inter": ["rounds=[2, 4]", "steps_per_stage=3"],
    "scaling-inter-adaptive": ["rounds=[2, 4]"],
    "scaling-inter-linear": ["start=2", "end=4", "num_steps=3"],
    "soft-overlong": ["max_tokens=64", "margin=16"],
    "sft": ["num_demonstrations=4"],
    "textcraft": ["num_goals=20"],
}
"""Of components that have required keys, or are slow to check without them."""
README_FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
WITH_TORCH = {"agentgym-torch"}

LOAD = """
import importlib.util
from agentgym_core.plugins import installed_plugins
for found in installed_plugins().registrations:
    if found.kind != "tracker":  # their packages are extras
        found.load()
print(importlib.util.find_spec("torch") is not None)
"""


def run(*command: str | Path) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def tracked(folder: Path) -> set[str]:
    """The files that the repository has of a folder, from there."""
    listed = run("git", "-C", folder, "ls-files", "--cached", "--others", "--exclude-standard")
    return {name for name in listed.splitlines() if (folder / name).is_file()}


def build(package: Path, module: Path, folder: Path) -> Path:
    """Build both distributions of a package, hold them to its files, and return the wheel."""
    run("uv", "build", "--quiet", "--no-sources", "--out-dir", folder, package)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    code = {f"{module.name}/{name}" for name in tracked(module)}
    assert f"{module.name}/py.typed" in code, f"{module} has no py.typed"

    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert in_wheel == code, f"{wheel.name} and the repository differ: {in_wheel ^ code}"
    licenses = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/licenses/" in n}
    assert {Path(name).name for name in licenses} == {"LICENSE", "NOTICE"}, licenses

    with tarfile.open(source) as archive:
        in_source = {name.partition("/")[2] for name in archive.getnames()}
    wanted = code if package == ROOT else tracked(package)
    wanted = wanted | {"pyproject.toml", "README.md", "LICENSE", "NOTICE"}
    extra = {"PKG-INFO", ".gitignore"}
    assert in_source - extra == wanted, f"{source.name}: {(in_source - extra) ^ wanted}"
    return wheel


def fresh(folder: Path, *what: str | Path) -> Path:
    """A new virtual environment with that installed, and its `bin`."""
    run("uv", "venv", "--quiet", folder)
    bin_ = folder / "bin"
    run("uv", "pip", "install", "--quiet", "--python", bin_ / "python", *what)
    run("uv", "pip", "check", "--quiet", "--python", bin_ / "python")
    return bin_


def try_alone(package: str, bin_: Path) -> None:
    """The one plugin that is installed shows what it registers, and that loads and conforms."""
    found = json.loads(run(bin_ / "agentgym", "plugins", "--json"))
    assert not found["broken"], found["broken"]
    assert {known["package"] for known in found["registrations"]} == {"agentgym-core", package}
    own = [known for known in found["registrations"] if known["package"] == package]
    has_torch = run(bin_ / "python", "-c", LOAD).strip() == "True"
    assert has_torch == (package in WITH_TORCH), f"{package} must not install torch"
    for known in own:
        name = known["name"]
        said = run(bin_ / "agentgym", "check", name, "--kind", known["kind"], *FIELDS.get(name, []))
        print(f"  {said.splitlines()[-1]}", flush=True)


def main() -> None:
    """Build, install, try."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core = build(ROOT, ROOT / "agentgym_core", folder / "agentgym-core")
        for package in PLUGINS:
            project = tomllib.loads((package / "pyproject.toml").read_text())["project"]["name"]
            assert project == package.name, f"{package} calls itself {project}"
            module = package / "src" / project.replace("-", "_")
            wheel = build(package, module, folder / project)
            print(project, flush=True)
            try_alone(project, fresh(folder / f"{project}-alone", core, wheel))

        print("the README's environment", flush=True)
        world = folder / "world"
        world.mkdir()
        for file, text in README_FILE.findall((ROOT / "README.md").read_text(encoding="utf-8")):
            (world / file).write_text(text, encoding="utf-8")
        try_alone("guess-number", fresh(folder / "world-alone", core, world))

        print("from a clone, with pip", flush=True)
        run("uv", "venv", "--quiet", "--seed", folder / "pip")
        pip = (folder / "pip" / "bin" / "python", "-m", "pip", "install", "--quiet")
        run(*pip, "./", "./plugins/agentgym-grpo")
        try_alone("agentgym-grpo", folder / "pip" / "bin")


if __name__ == "__main__":
    main()
