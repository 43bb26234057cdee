# SPDX-License-Identifier: BSD-3-Clause
"""docs/numeric_rules.md lists every form of every numeric rule, and says nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "numeric_rules.md"

# Headers of src/numerics that hold vocabulary instead of a rule.
VOCABULARY = {"bits.hpp", "contract.hpp", "head_plan.hpp", "head_rule.hpp"}


class Rule(NamedTuple):
    name: str
    reference: list[str]
    cpu: list[str]
    cuda: list[str]
    relation: str
    tests: list[str]

    @property
    def forms(self) -> list[str]:
        return [*self.reference, *self.cpu, *self.cuda]


def read_rules() -> list[Rule]:
    rules = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 6 or cells[0] in ("rule", "---"):
            continue
        paths = [re.findall(r"`((?:src|tests)/[^`]+)`", cell) for cell in cells]
        rules.append(Rule(cells[0], paths[1], paths[2], paths[3], cells[4], paths[5]))
    return rules


RULES = read_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_files_functions_and_tests_exist(rule: Rule) -> None:
    assert rule.relation and rule.tests, (
        "a rule states how its forms relate, and which test says so"
    )
    for form in rule.forms:
        path, _, symbol = form.partition(":")
        text = (ROOT / path).read_text()
        assert re.search(rf"\b{re.escape(symbol)}\b", text), f"{path} has no {symbol}"
    for path in rule.tests:
        assert (ROOT / path).is_file(), path
    assert rule.reference or rule.relation.startswith("bounded")
    if rule.cpu or rule.cuda:
        assert not rule.relation.startswith("one form")


def listed(folder: str) -> set[str]:
    return {
        form.partition(":")[0] for rule in RULES for form in rule.forms if form.startswith(folder)
    }


def test_every_header_of_numerics_has_a_rule() -> None:
    headers = {path.name for path in (ROOT / "src" / "numerics").glob("*.hpp")}
    assert headers - VOCABULARY == {Path(path).name for path in listed("src/numerics/")}


def test_every_row_kernel_of_the_cpu_is_listed() -> None:
    header = (ROOT / "src" / "cpu" / "row_kernels.hpp").read_text()
    functions = set(re.findall(r"^(?!//)\S.*?\b(\w+)\(", header, flags=re.M)) - {"simd_target"}
    forms = {form for rule in RULES for form in rule.cpu}
    missing = {name for name in functions if f"src/cpu/row_kernels.cpp:{name}" not in forms}
    assert functions and not missing


def test_every_device_form_is_listed() -> None:
    files = {
        str(path.relative_to(ROOT)) for path in (ROOT / "src" / "cuda" / "device").glob("*.cuh")
    }
    assert files <= listed("src/cuda/device/")
