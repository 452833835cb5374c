"""Plain YAML values <-> attrs classes, strictly, by the annotations of their fields.

Nothing is guessed: an unknown key, a bool for an int or a number for a text is a `ConfigError`
that names the value's path in the YAML file. The one leniency is a float written as `1e-6`, which
YAML reads as text.
"""

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

import attrs

from agentgym_core.errors import ConfigError, PluginError
from agentgym_core.wording import did_you_mean, one_line, shown

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LARGEST = (2 - 2**-23) * 2.0**127
"""Of a 32-bit float, in which most is computed: beyond are overflows, infinities and NaN."""


@attrs.frozen
class _Scalar:
    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any]


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None and abs(float(value)) <= _LARGEST
    return (_is_whole_number(value) or isinstance(value, float)) and abs(value) <= _LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_SCALARS: Mapping[Any, _Scalar] = {
    bool: _Scalar("true or false", lambda value: isinstance(value, bool), bool),
    int: _Scalar("a whole number", _is_whole_number, int),
    float: _Scalar("a number", _is_number, float),
    str: _Scalar("text", _is_text, str),
    Path: _Scalar("a path", _is_text, Path),
    type(None): _Scalar("null", lambda value: value is None, lambda value: None),
}
_COLLECTIONS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    tuple: tuple,
    list: list,
    set: set,
    frozenset: frozenset,
    Sequence: tuple,
    AbstractSet: frozenset,
}
_MAPPINGS = (dict, Mapping)


def structure(annotation: Any, value: Any, path: str) -> Any:
    """Turn a plain YAML value into what the annotation says.

    Args:
        annotation: int, float, bool, str, None, Path, Any, Literal, unions, tuple, list, set,
            Sequence, Mapping, and attrs classes, nested as deep as they go. The members of a union
            are tried in their order.
        value: what YAML gave.
        path: where it stands, such as `rounds.steps_per_stage`.

    Raises:
        ConfigError: the value does not fit.
        PluginError: the annotation is none of those.
    """
    annotation = _unwrap(annotation)
    if annotation in (Any, object):
        return value
    if not _fits(annotation, value, path):
        raise ConfigError(_mismatch(annotation, value, path))
    if annotation in _SCALARS:
        return _SCALARS[annotation].convert(value)
    if _is_attrs_class(annotation):
        return _structure_class(annotation, value, path)
    origin, arguments = _origin(annotation)
    if origin is Literal:
        return value
    if origin is Union:
        return _structure_union(arguments, value, path)
    if origin in _MAPPINGS:
        key_type, value_type = arguments or (Any, Any)
        return {
            structure(key_type, key, f"{path}.{key}"): structure(value_type, item, f"{path}.{key}")
            for key, item in value.items()
        }
    return _structure_collection(annotation, value, path)


def construct(cls: type[T], fields: Mapping[str, Any], path: str) -> T:
    """Call the class; what its validators and `__attrs_post_init__` raise is given the path."""
    try:
        return cls(**fields)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {one_line(error)}") from error
    except (Exception, SystemExit) as error:  # a component's own code may raise anything
        raise ConfigError(f"{path}: {type(error).__name__}: {one_line(error)}") from error


