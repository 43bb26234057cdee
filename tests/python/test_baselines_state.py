# SPDX-License-Identifier: BSD-3-Clause
"""The state of V-Smooth over the steps of a sampler."""

import io

import pytest

torch = pytest.importorskip("torch")

from open_vc_attn.baselines import VSmoothState, prepare_vc, vc_attention  # noqa: E402
from open_vc_attn.baselines import state as module  # noqa: E402
from open_vc_attn.quality import clip, model, numerics  # noqa: E402
from open_vc_attn.quality.study import Settings, Study  # noqa: E402

ROWS = 200


def qkv(seed=0, rows=ROWS, heads=2):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(rows, heads, 128, generator=generator).bfloat16() for _ in range(3))


@pytest.fixture
def groupings(monkeypatch):
    """What was grouped: (iterations, warm)."""
    seen = []

    def record(v, clusters, iterations, start=None):
        seen.append((iterations, start is not None))
        return group(v, clusters, iterations, start)

    group = module.group
    monkeypatch.setattr(module, "group", record)
    return seen


def run(state, steps, layer=0, **options):
    """What every step does with new values: (grouped now, sorted, demeaned)."""
    found, before = [], None
    for step in steps:
        state.begin_step(step)
        prepared = prepare_vc(*qkv(step), state=state, layer=layer, **options)
        order = prepared.permutation
        grouped = order is not None and (before is None or not torch.equal(order, before))
        found.append((grouped, order is not None, prepared.v.means is not None))
        before = order
    return found


@pytest.mark.parametrize(
    "steps, window, grouped",
    [(40, 10, [0, 4, 8]), (50, 13, [0, 4, 8, 12]), (8, 2, [0]), (18, 5, [0, 4]), (1, 1, [0])],
)
def test_schedule(steps, window, grouped, groupings):
    """The paper's: the first quarter of the steps, sorted anew every four of them."""
    state = VSmoothState(steps, clusters=8)
    assert state.grouped_steps == window
    found = run(state, range(steps))
    assert [step for step, what in enumerate(found) if what[0]] == grouped
    assert [what[2] for what in found] == [step < window for step in range(steps)]
    assert all(what[1] for what in found)  # the last permutation stays
    assert groupings == [(4, False)] + [(2, True)] * (len(grouped) - 1)


def test_schedule_of_ones_own(groupings):
    state = VSmoothState(
        12, clusters=8, iterations=3, warm_iterations=1, grouped_steps=12, regroup_every=5
    )
    found = run(state, range(12))
    assert [step for step, what in enumerate(found) if what[0]] == [0, 5, 10]
    assert all(what == (what[0], True, True) for what in found)
    assert groupings == [(3, False), (1, True), (1, True)]


def test_no_grouped_steps(groupings):
    state = VSmoothState(6, grouped_steps=0)
    assert run(state, range(6)) == [(False, False, False)] * 6 and groupings == []
    q, k, v = qkv()
    state.reset()
    state.begin_step(0)
    plain = vc_attention(q, k, v, v_smooth=False)
    assert torch.equal(vc_attention(q, k, v, state=state, layer=0), plain)


def test_steps_that_are_left_out(groupings):
    """A sampler that reuses outputs skips calls; a layer may come late, even after the window."""
    state = VSmoothState(40, clusters=8)
    assert [what[0] for what in run(state, [2, 3, 7, 9])] == [True, False, True, False]
    assert run(state, [10, 11], layer="late") == [(False, False, False)] * 2


def test_first_step_is_a_call_without_state():
    q, k, v = qkv()
    state = VSmoothState(8)
    state.begin_step(0)
    assert torch.equal(vc_attention(q, k, v, state=state, layer=0), vc_attention(q, k, v))


