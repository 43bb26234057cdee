# SPDX-License-Identifier: BSD-3-Clause
"""How many threads calls on CPU tensors use."""

from __future__ import annotations

from . import _openvc

_threads = 0


def set_num_threads(threads: int) -> None:
    """Sets how many threads calls on CPU tensors use from now on, in the whole process.

    The number never changes a result.

    Args:
        threads: 1 to 4096, or 0 for the default: OMP_NUM_THREADS, or else the CPUs that the
            process may run on, limited by the CPU quota of its control groups. ``info()`` tells
            the number and why.

    Raises:
        TypeError: `threads` is not an int.
        ValueError: `threads` is out of that range.
    """
    global _threads
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads: {threads!r}; expected an int. Use int(threads).")
    if not 0 <= threads <= _openvc.MAX_THREADS:
        raise ValueError(
            f"threads: {threads}; expected 0 to {_openvc.MAX_THREADS}. Use 0 for the default."
        )
    _threads = threads


def get_num_threads() -> int:
    """The number last given to set_num_threads(); 0 stands for the default."""
    return _threads
