"""What holds for every component: it is frozen data, and its plugin is light."""

import os
import pickle
import subprocess
import sys
from typing import Any, ClassVar, cast
from unittest import SkipTest

import attrs
import yaml

from agentgym_core.structure import structure, unstructure

HEAVY = ("torch", "transformers", "tokenizers")

_IMPORTS = """
import importlib, sys
try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    sys.exit(f"missing {error}")
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""


class ComponentConformance:
    """Checks of components of any kind. Subclass the suite of a kind, not this class.

    The suites are plain classes that need no test runner. pytest collects a subclass whose name
    begins with `Test`; `agentgym check` runs the same methods.
    """

    kind: ClassVar[str]
    """Attribute of the subclass that holds the component under test."""

    @property
    def component(self) -> Any:
        """What is tested.

        Raises:
            TypeError: the subclass names no component.
        """
        component = getattr(self, self.kind, None)
        if component is None:
            raise TypeError(
                f"{type(self).__name__} tests nothing: give it a component, {self.kind} = Mine(...)"
            )
        return component

    def test_is_a_frozen_attrs_class(self) -> None:
        """Shared between episodes and written into `config.yaml`, so it must not change."""
        component = self.component
        cls = cast("type[Any]", type(component))
        frozen = attrs.has(cls) and attrs.inspect(cls).is_frozen
        assert frozen, f"{cls.__name__} can change: decorate it with @attrs.frozen(kw_only=True)"

    def test_pickles(self) -> None:
        """It is sent to worker processes."""
        again = pickle.loads(pickle.dumps(self.component))
        assert again == self.component, (
            f"{self.component!r} comes back from pickle as {again!r}: keep only plain fields, and "
            "make live things in a method"
        )

    def test_survives_yaml(self) -> None:
        """`config.yaml` of a run must build an equal component again."""
        text = yaml.safe_dump(unstructure(self.component))
        again = structure(type(self.component), yaml.safe_load(text), self.kind)
        assert again == self.component, (
            f"{self.component!r} comes back from YAML as {again!r}: let converters accept lists "
            "for tuples, and keep every field that matters in __init__"
        )

    def test_plugin_module_is_light(self) -> None:
        """Every `agentgym` command imports the plugin module."""
        module = type(self.component).__module__
        root = module.partition(".")[0]
        plugin = "agentgym_core.builtin" if root == "agentgym_core" else f"{root}.plugin"
        done = run_python(_IMPORTS, plugin, module, *HEAVY)
        if done.stderr.startswith("missing"):
            raise SkipTest(f"{plugin} cannot be imported: the component is of no installed plugin")
        assert done.returncode == 0, f"importing {plugin} failed: {done.stderr.strip()}"
        assert not done.stdout.strip(), (
            f"{plugin} imports {done.stdout.strip()}: register import strings only"
        )


def run_python(
    code: str, *arguments: str, given: bytes = b"", hash_seed: str = "0"
) -> "subprocess.CompletedProcess[str]":
    """Run a script in a fresh interpreter that finds the same modules."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=given,
        capture_output=True,
        env=environment,
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
