# SPDX-License-Identifier: BSD-3-Clause
"""Control flow of disassembled code: basic blocks, loops, what every iteration executes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from disassembly import Function, Instruction

# Branches that this model knows. Calls return to the next instruction.
_BRANCHES = ("BRA",)
_TABLES = ("BRX", "BRXU")  # jumps to one of the labels that the disassembler lists
_ENDS = ("EXIT", "RET")
_UNKNOWN = ("JMP", "JMX", "JMXU")


@dataclass
class Block:
    """Instructions that are executed together, and the blocks that may follow."""

    instructions: list[Instruction]
    successors: list[int]


@dataclass
class Loop:
    """A natural loop: a header that dominates all blocks, and the branches back to it."""

    header: int
    latches: set[int]
    blocks: set[int]


class ControlFlow:
    """The graph of one function."""

    def __init__(self, function: Function) -> None:
        self.blocks = _split(function)
        self.predecessors: list[list[int]] = [[] for _ in self.blocks]
        for index, block in enumerate(self.blocks):
            for successor in block.successors:
                self.predecessors[successor].append(index)
        self._dominators = self._find_dominators()

    def dominates(self, a: int, b: int) -> bool:
        """True when every path to b passes a."""
        return b in self._dominators and a in self._dominators[b]

    def _find_dominators(self) -> dict[int, set[int]]:
        order = self._reverse_postorder()
        dominators = {0: {0}}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                known = [dominators[p] for p in self.predecessors[block] if p in dominators]
                found = set.intersection(*known) | {block}
                if dominators.get(block) != found:
                    dominators[block] = found
                    changed = True
        return dominators

    def _reverse_postorder(self) -> list[int]:
        order: list[int] = []
        seen = {0}
        stack = [(0, iter(self.blocks[0].successors))]
        while stack:
            block, successors = stack[-1]
            following = next((s for s in successors if s not in seen), None)
            if following is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.blocks[following].successors)))
        return order[::-1]

    def loops(self) -> list[Loop]:
        """All natural loops, in the order of their headers; loops with one header are one."""
        found: dict[int, Loop] = {}
        for latch, block in enumerate(self.blocks):
            for header in block.successors:
                if not self.dominates(header, latch):
                    continue
                loop = found.setdefault(header, Loop(header, set(), {header}))
                loop.latches.add(latch)
                pending = [latch]
                while pending:
                    inside = pending.pop()
                    if inside not in loop.blocks:
                        loop.blocks.add(inside)
                        pending.extend(self.predecessors[inside])
        return [found[header] for header in sorted(found)]

    def innermost(self, wanted: Callable[[Instruction], bool]) -> list[Loop]:
        """Loops with a wanted instruction that contain no other such loop."""
        loops = [x for x in self.loops() if any(map(wanted, self.instructions(x.blocks)))]
        return [x for x in loops if not any(y.blocks < x.blocks for y in loops)]

    def instructions(self, blocks: Iterable[int]) -> list[Instruction]:
        """The instructions of some blocks, in the given order."""
        return [i for block in blocks for i in self.blocks[block].instructions]

    def spine(self, loop: Loop) -> list[int]:
        """The blocks that every iteration executes, in order."""
        order = [b for b in self._reverse_postorder() if b in loop.blocks]
        return [b for b in order if all(self.dominates(b, latch) for latch in loop.latches)]

    def regions(self, loop: Loop) -> list[set[int]]:
        """What lies between two blocks of the spine: the arms of one decision."""
        spine = self.spine(loop)
        found = []
        for start in spine:
            region: set[int] = set()
            pending = [s for s in self.blocks[start].successors if s in loop.blocks]
            while pending:
                block = pending.pop()
                if block in spine or block in region:
                    continue
                region.add(block)
                pending.extend(s for s in self.blocks[block].successors if s in loop.blocks)
            if region:
                found.append(region)
        return found

    def passages(self, region: set[int]) -> list[list[int]]:
        """The ways through a region, fewest instructions first; nested loops are passed once."""
        entries = [b for b in region if any(p not in region for p in self.predecessors[b])]
        ways: list[list[int]] = []
        pending = [[entry] for entry in entries]
        while pending:
            way = pending.pop()
            following = [s for s in self.blocks[way[-1]].successors if s not in way]
            pending.extend([*way, s] for s in following if s in region)
            if any(s not in region for s in following):
                ways.append(way)
        return sorted(ways, key=lambda way: len(self.instructions(way)))


def _split(function: Function) -> list[Block]:
    instructions = function.instructions
    starts = {0}
    for index, instruction in enumerate(instructions):
        if instruction.opcode in _UNKNOWN:
            raise ValueError(f"{function.symbol}: unknown targets of {instruction.text}")
        if instruction.opcode in _BRANCHES + _TABLES:
            if not instruction.targets:
                raise ValueError(f"{function.symbol}: unknown targets of {instruction.text}")
            starts.update(function.labels[target] for target in instruction.targets)
        if instruction.opcode in _BRANCHES + _TABLES + _ENDS:
            starts.add(index + 1)
    ordered = sorted(s for s in starts if s < len(instructions))
    number = {start: index for index, start in enumerate(ordered)}
    blocks = []
    for start, end in itertools.pairwise([*ordered, len(instructions)]):
        last = instructions[end - 1]
        successors = []
        if last.opcode in _BRANCHES + _TABLES:
            successors += [number[function.labels[target]] for target in last.targets]
        if _falls_through(last) and end < len(instructions):
            successors.append(number[end])
        blocks.append(Block(instructions[start:end], list(dict.fromkeys(successors))))
    return blocks


def _falls_through(last: Instruction) -> bool:
    if last.opcode not in _BRANCHES + _TABLES + _ENDS or last.guarded:
        return True
    # 'BRA.DIV UR4, `(.L)' and 'BRA P1, `(.L)' are conditional without a guard.
    return last.opcode in _BRANCHES and "," in last.text
