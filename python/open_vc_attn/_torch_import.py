# SPDX-License-Identifier: BSD-3-Clause
"""Registers the torch operators as soon as both torch and this package are imported.

Saved programs name the operators: torch.export.load and torch.jit.load must find them before the
first call of attention().
"""

from __future__ import annotations

import sys
from contextlib import suppress

from ._after_import import AfterImport, is_loaded

_NAME = "torch"


def register_with_torch() -> None:
    """Registers the operators: now if torch is loaded, else right after it is."""
    if _NAME not in sys.modules:
        if not any(isinstance(x, AfterImport) and x.name == _NAME for x in sys.meta_path):
            sys.meta_path.insert(0, AfterImport(_NAME, _register))
    elif is_loaded(sys.modules[_NAME]):
        from . import _torch_op  # noqa: F401 - the import registers them


def _register() -> None:
    # Importing torch must not fail for another package. The first call of attention() with a tensor
    # would meet the error again, and raises it. The same call registers the operators where torch
    # has a loader that nothing can be added to.
    with suppress(Exception):
        from . import _torch_op  # noqa: F401
