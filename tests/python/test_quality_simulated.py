# SPDX-License-Identifier: BSD-3-Clause
"""Simulated numerics against their formulas in float64 and against independent tables."""

import numpy
import pytest

torch = pytest.importorskip("torch")

from open_vc_attn.baselines.k_means import k_means  # noqa: E402
from open_vc_attn.quality import axes, e4m3, probabilities, scores, simulated, values  # noqa: E402
from open_vc_attn.quality.rows import in_groups, int8_codes  # noqa: E402

TOKENS = 150  # no multiple of a block
OCTAVES = numpy.log2(numpy.e) / numpy.sqrt(128)


def head(seed=0, tokens=TOKENS):
    """Q, K and V of a head with strong channels."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(tokens, 128, generator=generator) for _ in range(3))
    q[:, 5] *= 9
    k[:, [5, 70]] *= 6
    k += 2 * torch.randn(128, generator=generator)
    v[:, 9] += 3
    return q, k, v


def e4m3_table():
    """All finite E4M3 numbers by code, in float64."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = numpy.arange(127, dtype=numpy.uint8)
    return codes.view(ml_dtypes.float8_e4m3fn).astype(numpy.float64)


def rounded(x):
    """Nearest E4M3 number of the table, ties to the even code."""
    table = e4m3_table()
    magnitude = numpy.minimum(numpy.abs(x), table[-1])
    distance = numpy.abs(magnitude[..., None] - table)
    nearest = distance.min(-1, keepdims=True)
    candidates = distance == nearest
    first = candidates.argmax(-1)
    last = 126 - candidates[..., ::-1].argmax(-1)
    code = numpy.where(first % 2 == 0, first, last)
    return numpy.copysign(table[code], x)


def double(x):
    return x.double().numpy()


def close(found, expected, tolerance=1e-6):
    found, expected = numpy.asarray(found), numpy.asarray(expected)
    scale = numpy.abs(expected).max()
    numpy.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def test_rounding_to_e4m3():
    table = e4m3_table()
    middles = (table[1:] + table[:-1]) / 2
    every = numpy.concatenate([table, middles, middles * 1.001, middles * 0.999, [449, 1e9]])
    x = torch.tensor(numpy.concatenate([every, -every]), dtype=torch.float32)
    assert (double(e4m3.round_to_e4m3(x)) == rounded(double(x))).all()


def test_codes_decode_to_the_table():
    codes = torch.arange(127, dtype=torch.float32)
    assert (double(e4m3.decode(codes)) == e4m3_table()).all()


@pytest.mark.parametrize("largest, factor", [(448.0, 1), (1.0, 256), (449.0, 0.5), (3.5, 128)])
def test_power_of_two_scale(largest, factor):
    assert float(e4m3.power_of_two(torch.tensor([0.1, -largest]))) == factor


def test_groups_of_rows_are_changed_on_their_own():
    x = torch.arange(10.0).reshape(5, 2)
    assert in_groups(x, 2, lambda y: y.amax((1, 2), keepdim=True))[:, 0].tolist() == [
        *(3, 3, 7, 7, 9),
    ]


@pytest.mark.parametrize("rows", [1, 64])
def test_int8_codes(rows):
    x = head()[0]
    codes, scale = int8_codes(x, rows)
    for begin in range(0, TOKENS, rows):
        block = double(x[begin : begin + rows])
        expected = numpy.abs(block).max() / 127
        close(double(scale[begin : begin + rows]), numpy.full(len(block), expected))
        assert numpy.abs(double(codes[begin : begin + rows]) - block / expected).max() <= 0.5001
    assert codes.abs().max() == 127 and (codes == codes.round()).all()


def score_matrix(word, q, k):
    return double(scores.parse_scores(word)(q, k).rows(0, len(q)))


def test_exact_scores():
    q, k, _ = head()
    close(score_matrix("exact", q, k), double(q) @ double(k).T * OCTAVES)


def test_e4m3_scores_with_residual_columns():
    q, k, _ = head()
    q64, k64 = double(q * OCTAVES), double(k - k.mean(0))

    def parts(x):
        s = 2.0 ** numpy.floor(numpy.log2(448 / numpy.abs(x).max()))
        high = rounded(x * s) / s
        return high, rounded((x - high) * 4 * s) / (4 * s)

    (q_high, q_low), (k_high, k_low) = parts(q64), parts(k64)
    order = numpy.argsort(-((q64**2).mean(0) * (k64**2).mean(0)))
    for word, steps, keys in [("n0", 0, 0), ("n1", 1, 16), ("n2", 2, 32), ("n1k24", 1, 24)]:
        for_k, for_q = order[:keys], order[: 32 * steps - keys]
        expected = q_high @ k_high.T
        expected = expected + q_low[:, for_q] @ k_high[:, for_q].T
        expected = expected + q_high[:, for_k] @ k_low[:, for_k].T
        # A value within float32 of a tie may be rounded the other way.
        close(score_matrix(word, q, k), expected, 2e-4)


