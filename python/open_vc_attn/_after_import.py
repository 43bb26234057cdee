# SPDX-License-Identifier: BSD-3-Clause
"""Something to do right after a module of somebody else is imported, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any


def is_loaded(module: ModuleType | None) -> bool:
    """False while it is being imported, and for the None that forbids its import."""
    spec = getattr(module, "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class AfterImport:
    """A finder that finds a module where the other finders do, and extends its loading."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self._then = then
        self._is_asking_others = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name or self._is_asking_others:
            return None
        self._is_asking_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking_others = False
        if spec is not None and spec.loader is not None:
            self._extend(spec.loader)
        return spec

    def _extend(self, loader: Any) -> None:
        # Loaders of other kinds may serve several modules. With them, nothing happens.
        if not isinstance(loader, SourceFileLoader):
            return
        load = loader.exec_module

        def load_and_go_on(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # the module sees its own loader
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._then()

        loader.exec_module = load_and_go_on  # type: ignore[method-assign]


def after_import(name: str, then: Callable[[], None]) -> None:
    """Calls `then` right after a module is imported; now, if it is there."""
    if name not in sys.modules:
        sys.meta_path.insert(0, AfterImport(name, then))
    elif is_loaded(sys.modules[name]):
        then()
