# SPDX-License-Identifier: BSD-3-Clause
"""A member more for an enum of a framework that has no registration."""

from __future__ import annotations

import enum
from typing import Any

NAME = "OPEN_VC"
VALUE = "open_vc"
"""The name of this backend in every framework."""


def add_member(cls: type[enum.Enum], name: str = NAME, value: Any = VALUE) -> Any:
    """The member `name` of an enum, which is added if it is not there.

    Raises:
        NotImplementedError: the enum is not built as expected; the framework has changed.
    """
    if name in cls.__members__:
        return cls.__members__[name]
    mixin = next((base for base in cls.__mro__ if base in (str, int)), object)
    try:
        member = mixin.__new__(cls, value) if mixin is not object else object.__new__(cls)
        member._name_ = name
        member._value_ = value
        member._sort_order_ = len(cls._member_names_)
        member.__objclass__ = cls  # type: ignore[attr-defined]
        cls._member_map_[name] = member
        cls._member_names_.append(name)
        cls._value2member_map_[value] = member
        type.__setattr__(cls, name, member)
        if cls[name] is member and cls(value) is member and getattr(cls, name) is member:
            return member
    except (AttributeError, TypeError, KeyError, ValueError):
        pass
    raise NotImplementedError(
        f"{cls.__module__}.{cls.__qualname__}: {name} cannot be added; expected an enum of "
        "Python's own kind. Use an older version of that package, or report it with its version."
    )
