# SPDX-License-Identifier: BSD-3-Clause
"""Masks of HunyuanVideo-1.5 in diffusers: of keys."""

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
pytest.importorskip("diffusers", minversion="0.36")

from diffusers_models import hunyuan15, hunyuan15_inputs  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn import Policy, enable  # noqa: E402
from open_vc_attn.integrations import _serve  # noqa: E402

SHORT = Policy(min_keys=1, min_queries=1)


def run(model):
    with torch.no_grad():
        return model(**hunyuan15_inputs(), return_dict=False)[0]


def processors(model):
    return [module.processor for _, module in model.named_modules() if hasattr(module, "processor")]


def test_masks_are_of_keys_alone(monkeypatch):
    model = hunyuan15()
    expected, before = run(model), processors(model)
    seen = []
    padding = _serve.key_padding
    monkeypatch.setattr(
        _serve, "key_padding", lambda mask, *rest: seen.append(mask) or padding(mask, *rest)
    )
    with enable(model, policy=SHORT) as switch:
        assert 0 < difference(run(model), expected) < 0.01
        fp8 = [record for record in switch.calls if record.fp8]
        masks = [mask for mask in seen if mask.shape[-1] == fp8[-1].keys]
        assert len(masks) == 2 and all(mask.shape[1:3] == (1, 1) for mask in masks)
        assert not masks[0].all()
    assert processors(model) == before and torch.equal(run(model), expected)


@pytest.mark.filterwarnings("ignore:.*not computed in FP8. mask")
def test_what_fp8_does_not_serve_is_as_before():
    model = hunyuan15()
    expected = run(model)
    for arguments in ({}, {"policy": SHORT, "masks": "refuse"}):
        with enable(model, **arguments):
            assert torch.equal(run(model), expected)


def test_compiled():
    model = hunyuan15()
    expected = run(model)
    torch._dynamo.reset()
    with enable(model):
        model.transformer_blocks[1].compile(backend="eager")
        assert torch.equal(run(model), expected)


def test_settings_are_those_of_the_processor_before():
    model = hunyuan15()
    before = processors(model)
    switch = enable(model, policy=SHORT)
    model.set_attention_backend("native")
    assert not any(record.fp8 for record in switch.calls)
    switch.disable()
    assert processors(model) == before
    backends = {getattr(x, "_attention_backend", None) for x in before} - {None}
    assert {backend.value for backend in backends} == {"native"}
