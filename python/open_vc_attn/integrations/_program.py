# SPDX-License-Identifier: BSD-3-Clause
"""What ``python -m open_vc_attn.run`` arranges in a process, and passes on to its children."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._after_import import after_import

VARIABLE = "OPEN_VC_ATTN_RUN"
"""A JSON list of the adapters that processes register."""
STARTUP = str(Path(__file__).parent / "startup")
_PATH = "PYTHONPATH"


def adapters() -> dict[str, Any]:
    """All adapters by name, in order."""
    folder = Path(__file__).parent
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    found = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "FRAMEWORK")}


def registrable() -> list[str]:
    """Adapters that run can register."""
    return [name for name, module in adapters().items() if hasattr(module, "register")]


def install(names: Sequence[str]) -> None:
    """Registers adapters: as soon as their frameworks are imported.

    Raises:
        RuntimeError: a package that is to be replaced is loaded already.
    """
    for name in names:
        adapter = importlib.import_module(f"{__package__}.{name}")
        module = getattr(adapter, "REGISTER_AFTER", None)
        if module is None:
            adapter.register()
        else:
            after_import(module, adapter.register)


def install_from_environment() -> None:
    """The same in a child process."""
    names = json.loads(os.environ.get(VARIABLE) or "[]")
    install(names)


def tell_children(names: Sequence[str]) -> None:
    """Child processes of this one register the same adapters."""
    os.environ[VARIABLE] = json.dumps(list(names))
    rest = os.environ.get(_PATH)
    os.environ[_PATH] = os.pathsep.join([STARTUP, *([rest] if rest else [])])
