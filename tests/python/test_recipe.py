# SPDX-License-Identifier: BSD-3-Clause
"""Recipes: files, the part for a layer and a noise level, refusals, calls that take them."""

import dataclasses
import json
import math
import stat

import numpy
import pytest
from conftest import random_qkv

import open_vc_attn
from open_vc_attn import LayerRecipe, Numerics, Recipe, RecipePart, _numerics

FAST, BALANCED, BEST = (_numerics.BUDGETS[name] for name in ("fast", "balanced", "best"))
CONTRACT = open_vc_attn.info()["contract_version"]


def simple(numerics=BEST, heads=2):
    return Recipe("tiny", heads, 128, {0: [RecipePart(numerics)]})


def ranged():
    parts = [
        RecipePart(FAST, 0, 0.45),
        RecipePart(BALANCED, 0.45, 0.75),
        RecipePart(BEST, 0.75, 1.8),
    ]
    return Recipe("tiny", 2, 128, {7: parts, 3: [RecipePart(FAST, 0, 1.2, 0.5, 2.25, 2.5)]})


RECIPES = {
    "one part": simple,
    "ranges": ranged,
    "text": lambda: Recipe(
        "Wän 2.1 ✓", 40, 128, {39: [RecipePart(FAST)]}, {"goal": {"budget": "fast"}}
    ),
    "other numerics": lambda: simple(
        Numerics(False, "never", 4, 0.125, False, "always", "per_head"), 24
    ),
}


@pytest.mark.parametrize("make", RECIPES.values(), ids=RECIPES)
def test_a_file_holds_all_of_a_recipe(tmp_path, make):
    path = tmp_path / "recipe.json"
    make().save(path)
    assert Recipe.load(path) == make()
    assert Recipe.load(str(path), model=make().model) == make()


def test_a_file_can_be_read_by_people(tmp_path):
    path = tmp_path / "recipe.json"
    ranged().save(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "format": "open_vc_attn recipe",\n') and text.endswith("}\n")
    assert '"noise": [0.45, 0.75],' in text and max(map(len, text.splitlines())) <= 100
    content = json.loads(text)
    assert [entry["layer"] for entry in content["layers"]] == [3, 7]
    assert content["layers"][1]["parts"][2]["numerics"] == dataclasses.asdict(BEST)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "recipe.json"
    path.write_text("old")
    path.chmod(mode)
    simple().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and Recipe.load(path) == simple()


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", {1, 2}])
def test_a_recipe_that_cannot_be_written_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "recipe.json"
    simple().save(path)
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(ranged(), about={"x": value}).save(path)
    assert Recipe.load(path) == simple() and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "noise, expected",
    [
        *((0, FAST), (0.3, FAST), (0.4499, FAST), (0.45, BALANCED), (0.6, BALANCED)),
        *((0.75, BEST), (1, BEST), (1.8, BEST), (numpy.float32(0.5), BALANCED)),
    ],
)
def test_a_noise_level_decides(noise, expected):
    assert ranged().numerics(7, noise) == expected
    assert ranged().at(7, noise) == LayerRecipe(expected, "tiny", 7, 2, 128)


@pytest.mark.parametrize("noise", [None, 0, 0.5, 1000])
def test_a_part_for_all_noise_levels(noise):
    assert simple().numerics(0, noise) == BEST


@pytest.mark.parametrize(
    "layer, noise, error, words",
    [
        (0, 0.5, ValueError, "layer: 0; expected one of 3, 7"),
        (8, 0.5, ValueError, "layer: 8; expected one of 3, 7"),
        (-1, 0.5, ValueError, "layer: -1"),
        ("7", 0.5, TypeError, "layer: '7'"),
        (7.0, 0.5, TypeError, "layer: 7.0"),
        (True, 0.5, TypeError, "layer: True"),
        (7, None, ValueError, "noise: None; expected 0 to 1.8"),
        (3, None, ValueError, "noise: None; expected 0 to 1.2"),
        (7, 1.81, ValueError, "noise: 1.81; expected 0 to 1.8"),
        (7, 999, ValueError, "noise: 999; expected 0 to 1.8"),
        (7, -0.1, ValueError, "noise: -0.1"),
        (7, math.nan, ValueError, "noise: nan"),
        (7, math.inf, ValueError, "noise: inf"),
        (7, "0.5", TypeError, "noise: str"),
        (7, True, TypeError, "noise: bool"),
    ],
)
def test_what_a_recipe_does_not_cover_is_refused(layer, noise, error, words):
    for ask in (ranged().numerics, ranged().at):
        with pytest.raises(error) as caught:
            ask(layer, noise)
        assert str(caught.value).startswith(words)


@pytest.mark.parametrize("noise", [-1, math.nan])
def test_noise_levels_that_do_not_exist(noise):
    with pytest.raises(ValueError, match=r"^noise: "):
        simple().numerics(0, noise)


