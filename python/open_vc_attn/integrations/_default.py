# SPDX-License-Identifier: BSD-3-Clause
"""The switch of processes in which no line of the user runs: configured by the environment."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from typing import Any

from .._policy import Policy
from .._switch import Layer, Options, Switch

POLICY_VARIABLE = "OPEN_VC_ATTN_POLICY"
NUMERICS_VARIABLE = "OPEN_VC_ATTN_NUMERICS"
"""A JSON object of numeric options; "budget" among them."""
REPORT_VARIABLE = "OPEN_VC_ATTN_REPORT"
"""Where processes write the report of this switch at exit: a file, or "-" for standard error."""
_STANDARD_ERROR = "-"
_FIRST_PROCESS = "OPEN_VC_ATTN_FIRST_PROCESS"

_lock = threading.RLock()
_state: dict[str, Switch] = {}
_layers: dict[tuple[str, str], Layer] = {}


def default_switch() -> Switch:
    """The switch of this process, made at the first call.

    Raises:
        TypeError, ValueError: a variable of the environment is not understood.
    """
    with _lock:
        if "switch" not in _state:
            _state["switch"] = Switch(policy_of_environment(), options_of_environment())
            if os.environ.get(REPORT_VARIABLE):
                atexit.register(_write_report)
        return _state["switch"]


def default_layer(name: str = "", model: str = "") -> Layer:
    """The layer of this name of the default switch; the same object for the same name."""
    with _lock:
        if (model, name) not in _layers:
            from ._operator import token_of

            layer = default_switch().add_layer(name, model=model)
            layer.token = token_of(layer)
            _layers[model, name] = layer
        return _layers[model, name]


def report_at_exit(file: str | None) -> None:
    """This process and its children write a report, to standard error or a file."""
    os.environ[REPORT_VARIABLE] = (
        _STANDARD_ERROR if file is None else os.path.abspath(os.fspath(file))
    )
    os.environ[_FIRST_PROCESS] = str(os.getpid())


def _write_report() -> None:
    switch, target = default_switch(), os.environ.get(REPORT_VARIABLE)
    if not switch.calls or not target:
        return
    rank = os.environ.get("RANK")  # torchrun's
    which = "" if rank is None else f"rank {rank}"
    if not which and os.environ.get(_FIRST_PROCESS) != str(os.getpid()):
        which = f"process {os.getpid()}"
    if target != _STANDARD_ERROR:
        root, extension = os.path.splitext(target)
        path = f"{root}.{which.replace(' ', '')}{extension}" if which else target
        with open(path, "w", encoding="utf-8") as file:
            file.write(switch.report() + "\n")
    elif sys.stderr is not None:
        title = f"open-vc-attn{f', {which}' if which else ''}:"
        with contextlib.suppress(OSError):
            print(title, switch.report(), sep="\n", file=sys.stderr, flush=True)


def policy_of_environment() -> Policy:
    """The policy that the environment asks for."""
    text = os.environ.get(POLICY_VARIABLE, "")
    try:
        return Policy.from_json(text) if text else Policy()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{POLICY_VARIABLE}: {error}") from None


def options_of_environment() -> Options:
    """The numeric options that the environment asks for."""
    text = os.environ.get(NUMERICS_VARIABLE, "")
    if not text:
        return Options()
    try:
        fields: Any = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError(
                f"{type(fields).__name__}; expected a JSON object. Pass {{}} for defaults."
            )
        budget = fields.pop("budget", None)
        return Options(budget=budget, numerics=fields or None).checked()
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{NUMERICS_VARIABLE}: {error}") from None
