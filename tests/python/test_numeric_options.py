# SPDX-License-Identifier: BSD-3-Clause
"""Every numeric option of the library's list, in every face that has it, with good and bad values."""

import ast
import dataclasses
import inspect
import json
import math
import pickle
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from conftest import random_qkv
from test_program import find_program, output_of

import open_vc_attn
from open_vc_attn import Numerics, _native_options, _numerics, _openvc, attention, is_supported
from open_vc_attn._numerics import OPTIONS
from open_vc_attn._options import KeyOrder

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "include" / "openvc" / "openvc.h"
C_TYPES = {"bool": "int32_t", "str": "int32_t", "int": "int32_t", "float": "float"}


def with_ids(pairs):
    return [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]!r}") for pair in pairs]


def good_values(option):
    if option.type_name != "float":
        return list(option.values)
    least = max(option.least, -1e30)
    most = min(option.most, 1e30)
    return [least, most, option.default, (least + option.default) / 2]


def values_of_wrong_type(option):
    others = {
        "bool": [0, 1, "true", None, 0.0],
        "str": [0, True, None, b"never", ("never",)],
        "int": [1.0, True, "1", None, 1j],
        "float": ["0.5", True, None, b"1", [0.5]],
    }
    return others[option.type_name]


def values_out_of_range(option):
    others = {
        "bool": [],
        "str": ["", "bogus", option.default.upper() if option.type_name == "str" else "", " "],
        "int": [-1, 10**30, max([v for v in option.values if not isinstance(v, str)] or [0]) + 1],
        "float": [math.nan, math.inf, -math.inf, 1e300],
    }[option.type_name]
    if option.least is not None and option.least > -1e38:
        others = [*others, math.nextafter(option.least, -math.inf)]
    if option.most is not None and option.most < 3e38:
        others = [*others, math.nextafter(option.most, math.inf)]
    return others


GOOD = with_ids((o, v) for o in OPTIONS for v in good_values(o))
OUT_OF_RANGE = with_ids((o, v) for o in OPTIONS for v in values_out_of_range(o))
BAD = with_ids(
    [(o, v, TypeError) for o in OPTIONS for v in values_of_wrong_type(o)]
    + [(o, v, ValueError) for o in OPTIONS for v in values_out_of_range(o)]
)


def all_values(option, value):
    """The defaults with one other value; floats are rounded to single precision on their way."""
    values = {o.name: o.default for o in OPTIONS} | {option.name: value}
    return {n: pytest.approx(v, rel=1e-6) if type(v) is float else v for n, v in values.items()}


def flag(option):
    return "--" + option.name.replace("_", "-")


