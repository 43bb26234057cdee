# SPDX-License-Identifier: BSD-3-Clause
"""What this installation is and can do."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import resources
from typing import Any

from . import _openvc
from ._threads import get_num_threads


class Info(dict[str, Any]):
    """The result of info(): a dict that prints as a table."""

    def __str__(self) -> str:
        rows = list(_rows(self))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _commit() -> str:
    """The commit that the installed library was compiled from."""
    try:
        return resources.files(__package__).joinpath("commit.txt").read_text().strip()
    except OSError:
        return "unknown"


def info() -> Info:
    """Versions, backends and devices of this installation, for bug reports and for dispatchers.

    No framework is imported and no CUDA context is created for it; ``torch`` and ``numpy`` appear
    with their versions if the process has loaded them.
    """
    modules = {
        name: getattr(sys.modules[name], "__version__", "unknown")
        for name in ("torch", "numpy")
        if name in sys.modules
    }
    table = _openvc.info()
    if threads := get_num_threads():
        table |= {"cpu_threads": threads, "cpu_threads_reason": f"set_num_threads({threads})"}
    return Info(
        **table,
        commit=_commit(),
        python=platform.python_version(),
        platform=platform.platform(),
        **modules,
    )


def _rows(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if name == "backends":
            for backend in value:
                proven = "" if backend["run_on_hardware"] else " (not yet run on hardware)"
                yield f"backend {backend['name']}", f"{backend['detail']}{proven}"
        elif name == "cuda":
            yield from _cuda_rows(value)
        else:
            yield name.replace("_", " "), str(value) if value != "" else "none"


def _cuda_rows(cuda: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "cuda images", ", ".join(cuda["images"]) or "none"
    yield "cuda runtime", cuda["runtime"] or "none"
    package = f" ({cuda['driver_package']})" if cuda["driver_package"] else ""
    yield "cuda driver", (cuda["driver"] or "none") + package
    for device in cuda["devices"]:
        kernel = device["backend"] or f"no kernel: {device['refusal']}"
        yield (
            f"cuda:{device['index']}",
            f"{device['name']}, compute capability {device['compute_capability']}, {kernel}",
        )
    if not cuda["devices"]:
        yield "cuda devices", f"none: {cuda['problem']}"
