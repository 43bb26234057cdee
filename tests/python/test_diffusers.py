# SPDX-License-Identifier: BSD-3-Clause
"""enable() on the real diffusers, with tiny models of its classes.

test_diffusers_oldest.py runs this file on the oldest version that is supported.
"""

import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
diffusers = pytest.importorskip("diffusers", minversion="0.36")

import diffusers_models as models  # noqa: E402
from diffusers.models import attention_dispatch as dispatcher  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn import Policy, enable  # noqa: E402
from open_vc_attn.integrations import diffusers as adapter  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402

SHORT = Policy(min_keys=1, min_queries=1)
FP8_ERROR = 0.01
"""Of a model's output."""

REGISTRY = dispatcher._AttentionBackendRegistry


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs, return_dict=False)[0]


def calls(switch):
    return {record.layer: (record.count, record.reason) for record in switch.calls}


def test_a_model_and_what_disable_restores():
    model, other, inputs = models.wan(), models.wan(seed=7), models.wan_inputs()
    expected, expected_other = run(model, inputs), run(other, inputs)
    active = REGISTRY._active_backend
    switch = enable(model, policy=SHORT)
    found = run(model, inputs)
    assert 0 < difference(found, expected) < FP8_ERROR
    assert calls(switch) == {
        **{f"blocks.{i}.attn1": (1, "") for i in range(3)},
        **{f"blocks.{i}.attn2": (1, "policy: cross-attention") for i in range(3)},
    }
    assert torch.equal(run(other, inputs), expected_other)
    assert REGISTRY._active_backend == active
    switch.disable()
    assert torch.equal(run(model, inputs), expected)
    assert torch.equal(run(other, inputs), expected_other)
    assert all(
        module.processor._attention_backend is None
        for module in model.modules()
        if hasattr(module, "processor")
    )


MODELS = [
    # The layers in FP8; reasons of the others.
    ("hunyuan", (7,), {"transformer_blocks.0.attn", "single_transformer_blocks.0.attn"}, set()),
    ("hunyuan", (7, 5), {"transformer_blocks.0.attn", "single_transformer_blocks.0.attn"}, set()),
    ("hunyuan15", (), {"transformer_blocks.0.attn", "transformer_blocks.1.attn"}, set()),
    (
        *("ltx2", ()),
        {f"transformer_blocks.{i}.{name}" for i in range(2) for name in ("attn1", "audio_attn1")},
        {"policy: cross-attention"},
    ),
    ("qwen_image", (12,), {"transformer_blocks.0.attn", "transformer_blocks.1.attn"}, set()),
    ("qwen_image", (12, 7), {"transformer_blocks.0.attn", "transformer_blocks.1.attn"}, set()),
    (
        *("flux", ()),
        {"transformer_blocks.0.attn", *(f"single_transformer_blocks.{i}.attn" for i in range(2))},
        set(),
    ),
    (
        *("mochi", (), {"transformer_blocks.0.attn1", "transformer_blocks.1.attn1"}),
        {"head size 4"},
    ),
]


@pytest.mark.parametrize("name, arguments, layers, reasons", MODELS)
def test_models(name, arguments, layers, reasons):
    try:
        model = getattr(models, name)()
    except AttributeError as error:
        pytest.skip(f"diffusers {diffusers.__version__}: {error}")
    inputs = getattr(models, f"{name}_inputs")(*arguments)
    expected = run(model, inputs)
    with enable(model, policy=SHORT) as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(model, inputs)
        assert 0 < difference(found, expected) < FP8_ERROR
        assert {record.layer for record in switch.calls if record.fp8} == layers
        assert {record.reason for record in switch.calls} - {""} == reasons
    assert torch.equal(run(model, inputs), expected)


def test_keys_that_a_mask_hides_do_not_matter():
    model, inputs = models.hunyuan(), models.hunyuan_inputs(7)
    for masks, in_fp8 in (("trim", 2), ("refuse", 0)):
        with enable(model, policy=SHORT, masks=masks) as switch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = run(model, inputs)
            changed = inputs["encoder_hidden_states"].clone()
            changed[:, 7:] = 9
            assert torch.equal(run(model, {**inputs, "encoder_hidden_states": changed}), first)
            assert sum(record.count for record in switch.calls if record.fp8) == 2 * in_fp8


def test_groups_of_queries():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 60, 4, 64, generator=generator).bfloat16()
    k = v = q[:, :, :2]
    expected = sdpa(q, k, v)

    class Processor:
        _attention_backend = _parallel_config = None

        def __call__(self, attn, q, k, v, *_):
            return dispatcher.dispatch_attention_fn(
                q, k, v, enable_gqa=True, backend=self._attention_backend
            )

    model = models.wan(layers=1)
    module = model.blocks[0].attn1
    module.processor = Processor()
    with enable(model, policy=SHORT) as switch:
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="eager")
        for run in (module, compiled):
            assert 0 < difference(run(q, k, v), expected) < 0.08
        switch.policy = Policy()
        for run in (module, compiled):
            assert torch.equal(run(q, k, v), expected)


