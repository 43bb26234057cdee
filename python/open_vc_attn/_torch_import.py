# SPDX-License-Identifier: BSD-3-Clause
"""Registers the torch operators as soon as both torch and this package are imported.

Saved programs name the operators: torch.export.load and torch.jit.load must find them before the
first call of attention().
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any


def register_with_torch() -> None:
    """Registers the operators: now if torch is loaded, else right after it is."""
    if "torch" not in sys.modules:
        if not any(isinstance(finder, _AfterTorch) for finder in sys.meta_path):
            sys.meta_path.insert(0, _AfterTorch())
    elif _is_loaded(sys.modules["torch"]):
        from . import _torch_op  # noqa: F401 - the import registers them


def _is_loaded(torch: ModuleType | None) -> bool:
    """False while torch is being imported, and for the None that forbids its import."""
    spec = getattr(torch, "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class _AfterTorch:
    """A finder that finds torch where the other finders do, and extends its loading."""

    def __init__(self) -> None:
        self._is_asking_others = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch" or self._is_asking_others:
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
        # Loaders of other kinds may serve several modules. With them, the first call of
        # attention() with a tensor registers the operators.
        if not isinstance(loader, SourceFileLoader):
            return
        load = loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # torch sees its own loader
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            # Importing torch must not fail for another package. The first call of attention()
            # with a tensor would meet the error again, and raises it.
            with suppress(Exception):
                from . import _torch_op  # noqa: F401

        loader.exec_module = load_and_register  # type: ignore[method-assign]
