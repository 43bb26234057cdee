# SPDX-License-Identifier: BSD-3-Clause
"""The command plan on captures that were made for it: what it chooses, writes and refuses."""

import re

import pytest
from conftest import random_qkv
from test_quality_page import Tags

torch = pytest.importorskip("torch")

import open_vc_attn  # noqa: E402
from open_vc_attn import Recipe, _safetensors, cli  # noqa: E402
from open_vc_attn.planning import captures, choose, command, measure  # noqa: E402
from open_vc_attn.planning.plan import Goal, decide, to_recipe  # noqa: E402

HEADS, TOKENS = 2, 160
NAMES = ("q", "k", "v")
FEW = ["--rows", "40"]


def sharp(seed=0, heads=HEADS, tokens=TOKENS):
    """Scores of a few strong channels: their rounding is the error, which a step removes."""
    q, k, v = random_qkv(tokens, heads=heads, seed=seed)
    for x in (q, k):
        x[..., 8:] *= 0.05
        x[..., :8] *= 3
    return q, k, v


def flat(seed=0, heads=HEADS, tokens=TOKENS, **sizes):
    """Scores near zero: V's rounding is the error, which steps do not touch."""
    q, k, v = random_qkv(tokens, heads=heads, seed=seed, **sizes)
    return 0.1 * q, 0.1 * k, v


