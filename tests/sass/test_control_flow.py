# SPDX-License-Identifier: BSD-3-Clause
"""Loops and decisions of a small listing, in the form that nvdisasm prints."""

import pytest
from control_flow import ControlFlow
from disassembly import Function, Instruction, parse

# A loop whose barrier is asked again out of line, with a branch of two arms.
LISTING = """
\t.section\t.text.kernel,"ax",@progbits
.text.kernel:
        /*0000*/                   MOV R1, R2 ;
.L_x_1:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3 ;
        /*0020*/              @!P0 BRA `(.L_x_5) ;
.L_x_2:
        /*0030*/                   QGMMA.64x136x32.F32.E4M3.E4M3 R24, R168, gdesc[UR8], R24, gsb0 ;
        /*0040*/               @P1 BRA `(.L_x_3) ;
        /*0050*/                   HFMA2 R4, R4, R5, R6 ;
        /*0060*/                   HADD2 R4, R4, R5 ;
        /*0070*/                   BRA `(.L_x_4) ;
.L_x_3:
        /*0080*/                   HFMA2 R4, R4, R5, R6 ;
.L_x_4:
        /*0090*/                   BRA.DIV UR5, `(.L_x_7) ;
.L_x_6:
        /*00a0*/               @P2 BRA `(.L_x_1) ;
        /*00b0*/                   EXIT ;
.L_x_5:
        /*00c0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3 ;
        /*00d0*/              @!P0 BRA `(.L_x_5) ;
        /*00e0*/                   BRA `(.L_x_2) ;
.L_x_7:
        /*00f0*/                   WARPSYNC.COLLECTIVE R5, `(.L_x_6) ;
        /*0100*/                   BRA `(.L_x_6) ;
"""


def flow_of(listing: str) -> ControlFlow:
    return ControlFlow(parse(listing)["kernel"])


def opcodes(instructions: list[Instruction]) -> list[str]:
    return [i.opcode for i in instructions]


def test_parse():
    function = parse(LISTING)["kernel"]
    assert len(function.instructions) == 17
    guarded = function.instructions[2]
    assert (guarded.opcode, guarded.targets, guarded.guarded) == ("BRA", [".L_x_5"], True)
    assert function.labels[".L_x_1"] == 1
    assert function.instructions[3].name == "QGMMA.64x136x32.F32.E4M3.E4M3"


def test_local_accesses():
    function = Function("kernel", [Instruction("@P0 STL [R1], R2"), Instruction("LDL.64 R2, [R1]")])
    assert function.local_accesses == 2


def test_innermost_loop_with_an_instruction():
    flow = flow_of(LISTING)
    assert len(flow.loops()) == 2  # the other is the barrier that is asked again
    (loop,) = flow.innermost(lambda i: i.opcode == "QGMMA")
    always = opcodes(flow.instructions(flow.spine(loop)))
    assert always == ["SYNCS", "BRA", "QGMMA", "BRA", "BRA", "BRA"]


def test_decisions_of_a_loop():
    flow = flow_of(LISTING)
    (loop,) = flow.innermost(lambda i: i.opcode == "QGMMA")
    wait, codes, divergent = flow.regions(loop)
    assert [len(flow.instructions(way)) for way in flow.passages(wait)] == [3]
    ways = [opcodes(flow.instructions(way)) for way in flow.passages(codes)]
    assert ways == [["HFMA2"], ["HFMA2", "HADD2", "BRA"]]
    assert opcodes(flow.instructions(divergent)) == ["WARPSYNC", "BRA"]


def test_code_behind_the_exit_is_no_loop():
    flow = flow_of(LISTING.replace("@P2 BRA `(.L_x_1)", "@P2 BRA `(.L_x_7)"))
    assert flow.innermost(lambda i: i.opcode == "QGMMA") == []


def test_a_table_of_jumps_leads_to_all_of_its_labels():
    table = 'BRXU UR4 -0xd040 (*"BRANCH_TARGETS .L_x_1,.L_x_5,.L_x_7"*)'
    flow = flow_of(LISTING.replace("BRA.DIV UR5, `(.L_x_7)", table))
    (block,) = [b for b in flow.blocks if b.instructions[-1].opcode == "BRXU"]
    labels = [".L_x_1", ".L_x_5", ".L_x_7"]
    assert block.instructions[-1].targets == labels
    starts = [flow.blocks[s].instructions[0].text for s in block.successors]
    assert starts == [
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3",
        "WARPSYNC.COLLECTIVE R5, `(.L_x_6)",
    ]


def test_a_jump_with_unknown_targets_is_refused():
    with pytest.raises(ValueError, match="kernel: unknown targets of BRX R2 -0x10"):
        flow_of(LISTING.replace("BRA.DIV UR5, `(.L_x_7)", "BRX R2 -0x10"))