def unstructure(value: Any) -> Any:
    """The plain YAML value from which `structure` makes an equal one."""
    cls = cast("type[Any]", type(value))
    if attrs.has(cls):
        fields = [field for field in attrs.fields(cls) if field.init]
        return {field.alias: unstructure(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {key: unstructure(item) for key, item in mapping.items()}
    if isinstance(value, tuple | list):
        return [unstructure(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, AbstractSet):
        return [unstructure(item) for item in sorted(cast("AbstractSet[Any]", value))]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{shown(value)} has no form in YAML")


def unknown_key(key: Any, keys: Iterable[str], path: str) -> ConfigError:
    """The error for a key that nothing reads."""
    keys = list(keys)
    help_ = did_you_mean(str(key), keys)
    if not help_:
        help_ = f" The keys are: {', '.join(keys)}" if keys else " No keys are allowed here"
    return ConfigError(f"{join(path, key)}: unknown key.{help_}")


def join(path: str, key: Any) -> str:
    """The path of a key in the block at `path`; the file itself is the empty path."""
    return f"{path}.{key}" if path else str(key)


def _structure_class(cls: type[T], block: Mapping[str, Any], path: str) -> T:
    fields = {field.alias: field for field in attrs.fields(cast("Any", cls)) if field.init}
    for key in block:
        if key not in fields:
            raise unknown_key(key, fields, path)
    annotations = _annotations(cls)
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in block:
            values[key] = structure(annotations.get(field.name, Any), block[key], join(path, key))
        elif field.default is attrs.NOTHING:
            raise ConfigError(f"{join(path, key)}: required field missing")
    return construct(cls, values, path)


def _structure_union(members: Sequence[Any], value: Any, path: str) -> Any:
    """The first member that fits; if none does in depth, the first one's complaint."""
    errors: list[ConfigError] = []
    for member in members:
        if _fits(member, value, path):
            try:
                return structure(member, value, path)
            except ConfigError as error:
                errors.append(error)
    raise errors[0]


def _structure_collection(annotation: Any, items: Sequence[Any], path: str) -> Any:
    origin, arguments = _origin(annotation)
    if _is_fixed_tuple(origin, arguments):
        item_types = list(arguments)
    else:
        item_types = [arguments[0] if arguments else Any] * len(items)
    return _COLLECTIONS[origin](
        structure(item_type, item, join(path, index))
        for index, (item_type, item) in enumerate(zip(item_types, items, strict=True))
    )


def _fits(annotation: Any, value: Any, path: str) -> bool:
    """Whether the value has the annotation's shape, whatever lies inside it."""
    annotation = _unwrap(annotation)
    if annotation in (Any, object):
        return True
    if annotation in _SCALARS:
        return _SCALARS[annotation].accepts(value)
    if _is_attrs_class(annotation):
        return isinstance(value, Mapping)
    origin, arguments = _origin(annotation)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is Union:
        return any(_fits(member, value, path) for member in arguments)
    if origin in _MAPPINGS:
        return isinstance(value, Mapping)
    if _is_fixed_tuple(origin, arguments):
        return isinstance(value, list) and len(cast("list[Any]", value)) == len(arguments)
    if origin in _COLLECTIONS:
        return isinstance(value, list)
    raise PluginError(f"{path}: a field annotated with {annotation} cannot be read from YAML")


def _mismatch(annotation: Any, value: Any, path: str) -> str:
    message = f"{path}: expected {_expected(annotation)}, got {shown(value)}"
    origin, choices = _origin(annotation)
    if origin is Literal and isinstance(value, str):
        return f"{message}.{near}" if (near := did_you_mean(value, map(str, choices))) else message
    if annotation is float and isinstance(value, float):
        return f"{message}. It must be finite as a 32-bit float"
    if annotation is str and value is not None and not isinstance(value, Mapping | list):
        return f"{message}. Put it in quotes"
    return message


def _expected(annotation: Any) -> str:
    annotation = _unwrap(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation].expected
    origin, arguments = _origin(annotation)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is Union:
        return " or ".join(_expected(member) for member in arguments)
    if _is_fixed_tuple(origin, arguments):
        return f"a list of {len(arguments)} values"
    return "a list" if origin in _COLLECTIONS else "a block of keys"


def _unwrap(annotation: Any) -> Any:
    """What `Annotated`, `NewType` and the `type` statement stand for."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):  # TypeAliasType, new in Python 3.12
            annotation = annotation.__value__
        else:
            return annotation


def _origin(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """`tuple[int, ...]` -> (tuple, (int, ...)); both spellings of a union are one."""
    origin = typing.get_origin(annotation) or annotation
    return Union if origin is types.UnionType else origin, typing.get_args(annotation)


def _is_fixed_tuple(origin: Any, arguments: tuple[Any, ...]) -> bool:
    return origin is tuple and bool(arguments) and arguments[-1] is not ...


def _is_attrs_class(annotation: Any) -> bool:
    return isinstance(annotation, type) and attrs.has(annotation)


def _annotations(cls: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError as error:
        raise PluginError(
            f"{cls.__module__}:{cls.__qualname__} has an annotation that does not resolve: "
            f"{error}. Import the name outside TYPE_CHECKING"
        ) from error