def write(path, qkv, **said):
    tensors = {n: torch.from_numpy(x).bfloat16() for n, x in zip(NAMES, qkv, strict=True)}
    metadata = {"model": "tiny", "layer": "0"} | {key: str(value) for key, value in said.items()}
    metadata = {key: value for key, value in metadata.items() if value != "None"}
    _safetensors.save(path, tensors, metadata)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Layer 0 is worth steps, layer 1 is not, layer 2 at one noise level alone."""
    path = tmp_path_factory.mktemp("captures")
    write(path / "a.safetensors", sharp(), layer=0, sigma=0.9)
    write(path / "b.safetensors", sharp(1), layer=0, sigma=0.3)
    write(path / "c.safetensors", flat(2), layer=1, sigma=0.9)
    write(path / "d.safetensors", flat(3), layer=1, sigma=0.3)
    write(path / "e.safetensors", sharp(4), layer=2, sigma=0.9)
    write(path / "f.safetensors", flat(5), layer=2, sigma=0.3)
    return path


def plan(*words):
    return cli.run(["plan", *map(str, words), *FEW])


def planned(inputs, tmp_path, *words):
    path = tmp_path / "recipe.json"
    inputs = inputs if isinstance(inputs, list) else [inputs]
    assert plan("--input", *inputs, "--output", path, *words) == 0
    return Recipe.load(path)


@pytest.fixture(scope="module")
def recipe_for(folder):
    """Recipes of the folder for any goal, measured once."""
    found = captures.survey(captures.find([folder]))
    measured = measure.measure(found, 40, torch.device("cpu"), lambda text: None)
    return lambda *goal: to_recipe(decide(found, measured, Goal(*goal)))


def steps(recipe):
    return {layer: [part.extra_steps for part in parts] for layer, parts in recipe.layers.items()}


def totals(recipe):
    return recipe.about["time_and_errors"]


@pytest.mark.parametrize("limit", [1.07, 1.1])
def test_steps_go_where_they_pay(recipe_for, limit):
    recipe = recipe_for(None, None, limit)
    found = steps(recipe)
    assert all(found[0]) and found[2][1] and not any(found[1]) and not found[2][0]
    assert totals(recipe)["this recipe"]["time_factor"] <= limit
    assert recipe.numerics(0, 0.9).max_extra_steps > 0
    assert [(part.low, part.high) for part in recipe.layers[0]] == [(0, 0.6), (0.6, 1.8)]
    assert (recipe.model, recipe.heads, recipe.head_dim) == ("tiny", HEADS, 128)


@pytest.mark.parametrize("budget", ["fast", "balanced", "best"])
def test_no_slower_and_no_worse_than_the_budget(recipe_for, budget):
    found = totals(recipe_for(budget))
    here, there = found["this recipe"], found[budget]
    assert here["time_factor"] <= there["time_factor"] + 1e-4
    assert here["error_percent"] <= there["error_percent"] / (1 - choose.LEAST_GAIN) ** 0.5


def test_time_limits_hold_beside_a_budget(recipe_for):
    recipe = recipe_for("best", None, 1.0)
    assert not any(any(layer) for layer in steps(recipe).values())
    assert recipe.about["goal"] == {"budget": "best", "time_limit": 1.0}


# The purchase that saves most for its time comes first: below it a plan for less time may be better.
@pytest.mark.parametrize("share", [0.8, 0.6, 0.2])
def test_a_target_error_is_met_and_costs_no_more_than_it_must(recipe_for, share):
    none, best = (totals(recipe_for(None, None, x))["this recipe"] for x in (1.0, 2.0))
    target = best["error_percent"] + share * (none["error_percent"] - best["error_percent"])
    found = totals(recipe_for(None, target))["this recipe"]
    assert found["error_percent"] <= target + 1e-4
    assert 1 <= found["time_factor"] <= best["time_factor"]
    cheaper = totals(recipe_for(None, None, found["time_factor"] - 1e-3))["this recipe"]
    assert cheaper["error_percent"] > target


@pytest.mark.parametrize("limit", [None, 1.02])
def test_targets_out_of_reach_are_refused(recipe_for, limit):
    with pytest.raises(ValueError) as caught:
        recipe_for(None, 0.001, limit)
    said = str(caught.value)
    assert re.match(r"--target-error: 0.001 %; expected [\d.]+ % or more", said)
    assert ("within --time-limit 1.02" in said) == (limit is not None)


def test_what_is_planned_and_what_comes_out(folder, tmp_path, capfd):
    page = tmp_path / "x.html"
    recipe = planned(folder, tmp_path, "--budget", "fast", "--html", page, "--device", "cpu")
    text = capfd.readouterr().out
    assert text.count("\n    0 ") == text.count("\n    1 ") == text.count("\n    2 ") == 2
    for name in ("this recipe", "budget fast everywhere", "budget best everywhere"):
        assert name in text
    for parts in recipe.layers.values():
        for part in parts:
            assert part.held_out_percent == pytest.approx(part.error_percent, rel=0.5)
            assert f"{part.error_percent:.3f}"[:-1] in text
    check_page(page.read_text(encoding="utf-8"))
    # The figure is that of the call: all queries, its own rows among them.
    q, k, v = (x for x in open_vc_attn.load_capture(folder / "b.safetensors")[:3])
    exact = open_vc_attn.exact_attention(q, k, v)
    found = open_vc_attn.attention(q, k, v, recipe=recipe.at(0, 0.3)).double()
    error = 100 * float((found - exact).norm() / exact.norm())
    assert recipe.layers[0][0].error_percent == pytest.approx(error, rel=0.3)


def test_equal_captures_give_equal_files(folder, tmp_path):
    files = [folder / f"{name}.safetensors" for name in "fdbeca"]
    for name, inputs in (("1", [folder]), ("2", files)):
        words = ["--output", tmp_path / name, "--html", tmp_path / f"{name}.html"]
        assert plan("--input", *inputs, "--budget", "fast", *words) == 0
    for end in ("", ".html"):
        first, second = ((tmp_path / f"{name}{end}").read_bytes() for name in "12")
        assert first == second


def check_page(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == [] and "script" not in [tag for tag, _ in tags.seen]
    assert page.count('class="chart"') == 2 and not re.search("nan|inf[^o]", page)
    assert page.count("<tr>") == 2 + 4 + 6  # headings, recipe and budgets, layers


def one(tmp_path, *groups, words=()):
    """The recipe of captures, each (inputs, what the file says)."""
    files = [
        write(tmp_path / f"{i}.safetensors", qkv, **said) for i, (qkv, said) in enumerate(groups)
    ]
    return planned(files, tmp_path, "--time-limit", "1.1", *words)


def test_captures_without_noise_levels_stand_for_all(tmp_path):
    recipe = one(tmp_path, (flat(), {"step": 3}), (flat(1), {"step": 9}), (sharp(), {"layer": 4}))
    assert list(recipe.layers) == [0, 4] and recipe.about["captures"] == 3
    assert recipe.numerics(0) == recipe.numerics(0, 0.7)


def test_noise_levels_of_steps(tmp_path):
    groups = (flat(), {"step": 3}), (flat(1), {"step": 9})
    recipe = one(tmp_path, *groups, words=["--noise", "3=0.75", "9=0.25"])
    assert [(part.low, part.high) for part in recipe.layers[0]] == [(0, 0.5), (0.5, 1.5)]


@pytest.mark.parametrize(
    "said, words",
    [
        ({"heads": "1", "shapes_bhsd": "1x2x99x128 1x2x99x128 1x2x99x128"}, []),
        ({"head": "1"}, ["--heads", "2"]),
        ({"heads": "0"}, ["--heads", "2"]),
    ],
)
def test_captures_of_some_heads(tmp_path, said, words):
    recipe = one(tmp_path, (flat(heads=1), said), words=words)
    assert recipe.heads == 2


def test_a_half_of_the_heads_counts_like_all(tmp_path):
    """The same layer, captured whole and in halves."""
    q, k, v = sharp()
    files = [write(tmp_path / "whole.safetensors", (q, k, v), layer=0)]
    for head in range(HEADS):
        part = tuple(x[:, head : head + 1] for x in (q, k, v))
        files.append(write(tmp_path / f"{head}.safetensors", part, layer=0, head=head))
    found = []
    for group in (files[:1], files[1:]):
        (sources,) = captures.survey(group, heads=HEADS).sources.values()
        probes = [measure._Probe(source, HEADS, 40, torch.device("cpu")) for source in sources]
        found.append(measure._measure(sources[0].place, probes))
    whole, halves = found
    assert whole.work == halves.work
    assert whole.planned_energy == pytest.approx(halves.planned_energy)
    for a, b in zip(whole.measured, halves.measured, strict=True):
        assert a.planned == pytest.approx(b.planned, rel=1e-6)
        assert a.extra_steps == b.extra_steps


def test_batches_and_a_name_from_the_command(tmp_path):
    qkv = random_qkv(50, heads=3, batch=2)
    recipe = one(tmp_path, (qkv, {"model": None}), words=["--model", "other"])
    assert (recipe.model, recipe.heads) == ("other", 3)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_tiny_captures(tmp_path, tokens):
    assert one(tmp_path, (flat(tokens=tokens), {})).numerics(0) is not None


def test_narrow_heads_and_groups_of_queries(tmp_path, capfd):
    narrow = flat(tokens=5, heads=4, key_heads=2, head_dim=64)
    recipe = one(tmp_path, (narrow, {}))
    assert (recipe.heads, recipe.head_dim) == (4, 64)
    files = [
        write(tmp_path / f"{i}.safetensors", x, layer=i)
        for i, x in enumerate((narrow, flat(tokens=5, heads=4)))
    ]
    assert plan("--input", *files, "--budget", "fast", "--output", tmp_path / "recipe.json") == 2
    assert "found channels of a head 128; expected 64 as in" in capfd.readouterr().err


GOOD = {"sigma": 0.5}


@pytest.mark.parametrize(
    "said, words, expected",
    [
        ([{"layer": None}], [], "found no layer; expected its number"),
        ([{"layer": "x"}], [], "found layer 'x'"),
        ([{"layer": "-1"}], [], "found layer '-1'"),
        ([{"layer": "1_0"}], [], "found layer '1_0'"),
        ([{"model": None}], [], "found no model"),
        ([{"model": " "}], [], "found no model"),
        ([{}], ["--model", "other"], "found model 'tiny'; expected --model other"),
        ([{}, {"model": "other"}], [], "found model 'other'; expected 'tiny' as in "),
        ([{"sigma": "high"}], [], "found sigma 'high'"),
        ([{"sigma": "-1"}], [], "found sigma '-1'"),
        ([{"noise": "inf"}], [], "found noise 'inf'"),
        ([{"sigma": 0.5, "noise": 0.6}], [], "found sigma '0.5' and noise '0.6'"),
        ([GOOD, {"step": 3}], [], "found layer 0, all noise levels, but layer 0, noise 0.5 in"),
        ([{"step": 3}], ["--noise", "4=0.5"], "found step '3'; expected one of 4"),
        ([{}], ["--noise", "4=0.5"], "found step ''; expected one of 4"),
        ([{"masked": "true"}], [], "found a call with a mask"),
        ([{"head": "0"}], [], "found some heads of a layer"),
        ([{"heads": "0,2"}], [], "found some heads of a layer"),
        ([{"head": "0"}], ["--heads", "1"], "found 2 heads; expected at most 1"),
        ([{}], ["--heads", "3"], "found 2 heads; expected --heads 3"),
        ([{"shapes_bhsd": "2x"}], [], "found shapes_bhsd '2x'"),
        ([GOOD, {"shapes_bhsd": "1x9x1x128"}], [], "found heads 9; expected 2 as in "),
        ([{"scale": "1"}], [], "found the parameter 'scale'"),
    ],
)
def test_captures_that_do_not_fit_are_refused(tmp_path, capfd, said, words, expected):
    files = [write(tmp_path / f"{i}.safetensors", flat(), **x) for i, x in enumerate(said)]
    output = tmp_path / "recipe.json"
    assert plan("--input", *files, "--budget", "fast", "--output", output, *words) == 2
    message = capfd.readouterr().err
    assert f"{files[-1]}: " in message and expected in message and not output.exists()


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda q, k, v: (q[:, :1], k, v), "divides q's"),
        (lambda q, k, v: (q[..., :60], k[..., :60], v[..., :60]), "a multiple of 8 up to 128"),
        (lambda q, k, v: (q[:0], k, v), "without queries"),
        (lambda q, k, v: (q, k, v * float("inf")), "an exact output that is not finite"),
        (lambda q, k, v: (q, k, v * 0), "zero everywhere"),
    ],
)
def test_tensors_that_cannot_be_measured_are_refused(tmp_path, capfd, change, expected):
    file = write(tmp_path / "x.safetensors", change(*flat()))
    output = tmp_path / "recipe.json"
    assert plan("--input", file, "--budget", "fast", "--output", output) == 2
    assert expected in capfd.readouterr().err and not output.exists()


@pytest.mark.parametrize(
    "words, status, expected",
    [
        ([], 2, "--budget: not given"),
        (["--budget", "cheap"], 2, "cheap"),
        (["--budget", "fast", "--target-error", "2"], 2, "not allowed with"),
        (["--target-error", "0"], 2, "0; expected a number of percent above 0"),
        (["--target-error", "nan"], 2, "nan"),
        (["--time-limit", "0.9"], 2, "0.9; expected 1 or more"),
        (["--budget", "fast", "--noise", "3"], 2, "3; expected STEP=LEVEL"),
        (["--budget", "fast", "--noise", "3=x"], 2, "3=x"),
        (["--budget", "fast", "--noise", "3=0.5", "3=0.6"], 2, "--noise: 0.6 for step 3"),
        (["--budget", "fast", "--model", " "], 2, "--model: ' '"),
        (["--budget", "fast", "--heads", "0"], 2, "0; expected 1 or more"),
        (["--budget", "fast", "--device", "abacus"], 2, "--device: 'abacus'"),
        (["--budget", "fast", "--html", "{out}"], 2, "is also --output"),
        (["--budget", "fast", "--html", "{folder}/a.safetensors"], 2, "is also --input"),
        (["--budget", "fast", "--input", "{folder}/a.safetensors"], 2, "found twice"),
        (["--budget", "fast", "--input", "{tmp}"], 2, "found no *.safetensors"),
        (["--budget", "fast", "--input", "{tmp}/none.safetensors"], 1, "none.safetensors"),
        (["--budget", "fast", "--html", "{tmp}/none/x.html"], 2, "in a folder that exists"),
    ],
)
def test_arguments_that_are_refused(folder, tmp_path, capfd, words, status, expected):
    output = tmp_path / "recipe.json"
    words = [word.format(out=output, folder=folder, tmp=tmp_path) for word in words]
    assert plan("--input", folder, "--output", output, *words) == status
    assert expected in capfd.readouterr().err and not output.exists()


def test_inputs_are_not_overwritten(folder, capfd):
    path = folder / "a.safetensors"
    before = path.read_bytes()
    assert plan("--input", folder, "--budget", "fast", "--output", path) == 2
    assert "is also --input" in capfd.readouterr().err and path.read_bytes() == before


def test_a_recording_becomes_a_recipe(tmp_path):
    """From capture() to attention(recipe=), with what capture() says by itself."""

    def model():
        for i in range(2):
            q, k, v = (torch.from_numpy(x).transpose(0, 1)[None] for x in (sharp, flat)[i]())
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

    open_vc_attn.capture(model, out=tmp_path / "captures")
    recipe = planned(tmp_path / "captures", tmp_path, "--budget", "fast", "--model", "mine")
    assert list(recipe.layers) == [0, 1] and recipe.heads == HEADS
    q, k, v = sharp()
    open_vc_attn.attention(q, k, v, recipe=recipe.at(0))


def test_help_names_the_command(capfd):
    assert cli.run(["plan", "--help"]) == 0
    text = capfd.readouterr().out
    assert command.SUMMARY in text and "--target-error PERCENT" in text
