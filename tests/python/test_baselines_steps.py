# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the baseline VC-Attention against float64: clusters, means, weights."""

import numpy
import pytest

torch = pytest.importorskip("torch")

from open_vc_attn.baselines import k_means as clustering  # noqa: E402
from open_vc_attn.baselines.k_means import k_means, sorted_by  # noqa: E402
from open_vc_attn.baselines.online_softmax import weights_in_tiles  # noqa: E402
from open_vc_attn.baselines.smoothing import quantize_values  # noqa: E402

LENGTHS = [1, 5, 128, 129, 1500]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def clustered(heads, rows, centres=8, spread=0.25, seed=0):
    """Rows near one of a few distant points, and which."""
    points = 4 * normal(heads, centres, 128, seed=seed)
    labels = torch.randint(
        centres, (heads, rows), generator=torch.Generator().manual_seed(seed + 1)
    )
    chosen = points.gather(1, labels[..., None].expand(-1, -1, 128))
    return (chosen + spread * normal(heads, rows, 128, seed=seed + 2)).bfloat16(), labels


def double(x):
    return x.double().numpy()


def as_bfloat16(x):
    return torch.tensor(x).bfloat16().double().numpy()


def oracle(v, clusters, iterations, start=None):
    """Lloyd's algorithm for one head in float64, row by row."""
    rows = numpy.linspace(0, len(v) - 1, clusters).astype(int)
    centres = as_bfloat16(v[rows]) if start is None else start.copy()

    def nearest():
        return numpy.array([((row - centres) ** 2).sum(1).argmin() for row in v])

    for _ in range(iterations):
        labels = nearest()
        for cluster in set(labels):
            centres[cluster] = as_bfloat16(v[labels == cluster].mean(0))
    return nearest(), centres


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("clusters", [1, 4, 64])
def test_k_means(rows, clusters):
    v, _ = clustered(2, rows)
    found = k_means(v, clusters, 3)
    for head in range(2):
        labels, centres = oracle(double(v[head]), clusters, 3)
        # Equally near centroids are rare, and rows at a border go either way in binary32.
        assert (found.labels[head].numpy() == labels).mean() > 0.995
        error = numpy.abs(double(found.centroids[head]) - centres)
        assert numpy.median(error.max(1)) < 1e-2 and error.mean() < 1e-3


def test_chunks_do_not_show(monkeypatch):
    """Sums of small whole numbers are exact, so that any order gives the same bits."""
    v = torch.randint(-8, 9, (3, 777, 128), generator=torch.Generator().manual_seed(3)).bfloat16()
    whole = k_means(v, 16, 4)
    monkeypatch.setattr(clustering, "CHUNK_ROWS", 100)
    parts = k_means(v, 16, 4)
    assert torch.equal(whole.labels, parts.labels)
    assert torch.equal(whole.centroids, parts.centroids)
    labels, centres = oracle(double(v[1]), 16, 4)
    assert (whole.labels[1].numpy() == labels).all()
    assert (double(whole.centroids[1]) == centres).all()


def test_empty_clusters_keep_their_centroid():
    v = clustered(1, 300)[0]
    start = torch.cat([v[:, :3].float(), torch.full((1, 2, 128), 500.0)], 1)
    found = k_means(v, 5, 2, start)
    assert (found.centroids[0, 3:] == 500).all() and int(found.labels.max()) < 3
    assert not torch.equal(found.centroids[0, :3], start[0, :3])


def test_k_means_is_the_same_in_every_run_and_batch():
    v = torch.cat([clustered(2, 900)[0], normal(2, 900, 128).bfloat16()])
    first, second = k_means(v, 64, 4), k_means(v, 64, 4)
    assert torch.equal(first.labels, second.labels)
    assert torch.equal(first.centroids, second.centroids)
    alone = k_means(v[1:2], 64, 4)
    assert (alone.labels == first.labels[1:2]).float().mean() > 0.99


def test_a_warm_start_needs_fewer_iterations():
    v, _ = clustered(1, 1200, centres=12)
    moved = (v.float() + 0.05 * normal(1, 1200, 128, seed=9)).bfloat16()

    def inertia(found):
        chosen = found.centroids[0][found.labels[0]]
        return float((moved[0].float() - chosen).square().sum())

    centroids = k_means(v, 64, 8).centroids
    warm, cold = (inertia(k_means(moved, 64, 1, start)) for start in (centroids, None))
    assert warm <= 1.02 * inertia(k_means(moved, 64, 8)) and warm < cold


