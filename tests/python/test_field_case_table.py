# SPDX-License-Identifier: BSD-3-Clause
"""docs/field_cases.md names tests that exist, for every case."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TABLE = (REPOSITORY / "docs" / "field_cases.md").read_text()
NUMBERS = {"A": 15, "B": 20, "C": 16, "D": 10, "E": 13, "F": 12, "X": 4}
ROWS = dict(re.findall(r"^\| ([A-Z]\d\d) \| [^|]+ \| (.+) \|$", TABLE, re.MULTILINE))
TESTS = [
    (path, name)
    for path, names in re.findall(r"`([\w/]+\.(?:cpp|cu|py)): ([\w, ]+)`", TABLE)
    for name in names.split(", ")
]


def test_every_case_has_a_row():
    cases = [f"{kind}{i:02}" for kind, count in NUMBERS.items() for i in range(1, count + 1)]
    assert list(ROWS) == cases
    for case, cell in ROWS.items():
        assert "`" in cell or cell.startswith("not applicable"), case


@pytest.mark.parametrize("path, name", sorted(set(TESTS)))
def test_named_tests_exist(path, name):
    source = (REPOSITORY / "tests" / path).read_text()
    if path.endswith(".py"):
        assert re.search(rf"^def {name}\(", source, re.MULTILINE)
    else:
        assert re.search(rf"^(TEST|TEST_F|TEST_P)\(\w+, {name}\)", source, re.MULTILINE)