def test_layers_are_apart(groupings):
    names = [0, 1, "cond", ("cond", 3), ("uncond", 3), ("low noise", "cond", 3)]
    state = VSmoothState(8, clusters=8)
    state.begin_step(0)
    for seed, name in enumerate(names):
        prepare_vc(*qkv(seed), state=state, layer=name)
    assert state.layers == names and len(groupings) == len(names)
    state.begin_step(1)
    for seed, name in enumerate(names):
        again = prepare_vc(*qkv(seed), state=state, layer=name).permutation
        alone = prepare_vc(*qkv(seed), clusters=8).permutation
        assert torch.equal(again, alone)
    assert len(groupings) == len(names)
    assert state.nbytes == len(names) * 2 * (8 * ROWS + 8 * 128 * 4)


def test_items_of_a_batch_are_apart():
    q, k, v = (torch.stack([x, y]) for x, y in zip(qkv(1), qkv(2), strict=True))
    state = VSmoothState(8)
    state.begin_step(0)
    order = prepare_vc(q, k, v, state=state, layer=0).permutation
    assert order.shape == (4, ROWS)
    for item in range(2):
        alone = prepare_vc(q[item], k[item], v[item]).permutation
        assert torch.equal(order[2 * item : 2 * item + 2], alone)


def test_warm_start_uses_the_centroids_of_before():
    state = VSmoothState(40, regroup_every=1, warm_iterations=1)
    q, k, v = qkv()
    for step in range(2):
        state.begin_step(step)
        found = prepare_vc(q, k, v, state=state, layer=0).permutation
    five = prepare_vc(q, k, v, iterations=5).permutation  # 4 and 1
    assert torch.equal(found, five)


def test_a_step_with_several_evaluations(groupings):
    state = VSmoothState(8, clusters=8)
    for _ in range(3):
        state.begin_step(0)
        prepare_vc(*qkv(), state=state, layer=0)
    assert len(groupings) == 1


@pytest.mark.parametrize("rows, heads", [(ROWS + 1, 2), (ROWS, 1)])
def test_other_shapes_are_refused(rows, heads):
    state = VSmoothState(8)
    state.begin_step(0)
    prepare_vc(*qkv(), state=state, layer=("cond", 3))
    state.begin_step(1)
    with pytest.raises(ValueError, match=r"layer: \('cond', 3\) of the state has \[heads, tokens"):
        prepare_vc(*qkv(rows=rows, heads=heads), state=state, layer=("cond", 3))
    state.reset()
    state.begin_step(0)
    prepare_vc(*qkv(rows=rows, heads=heads), state=state, layer=("cond", 3))


def test_a_name_of_two_layers_is_refused():
    state = VSmoothState(8)
    state.begin_step(0)
    prepare_vc(*qkv(), state=state, layer=3)
    with pytest.raises(ValueError, match="layer: 3 was used before in this evaluation of step 0"):
        prepare_vc(*qkv(), state=state, layer=3)


