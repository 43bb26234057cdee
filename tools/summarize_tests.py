#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Adds up the JUnit reports of all test runners and prints 'N passed, N failed[, N skipped]'.

Usage: summarize_tests.py <folder with *.xml>. Exit status 1: something failed, or nothing ran.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

# What ctest writes for GTEST_SKIP(); any other reason not to run is a failure.
DELIBERATE = "SKIP_"


def outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    status = case.get("status")  # ctest's alone; pytest has none
    if status == "disabled":
        return "skipped"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    if status is not None and not skipped.get("message", "").startswith(DELIBERATE):
        return "failed"
    return "skipped"


def main() -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for report in sorted(Path(sys.argv[1]).glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            result = outcome(case)
            counts[result] += 1
            if result == "failed":
                print(f"FAILED {report.stem}: {case.get('classname', '')} {case.get('name')}")
    shown = [name for name in counts if name != "skipped" or counts[name]]
    print(", ".join(f"{counts[name]} {name}" for name in shown))
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
