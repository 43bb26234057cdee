# SPDX-License-Identifier: BSD-3-Clause
"""``python -m open_vc_attn.run``: runs a program with adapters in place."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from ._command_line import EXIT_FAILURE, EXIT_USAGE, Parser, complain
from ._policy import Policy
from .integrations import _default, _program

_STAND_INS = ("sageattention",)
_DESCRIPTION = """Run a program with FP8 attention in place: --as sageattention gives it this library
where it imports that package, --with NAME makes the backend open_vc known to a framework.
Calls that FP8 does not serve are computed as accurately as before; a report follows at exit."""
_EPILOG = """Processes that the program starts inherit all of it through the environment, if they
run the same Python. It works below launchers too: torchrun -m open_vc_attn.run ... SCRIPT."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m open_vc_attn.run",
        usage="%(prog)s [options] (SCRIPT | -m MODULE) [ARGUMENT...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--with",
        dest="adapters",
        metavar="NAME",
        action="append",
        default=[],
        help="register the adapter of a framework; open-vc-attn frameworks lists them",
    )
    add(
        "--as",
        dest="stand_ins",
        choices=_STAND_INS,
        action="append",
        default=[],
        help="stand in for this package",
    )
    add(
        "--policy",
        metavar="JSON",
        help='where FP8 is allowed, for example {"first_layers": 1}: the arguments of '
        "open_vc_attn.Policy",
    )
    add(
        "--numerics",
        metavar="JSON",
        help='numeric options, for example {"budget": "fast"}',
    )
    add(
        "--report",
        metavar="FILE",
        help="write the report there instead of standard error; other processes than the first "
        "add their number to the name",
    )
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the program; returns the status where it did not even start."""
    own, target = _split(words)
    parser = _parser()
    arguments = parser.parse_args(own)
    names = [*arguments.stand_ins, *arguments.adapters]
    try:
        known = _program.registrable()
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(
                f"--with: {unknown[0]!r}; expected one of {', '.join(known)}. Pass one of them."
            )
        if not target or target == ["-m"]:
            raise ValueError("nothing to run; expected SCRIPT or -m MODULE. Pass one of the two.")
        if arguments.policy is not None:
            Policy.from_json(arguments.policy)
            os.environ[_default.POLICY_VARIABLE] = arguments.policy
        if arguments.numerics is not None:
            os.environ[_default.NUMERICS_VARIABLE] = arguments.numerics
            _default.options_of_environment()
    except (TypeError, ValueError) as error:
        return complain(str(error), EXIT_USAGE)
    _default.report_at_exit(arguments.report)
    # As Python does for what it runs. Stand-ins come before it.
    is_module = target[0] == "-m"
    sys.argv = target[1:] if is_module else target
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(target[0]))
    try:
        _program.install(names)
    except RuntimeError as error:
        return complain(str(error), EXIT_FAILURE)
    _program.tell_children(names)
    if is_module:
        runpy.run_module(target[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(target[0], run_name="__main__")
    return 0


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options, and the program with its own."""
    flags = ("-h", "--help")
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-m":
        i += 1 if words[i] in flags or "=" in words[i] else 2
    return list(words[:i]), list(words[i:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