def begin(*steps):
    state = VSmoothState(8)
    for step in steps:
        state.begin_step(step)
    return state


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda: VSmoothState(0), ValueError, "steps: 0; expected 1 <= steps"),
        (lambda: VSmoothState("8"), TypeError, "steps: '8'; expected a whole number"),
        (lambda: VSmoothState(8, clusters=300), ValueError, "clusters: 300"),
        (lambda: VSmoothState(8, iterations=0), ValueError, "iterations: 0"),
        (lambda: VSmoothState(8, warm_iterations=0), ValueError, "warm_iterations: 0"),
        (lambda: VSmoothState(8, grouped_steps=9), ValueError, "grouped_steps: 9"),
        (lambda: VSmoothState(8, regroup_every=0), ValueError, "regroup_every: 0"),
        (lambda: begin(8), ValueError, "step: 8; expected 0 <= step <= 7"),
        (lambda: begin(-1), ValueError, "step: -1"),
        (lambda: begin(3, 2), ValueError, r"step: 2 after 3; .* Call reset\(\)"),
        (lambda: begin(True), TypeError, "step: True"),
        (
            lambda: vc_attention(*qkv(), state=begin(), layer=0),
            ValueError,
            "state: no step has begun",
        ),
        (
            lambda: vc_attention(*qkv(), state=begin(0), layer=1.5),
            TypeError,
            "layer: 1.5; expected the name",
        ),
        (lambda: vc_attention(*qkv(), state=begin(0), layer=()), TypeError, "layer: tuple"),
        (lambda: begin().load_state_dict(3), ValueError, "saved: settings None"),
        (
            lambda: begin().load_state_dict(VSmoothState(9).state_dict()),
            ValueError,
            "saved: settings {'steps': 9",
        ),
    ],
)
def test_refusals(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_saved_and_loaded():
    def step(state, index):
        state.begin_step(index)
        return [vc_attention(*qkv(index), state=state, layer=name) for name in (0, ("a", 1))]

    state = VSmoothState(20, clusters=8)
    for index in range(4):
        step(state, index)
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    other = VSmoothState(20, clusters=8)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.step == 3 and other.layers == state.layers and other.nbytes == state.nbytes
    for index in range(4, 7):  # the next grouping and the end of the window
        for a, b in zip(step(state, index), step(other, index), strict=True):
            assert torch.equal(a, b)
    assert repr(other).startswith("VSmoothState(steps=20, clusters=8,")
    with pytest.raises(ValueError, match="was used before"):
        vc_attention(*qkv(6), state=other, layer=0)


@pytest.fixture(scope="module")
def study():
    return Study(model.random_model("cpu"), clip.synthetic_clip(0, 8, 16, 24), Settings(steps=8))


def test_a_study_keeps_the_state_over_its_steps(study, groupings):
    (smooth,) = study.measure(["vc-attention"])
    # Two layers; eight steps have a window of two. Velocities and heads are single calls.
    assert groupings == [(4, False)] * 2
    assert 0 < smooth.velocity_error < 10 and smooth.psnr > 20 and smooth.call_seconds
    groupings.clear()
    study.measure(["vc-attention:grouped_steps=8,regroup_every=4"])
    assert groupings == [(4, False)] * 2 + [(2, True)] * 2
    groupings.clear()
    plain, rounded = study.measure(
        ["vc-attention:v_smooth=false", "vc-attention:v_smooth=false,probabilities=exponential"]
    )
    assert groupings == [] and rounded.velocity_error < plain.velocity_error


@pytest.mark.parametrize(
    "name, text",
    [
        ("vc-attention:", "'' in 'vc-attention:'; expected option=value, each option once"),
        ("vc-attention:steps=3", "'steps=3' in"),
        ("vc-attention:clusters=2,clusters=3", "'clusters=3' in"),
        ("vc-attention:clusters=x", "clusters: 'x'; expected a whole number"),
        ("vc-attention:clusters=0", "clusters: 0; expected 1 <="),
        ("vc-attention:v_smooth=no", "v_smooth: 'no'; expected true or false"),
        ("vc-attention:qk_format=fp4", "qk_format: 'fp4'; expected one of int8, e4m3"),
        ("vc-attention:v_smooth=false,clusters=3", "clusters with v_smooth=false"),
        ("vc-attention:v_smooth=false,grouped_steps=3", "grouped_steps with v_smooth=false"),
    ],
)
def test_refused_names(name, text):
    with pytest.raises(ValueError, match=r"^numerics: ") as refused:
        numerics.parse(name)
    assert text in str(refused.value)


def test_more_grouped_steps_than_steps_are_refused_at_once(capsys):
    from open_vc_attn import cli

    words = ["quality", "--model", "random", "--steps", "4"]
    assert cli.run([*words, "--numerics", "vc-attention:grouped_steps=5"]) == 2
    assert "numerics: grouped_steps: 5; expected 0 <= grouped_steps <= 4" in capsys.readouterr().err