@pytest.mark.parametrize("rows", LENGTHS)
def test_rows_are_sorted_stably(rows):
    labels = torch.randint(256, (3, rows), generator=torch.Generator().manual_seed(1))
    found = sorted_by(labels)
    for head in range(3):
        expected = numpy.argsort(labels[head].numpy(), kind="stable")
        assert (found[head].numpy() == expected).all()


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("offset, spread", [(0.0, 1.0), (100.0, 0.01), (1e-4, 1e-6)])
def test_quantized_values(rows, offset, spread):
    v = (offset + spread * normal(2, rows, 128)).float()
    found = quantize_values(v, demean=True)
    blocks = -(-rows // 128)
    assert found.codes.shape == (2, blocks * 128, 128) and found.means.dtype == torch.bfloat16
    codes, scale = double(found.codes.float()), double(found.scale)[:, None]
    assert numpy.abs(codes).max() <= 448 and (codes[:, rows:] == 0).all()
    for head in range(2):
        for block in range(blocks):
            part = slice(128 * block, min(128 * block + 128, rows))
            exact = double(v[head, part])
            mean = double(found.means[head, block].float()) * scale[head]
            # bfloat16 has 8 bits; binary32 before it.
            limit = 2.0**-8 * numpy.abs(exact.mean(0)) + 1e-6 * numpy.abs(exact).max()
            assert (numpy.abs(mean[0] - exact.mean(0)) <= 1.01 * limit).all()
            # E4M3 of what is left: half a unit of 4 bits, or of the subnormals.
            residual = exact - mean
            decoded = codes[head, part] * scale[head] + mean
            bound = numpy.maximum(numpy.abs(residual) * 2.0**-4, scale[head] * 2.0**-10)
            assert (numpy.abs(decoded - exact) <= 1.01 * bound + 1e-6 * numpy.abs(exact)).all()
    rows_found = double(found.rows(1))[:rows]
    numpy.testing.assert_allclose(rows_found, decoded_rows(found, 1)[:rows], rtol=1e-5)


def decoded_rows(values, head):
    means = numpy.repeat(double(values.means[head].float()), 128, 0)
    return (double(values.codes[head].float()) + means) * double(values.scale[head])


def test_without_means():
    v = normal(1, 200, 128) + 3
    found = quantize_values(v, demean=False)
    assert found.means is None
    numpy.testing.assert_allclose(
        double(found.scale[0]), numpy.abs(double(v[0])).max(0) / 448, rtol=1e-6
    )
    assert float((found.rows(0)[:200] - v[0]).abs().max()) < float(v.abs().max()) / 16


def test_equal_rows_are_exact():
    v = torch.full((1, 300, 128), 3.0).bfloat16().float()
    assert torch.equal(quantize_values(v, demean=True).rows(0)[:300], v[0])
    zero = quantize_values(torch.zeros(1, 7, 128), demean=True)
    assert (zero.rows(0) == 0).all()


def value_error(v, permutation, demean):
    rows = v[0].float()[permutation]
    found = quantize_values(rows[None], demean=demean).rows(0)[: len(rows)]
    return float((found - rows).norm())


def test_sorting_halves_the_error_of_clustered_values():
    rows = 4000  # 32 blocks, of which few hold two clusters
    v, _ = clustered(1, rows, centres=4)
    order = sorted_by(k_means(v, 4, 4).labels)[0]
    plain = value_error(v, torch.arange(rows), demean=False)
    assert value_error(v, order, demean=True) < 0.5 * plain
    assert value_error(v, torch.arange(rows), demean=True) > 0.8 * plain


def test_sorting_does_nothing_for_gaussian_values():
    v = normal(1, 1500, 128).bfloat16()
    order = sorted_by(k_means(v, 64, 4).labels)[0]
    plain = value_error(v, torch.arange(1500), demean=False)
    assert value_error(v, order, demean=True) > 0.95 * plain


def decoded_code(code):
    """The E4M3 number of a code, by hand."""
    exponent, mantissa = divmod(int(code), 8)
    return mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def nearest_e4m3(x):
    """Of 0 <= x <= 448."""
    table = numpy.array([decoded_code(code) for code in range(127)])
    distance = numpy.abs(table - x)
    nearest = numpy.flatnonzero(distance == distance.min())
    return table[nearest[nearest % 2 == 0][0] if len(nearest) > 1 else nearest[0]]


def online_softmax(scores, values, probabilities):
    """One row, tile after tile as a kernel does it: output and denominator in float64."""
    top, total, out = -numpy.inf, 0.0, numpy.zeros(values.shape[1])
    for begin in range(0, len(scores), 128):
        s, rows = scores[begin : begin + 128], values[begin : begin + 128]
        higher = max(top, s.max())
        out, total = out * 2 ** (top - higher), total * 2 ** (top - higher)
        top = higher
        if probabilities == "expcast":
            codes = numpy.clip(numpy.rint(8 * (s - top) + 119.65), 0, 120)
            weights = numpy.array([decoded_code(code) for code in codes])
        else:
            weights = numpy.array([nearest_e4m3(2 ** (x - top + 8)) for x in s])
        out, total = out + weights @ rows, total + weights.sum()
    return out, total


@pytest.mark.parametrize("probabilities", ["expcast", "exponential"])
@pytest.mark.parametrize("keys", [1, 127, 300])
def test_weights_are_those_of_an_online_softmax(probabilities, keys):
    # Sixteenths are exact, and rise towards the end so that the maximum moves.
    scores = torch.round(16 * (4 * normal(6, keys) + torch.linspace(0, 9, keys))) / 16
    values = double(normal(keys, 4, seed=2))
    padded = torch.nn.functional.pad(scores, (0, -keys % 128), value=-torch.inf)
    weights = weights_in_tiles(padded.view(6, -1, 128).clone(), probabilities)
    assert (weights.flatten(1)[:, keys:] == 0).all()
    weights = double(weights.flatten(1)[:, :keys])
    for row in range(6):
        out, total = online_softmax(double(scores[row]), values, probabilities)
        numpy.testing.assert_allclose(weights[row].sum(), total, rtol=1e-6)
        numpy.testing.assert_allclose(weights[row] @ values, out, atol=1e-6 * total)
    assert weights.max() <= 256 and (weights.max(1) == 256).any()


@pytest.mark.parametrize("below, code", [(0.0, 120), (1.6, 107), (14.8, 1), (14.95, 0), (200.0, 0)])
def test_expcast_codes(below, code):
    scores = torch.full((1, 1, 128), -below)
    scores[0, 0, 7] = 0
    found = weights_in_tiles(scores, "expcast")[0, 0]
    assert found[7] == 256 and float(found[0]) == decoded_code(code)
