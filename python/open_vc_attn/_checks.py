# SPDX-License-Identifier: BSD-3-Clause
"""Checks of plain arguments: each gives the value in its type, or says what is wrong with it."""

from __future__ import annotations

from typing import Any


def require_bool(name: str, value: Any) -> bool:
    """`value` if it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {value!r}; expected True or False. Pass one of them.")
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


def as_real(name: str, value: Any) -> float:
    """`value` as a float; booleans and strings are not numbers."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: {type(value).__name__}; expected a number. Pass a float.")
    return float(value)
