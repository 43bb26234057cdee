# SPDX-License-Identifier: BSD-3-Clause
"""The switch of processes in which no line of the user runs: configured by the environment."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
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


def configure(policy: Any, numerics: Any, source: str) -> None:
    """Sets up the default switch from the configuration of a framework instead of the environment.

    Args:
        policy, numerics: what the two variables hold, as objects; None for what they do hold.
        source: of them, for messages.

    Raises:
        TypeError, ValueError: one is not understood.
    """
    switch = default_switch()
    if numerics is not None:
        switch.options = _named(source, _options, numerics)
    if policy is not None:
        switch.policy = _named(source, lambda x: Policy.from_json(json.dumps(x)), policy)


def policy_of_environment() -> Policy:
    """The policy that the environment asks for."""
    text = os.environ.get(POLICY_VARIABLE, "")
    return _named(POLICY_VARIABLE, Policy.from_json, text) if text else Policy()


def options_of_environment() -> Options:
    """The numeric options that the environment asks for."""
    text = os.environ.get(NUMERICS_VARIABLE, "")
    return _named(NUMERICS_VARIABLE, lambda x: _options(json.loads(x)), text) if text else Options()


def _options(fields: Any) -> Options:
    if not isinstance(fields, Mapping):
        raise TypeError(f"{type(fields).__name__}; expected a JSON object. Pass {{}} for defaults.")
    numerics = {name: value for name, value in fields.items() if name != "budget"}
    return Options(budget=fields.get("budget"), numerics=numerics or None).checked()


def _named(source: str, read: Callable[[Any], Any], value: Any) -> Any:
    """What `read` makes of a value; an error names where the value comes from."""
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{source}: {error}") from None