def test_scores_with_block_scales():
    q, k, _ = head()

    def in_blocks(x):
        parts = []
        for begin in range(0, TOKENS, 128):
            block = x[begin : begin + 128]
            s = numpy.abs(block).max() / 448
            parts.append(rounded(block / s) * s)
        return numpy.concatenate(parts)

    expected = in_blocks(double(q * OCTAVES)) @ in_blocks(double(k)).T
    close(score_matrix("blk", q, k), expected, 2e-4)


@pytest.mark.parametrize(
    "word", ["n2", "n2pca", "n2bal", "n2had", "n1hadpca", "int8", "int8hadblk"]
)
def test_bases_leave_scores_as_they_are(word):
    q, k, _ = head()
    exact = double(q) @ double(k - k.mean(0)).T * OCTAVES
    found = score_matrix(word, q, k)
    assert numpy.linalg.norm(found - exact) / numpy.linalg.norm(exact) < 0.06


def test_strong_axes_have_less_error_than_channels():
    generator = torch.Generator().manual_seed(3)
    mixing = torch.linalg.qr(torch.randn(128, 128, generator=generator))[0]
    energies = torch.cat([torch.full((12,), 12.0), torch.ones(116)])
    q, k = (torch.randn(512, 128, generator=generator) * energies @ mixing for _ in range(2))
    exact = double(q) @ double(k - k.mean(0)).T * OCTAVES
    error = {w: numpy.linalg.norm(score_matrix(w, q, k) - exact) for w in ("n1", "n1pca", "n1bal")}
    assert error["n1pca"] < 0.5 * error["n1"] and error["n1bal"] < 0.5 * error["n1"]


def test_balanced_axes():
    q, k, _ = head(tokens=400)
    a, b = axes.balanced_axes(q, k)
    close(double(q @ a) @ double(k @ b).T, double(q) @ double(k).T, 1e-4)
    of_q, of_k = (double(axes.moments(x)) for x in (q @ a, k @ b))
    close(numpy.diag(of_q), numpy.diag(of_k), 1e-3)
    assert numpy.abs(of_q - numpy.diag(numpy.diag(of_q))).max() < 1e-3 * of_q.max()


def decoded(codes):
    return e4m3_table()[numpy.clip(numpy.rint(codes), 0, 126).astype(int)]


def expected_weights(word, s):
    """The formulas of probabilities.py for one row of scores, in float64."""
    m = s.max()
    blocks = [slice(i, i + 128) for i in range(0, len(s), 128)]
    row = numpy.floor(126 - 8 * m)
    if word == "exact":
        return 2 ** (s - m)
    if word == "rne":
        return rounded(448 * 2 ** (s - m))
    if word == "ref":
        return decoded(numpy.minimum(8 * (s - m) + 119.65, 120))
    if word == "exp":
        return decoded(8 * s + row)
    if word == "tail":
        codes = numpy.rint(8 * s + row)
        return decoded(numpy.maximum(codes, numpy.rint(codes / 4 + 4)))
    weights = numpy.empty_like(s)
    for block in blocks:
        t, x = s[block].max(), s[block]
        if word.startswith("anchor"):
            b = (numpy.floor if word.endswith("f") else numpy.rint)(126 - 8 * t)
            weights[block] = decoded(8 * x + b) * 2 ** (t - m) / decoded(8 * t + b)
        elif word.startswith("rloc"):
            weights[block] = rounded(448 * 2 ** (x - t)) * 2 ** (t - m)
        elif word.startswith("frac"):
            weights[block] = decoded(8 * (x - t) + 126) * 2 ** (t - m)
        else:
            b = numpy.floor((110 if word.endswith("slack") else 126) - 8 * t)
            if word.endswith("oct"):
                b = row + 8 * numpy.floor((b - row) / 8)
            weights[block] = decoded(8 * x + b) * 2 ** ((row - b) / 8)
    return weights


WEIGHTS = (
    *("exact", "rne", "ref", "exp", "tail", "anchor128", "anchor128f"),
    *("rloc128", "frac128", "loc128", "loc128oct", "loc128slack"),
)


