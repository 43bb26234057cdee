# SPDX-License-Identifier: BSD-3-Clause
"""Numeric options, made from the list of the C++ library (openvc/numeric_options.hpp)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _openvc
from ._checks import as_real, require_one_of, shown

TYPES: dict[str, type] = {"bool": bool, "str": str, "int": int, "float": float}


class NumericOption(NamedTuple):
    """A row of the list."""

    name: str
    type_name: str
    """A key of TYPES, and the type in the schema of the torch operators."""
    values: tuple[Any, ...]
    """All that are allowed; empty for floats, whose range is least to most."""
    least: float | None
    most: float | None
    default: Any
    expected: str
    """The allowed values in words."""
    unit: str
    documentation: str

    def checked(self, value: Any) -> Any:
        """`value` in this option's type."""
        if self.least is not None and self.most is not None:
            # A number of its own: what the caller gave may change, or not be hashable.
            value = as_real(f"numerics.{self.name}", value)
            allowed = self.least <= value <= self.most
        else:
            if not isinstance(value, TYPES[self.type_name]) or (
                isinstance(value, bool) and self.type_name != "bool"
            ):
                raise TypeError(self._refusal(value))
            allowed = value in self.values
        if not allowed:
            raise ValueError(self._refusal(value))
        return value

    def _refusal(self, value: Any) -> str:
        return (
            f"numerics.{self.name}: {shown(value)}; expected {self.expected}. "
            f"The default is {self.default!r}."
        )

    def annotation(self) -> Any:
        """The type of the field of Numerics."""
        return Literal[self.values] if self.type_name == "str" else TYPES[self.type_name]


OPTIONS = tuple(NumericOption(**row) for row in _openvc.NUMERIC_OPTIONS)
NAMES = tuple(option.name for option in OPTIONS)

_DOCUMENTATION = """Where the error budget goes. The defaults are those that docs/numerics.md derives.

Attributes:
{attributes}

Raises:
    TypeError: a field has the wrong type.
    ValueError: a field has a value outside its range.
"""


def _attribute(option: NumericOption) -> str:
    unit = f" Unit: {option.unit}." if option.unit else ""
    return (
        f"    {option.name}: {option.documentation}{unit} Allowed: {option.expected}; "
        f"the default is {option.default!r}."
    )


def _check(numerics: Any) -> None:
    for option in OPTIONS:
        object.__setattr__(numerics, option.name, option.checked(getattr(numerics, option.name)))


if TYPE_CHECKING:
    # For type checkers, who cannot run the extension; a test holds it to the list.
    Choice = Literal["never", "automatic", "always"]
    ValueScale = Literal["per_channel", "per_head"]

    @dataclass(frozen=True)
    class Numerics:
        smooth_keys: bool = True
        rotation: Choice = "automatic"
        max_extra_steps: int = 2
        score_error_target: float = 0.32
        smooth_values: bool = True
        value_axes: Choice = "automatic"
        value_scale: ValueScale = "per_channel"

else:
    Numerics = make_dataclass(
        "Numerics",
        [(option.name, option.annotation(), field(default=option.default)) for option in OPTIONS],
        namespace={
            "__doc__": _DOCUMENTATION.format(attributes="\n".join(map(_attribute, OPTIONS))),
            "__module__": __name__,
            "__post_init__": _check,
        },
        frozen=True,
    )

NumericsLike = Numerics | Mapping[str, Any] | None

Budget = Literal["fast", "balanced", "best"]

BUDGETS = {name: Numerics(**fields) for name, fields in _openvc.BUDGETS.items()}
"""Numeric options of each budget."""

_DEFAULT = Numerics()


def as_numerics(numerics: NumericsLike, budget: Any = None) -> Numerics:
    """A ``Numerics`` from what callers may pass; a mapping names the fields that differ."""
    base = _DEFAULT if budget is None else BUDGETS[require_one_of("budget", budget, tuple(BUDGETS))]
    if numerics is None:
        return base
    if isinstance(numerics, Numerics):
        if budget is not None:
            raise ValueError(
                f"numerics: a Numerics beside budget={budget!r}; expected one of the two. Pass a "
                "mapping of the fields that differ from those of the budget."
            )
        return numerics
    if not isinstance(numerics, Mapping):
        raise TypeError(
            f"numerics: {type(numerics).__name__}; expected None, a Numerics or a mapping of its "
            "fields. Pass Numerics(...) or a dict."
        )
    unknown = [str(name) for name in numerics if name not in NAMES]
    if unknown:
        raise TypeError(
            f"numerics: field {', '.join(unknown)}; expected {', '.join(NAMES)}. Remove it."
        )
    return replace(base, **numerics)


def values_of(numerics: Numerics) -> tuple[Any, ...]:
    """The fields in the order of the list."""
    return tuple([getattr(numerics, name) for name in NAMES])


def schema_arguments() -> str:
    """The numeric options as arguments of a torch operator."""
    return ", ".join(f"{option.type_name} {option.name}" for option in OPTIONS)
