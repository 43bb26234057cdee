# SPDX-License-Identifier: BSD-3-Clause
"""The public surface. A change here is a change for users: see CHANGELOG.md."""

import ast
import dataclasses
import inspect
from pathlib import Path

import pytest

import open_vc_attn
from open_vc_attn import _openvc

REPAIR_OPTIONS = "causal=False, softmax_scale=None, {}key_order='mid_window', numerics=None"
OPTIONS = REPAIR_OPTIONS.replace("numerics=None", "budget=None, numerics=None, recipe=None")
CALL_OPTIONS = OPTIONS.format("return_lse=False, ") + ", key_lengths=None, key_mask=None"
SIGNATURES = {
    "attention": f"(q, k, v, *, {CALL_OPTIONS})",
    "attention_fp8": "(prepared, *, return_lse=False)",
    "attention_v_repair": "(prepared, *, return_lse=False)",
    "attention_varlen": "(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, "
    "*, " + OPTIONS.format("return_lse=False, ") + ")",
    "capture": "(module=None, /, *args, out, layers=None, steps=None, max_tokens=None, "
    "heads=None, **kwargs)",
    "cmake_dir": "()",
    "enable": "(target, *, policy=None, budget=None, numerics=None, recipe=None, "
    "key_order='mid_window', otherwise='native', masks='trim')",
    "exact_attention": "(q, k, v, rows=None, *, causal=False, softmax_scale=None, "
    "return_lse=False)",
    "get_num_threads": "()",
    "include_dir": "()",
    "info": "()",
    "is_supported": f"(q, k, v, *, {CALL_OPTIONS})",
    "load_capture": "(path)",
    "prepare_fp8": "(q, k, v, *, " + OPTIONS.format("with_lse=False, ") + ")",
    "prepare_v_repair": "(q, k, v, *, budget, " + REPAIR_OPTIONS.format("with_lse=False, ") + ")",
    "set_num_threads": "(threads)",
}
CLASSES = {
    "Capture",
    "HeadPlan",
    "LayerRecipe",
    "Numerics",
    "Policy",
    "PreparedFP8",
    "Recipe",
    "RecipePart",
    "Recording",
    "Support",
    "Switch",
}
PREPARED_PROPERTIES = {
    "shapes",
    "dtype",
    "device",
    "plans",
    "repair_rows",
    "has_lse",
    "nbytes",
}


def signature_text(function):
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(parameters))


def test_names():
    assert set(open_vc_attn.__all__) == SIGNATURES.keys() | CLASSES | {"__version__"}
    assert all(hasattr(open_vc_attn, name) for name in open_vc_attn.__all__)


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_signature(name):
    assert signature_text(getattr(open_vc_attn, name)) == SIGNATURES[name]


@pytest.mark.parametrize("name", sorted(SIGNATURES.keys() | CLASSES))
def test_everything_public_is_documented(name):
    assert inspect.getdoc(getattr(open_vc_attn, name))


def test_prepared_properties():
    public = {name for name in dir(open_vc_attn.PreparedFP8) if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(open_vc_attn.PreparedFP8)}
    assert public | {name for name in fields if not name.startswith("_")} == PREPARED_PROPERTIES


def test_annotations_are_complete():
    for name in SIGNATURES:
        function = getattr(open_vc_attn, name)
        annotated = inspect.get_annotations(function).keys()
        assert annotated == inspect.signature(function).parameters.keys() | {"return"}, name


def test_version_matches_the_repository():
    path = Path(__file__).parents[2] / "VERSION"
    assert open_vc_attn.__version__ == path.read_text().strip() == open_vc_attn.info()["version"]


def test_head_plan_mirrors_the_library():
    fields = {field.name for field in dataclasses.fields(open_vc_attn.HeadPlan)}
    assert public_names(_openvc.HeadPlan) == fields


def test_stub_lists_what_the_extension_has():
    path = Path(open_vc_attn.__file__).parent / "_openvc.pyi"
    nodes = ast.parse(path.read_text()).body
    stub = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    stub |= {n.target.id for n in nodes if isinstance(n, ast.AnnAssign)}
    assert stub == public_names(_openvc)


def public_names(thing):
    return {name for name in dir(thing) if not name.startswith("_")}
