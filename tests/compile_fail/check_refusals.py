#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that mistakes do not compile.

Every .cpp file of this folder must compile as it is, and must be refused with -DOPENVC_WRONG, by an
error that matches the pattern of its line "// expect: <regular expression>". The first half shows
that the second fails for the right reason.

Usage: check_refusals.py <compiler> <include folder>...
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def compile_source(command: list[str], source: Path, *flags: str) -> tuple[bool, str]:
    """Whether the source compiles, and the compiler's messages."""
    result = subprocess.run(
        [*command, *flags, str(source)], capture_output=True, text=True, check=False
    )
    return result.returncode == 0, result.stderr


def find_fault(command: list[str], source: Path) -> str | None:
    """What is wrong with the refusal of one source; None if all is well."""
    pattern = re.search(r"^// expect: (.+)$", source.read_text(), re.MULTILINE)
    if pattern is None:
        return "has no line '// expect: <regular expression>'"
    compiles, messages = compile_source(command, source)
    if not compiles:
        return f"does not compile even without OPENVC_WRONG:\n{messages}"
    compiles, messages = compile_source(command, source, "-DOPENVC_WRONG")
    if compiles:
        return "compiles with OPENVC_WRONG"
    errors = "\n".join(line for line in messages.splitlines() if "error:" in line)
    if not re.search(pattern[1], errors):
        return f"is refused, but not by '{pattern[1]}':\n{errors}"
    return None


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    compiler, *includes = arguments
    command = [compiler, "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in includes)]
    sources = sorted(FOLDER.glob("*.cpp"))
    faults = {source.name: find_fault(command, source) for source in sources}
    for name, fault in faults.items():
        if fault is not None:
            print(f"{name} {fault}")
    wrong = sum(fault is not None for fault in faults.values())
    print(f"{len(sources) - wrong} of {len(sources)} mistakes refused as expected")
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