@pytest.mark.parametrize("how", ["whole", "blocks"])
def test_compiled_once_for_all_policies(how):
    from torch._dynamo.testing import CompileCounter

    model, inputs = models.wan(), models.wan_inputs()
    counter = CompileCounter()
    torch._dynamo.reset()
    expected = run(model, inputs)
    policy = Policy(min_keys=1, min_queries=1, first_layers=1)
    with enable(model, policy=policy) as switch:
        in_fp8 = run(model, inputs)
        compiled = model
        if how == "whole":
            compiled = torch.compile(model, fullgraph=True, backend=counter)
        else:
            model.compile_repeated_blocks(fullgraph=True, backend=counter)
        assert torch.equal(run(compiled, inputs), in_fp8)
        switch.policy = Policy(min_keys=1, min_queries=1, layers=[])
        assert torch.equal(run(compiled, inputs), expected)
        switch.policy = policy
        assert torch.equal(run(compiled, inputs), in_fp8)
        assert counter.frame_count == 1
        assert sum(record.count for record in switch.calls if record.fp8) == 6


def pipeline(**arguments):
    scheduler = diffusers.UniPCMultistepScheduler(
        use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0
    )
    pipe = diffusers.WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=None,
        scheduler=scheduler,
        transformer=models.wan(),
        **arguments,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def generate(pipe, steps=6):
    return pipe(
        prompt_embeds=models.noise(1, 12, models.TEXT),
        negative_prompt_embeds=models.noise(1, 12, models.TEXT, seed=2),
        num_inference_steps=steps,
        height=64,
        width=64,
        num_frames=5,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
    ).frames


def test_pipeline_with_two_experts_and_steps():
    pipe = pipeline(transformer_2=models.wan(seed=7), boundary_ratio=0.9)
    expected = generate(pipe)
    policy = Policy(
        min_keys=1, min_queries=1, first_steps=1, last_steps=1, first_layers=1, last_layers=1
    )
    with enable(pipe, policy=policy) as switch:
        first = generate(pipe)
        assert 0 < difference(first, expected) < FP8_ERROR
        found = {(x.layer, x.reason): x.count for x in switch.calls if ".blocks.1.attn1" in x.layer}
        # Two calls a step, for guidance. Some of the steps belong to each expert.
        assert found.pop(("transformer.blocks.1.attn1", "policy: step")) == 2
        assert found.pop(("transformer_2.blocks.1.attn1", "policy: step"), 0) == 2
        assert sum(found.values()) == 2 * 4 and {reason for _, reason in found} == {""}
        outer = {x.reason for x in switch.calls if ".blocks.0." in x.layer and "attn1" in x.layer}
        assert outer == {"policy: layer"}
        switch.reset()
        assert torch.equal(generate(pipe), first)  # steps start again
        assert sum(record.count for record in switch.calls if record.fp8) == 2 * 4
    assert torch.equal(generate(pipe), expected)


def test_noise_levels_of_a_pipeline_reach_a_recipe():
    from open_vc_attn import Numerics, Recipe, RecipePart

    pipe = pipeline()
    seen = []
    parts = [RecipePart(Numerics(), 0.0, 0.5), RecipePart(Numerics(max_extra_steps=0), 0.5, 1.0)]
    recipe = Recipe("wan", 2, 128, {0: parts})
    at = Recipe.at
    try:
        Recipe.at = lambda self, layer, noise: seen.append((layer, noise)) or at(self, layer, noise)
        with enable(pipe, policy=SHORT, recipe=recipe):
            generate(pipe, steps=3)
    finally:
        Recipe.at = at
    levels = [float(x) for x in pipe.scheduler.sigmas[:3]]
    assert seen == [(0, level) for level in levels for _ in range(2)]


def test_layers_of_a_recipe_are_those_of_captures(tmp_path):
    from open_vc_attn import Numerics, Recipe, RecipePart, capture, load_capture

    model, inputs = models.hunyuan(), models.hunyuan_inputs(12)
    with torch.no_grad():
        files = capture(model, **inputs, out=tmp_path).files
    layers = {load_capture(file).metadata["module"]: n for n, file in enumerate(files)}
    assert len(layers) == 3  # one is that of a text refiner, which has no dispatcher
    name = "single_transformer_blocks.0.attn"
    recipe = Recipe("hunyuan", 2, 128, {layers[name]: [RecipePart(Numerics())]})
    with enable(model, policy=SHORT, recipe=recipe) as switch:
        for _ in range(2):
            run(model, inputs)
        assert [(r.layer, r.count) for r in switch.calls if r.fp8] == [(name, 2)]
        torch._dynamo.reset()
        run(torch.compile(model, backend="eager"), inputs)
        assert {record.reason for record in switch.calls if not record.fp8} == {
            f"recipe: no layer {layers['transformer_blocks.0.attn']}",
            "recipe: the number of the layer is unknown",
        }