@pytest.mark.parametrize("word", WEIGHTS)
@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_weights(word, spread):
    generator = numpy.random.default_rng(1)
    # Sixteenths are exact in float32 and hit ties of codes.
    s = numpy.round(generator.standard_normal((7, 300)) * spread * 32) / 32
    found = probabilities.parse_probabilities(word).weights(torch.tensor(s, dtype=torch.float32))
    for row, expected in zip(double(found), s, strict=True):
        close(row, expected_weights(word, expected), 2e-6)


@pytest.mark.parametrize("top", [-700.0, 0.0, 33.3, 1500.0])
def test_anchored_weights_of_block_tops_are_exact(top):
    s = torch.full((1, 256), top - 3)
    s[0, 5], s[0, 200] = top, top - 1
    found = probabilities.parse_probabilities("anchor128").weights(s)
    assert float(found[0, 5]) == 1 and abs(float(found[0, 200]) - 0.5) < 1e-4


def per_channel(x, scale=None):
    scale = numpy.abs(x).max(0) / 448 if scale is None else scale
    return rounded(x / scale) * scale


def value_matrix(word, v):
    return double(values.parse_values(word)(v).weighted(torch.eye(len(v)), few_bits=False))


def test_values():
    v = head()[2]
    v64 = double(v)
    close(value_matrix("exact", v), v64)
    close(value_matrix("pc", v), per_channel(v64), 2e-4)
    close(value_matrix("head", v), per_channel(v64, numpy.abs(v64).max() / 448), 2e-4)
    mean = double(v.mean(0).bfloat16())
    close(value_matrix("c1", v), mean + per_channel(v64 - mean), 1e-2)


def test_more_columns_of_values_leave_less_error():
    v = head(tokens=400)[2]
    errors = [
        numpy.linalg.norm(value_matrix(word, v) - double(v))
        for word in ("head", "pc", "c1", "c1m7", "c1m32", "c1m128")
    ]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.1 * errors[1]
    for word in ("r8", "p8", "km", "c16r4", "c64p24"):
        assert numpy.linalg.norm(value_matrix(word, v) - double(v)) < errors[0]


def test_k_means_finds_clusters():
    centres = 20 * torch.randn(4, 128, generator=torch.Generator().manual_seed(5))
    cluster = torch.arange(TOKENS) % 4
    v = centres[cluster] + 0.01 * head()[0]
    found = k_means(v[None], 4, 4).labels[0]
    assert all(len(set(found[cluster == i].tolist())) == 1 for i in range(4))
    # Rows of a cluster share their mean, so only the noise is rounded.
    assert numpy.abs(value_matrix("c4", v) - double(v)).max() < 0.2


@pytest.mark.parametrize("words", ["exact exact exact", "n2bal anchor128 c1m15", "int8 rne pc"])
def test_whole_attention(words):
    q, k, v = (torch.stack([x, 2 * x.flip(0)], 1)[None].bfloat16() for x in head())
    found = simulated.simulated(words)(q, k, v)
    logits = numpy.einsum("qhd,khd->hqk", double(q[0]), double(k[0])) / numpy.sqrt(128)
    weights = numpy.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = numpy.einsum("hqk,khd->qhd", weights, double(v[0]))
    error = numpy.linalg.norm(double(found[0]) - expected) / numpy.linalg.norm(expected)
    assert error < (1e-5 if words.startswith("exact") else 0.1)


def test_queries_in_parts_are_the_same(monkeypatch):
    q, k, v = (x[:, None][None] for x in head())
    whole = simulated.simulated("n1 exp pc")(q, k, v)
    monkeypatch.setitem(simulated._SCORES_AT_A_TIME, "cpu", 13 * TOKENS)
    torch.testing.assert_close(simulated.simulated("n1 exp pc")(q, k, v), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "words",
    [
        *("n5 exact exact", "n1k33 exact exact", "n1k2k3 exact exact", "int8k3 exact exact"),
        *("n1blk exact exact", "n1pcabal exact exact", "n1hadhad exact exact", "N1 exact exact"),
        *("exact anchor exact", "exact anchor0 exact", "exact anchor128oct exact"),
        *("exact frac128f exact", "exact ref8 exact", "exact exact c0", "exact exact m129"),
        *("exact exact p", "exact exact c1x7"),
    ],
)
def test_words_that_name_nothing(words):
    with pytest.raises(ValueError, match=r"for (Q and K|P|V); expected exact, "):
        simulated.simulated(words)