def typed_fields():
    """Fields of the Numerics that type checkers see: name, annotation, default."""
    tree = ast.parse(inspect.getsource(_numerics))
    [block] = [
        n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    names = {
        ast.unparse(n.targets[0]): ast.literal_eval(n.value.slice)
        for n in block.body
        if isinstance(n, ast.Assign)
    }
    [body] = [n.body for n in block.body if isinstance(n, ast.ClassDef)]
    for node in body:
        kind = ast.unparse(node.annotation)
        yield node.target.id, names.get(kind, kind), ast.literal_eval(node.value)


def test_the_list_is_complete_and_without_repetition():
    assert len(OPTIONS) > 5
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.documentation.endswith("."), option
        assert option.default in good_values(option)


def test_type_checkers_see_the_list():
    expected = [
        (o.name, o.values if o.type_name == "str" else o.type_name, o.default) for o in OPTIONS
    ]
    assert list(typed_fields()) == expected, "edit the class under TYPE_CHECKING in _numerics.py"


def test_numerics_has_the_list():
    assert [(f.name, f.default) for f in dataclasses.fields(Numerics)] == [
        (o.name, o.default) for o in OPTIONS
    ]
    for option in OPTIONS:
        assert option.documentation in Numerics.__doc__


def test_numerics_is_a_class_like_any_other():
    numerics = Numerics(smooth_keys=False)
    assert pickle.loads(pickle.dumps(numerics)) == numerics
    assert hash(numerics) == hash(Numerics(smooth_keys=False))
    assert numerics != Numerics()
    assert dataclasses.replace(numerics, smooth_keys=True) == Numerics()
    assert repr(numerics).startswith("Numerics(smooth_keys=False, ")
    with pytest.raises(dataclasses.FrozenInstanceError):
        numerics.smooth_keys = True


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_c_header_has_the_field(option):
    structure = re.search(r"typedef struct openvc_options \{(.*?)\}", HEADER.read_text(), re.DOTALL)
    types = {name: kind for kind, name in re.findall(r"(\w+)\s+(\w+);", structure[1])}
    assert types.get(option.name) == C_TYPES[option.type_name]


@pytest.mark.parametrize("name", ["attention", "attention_with_lse"])
def test_schema_has_the_list(torch, name):
    attention(*(torch.zeros(2, 1, 128),) * 3)  # registers
    schema = getattr(torch.ops.open_vc_attn, name).default._schema
    found = [(a.name, {"str": "str"}.get(str(a.type), str(a.type))) for a in schema.arguments]
    tokens = (
        "key_lengths",
        "key_mask",
        "cu_seqlens_q",
        "cu_seqlens_k",
        "max_seqlen_q",
        "max_seqlen_k",
    )
    found, others = found[: -len(tokens)], found[-len(tokens) :]
    assert found[-len(OPTIONS) :] == [(o.name, o.type_name) for o in OPTIONS]
    assert tuple(name for name, _ in others) == tokens


@pytest.mark.parametrize("option, value", GOOD)
def test_good_values_arrive(option, value):
    native = _native_options.native_options(False, None, "mid_window", None, {option.name: value})
    assert native.numerics == all_values(option, value)


@pytest.mark.parametrize("option, value, error", BAD)
def test_bad_values_are_refused(option, value, error):
    words = rf"numerics\.{option.name}\b.*"
    with pytest.raises(error, match=words):
        Numerics(**{option.name: value})
    q, k, v = random_qkv(2)
    for function in (attention, open_vc_attn.prepare_fp8):
        with pytest.raises(error, match=words):
            function(q, k, v, numerics={option.name: value})
    support = is_supported(q, k, v, numerics={option.name: value})
    assert not support and option.name in support.reason


@pytest.mark.parametrize("option, value", OUT_OF_RANGE)
def test_operators_refuse_bad_values(torch, option, value):
    """Types are torch's business: it reads arguments as its schema says."""
    inputs = (torch.zeros(2, 1, 128),) * 3
    attention(*inputs)  # registers
    values = [value if o is option else o.default for o in OPTIONS]
    with pytest.raises((ValueError, RuntimeError), match=option.name):
        torch.ops.open_vc_attn.attention(*inputs, False, None, "mid_window", *values)


def test_the_extension_checks_names_itself():
    with pytest.raises(ValueError, match="key_order: 'up'; expected mid_window or descending"):
        _openvc.AttentionOptions(False, None, "up", Numerics())
    numerics = Numerics()
    object.__setattr__(numerics, "rotation", "perhaps")
    with pytest.raises(ValueError, match="rotation: 'perhaps'; expected never, automatic or alwa"):
        _openvc.AttentionOptions(False, None, "mid_window", numerics)


def test_key_orders_match_their_type():
    assert get_args(KeyOrder) == _openvc.KEY_ORDERS


def test_help_of_the_program_has_the_list():
    text = re.sub(r"\s+", " ", output_of("error", "--help"))
    for option in OPTIONS:
        summary = option.documentation.partition(". ")[0].rstrip(".")
        assert flag(option) in text
        assert summary in text, option.name


def program_arguments(option, value):
    if option.type_name == "bool":
        return [flag(option) if value else flag(option).replace("--", "--no-", 1)]
    return [flag(option), str(value)]


@pytest.mark.parametrize(
    "option, value", with_ids((o, good_values(o)[i]) for o in OPTIONS for i in (0, 1))
)
def test_program_hands_good_values_on(option, value, tmp_path):
    report = tmp_path / "report.json"
    arguments = program_arguments(option, value)
    output_of(
        *("error", "--family", "gaussian", "--tokens", 40, "--heads", 1, "--no-options"),
        *("--json", report, *arguments),
    )
    document = json.loads(report.read_text())
    assert document["numerics"] == all_values(option, value)
    assert " ".join(arguments) in document["command"]


@pytest.mark.parametrize("option, value", OUT_OF_RANGE)
def test_program_refuses_bad_values(option, value):
    result = subprocess.run(
        [find_program(), "run", "--family", "gaussian", f"{flag(option)}={value}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert flag(option) in result.stderr