def changed(change):
    """The text of a good file after a change of its content."""
    path = {"format": "open_vc_attn recipe", "schema": 1, "contract_version": CONTRACT}
    part = {"noise": [0.0, None], "numerics": dataclasses.asdict(BEST)}
    part |= {"extra_steps": 2.0, "error_percent": 1.5, "held_out_percent": None}
    content = path | {"model": "tiny", "heads": 2, "head_dim": 128, "about": {}}
    content["layers"] = [{"layer": 0, "parts": [part]}]
    change(content)
    return json.dumps(content)


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


def drop(*keys):
    def change(content):
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


PART = ("layers", 0, "parts", 0)


def test_the_file_that_the_refusals_start_from_is_good(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(changed(lambda content: None))
    assert Recipe.load(path).numerics(0) == BEST


@pytest.mark.parametrize(
    "change, words",
    [
        (put("schema", 2), "found schema 2; expected 1"),
        (put("schema", True), "found schema True; expected 1"),
        (drop("schema"), "found schema None; expected 1"),
        (put("contract_version", CONTRACT - 1), f"found contract_version {CONTRACT - 1}; expected"),
        (put("contract_version", str(CONTRACT)), "found contract_version '"),
        (put("format", "recipe"), "found no 'format'"),
        (put("colour", 1), "an unknown 'colour'"),
        (drop("about"), "no 'about'"),
        (put("about", []), "'about' that is no object"),
        (put("model", ""), "model: ''"),
        (put("model", 3), "model: 3"),
        (put("heads", 0), "heads: 0"),
        (put("heads", 2.0), "heads: 2.0"),
        (put("head_dim", -128), "head_dim: -128"),
        (put("layers", []), "layers: "),
        (put("layers", {}), "layers: found dict"),
        (put("layers", 0, 5), "layers: found int"),
        (put("layers", 0, "layer", -1), "layer: -1"),
        (put("layers", 0, "layer", "0"), "layer: found '0'"),
        (put("layers", 0, "layer", False), "layer: found False"),
        (put("layers", 0, "parts", []), "layers[0]: "),
        (put("layers", 0, "name", "x"), "an unknown 'name'"),
        (lambda c: c["layers"].append(c["layers"][0]), "layer: found 0 twice"),
        (lambda c: c["layers"][0]["parts"].append(c["layers"][0]["parts"][0]), "without gaps"),
        (put(*PART, "noise", [0.0]), "two noise levels"),
        (put(*PART, "noise", None), "two noise levels"),
        (put(*PART, "noise", [1.0, 0.5]), "low, high: 1, 0.5"),
        (put(*PART, "noise", [0.5, 0.5]), "low, high: 0.5, 0.5"),
        (put(*PART, "noise", [-0.5, 0.5]), "low, high: -0.5, 0.5"),
        (put(*PART, "noise", [None, 0.5]), "low: NoneType"),
        (put(*PART, "noise", ["0", 0.5]), "low: str"),
        (put(*PART, "noise", [False, 0.5]), "low: bool"),
        (put(*PART, "extra_steps", -1), "extra_steps: -1"),
        (put(*PART, "error_percent", "1 %"), "error_percent: str"),
        (drop(*PART, "held_out_percent"), "no 'held_out_percent'"),
        (put(*PART, "numerics", {}), "no 'smooth_keys'"),
        (drop(*PART, "numerics", "rotation"), "no 'rotation'"),
        (put(*PART, "numerics", "tail_correction", True), "an unknown 'tail_correction'"),
        (put(*PART, "numerics", "max_extra_steps", 3), "numerics.max_extra_steps: 3"),
        (put(*PART, "numerics", "max_extra_steps", True), "numerics.max_extra_steps: True"),
        (put(*PART, "numerics", "rotation", "sometimes"), "numerics.rotation: 'sometimes'"),
        (put(*PART, "numerics", "smooth_keys", 1), "numerics.smooth_keys: 1"),
        (put(*PART, "numerics", "score_error_target", -1), "numerics.score_error_target: "),
    ],
)
def test_files_that_are_not_right_are_refused(tmp_path, change, words):
    path = tmp_path / "recipe.json"
    path.write_text(changed(change))
    with pytest.raises(ValueError) as caught:
        Recipe.load(path)
    assert str(caught.value).startswith(f"{path}: ") and words in str(caught.value)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 100_000, '{"a": 1, "a": 2}', "\ufeff{}", '"x"', "NaN"),
        changed(put(*PART, "error_percent", math.nan)),
        changed(lambda content: None).replace('"schema": 1', '"schema": 1, "schema": 1'),
        changed(lambda content: None)[:-1],
    ],
)
def test_other_texts_are_refused(tmp_path, text):
    path = tmp_path / "recipe.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        Recipe.load(path)
    assert str(caught.value).startswith(f"{path}: found no ")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="found no JSON"):
        Recipe.load(path)
    with pytest.raises(FileNotFoundError):
        Recipe.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "model, error", [("other", ValueError), ("Tiny", ValueError), ("", ValueError), (3, TypeError)]
)
def test_another_model_is_refused(tmp_path, model, error):
    path = tmp_path / "recipe.json"
    simple().save(path)
    with pytest.raises(error, match=r"^model: "):
        Recipe.load(path, model=model)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"model": None}, "model: None"),
        ({"heads": "2"}, "heads: '2'"),
        ({"layers": {}}, "layers: dict"),
        ({"layers": [RecipePart(BEST)]}, "layers: list"),
        ({"layers": {0: RecipePart(BEST)}}, r"layers\[0\]: RecipePart"),
        ({"layers": {0: [BEST]}}, r"layers\[0\]: list"),
        ({"layers": {"0": [RecipePart(BEST)]}}, "layer: '0'"),
        ({"layers": {0: [RecipePart(BEST, 0, 1), RecipePart(FAST, 2, 3)]}}, r"layers\[0\]: noise"),
        ({"layers": {0: [RecipePart(BEST, 1, 2), RecipePart(FAST, 0, 1)]}}, r"layers\[0\]: noise"),
    ],
)
def test_recipes_that_cannot_be(fields, words):
    good = {"model": "tiny", "heads": 2, "head_dim": 128, "layers": {0: [RecipePart(BEST)]}}
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        Recipe(**good | fields)


