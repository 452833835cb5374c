"""YAML files and command-line overrides, as one plain document that no class has checked yet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, cast

import yaml

from agentgym_core.errors import ConfigError
from agentgym_core.structure import join, structure
from agentgym_core.wording import shown

Document = dict[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one block, of which PyYAML would take the last.

    A date stays the text that it is.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands here and on line {first}",
                    problem_mark=key.start_mark,
                )
            lines[key.tag, key.value] = key.start_mark.line + 1
        return node


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def is_block(value: Any) -> TypeGuard[Document]:
    """Whether YAML gave a mapping."""
    return isinstance(value, dict)


def read_document(path: Path) -> Document:
    """Read a YAML file and what it includes.

    `include: other.yaml`, or a list of files, names documents relative to the including one. They
    are merged in their order, and the including file over them.

    Raises:
        ConfigError: a file is missing, includes itself, is not a mapping or not YAML, or has a key
            twice; names the file and the line.
    """
    return _read_with_includes(path, ())


def parse_overrides(overrides: Sequence[str]) -> Document:
    """`training.num_steps=10` and its like, as one document to merge over a file's.

    Values are YAML. Entries of a list are numbered from 0: `stages.1.training.num_steps=3`.

    Raises:
        ConfigError: one is not `key=value`, or its value is not YAML.
    """
    document: Document = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(
                f"override {override!r}: expected key=value, such as training.num_steps=10"
            )
        _insert(document, keys, _parse(text, f"override {override!r}"))
    return document


def merge_documents(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> Document:
    """Merge whole documents, or stages: `environment` and `environments` take turns."""
    base = dict(base)
    for key, other in (("environment", "environments"), ("environments", "environment")):
        if key in overlay and _is_whole(overlay[key]):
            base.pop(other, None)
    return merge(base, overlay, "")


def merge(base: Any, overlay: Any, path: str) -> Any:
    """Merge deeply: blocks key by key, everything else replaced.

    A block that names another component in `use` replaces the block below it, because the fields
    of one component mean nothing to another. A name alone stands for `{use: name}`.

    Raises:
        ConfigError: an override numbers an entry that a list does not have.
    """
    if isinstance(base, list) and is_block(overlay) and _are_indices(overlay):
        return _merge_entries(cast("list[Any]", base), overlay, path)
    if isinstance(base, str) and is_block(overlay):
        base = {"use": base}
    if is_block(base) and "use" in base and isinstance(overlay, str):
        overlay = {"use": overlay}
    if not is_block(base) or not is_block(overlay):
        return overlay
    if "use" in overlay and overlay["use"] != base.get("use"):
        return overlay
    merged = dict(base)
    for key, value in overlay.items():
        merged[key] = merge(base[key], value, join(path, key)) if key in base else value
    return merged


def _merge_entries(entries: list[Any], overlay: Document, path: str) -> list[Any]:
    merged = list(entries)
    for key, value in overlay.items():
        if int(key) >= len(merged):
            raise ConfigError(
                f"{join(path, key)}: no such entry; the list has {len(merged)}, counted from 0"
            )
        merged[int(key)] = merge(merged[int(key)], value, join(path, key))
    return merged


def _are_indices(overlay: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and key.isdecimal() for key in overlay)


def _is_whole(block: Any) -> bool:
    """Whether it stands by itself, rather than change some keys of another."""
    return not is_block(block) or "use" in block


def _read_with_includes(path: Path, including: tuple[Path, ...]) -> Document:
    if path.resolve() in {file.resolve() for file in including}:
        chain = " includes ".join(str(file) for file in (*including, path))
        raise ConfigError(f"files include each other: {chain}")
    document = _read(path, including)
    includes = structure(str | tuple[str, ...], document.pop("include", []), f"{path}: include")
    merged: Document = {}
    for include in [includes] if isinstance(includes, str) else includes:
        included = _read_with_includes(path.parent / include, (*including, path))
        merged = merge_documents(merged, included)
    return merge_documents(merged, document)


def _read(path: Path, including: tuple[Path, ...]) -> Document:
    included = f", which {including[-1]} includes" if including else ""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}{included}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}{included}: {error}") from error
    document = _parse(text, str(path), numbered=True)
    if not is_block(document):
        raise ConfigError(f"{path}: expected a file of keys and values, got {shown(document)}")
    return document


def _parse(text: str, origin: str, *, numbered: bool = False) -> Any:
    """Read YAML. With `numbered`, errors name the line."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if numbered and mark is not None else ""
        raise ConfigError(f"{origin}{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}: {' '.join(str(error).split())}") from error


def _insert(document: Document, keys: Sequence[str], value: Any) -> None:
    *parents, last = keys
    for key in parents:
        child = document.get(key)
        if isinstance(child, str):
            child = {"use": child}
        document[key] = child if is_block(child) else {}
        document = document[key]
    document[last] = value
