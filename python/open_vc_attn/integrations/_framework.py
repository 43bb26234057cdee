# SPDX-License-Identifier: BSD-3-Clause
"""What is known about a framework without importing it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """A framework that an adapter serves."""

    title: str
    module: str
    """The name that is imported; empty for what is no package."""
    distribution: str
    """The name that is installed; empty for what is in no registry."""
    oldest: str
    """The oldest version that is supported; empty for any."""
    switch: str
    """How its user switches FP8 attention on, in one line."""

    def installed_version(self) -> str | None:
        """The version that is installed here; "" if it has none, None if it is not there."""
        import importlib.metadata  # slow to load

        try:
            return importlib.metadata.version(self.distribution or self.module)
        except importlib.metadata.PackageNotFoundError:
            pass
        try:
            return "" if importlib.util.find_spec(self.module) is not None else None
        except (ImportError, ValueError):  # a module without a spec is in its place
            return None

    def obstacle(self) -> str:
        """Why the installed version cannot be switched; empty if it can."""
        version = self.installed_version()
        if version is None:
            return f"{self.title} is not installed"
        if self.oldest and version and numbers(version) < numbers(self.oldest):
            return f"{self.title} {version}; expected {self.oldest} or newer"
        return ""

    def require_version(self, version: str) -> None:
        """Refuses a version that is too old.

        Raises:
            NotImplementedError: with the way out.
        """
        if numbers(version) < numbers(self.oldest):
            raise NotImplementedError(
                f"{self.module}: version {version}; expected {self.oldest} or newer. Use pip "
                f"install --upgrade {self.distribution}."
            )


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()