@pytest.mark.parametrize("numerics", [None, {}, "fast"])
def test_a_part_needs_numerics(numerics):
    with pytest.raises(TypeError, match=r"^numerics: .*expected a Numerics"):
        RecipePart(numerics)


def prepared(q, k, v, **options):
    return open_vc_attn.attention_fp8(open_vc_attn.prepare_fp8(q, k, v, **options))


CALLS = (open_vc_attn.attention, prepared)


def strong_qkv(heads=2, batch=None):
    """Heads for which extra steps are worth their price: budgets differ."""
    q, k, v = random_qkv(300, heads=heads, batch=batch, seed=1)
    for x in (q, k):
        x[..., :40] *= 2
    return q, k, v


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("numerics", [FAST, BEST, Numerics(max_extra_steps=0)])
@pytest.mark.parametrize("call", CALLS)
def test_calls_compute_what_the_recipe_says(call, numerics, batch):
    qkv = strong_qkv(batch=batch)
    found = call(*qkv, recipe=simple(numerics).at(0))
    assert numpy.array_equal(found, call(*qkv, numerics=numerics))


def test_recipes_make_a_difference():
    qkv = strong_qkv()
    a, b = (prepared(*qkv, recipe=simple(numerics).at(0)) for numerics in (FAST, BEST))
    assert not numpy.array_equal(a, b)


@pytest.mark.parametrize("heads", [1, 3, 4])
@pytest.mark.parametrize("call", CALLS)
def test_other_numbers_of_heads_are_refused(call, heads):
    qkv = random_qkv(20, heads=heads)
    recipe = simple().at(0)
    words = f"recipe: for 2 heads of 128 channels (model 'tiny'), but q has {heads} of 128"
    with pytest.raises(ValueError) as caught:
        call(*qkv, recipe=recipe)
    assert str(caught.value).startswith(words)
    assert open_vc_attn.is_supported(*qkv, recipe=recipe).reason.startswith(words)


def test_other_head_dimensions_are_refused():
    recipe = dataclasses.replace(simple(), head_dim=64).at(0)
    with pytest.raises(ValueError, match=r"^recipe: for 2 heads of 64 channels"):
        open_vc_attn.attention(*random_qkv(20), recipe=recipe)


@pytest.mark.parametrize("recipe", [simple(), BEST, "recipe.json", 3, {"layer": 0}])
@pytest.mark.parametrize("call", CALLS)
def test_other_objects_are_refused(call, recipe):
    with pytest.raises(TypeError, match=r"^recipe: .*\.at\(layer, noise\)"):
        call(*random_qkv(20), recipe=recipe)
    assert not open_vc_attn.is_supported(*random_qkv(20), recipe=recipe)


@pytest.mark.parametrize("other", [{"budget": "fast"}, {"numerics": BEST}, {"numerics": {}}])
@pytest.mark.parametrize("call", CALLS)
def test_a_recipe_stands_alone(call, other):
    (name,) = other
    with pytest.raises(ValueError, match=f"^recipe: given beside {name}"):
        call(*random_qkv(20), recipe=simple().at(0), **other)


def test_supported_with_a_recipe():
    assert open_vc_attn.is_supported(*random_qkv(20), recipe=simple().at(0))


def test_tensors_of_torch_and_compiled_functions(torch):
    qkv = [torch.from_numpy(x) for x in strong_qkv()]
    recipe = ranged()

    def layer(q, k, v):
        return open_vc_attn.attention(q, k, v, recipe=recipe.at(7, 0.9))

    expected = open_vc_attn.attention(*qkv, numerics=BEST)
    assert torch.equal(layer(*qkv), expected)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*qkv), expected)
