"""KV cache offloading of vLLM: its factory, manager and specs, with blocks on the CPU in place of a GPU."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
base = pytest.importorskip("vllm.v1.kv_offload.base", reason="vllm is not installed", exc_type=ImportError)

from vllm.v1.kv_offload import config as configs  # noqa: E402
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402

BLOCKS, PAGE_BYTES, LAYERS = 40, 4096, 2
OPTIONS = {"spec_name": "EncodedOffloadingSpec", "spec_module_path": "narrowcast.integrations.vllm"}


def spec_of(factor: int, groups: int, options: dict):
    """A spec, created by vLLM's factory. `factor` blocks of the GPU are a chunk in host memory."""
    options = OPTIONS | {"cpu_bytes_to_use": 20 * factor * LAYERS * PAGE_BYTES} | options
    group = configs.OffloadingGroupConfig(tokens_per_block=16, layer_names=("a", "b"), group_id=0)
    return OffloadingSpecFactory.create_spec(
        configs.OffloadingConfig(
            groups=(group,) * groups,
            worker_kv_bytes_per_block=LAYERS * PAGE_BYTES,
            enable_kv_cache_events=False,
            extra_config=options,
            engine_id="engine",
            model=configs.OffloadingModelConfig(name="model", dtype="bfloat16"),
            cache=configs.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=factor),
            parallel=configs.OffloadingParallelConfig(
                rank=0,
                world_size=1,
                tp_size=1,
                pp_size=1,
                pcp_size=1,
                dcp_size=1,
                data_parallel_index=0,
                data_parallel_size=1,
                data_parallel_rank_local=None,
                is_parallelism_agnostic=False,
            ),
        )
    )


