# SPDX-License-Identifier: BSD-3-Clause
"""Context parallelism of diffusers, in two processes, against one."""

import inspect

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
diffusers = pytest.importorskip("diffusers", minversion="0.36")

from open_vc_attn import Policy, enable  # noqa: E402

PROCESSES = 2
BLOCKS = 2
TOKENS = 192  # 3 x 16 x 16 in patches of 1 x 2 x 2
# Counts the tokens of all processes, and leaves cross-attention out.
POLICY = Policy(min_keys=TOKENS, min_queries=TOKENS)
CALL_ERROR = 0.08  # N(0,1), conftest.py
RING_ERROR = 0.01
"""Of a model's output; the blocks of a ring are quantised by themselves."""


def work(rank, folder):
    import diffusers_models as models
    from diffusers import ContextParallelConfig
    from video_models import difference

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES
    )
    # diffusers counts accelerators, of which a CPU has none.
    torch.accelerator.device_count = lambda: PROCESSES
    model, inputs = models.wan(layers=BLOCKS), models.wan_inputs()
    with torch.no_grad(), enable(model, policy=POLICY):
        single = model(**inputs, return_dict=False)[0]
    found = {}
    for degree in ("ring_degree", "ulysses_degree"):
        model = models.wan(layers=BLOCKS)
        model.enable_parallelism(config=ContextParallelConfig(**{degree: PROCESSES}))
        with torch.no_grad(), enable(model, policy=POLICY) as switch:
            out = model(**inputs, return_dict=False)[0]
            calls = [(x.queries, x.heads, x.count) for x in switch.calls if x.fp8]
            switch.policy = Policy(layers=[])
            native = model(**inputs, return_dict=False)[0]
            if degree == "ring_degree":
                ring = model.blocks[0].attn1.processor._parallel_config
                found["merged"] = unlike_blocks(rank, ring)
        found[degree] = (
            *(difference(out, single), difference(out, native), torch.equal(out, single)),
            calls,
        )
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def unlike_blocks(rank, config):
    """The error of a ring whose second half of keys is sharper: weights of the merge count."""
    import diffusers_models as models
    from diffusers.models import attention_dispatch as dispatcher
    from video_models import difference

    from open_vc_attn.integrations import _diffusers_backend

    q, k, v = (models.noise(1, TOKENS, 2, 128, seed=seed) for seed in range(3))
    k[:, TOKENS // 2 :] *= 2
    expected = dispatcher.dispatch_attention_fn(q, k, v)
    _diffusers_backend._DEFAULT.switch.policy = POLICY
    mine = slice(rank * TOKENS // PROCESSES, (rank + 1) * TOKENS // PROCESSES)
    out = dispatcher.dispatch_attention_fn(
        *(x[:, mine].contiguous() for x in (q, k, v)),
        backend=dispatcher.AttentionBackendName("open_vc"),
        **{config_argument(dispatcher): config},
    )
    return difference(out, expected[:, mine])


def config_argument(dispatcher):
    names = inspect.signature(dispatcher.dispatch_attention_fn).parameters
    return next(name for name in names if name.endswith("parallel_config"))


def test_ring_and_ulysses(tmp_path):
    torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=PROCESSES)
    for rank in range(PROCESSES):
        found = torch.load(tmp_path / f"{rank}.pt")
        error, distance, _, calls = found["ring_degree"]
        assert error < RING_ERROR and 0 < distance < RING_ERROR
        assert calls == [(TOKENS // PROCESSES, 2, PROCESSES)] * BLOCKS
        assert 0 < found["merged"] < CALL_ERROR
        *_, equal, calls = found["ulysses_degree"]
        assert equal and calls == [(TOKENS, 2 // PROCESSES, 1)] * BLOCKS
