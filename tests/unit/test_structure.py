"""YAML values to attrs classes and back: strictly, and with the path in every complaint."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, Union

import attrs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_core.errors import ConfigError, PluginError
from agentgym_core.structure import structure, unstructure

Steps = NewType("Steps", int)


@attrs.frozen(kw_only=True)
class Wheel:
    spokes: int
    width: float = 1.5


@attrs.frozen(kw_only=True)
class Pedal:
    grip: str = "steel"


@attrs.frozen(kw_only=True)
class Bicycle:
    name: str
    wheels: tuple[Wheel, ...] = ()
    gears: tuple[int, int] | None = None
    weight: float = 9.0
    mode: Literal["road", "trail"] = "road"
    parts: Mapping[str, Wheel | Pedal] = attrs.field(factory=dict)
    manual: Path | None = None
    lights: bool = True
    tags: frozenset[str] = frozenset()
    notes: Any = None
    _serial: int = 0
    derived: int = attrs.field(init=False, default=7)


def message(annotation, value, path="bicycle"):
    with pytest.raises(ConfigError) as error:
        structure(annotation, value, path)
    return str(error.value)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 3, 3),
        (Steps, 3, 3),
        (Annotated[int, "steps"], 3, 3),
        (float, 3, 3.0),
        (float, 0.5, 0.5),
        (float, "1e-6", 1e-6),
        (float, "-2.5E+3", -2500.0),
        (float, ".5", 0.5),
        (bool, False, False),
        (str, "3", "3"),
        (Path, "a/b", Path("a/b")),
        (type(None), None, None),
        (int | None, None, None),
        (Optional[int], 3, 3),  # noqa: UP045 - the old spelling is supported as well
        (Union[int, str], "x", "x"),  # noqa: UP007
        (bool | int, True, True),
        (int | tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, ...] | tuple[str, ...], ["a"], ("a",)),
        (Literal["a", 1, None], 1, 1),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple, [1, "a"], (1, "a")),
        (list[float], [1, "2e1"], [1.0, 20.0]),
        (Sequence[int], [1], (1,)),
        (frozenset[str], ["a", "b"], frozenset({"a", "b"})),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (dict, {"a": [1]}, {"a": [1]}),
        (Any, {"a": [1]}, {"a": [1]}),
        (Wheel, {"spokes": 3}, Wheel(spokes=3)),
        (Wheel | None, {"spokes": 3}, Wheel(spokes=3)),
        (Wheel | Pedal, {"grip": "cork"}, Pedal(grip="cork")),
    ],
)
def test_values_that_fit(annotation, value, expected):
    found = structure(annotation, value, "x")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "complaint"),
    [
        (int, True, "expected a whole number, got True"),
        (int, 3.0, "expected a whole number, got 3.0"),
        (int, "3", "expected a whole number, got '3'"),
        (int, None, "expected a whole number, got nothing"),
        (float, "fast", "expected a number, got 'fast'"),
        (float, "nan", "expected a number, got 'nan'"),
        (float, float("nan"), "expected a number, got nan. It must be finite as a 32-bit float"),
        (float, float("-inf"), "expected a number, got -inf. It must be finite as a 32-bit float"),
        (float, 3.41e38, "expected a number, got 3.41e+38. It must be finite as a 32-bit float"),
        (float, -(10**39), "expected a number, got -1000000000000000000000000000000000000000"),
        (float, "1e999", "expected a number, got '1e999'"),
        (float, True, "expected a number, got True"),
        (bool, 1, "expected true or false, got 1"),
        (bool, "true", "expected true or false, got 'true'"),
        (str, 3, "expected text, got 3. Put it in quotes"),
        (str, True, "expected text, got True. Put it in quotes"),
        (str, None, "expected text, got nothing"),
        (str, ["a"], "expected text, got ['a']"),
        (Path, 3, "expected a path, got 3"),
        (int | None, "x", "expected a whole number or null, got 'x'"),
        (int | str, [1], "expected a whole number or text, got [1]"),
        (
            Literal["road", "trail"],
            "raod",
            "expected 'road' or 'trail', got 'raod'. Did you mean road?",
        ),
        (Literal[1, 2], True, "expected 1 or 2, got True"),
        (tuple[int, ...], 3, "expected a list, got 3"),
        (tuple[int, ...], "12", "expected a list, got '12'"),
        (tuple[int, str], [1], "expected a list of 2 values, got [1]"),
        (Mapping[str, int], [1], "expected a block of keys, got [1]"),
        (Wheel, 3, "expected a block of keys, got 3"),
        (str, {"a": "b" * 99}, "expected text, got {'a': '" + "b" * 50 + "..."),
    ],
)
def test_values_that_do_not(annotation, value, complaint):
    assert message(annotation, value) == f"bicycle: {complaint}"


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({}, "bicycle.name: required field missing"),
        ({"nmae": "x"}, "bicycle.nmae: unknown key. Did you mean name?"),
        (
            {"name": "x", "colour": "red"},
            "bicycle.colour: unknown key. The keys are: name, wheels, gears, weight, mode, parts, "
            "manual, lights, tags, notes, serial",
        ),
        (
            {"name": "x", "derived": 1},
            "bicycle.derived: unknown key. The keys are: name, wheels, "
            "gears, weight, mode, parts, manual, lights, tags, notes, serial",
        ),
        (
            {"name": "x", 3: 1},
            "bicycle.3: unknown key. The keys are: name, wheels, gears, weight, "
            "mode, parts, manual, lights, tags, notes, serial",
        ),
        (
            {"name": "x", "wheels": [{"spokes": 3}, {"spokes": "many"}]},
            "bicycle.wheels.1.spokes: expected a whole number, got 'many'",
        ),
        ({"name": "x", "gears": [1, "b"]}, "bicycle.gears.1: expected a whole number, got 'b'"),
        (
            {"name": "x", "parts": {"left": {"spokes": "many"}}},
            "bicycle.parts.left.spokes: expected a whole number, got 'many'",
        ),
    ],
)
def test_complaints_name_the_path(block, complaint):
    assert message(Bicycle, block) == complaint


def test_the_file_itself_has_no_path():
    assert message(Wheel, {"spokse": 1}, "") == "spokse: unknown key. Did you mean spokes?"


def test_a_class_without_keys():
    @attrs.frozen(kw_only=True)
    class Bare:
        pass

    assert message(Bare, {"a": 1}) == "bicycle.a: unknown key. No keys are allowed here"


def test_validators_are_given_the_path():
    @attrs.frozen(kw_only=True)
    class Tyre:
        bar: float = attrs.field(default=6.0, validator=attrs.validators.gt(0))
        kind: str = attrs.field(default="slick", validator=attrs.validators.in_(["slick"]))

        def __attrs_post_init__(self):
            if self.bar > 10:
                raise ValueError("bar is above what a tyre holds")

    assert message(Tyre, {"bar": 0}, "wheels.0.tyre") == "wheels.0.tyre: 'bar' must be > 0: 0.0"
    assert message(Tyre, {"bar": 11}, "tyre") == "tyre: bar is above what a tyre holds"
    # attrs hands its own validators' errors the attribute and the value as well.
    assert message(Tyre, {"kind": "x"}, "tyre") == "tyre: 'kind' must be in ['slick'] (got 'x')"


def test_an_annotation_that_yaml_cannot_give_is_the_plugins_fault():
    @attrs.frozen(kw_only=True)
    class Odd:
        number: complex

    with pytest.raises(PluginError) as error:
        structure(Odd, {"number": 1}, "odd")
    assert str(error.value) == (
        "odd.number: a field annotated with <class 'complex'> cannot be read from YAML"
    )


def test_an_annotation_that_does_not_resolve_is_the_plugins_fault():
    @attrs.frozen(kw_only=True)
    class Lost:
        number: "Nowhere"  # noqa: F821

    with pytest.raises(PluginError, match="has an annotation that does not resolve"):
        structure(Lost, {"number": 1}, "lost")


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
bicycles = st.builds(
    Bicycle,
    name=st.text(),
    wheels=st.lists(st.builds(Wheel, spokes=st.integers(), width=finite)).map(tuple),
    gears=st.none() | st.tuples(st.integers(), st.integers()),
    weight=finite,
    mode=st.sampled_from(["road", "trail"]),
    parts=st.dictionaries(
        st.text(), st.builds(Wheel, spokes=st.integers()) | st.builds(Pedal, grip=st.text())
    ),
    manual=st.none() | st.sampled_from([Path("a"), Path("a/b.pdf")]),
    lights=st.booleans(),
    tags=st.frozensets(st.text()),
    notes=st.none() | st.lists(st.integers()),
    serial=st.integers(),
)


@settings(deadline=None)
@given(bicycles)
def test_round_trip(bicycle):
    """Through YAML text as well: nothing else may lie in what `unstructure` returns."""
    text = yaml.safe_dump(unstructure(bicycle), sort_keys=False)
    assert structure(Bicycle, yaml.safe_load(text), "bicycle") == bicycle


def test_unstructure_gives_plain_values():
    bicycle = Bicycle(name="x", wheels=(Wheel(spokes=3),), tags=frozenset({"b", "a"}), serial=4)
    assert unstructure(bicycle) == {
        "name": "x",
        "wheels": [{"spokes": 3, "width": 1.5}],
        "gears": None,
        "weight": 9.0,
        "mode": "road",
        "parts": {},
        "manual": None,
        "lights": True,
        "tags": ["a", "b"],
        "notes": None,
        "serial": 4,
    }


def test_what_has_no_form_in_yaml_is_refused():
    with pytest.raises(TypeError, match="has no form in YAML"):
        unstructure(Bicycle(name="x", notes=object()))