def test_a_backend_that_was_chosen_before_serves_the_rest():
    model, inputs = models.wan(), models.wan_inputs()
    math = dispatcher.AttentionBackendName._NATIVE_MATH
    for module in model.modules():
        if hasattr(module, "processor"):
            module.processor._attention_backend = math
    expected = run(model, inputs)
    seen = []
    function = REGISTRY._backends[math]
    REGISTRY._backends[math] = lambda *args, **kwargs: seen.append(1) or function(*args, **kwargs)
    try:
        with enable(model):
            assert torch.equal(run(model, inputs), expected)
        assert len(seen) == 6
    finally:
        REGISTRY._backends[math] = function
    assert {m.processor._attention_backend for m in model.modules() if hasattr(m, "processor")} == {
        math
    }


def test_the_backend_by_its_name():
    adapter.register()
    adapter.register()
    model, inputs = models.wan(), models.wan_inputs()
    expected = run(model, inputs)
    with dispatcher.attention_backend("open_vc"):
        # Served as before: shorter than the default policy asks for.
        assert torch.equal(run(model, inputs), expected)
    for module in model.modules():
        if hasattr(module, "processor"):
            module.processor._attention_backend = dispatcher.AttentionBackendName("open_vc")
    assert torch.equal(run(model, inputs), expected)
    with enable(model, policy=SHORT) as switch:
        assert not torch.equal(run(model, inputs), expected)
        assert sum(record.count for record in switch.calls if record.fp8) == 3


def test_masks_of_two_axes_hide_keys_of_items():
    """torch reads two axes as [Sq, Skv]."""
    from open_vc_attn.integrations import _diffusers_backend

    adapter.register()
    member = dispatcher.AttentionBackendName("open_vc")
    mask = models.text_mask(3, 9)
    q, k, v = (models.noise(2, n, 2, 128, seed=n) for n in (20, 12, 12))
    expected = dispatcher.dispatch_attention_fn(q, k, v, mask[:, None, None])
    switch = _diffusers_backend._DEFAULT.switch
    try:
        switch.policy = Policy(min_keys=1, min_queries=1, cross=True)
        found = dispatcher.dispatch_attention_fn(q, k, v, mask, backend=member)
        assert 0 < difference(found, expected) < 0.08
    finally:
        switch.policy = Policy()


def test_every_argument_of_the_dispatcher_is_named():
    adapter.register()
    member = dispatcher.AttentionBackendName("open_vc")
    assert member.name in dispatcher.AttentionBackendName.__members__
    named = REGISTRY._supported_arg_names[member]
    assert REGISTRY._supported_arg_names[dispatcher.AttentionBackendName.NATIVE] <= named


def test_steps_count_from_where_the_scheduler_begins():
    pipe = pipeline()
    pipe.scheduler.set_timesteps(8)
    pipe.scheduler.set_begin_index(3)
    with enable(pipe) as switch:
        assert switch.current_step()[:2] == (0, 5)
        assert switch.current_step().noise == float(pipe.scheduler.sigmas[3])


def test_components_of_a_pipeline():
    narrow = {"num_attention_heads": 2, "attention_head_dim": 256, "num_layers": 1}
    other = models.made("WanTransformer3DModel", **narrow, text_dim=8, freq_dim=8, ffn_dim=8)
    pipe = pipeline(transformer_2=other)
    pipe.transformer = torch.compile(pipe.transformer, backend="eager")
    with enable(pipe, policy=SHORT) as switch:
        assert [layer.name for layer in switch.layers][:2] == ["blocks.0.attn1", "blocks.0.attn2"]
        assert {layer.model for layer in switch.layers} == {""}


def test_targets_that_cannot_be_switched():
    with pytest.raises(ValueError, match="heads of 256 channels"):
        enable(
            models.made(
                "WanTransformer3DModel",
                num_attention_heads=2,
                attention_head_dim=256,
                text_dim=8,
                freq_dim=8,
                ffn_dim=8,
                num_layers=1,
            )
        )
    with pytest.raises(ValueError, match=r"switch\.step"):
        enable(models.wan(layers=1), policy=Policy(first_steps=1))
    with pytest.raises(NotImplementedError, match=r"version 0\.35\.2; expected 0\.36"):
        adapter.FRAMEWORK.require_version("0.35.2")
