# SPDX-License-Identifier: BSD-3-Clause
"""Checks of plain arguments: each gives the value in its type, or says what is wrong with it."""

from __future__ import annotations

import operator
import sys
from typing import Any


def require_bool(name: str, value: Any) -> bool:
    """`value` if it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {shown(value)}; expected True or False. Pass bool({name}).")
    return value


def require_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of `allowed`."""
    if not isinstance(value, str):
        raise TypeError(
            f"{name}: {type(value).__name__}; expected a string. Pass one of {', '.join(allowed)}."
        )
    if value not in allowed:
        raise ValueError(
            f"{name}: {value!r}; expected one of {', '.join(allowed)}. Pass one of them."
        )
    return value


def as_whole(name: str, value: Any, least: int, most: int) -> int:
    """`value` as an int from `least` to `most`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {shown(value)}; expected a whole number. Pass an int.") from None
    if not least <= number <= most:
        raise ValueError(
            f"{name}: {number}; expected {least} <= {name} <= {most}. Pass one of these numbers."
        )
    return number


def as_real(name: str, value: Any) -> float:
    """`value` as a float; booleans and strings are not numbers."""
    if isinstance(value, float):
        return float(value)
    # float() asks the class, and so can compilers of torch.
    if isinstance(value, (bool, str, bytes)) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{name}: {type(value).__name__}; expected a number. Pass a float.")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from ._torch_state import require_number

        require_number(name, value)
    try:
        return float(value)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: {type(value).__name__} that is no float ({error}); expected a number. "
            "Pass a float."
        ) from None


def shown(value: Any) -> str:
    """A value in a message: plain ones as they are written, other objects by their class, because
    their text may be long, raise, or be nothing that a compiler can trace."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    kind = type(value)
    # NumPy's bool has the name of Python's.
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
