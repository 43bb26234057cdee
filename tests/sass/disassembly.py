# SPDX-License-Identifier: BSD-3-Clause
"""Reads the machine code of compiled CUDA kernels with NVIDIA's disassembler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_GUARD = re.compile(r"@!?U?P\w+\s+")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_TABLE = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')
_LABEL = re.compile(r"(\.L_\w+):\s*$")
_FUNCTION = re.compile(r"\.text\.(\S+):\s*$")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
_RESOURCES = re.compile(r"Function (\S+):\s*\n\s*(.+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction, for example '@!P0 BRA `(.L_x_7)'."""

    text: str

    @property
    def guarded(self) -> bool:
        return self.text.startswith("@")

    @property
    def name(self) -> str:
        """With modifiers: 'MUFU.EX2'."""
        return _GUARD.sub("", self.text, count=1).split()[0]

    @property
    def opcode(self) -> str:
        """Without modifiers: 'MUFU'."""
        return self.name.split(".")[0]

    @property
    def targets(self) -> list[str]:
        """The labels it names: one of a branch, several of a table of jumps."""
        if table := _TABLE.search(self.text):
            return table.group(1).split(",")
        return _TARGET.findall(self.text)


@dataclass
class Function:
    """The code of one kernel, and what the assembler reports about it."""

    symbol: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label -> index of an instruction
    registers: int = 0
    stack_bytes: int = 0

    @property
    def local_accesses(self) -> int:
        """Loads and stores of local memory: spills and arrays with run-time indices."""
        return sum(i.opcode in ("LDL", "STL") for i in self.instructions)

    def insert(self, index: int, *texts: str) -> None:
        """Puts instructions before an index: a planted regression."""
        self.instructions[index:index] = [Instruction(text) for text in texts]
        for label, position in self.labels.items():
            if position > index:
                self.labels[label] = position + len(texts)


def find_tool(name: str) -> Path | None:
    """nvdisasm or cuobjdump: of the wheels installed beside this Python, else of the toolkit."""
    folders = [
        *Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin"),
        *(Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p),
        *(Path(p).parent for p in [shutil.which("nvcc")] if p),
    ]
    return next((f / name for f in folders if os.access(f / name, os.X_OK)), None)


def _run(name: str, *arguments: str | Path, folder: Path | None = None) -> str:
    tool = find_tool(name)
    if tool is None:
        raise FileNotFoundError(
            f"{name} is not installed; 'tools/setup.sh --tests' installs it where nvcc is on PATH, "
            f"or: {sys.executable} -m pip install nvidia-cuda-{name}"
        )
    return subprocess.run(
        [tool, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def parse(listing: str) -> dict[str, Function]:
    """The functions of a listing of 'nvdisasm --print-code', by mangled name."""
    functions: dict[str, Function] = {}
    function = None
    for line in listing.splitlines():
        if start := _FUNCTION.match(line):
            function = functions.setdefault(start.group(1), Function(start.group(1)))
        elif function is None:
            continue
        elif label := _LABEL.match(line):
            function.labels[label.group(1)] = len(function.instructions)
        elif instruction := _INSTRUCTION.match(line):
            function.instructions.append(Instruction(instruction.group(1)))
    return functions


def disassemble(binary: Path, architecture: str | None = None) -> list[Function]:
    """All kernels in a library, an object file or a cubin, or those of one architecture of several."""
    binary = binary.resolve()
    chosen = [] if architecture is None else ["--gpu-architecture", architecture]
    functions: dict[str, Function] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cubins = [binary]
        if binary.suffix != ".cubin":
            _run("cuobjdump", *chosen, "--extract-elf", "all", binary, folder=folder)
            cubins = sorted(folder.glob("*.cubin"))
        for cubin in cubins:
            functions |= parse(_run("nvdisasm", "--print-code", cubin))
    usages = _run("cuobjdump", *chosen, "--dump-resource-usage", binary)
    for symbol, usage in _RESOURCES.findall(usages):
        amounts = dict(item.split(":", 1) for item in usage.split())
        functions[symbol].registers = int(amounts["REG"])
        functions[symbol].stack_bytes = int(amounts["STACK"])
    return list(functions.values())


def demangle(symbol: str) -> str:
    """The C++ name, or the symbol itself without binutils."""
    if shutil.which("c++filt") is None:
        return symbol
    return subprocess.run(
        ["c++filt", symbol], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
