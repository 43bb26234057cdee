# SPDX-License-Identifier: BSD-3-Clause
"""key_lengths and key_mask, head sizes and groups of queries on a GPU."""

import pytest
from conftest import GAUSSIAN_ERROR, random_qkv, relative_l2, softmax_attention

from open_vc_attn import Policy, attention, attention_varlen, enable

torch = pytest.importorskip("torch", minversion="2.4")

pytestmark = pytest.mark.gpu

BATCH, KEYS = 3, 700


@pytest.fixture(autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


def tensors(size=128, heads=4, key_heads=2):
    inputs = random_qkv(300, KEYS, heads, BATCH, key_heads=key_heads, head_dim=size)
    return [torch.from_numpy(x).to("cuda", torch.bfloat16) for x in inputs]


def masks(share=0.6):
    generator = torch.Generator().manual_seed(3)
    return (torch.rand(BATCH, KEYS, generator=generator) < share).cuda()


def without_others(q, k, v, mask):
    return torch.stack([attention(q[i], k[i, mask[i]], v[i, mask[i]]) for i in range(BATCH)])


@pytest.mark.parametrize("size", [64, 80, 128])
@pytest.mark.parametrize("heads, key_heads", [(4, 4), (4, 2), (3, 1)])
def test_head_sizes_and_groups(size, heads, key_heads):
    q, k, v = tensors(size, heads, key_heads)
    together = [x.repeat_interleave(heads // key_heads, 2).float().cpu() for x in (k, v)]
    expected, _ = softmax_attention(q.float().cpu(), *together)
    assert relative_l2(attention(q, k, v).float().cpu(), expected) < GAUSSIAN_ERROR


@pytest.mark.parametrize("size", [64, 128])
def test_equal_to_calls_without_the_other_keys(size):
    q, k, v = tensors(size)
    mask = masks()
    expected = without_others(q, k, v, mask)
    k[~mask], v[~mask] = torch.nan, torch.inf
    for form in (mask, mask.byte(), mask.T.contiguous().T):
        assert torch.equal(attention(q, k, v, key_mask=form), expected)
    q, k, v = tensors(size)
    lengths = [500, KEYS, 1]
    first = torch.arange(KEYS, device="cuda") < torch.tensor(lengths, device="cuda")[:, None]
    expected = without_others(q, k, v, first)
    for dtype in (torch.int32, torch.int64):
        form = torch.tensor(lengths, dtype=dtype, device="cuda")
        assert torch.equal(attention(q, k, v, key_lengths=form), expected)
    assert torch.equal(attention(q, k, v, key_lengths=lengths), expected)


def test_nothing_waits_for_the_device():
    q, k, v = tensors()
    mask, lengths = masks(), torch.tensor([500, KEYS, 1], device="cuda")

    class Model(torch.nn.Module):
        def forward(self, q, k, v, mask):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    model = Model()
    with enable(model, policy=Policy(min_keys=1, min_queries=1, cross=True)) as switch:
        torch.cuda.set_sync_debug_mode("error")
        try:
            attention(q, k, v, key_mask=mask, key_lengths=lengths)
            attention(q, k, v, key_lengths=[500, KEYS, 1])
            model(q, k, v, mask[:, None, None])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert all(record.fp8 for record in switch.calls) and switch.calls


def test_graph_replay_follows_mask_and_lengths():
    q, k, v = tensors()
    mask, lengths = masks(), torch.tensor([500, KEYS, 1], device="cuda")

    def attend():
        return (
            attention(q, k, v, key_mask=mask),
            attention(q, k, v, key_lengths=lengths),
            attention(q, k, v, key_lengths=[300, 200, 100]),
        )

    attend()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attend()
    for _ in range(2):
        graph.replay()
        assert all(torch.equal(x, y) for x, y in zip(captured, attend(), strict=True))
        mask.copy_(masks(0.3))
        lengths.copy_(lengths.flip(0))


def test_mixed_devices_are_refused():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="key_mask: device cpu; expected cuda:0"):
        attention(q, k, v, key_mask=masks().cpu())
    with pytest.raises(ValueError, match="key_lengths: device cpu; expected cuda:0"):
        attention(q, k, v, key_lengths=torch.tensor([1, 2, 3]))


def packed():
    """Operands of three sequences, and what calls of their own give."""
    q, k, v = (x.flatten(0, 1) for x in tensors())
    of_q, of_k = [0, 500, 500, 899], [0, 700, 1000, 2100]
    expected = torch.zeros_like(q)
    for part_q, part_k in zip(*[map(slice, x, x[1:]) for x in (of_q, of_k)], strict=True):
        if part_q.start < part_q.stop:
            expected[part_q] = attention(q[part_q], k[part_k], v[part_k])
    return (q, k, v), (of_q, of_k), expected


def test_packed_sequences_equal_calls_of_their_own():
    operands, boundaries, expected = packed()
    for device in ("cpu", "cuda"):
        found = [torch.tensor(x, device=device) for x in boundaries]
        assert torch.equal(attention_varlen(*operands, *found, 500, 1100), expected)
    assert torch.equal(attention_varlen(*operands, *boundaries), expected)
    with pytest.raises(ValueError, match="cu_seqlens_k: ends with 2101; expected at most 2100"):
        attention_varlen(*operands, [0, 900], [0, 2101])


def test_graph_replay_follows_boundaries():
    operands, boundaries, expected = packed()
    found = [torch.tensor(x, device="cuda", dtype=torch.int32) for x in boundaries]
    attention_varlen(*operands, *found, 500, 1100)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention_varlen(*operands, *found, 500, 1100)
    graph.replay()
    assert torch.equal(captured, expected)
    found[1].copy_(torch.tensor([0, 1, 900, 1000]))
    graph.replay()
    assert torch.equal(captured, attention_varlen(*operands, *found, 500, 1100))
    assert not torch.equal(captured, expected)
