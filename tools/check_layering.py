#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds every #include of the C++ and CUDA sources to the layer diagram of HACKING.md.

Includes point downwards only. Usage: check_layering.py [repository]; exit status 1 names each
violation with file, line, arrow and rule.
"""

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".hpp", ".h", ".cpp", ".cuh", ".cu", ".inc"}

ROOTS = ("include", "src", "cli", "python/bindings")

# Headers of the C++ standard library are free for all; these are not.
POSIX = ("fcntl.h", "unistd.h", "dlfcn.h", "sys/*.h", "pthread.h", "sched.h")
CUDA = ("cuda*.h", "cuda/*", "cute/*", "cutlass/*", "vector_types.h")
# Plain value types of the public interface, which any layer from schedule upwards may speak.
VOCABULARY = tuple(
    f"openvc/{name}.hpp"
    for name in ("status", "tensor_view", "options", "numeric_options", "version")
)


class Rule(NamedTuple):
    """What a layer may include besides its own files."""

    layers: tuple[str, ...]  # patterns of our headers, from the root of include/ or of src/
    external: tuple[str, ...]  # patterns of other headers, the standard library aside


BELOW_KERNELS = ("cuda/device/*", "cuda/host/*", "cuda/ptx/*", "schedule/*", "numerics/*")
KERNEL = Rule((*BELOW_KERNELS, *VOCABULARY), CUDA)
ATTENTION_KERNEL = Rule(("cuda/attention/*", *KERNEL.layers), CUDA)
BACKENDS = (
    "cpu/*.hpp",
    "cuda/sm*/launch.hpp",
    "cuda/prepare/*.hpp",
    "cuda/check/*.hpp",
    "cuda/output/*.hpp",
    "cuda/host/*.hpp",
)
RULES = {
    "include/openvc": Rule((), ("stddef.h", "stdint.h")),
    "src/numerics": Rule(("openvc/options.hpp",), ()),
    "src/schedule": Rule(("numerics/*", *VOCABULARY), ()),
    "src/io": Rule(VOCABULARY, (*POSIX, "nlohmann/*")),
    "src/cpu": Rule(("schedule/*", "numerics/*", *VOCABULARY), (*POSIX, "hwy/*")),
    "src/cuda/ptx": Rule((), CUDA),
    "src/cuda/device": Rule(("cuda/ptx/*", "schedule/*", "numerics/*"), ()),
    "src/cuda/host": Rule(("cuda/ptx/*", "schedule/*", "numerics/*", *VOCABULARY), (*CUDA, *POSIX)),
    "src/cuda/attention": KERNEL,
    "src/cuda/prepare": KERNEL,
    "src/cuda/check": KERNEL,
    "src/cuda/output": KERNEL,
    "src/api": Rule((*BACKENDS, "schedule/*", "numerics/*", "openvc/*"), (*POSIX, "nlohmann/*")),
    "src/study": Rule(
        ("cpu/*.hpp", "io/*", "schedule/*", "numerics/*", "openvc/*"),
        ("fmt/*", "nlohmann/*", "hwy/*"),
    ),
    "cli": Rule(
        ("study/*.hpp", "io/*.hpp", "openvc/*"),
        (*POSIX, "CLI/*", "fmt/*", "nlohmann/*"),
    ),
    "python/bindings": Rule(("openvc/*",), ("nanobind/*",)),
}


# Each architecture is a layer of its own: siblings never see each other.
ARCHITECTURE = re.compile(r"(src/cuda/sm\d+)/")


def layer_of(path: str) -> str | None:
    """The layer that a path from the root of the repository belongs to."""
    if architecture := ARCHITECTURE.match(path):
        return architecture[1]
    return next((layer for layer in RULES if path.startswith(layer + "/")), None)


def resolve(root: Path, source: Path, name: str) -> str | None:
    """The path of an included file from the root of the repository, None if it is not ours."""
    for folder in (source.parent, root / "include", root / "src", root / "cli"):
        candidate = (folder / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    for folder in ("include", "src"):  # ours by its name, but generated or missing
        if layer_of(f"{folder}/{name}"):
            return f"{folder}/{name}"
    return None


def is_allowed(rule: Rule, layer: str, name: str, ours: str | None) -> bool:
    if ours is None:
        is_standard = re.fullmatch(r"[a-z0-9_]+", name) is not None
        return is_standard or any(fnmatchcase(name, pattern) for pattern in rule.external)
    if layer_of(ours) == layer:
        return True
    from_root = re.sub(r"^(include|src)/", "", ours)
    return any(fnmatchcase(from_root, pattern) for pattern in rule.layers)


def violations(root: Path) -> Iterator[str]:
    files = (path for folder in ROOTS for path in (root / folder).rglob("*"))
    for source in sorted(path for path in files if path.suffix in SUFFIXES):
        path = source.relative_to(root).as_posix()
        layer = layer_of(path)
        if layer is None:
            if path.startswith("src/"):
                yield f"{path}:1: the folder belongs to no layer; add it to tools/check_layering.py"
            continue
        rule = RULES.get(layer, ATTENTION_KERNEL)
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            ours = resolve(root, source, match[2])
            if not is_allowed(rule, layer, match[2], ours):
                target = (layer_of(ours) or ours) if ours else "external"
                allowed = ", ".join((*rule.layers, *rule.external, "the standard library"))
                yield (
                    f"{path}:{number}: {layer} -> {target} ({match[2]}): "
                    f"{layer} may include itself and {allowed}"
                )


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    found = list(violations(root))
    for violation in found:
        print(violation)
    print(f"layering: {len(found)} violations" if found else "layering: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
