# SPDX-License-Identifier: BSD-3-Clause
"""Markdown tables and charts out of results.json.

    python benchmarks/h200/report.py docs/results/h200 [--insert README.md]

Writes README.md, summary.json, error.svg and speed.svg beside the results.json of the folder, and
tells of a soak.json there (tests/gpu/soak.py --json). Without matplotlib there are no charts. --insert also fills the marked blocks of
another Markdown file. The same record gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sections
from charts import write_error_chart, write_speed_chart
from main_tables import gpu_name, headline, main_results, repair_sentence, short_calls
from summary import SOAK, summarize

BLOCKS = {
    "headline": headline,
    "results": main_results,
    "repair": lambda _, data: repair_sentence(data),
    "short calls": lambda _, data: short_calls(data),
}
"""What can stand between marks, by name; each gets the summary and the record."""

CHARTS = {
    "error.svg": ("error over speed, captured inputs", write_error_chart),
    "speed.svg": ("sustained speed, N(0,1)", write_speed_chart),
}


def begin_mark(name: str) -> str:
    return f"<!-- h200 {name}: written by benchmarks/h200/report.py -->"


def end_mark(name: str) -> str:
    return f"<!-- end of h200 {name} -->"


def markdown(
    summary: Mapping[str, Any], data: Mapping[str, Any], charts: Mapping[str, str] | None = None
) -> str:
    """The whole page. `charts` are files and their titles."""
    parts = [f"# Attention on one {gpu_name(data)}"]
    parts += [sections.circumstances(data), main_results(summary, data)]
    parts += [f"![{title}]({file})" for file, title in (charts or {}).items()]
    parts += [
        section(data)
        for section in (
            sections.heads,
            sections.accuracy,
            sections.preparation,
            sections.short_calls,
            sections.repair,
            sections.lengths,
            sections.soak,
            sections.sensors,
            sections.participants,
        )
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def insert(path: Path, summary: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Fills every marked block of a file."""
    page = path.read_text()
    names = re.findall(begin_mark("(.+?)"), page)
    if not names:
        raise SystemExit(
            f"report.py: {path}: no marks; expected lines such as '{begin_mark('results')}' and "
            f"'{end_mark('results')}'; add them"
        )
    for name in names:
        if name not in BLOCKS:
            raise SystemExit(
                f"report.py: {path}: block {name!r}; expected one of {', '.join(BLOCKS)}"
            )
        begin, end = page.find(begin_mark(name)), page.find(end_mark(name))
        if not 0 <= begin < end:
            raise SystemExit(f"report.py: {path}: no '{end_mark(name)}' after its block; add it")
        text = BLOCKS[name](summary, data) or "Not measured yet."
        page = page[: begin + len(begin_mark(name))] + f"\n\n{text}\n\n" + page[end:]
    path.write_text(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with results.json")
    parser.add_argument("--insert", type=Path, help="Markdown file whose marked blocks are filled")
    arguments = parser.parse_args()
    data = json.loads((arguments.folder / "results.json").read_text())
    soak = arguments.folder / "soak.json"
    if soak.exists():
        data[SOAK] = json.loads(soak.read_text())
    summary = summarize(data)
    (arguments.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    charts = {}
    if find_spec("matplotlib") is None:
        print("report.py: matplotlib is not installed; the page has no charts", file=sys.stderr)
    else:
        charts = {
            file: title
            for file, (title, write) in CHARTS.items()
            if write(data, arguments.folder / file)
        }
    (arguments.folder / "README.md").write_text(markdown(summary, data, charts))
    if arguments.insert is not None:
        insert(arguments.insert, summary, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