class Cache:
    """A KV cache and the transfers of a worker."""

    def __init__(self, factor: int = 1, groups: int = 1, **options) -> None:
        torch.manual_seed(0)
        self.spec = spec_of(factor, groups, options)
        self.manager = self.spec.get_manager()
        self.tensors = [
            (torch.randn(BLOCKS, PAGE_BYTES // 2) * 0.3).bfloat16().view(torch.int8) for _ in range(LAYERS * groups)
        ]
        canonical = base.CanonicalKVCaches(
            [base.CanonicalKVCacheTensor(one, PAGE_BYTES) for one in self.tensors],
            [
                [base.CanonicalKVCacheRef(LAYERS * group + layer, PAGE_BYTES) for layer in range(LAYERS)]
                for group in range(groups)
            ],
        )
        self.jobs = 0
        self.worker = self.spec.get_worker(canonical)
        self.start = {"store": self.worker.submit_store, "load": self.worker.submit_load}

    def transfer(self, direction: str, *specs) -> None:
        self.jobs += 1
        assert self.start[direction](self.jobs, *specs)
        self.worker.wait({self.jobs})
        (result,) = self.worker.get_finished()
        assert (result.job_id, result.success) == (self.jobs, True)
        assert result.transfer_size > 0
        assert result.transfer_time >= 0

    def store(self, keys, gpu) -> list:
        out = self.manager.prepare_store(keys, context())
        self.transfer("store", gpu, out.store_spec)
        self.manager.complete_store(out.keys_to_store, context())
        return out.evicted_keys

    def load(self, keys, gpu) -> None:
        self.transfer("load", self.manager.prepare_load(keys, context()), gpu)
        self.manager.complete_load(keys, context())


def context():
    return base.ReqContext(req_id="request")


def keys_of(*numbers: int, group: int = 0) -> list:
    return [base.make_offload_key(number.to_bytes(8, "big"), group) for number in numbers]


def gpu_blocks(*blocks: int, index: int = 0):
    return base.GPULoadStoreSpec(list(blocks), [len(blocks)], [index])


def test_blocks_come_back_into_other_blocks():
    cache = Cache()
    expected = [one.clone() for one in cache.tensors]
    cache.store(keys_of(1, 2, 3), gpu_blocks(4, 9, 0))
    for one in cache.tensors:
        one.zero_()
    cache.load(keys_of(2, 3), gpu_blocks(20, 21))
    for one, before in zip(cache.tensors, expected, strict=True):
        assert torch.equal(one[[20, 21]], before[[9, 0]])
        assert one[:20].count_nonzero() == 0
    cache.worker.shutdown()


def test_transfers_begin_and_end_inside_chunks():
    cache = Cache(factor=4)
    expected = [one.clone() for one in cache.tensors]
    cache.store(keys_of(1, 2, 3), gpu_blocks(*range(12)))
    for one in cache.tensors:
        one.zero_()
    # Blocks 2 to 9 of the request: of the chunks 0, 1 and 2.
    cache.load(keys_of(1, 2, 3), gpu_blocks(*range(20, 28), index=2))
    for one, before in zip(cache.tensors, expected, strict=True):
        assert torch.equal(one[20:28], before[2:10])


def test_groups_have_blocks_of_their_own():
    cache = Cache(groups=2)
    expected = [one.clone() for one in cache.tensors]
    keys = keys_of(1, 2) + keys_of(1, group=1)
    cache.store(keys, base.GPULoadStoreSpec([5, 6, 7], [2, 1], [0, 0]))
    for one in cache.tensors:
        one.zero_()
    cache.load(keys, base.GPULoadStoreSpec([10, 11, 12], [2, 1], [0, 0]))
    for i, one in enumerate(cache.tensors):
        if i < LAYERS:
            assert torch.equal(one[[10, 11]], expected[i][[5, 6]])
        else:
            assert torch.equal(one[12], expected[i][7])


@pytest.mark.parametrize(("ratio", "blocks"), [(1.0, 20), (0.5, 40)])
def test_more_blocks_fit_than_without_a_codec(ratio, blocks):
    cache = Cache(expected_ratio=ratio)
    evicted = []
    for number in range(blocks):
        evicted += cache.store(keys_of(number), gpu_blocks(number % BLOCKS))
    assert evicted == []
    assert cache.store(keys_of(blocks), gpu_blocks(0)) == keys_of(0)


def test_the_default_keeps_a_third_more_blocks_in_the_same_memory():
    cache = Cache()
    for number in range(26):
        assert cache.store(keys_of(number), gpu_blocks(number)) == []
    assert cache.spec._blocks.used_bytes < 20 * LAYERS * PAGE_BYTES


def test_evicted_blocks_are_replaced():
    cache = Cache(expected_ratio=1.0)
    for number in range(60):
        cache.store(keys_of(number), gpu_blocks(number % BLOCKS))
    expected = [one.clone() for one in cache.tensors]
    cache.load(keys_of(59, 41), gpu_blocks(30, 31))
    for one, before in zip(cache.tensors, expected, strict=True):
        assert torch.equal(one[[30, 31]], before[[19, 1]])
    assert cache.spec._blocks.used_bytes < 20 * LAYERS * PAGE_BYTES


@pytest.mark.parametrize("ratio", [0, 1.5])
def test_a_bad_ratio_is_an_error(ratio):
    with pytest.raises(ValueError, match="expected_ratio is"):
        Cache(expected_ratio=ratio)


def test_lists_that_do_not_match_are_errors():
    cache = Cache(factor=2)
    host = cache.manager.prepare_store(keys_of(1, 2, 3), context()).store_spec
    from narrowcast.integrations.vllm import _transfers

    with pytest.raises(ValueError, match="3 GPU blocks and 3 chunks do not match"):
        _transfers(gpu_blocks(1, 2, 3), host, 2)


def test_a_layout_shared_by_workers_is_an_error():
    config = dataclasses.replace(Cache().spec.config, canonical_layout=True)
    with pytest.raises(ValueError, match="canonical_layout"):
        OffloadingSpecFactory.create_spec(config)
