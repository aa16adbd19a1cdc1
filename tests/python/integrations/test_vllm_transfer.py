"""KV transfer of vLLM: the connectors of two instances in one process, with KV caches on the CPU, over NIXL."""

from __future__ import annotations

import copy
import itertools
import socket
import time
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("nixl", reason="nixl is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
factory = pytest.importorskip(
    "vllm.distributed.kv_transfer.kv_connector.factory", reason="vllm is not installed", exc_type=ImportError
)

from narrowcast.integrations import vllm_transfer  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheBlocks  # noqa: E402
from vllm.v1.core.kv_cache_utils import KVCacheBlock  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus  # noqa: E402

BLOCKS, TOKENS, HEADS, WIDTH, LAYERS = 32, 16, 2, 64, 3
SECONDS = 60
NAMES = itertools.count()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model that is never loaded."""
    folder = tmp_path_factory.mktemp("model")
    transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=HEADS * WIDTH,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    ).save_pretrained(folder)
    return folder


class Instance:
    """The connectors of an instance of vLLM, and its KV cache."""

    def __init__(self, monkeypatch, model, role, groups=1, **options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            monkeypatch.setenv("VLLM_NIXL_SIDE_CHANNEL_PORT", str(free.getsockname()[1]))
        monkeypatch.setattr(vllm_transfer, "get_tensor_model_parallel_rank", lambda: 0)
        transfer = KVTransferConfig(
            kv_connector="EncodedNixlConnector",
            kv_connector_module_path="narrowcast.integrations.vllm_transfer",
            kv_role=role,
            kv_connector_extra_config={"buffer_bytes": 1 << 18, "part_bytes": 1 << 16, **options},
        )
        self.config = EngineArgs(
            model=str(model), skip_tokenizer_init=True, block_size=TOKENS, kv_transfer_config=transfer
        ).create_engine_config()
        kinds = [FullAttentionSpec, SlidingWindowSpec][:groups]
        cache = {"block_size": TOKENS, "num_kv_heads": HEADS, "head_size": WIDTH, "dtype": torch.bfloat16}
        self.groups = [
            KVCacheGroupSpec(
                [f"{group}.{layer}" for layer in range(LAYERS)],
                kind(**cache, **({"sliding_window": 1024} if kind is SlidingWindowSpec else {})),
            )
            for group, kind in enumerate(kinds)
        ]
        self.kv_cache_config = KVCacheConfig(BLOCKS, [], self.groups)
        self.caches = {
            name: (torch.randn(BLOCKS, HEADS, TOKENS, 2 * WIDTH) * 0.3).bfloat16()
            for group in self.groups
            for name in group.layer_names
        }
        self.scheduler, self.worker = (self.created(one) for one in (KVConnectorRole.SCHEDULER, KVConnectorRole.WORKER))

    def created(self, role):
        with set_current_vllm_config(self.config):
            return factory.KVConnectorFactory.create_connector(self.config, role, self.kv_cache_config)

    def start(self):
        with set_current_vllm_config(self.config):
            self.worker.register_kv_caches(self.caches)
        if self.config.kv_transfer_config.kv_role != "kv_consumer":
            self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): self.worker.get_handshake_metadata()})
        return self

    def step(self):
        """A step of the engine. Returns what the worker reports."""
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(None))
        self.worker.start_load_kv(None)
        self.worker.wait_for_save()
        found = self.worker.get_transfer_results(set())
        found.failed_blocks = self.worker.get_block_ids_with_load_errors()
        self.worker.clear_connector_metadata()
        return found

    def until(self, requests, what="finished_recving"):
        """Steps until requests are reported. Returns all that was reported."""
        begin, all_found = time.monotonic(), types.SimpleNamespace(failed_blocks=set(), failed_recving=set())
        reported = set()
        while reported != requests:
            assert time.monotonic() - begin < SECONDS, f"{reported} of {requests}"
            found = self.step()
            assert not reported & getattr(found, what)
            reported |= getattr(found, what)
            all_found.failed_blocks |= found.failed_blocks
            all_found.failed_recving |= found.failed_recving
            time.sleep(0.002)
        return all_found

    def request(self, count, params):
        options = SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": params})
        found = Request(f"request-{next(NAMES)}", list(range(count)), options, None)
        self.scheduler.on_new_request(found)
        return found

    def prefill(self, *blocks):
        """Computes a prompt that fills blocks of each group. Returns the request and what the proxy gets."""
        request = self.request(TOKENS * len(blocks[0]), {"do_remote_decode": True, "do_remote_prefill": False})
        assert self.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        self.scheduler.update_state_after_alloc(request, None, 0)
        self.step()
        request.status, request.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, request.num_prompt_tokens
        kept, params = self.scheduler.request_finished_all_groups(request, blocks)
        assert kept
        return request.request_id, params

    def receive(self, params, *blocks, cached=()):
        """Asks for blocks of each group. The first ones of each are cached here."""
        count = TOKENS * (len(blocks[0]) + len(cached))
        request = self.request(count, copy.deepcopy(params))
        tokens, later = self.scheduler.get_num_new_matched_tokens(request, TOKENS * len(cached))
        assert (tokens, later) == (TOKENS * len(blocks[0]), bool(blocks[0]))
        held = [[KVCacheBlock(number) for number in [*cached, *group]] for group in blocks]
        for group in held:
            for block in group[: len(cached)]:
                block._block_hash = b"hash"
        self.scheduler.update_state_after_alloc(request, KVCacheBlocks(tuple(held)), tokens)
        return request.request_id

    def close(self):
        self.worker.shutdown()
        self.scheduler.shutdown()


@pytest.fixture
def instances(monkeypatch, model):
    """Creates instances that are shut down at the end."""
    created = []

    def create(role, **options):
        created.append(Instance(monkeypatch, model, role, **options))
        return created[-1].start()

    yield create
    for one in created:
        one.close()


def equal(decode, here, prefill, there):
    return all(
        torch.equal(decode.caches[name][here], prefill.caches[name][there])
        for group in decode.groups
        for name in group.layer_names
    )


def test_a_prompt_is_received_into_other_blocks(instances):
    torch.manual_seed(0)
    prefill, decode = instances("kv_producer"), instances("kv_consumer")
    before = copy.deepcopy(decode.caches)
    sent, params = prefill.prefill(list(range(1, 21)))
    received = decode.receive(params, list(range(30, 10, -1)))
    found = decode.until({received})
    assert not found.failed_blocks
    assert not found.failed_recving
    assert equal(decode, list(range(30, 10, -1)), prefill, list(range(1, 21)))
    assert all(torch.equal(decode.caches[name][:11], before[name][:11]) for name in before)
    prefill.until({sent}, "finished_sending")


def test_only_blocks_that_are_not_cached_are_received(instances):
    prefill, decode = instances("kv_producer"), instances("kv_consumer")
    before = copy.deepcopy(decode.caches)
    sent, params = prefill.prefill([1, 2, 3, 4, 5])
    received = decode.receive(params, [20, 21], cached=[7, 8, 9])
    decode.until({received})
    assert equal(decode, [20, 21], prefill, [4, 5])
    rest = [number for number in range(BLOCKS) if number not in (20, 21)]
    assert all(torch.equal(decode.caches[name][rest], before[name][rest]) for name in before)
    prefill.until({sent}, "finished_sending")


def test_a_prompt_that_is_cached_is_released(instances):
    prefill, decode = instances("kv_producer"), instances("kv_consumer")
    sent, params = prefill.prefill([1, 2])
    decode.receive(params, [], cached=[7, 8])
    assert not decode.step().finished_recving
    begin = time.monotonic()
    while sent not in prefill.step().finished_sending:
        assert time.monotonic() - begin < SECONDS
        assert not decode.step().finished_recving


def test_groups_are_received(instances):
    prefill, decode = instances("kv_producer", groups=2), instances("kv_consumer", groups=2)
    sent, params = prefill.prefill([1, 2, 3], [11, 12, 13])
    received = decode.receive(params, [4, 5, 6], [21, 22, 23])
    assert not decode.until({received}).failed_recving
    for layer in range(LAYERS):
        for group, (here, there) in enumerate([([4, 5, 6], [1, 2, 3]), ([21, 22, 23], [11, 12, 13])]):
            name = f"{group}.{layer}"
            assert torch.equal(decode.caches[name][here], prefill.caches[name][there])
    prefill.until({sent}, "finished_sending")


def test_many_requests_in_both_directions(instances):
    first, second = (instances("kv_both", buffer_bytes=1 << 18) for _ in range(2))
    for prefill, decode in ((first, second), (second, first)):
        asked = [(prefill.prefill([number, number + 10]), number) for number in range(1, 9)]
        received = {decode.receive(params, [number + 20, number]) for (_, params), number in asked}
        assert not decode.until(received).failed_blocks
        for number in range(1, 9):
            assert equal(decode, [number + 20, number], prefill, [number, number + 10])
        prefill.until({name for (name, _), _ in asked}, "finished_sending")


@pytest.mark.parametrize("other", [{"codec": "dense"}, {"groups": 2}, "model", "layout"])
def test_other_instances_are_refused(instances, monkeypatch, model, other):
    prefill = instances("kv_producer", **(other if isinstance(other, dict) else {}))
    decode = Instance(monkeypatch, model, "kv_consumer")
    if other == "model":
        decode.config.model_config.model = "another"
    elif other == "layout":
        decode.caches = {
            name: cache.transpose(1, 2).contiguous().transpose(1, 2) for name, cache in decode.caches.items()
        }
    decode.start()
    _, params = prefill.prefill(*[[1, 2]] * len(prefill.groups))
    params["remote_block_ids"] = ([1, 2],)
    received = decode.receive(params, [4, 5])
    assert decode.until({received}).failed_blocks == {4, 5}
    decode.close()


@pytest.mark.parametrize(
    "change",
    [
        {"tp_size": 2},
        {"remote_engine_id": "other"},
        {"remote_block_ids": ([1, 99],)},
        {"remote_block_ids": ([1, "2"],)},
        {"remote_block_ids": "none"},
        {"remote_request_id": "other"},
        {"remote_port": 9},
    ],
    ids=lambda change: next(iter(change)),
)
def test_wrong_params_fail_the_request(instances, monkeypatch, change):
    monkeypatch.setattr(vllm_transfer, "_HANDSHAKE_SECONDS", 1)
    prefill, decode = instances("kv_producer"), instances("kv_consumer")
    sent, params = prefill.prefill([1, 2])
    received = decode.receive({**params, **change}, [4, 5])
    assert decode.until({received}).failed_blocks == {4, 5}
    received = decode.receive(params, [6, 7])
    assert not decode.until({received}).failed_blocks or "remote_block_ids" in change
    prefill.until({sent}, "finished_sending")


def test_damaged_frames_fail_their_request_only(instances):
    prefill, decode = instances("kv_producer"), instances("kv_consumer")
    encode = prefill.worker.connector_worker._slots.encode

    def damage(group, blocks, slot):
        sizes = encode(group, blocks, slot)
        if 2 in blocks:
            slots = prefill.worker.connector_worker._slots
            slots.memory[slot * slots.slot_bytes + 100] ^= 1
        return sizes

    prefill.worker.connector_worker._slots.encode = damage
    sent = [prefill.prefill([number, number + 1]) for number in (1, 5)]
    received = [
        decode.receive(params, [number, number + 1]) for (_, params), number in zip(sent, (11, 15), strict=True)
    ]
    assert decode.until(set(received)).failed_blocks == {11, 12}
    assert equal(decode, [15, 16], prefill, [5, 6])
    prefill.until({name for name, _ in sent}, "finished_sending")


def test_models_with_groups_fail_as_a_whole(instances):
    prefill, decode = instances("kv_producer", groups=2), instances("kv_consumer", groups=2)
    _, params = prefill.prefill([1, 2], [3, 4])
    received = decode.receive({**params, "remote_request_id": "other"}, [1, 2], [3, 4])
    found = decode.until({received})
    assert found.failed_recving == {received}
    assert not found.failed_blocks


def test_a_prefill_instance_that_is_gone_fails_the_request(instances, monkeypatch):
    monkeypatch.setattr(vllm_transfer, "_HANDSHAKE_SECONDS", 1)
    prefill = instances("kv_producer", kv_lease_duration=3)
    decode = instances("kv_consumer", kv_lease_duration=3)
    _, params = prefill.prefill([1, 2])
    prefill.worker.shutdown()
    begin = time.monotonic()
    received = decode.receive(params, [4, 5])
    assert decode.until({received}).failed_blocks == {4, 5}
    assert time.monotonic() - begin < 10


def test_prompts_that_nobody_receives_are_released(instances):
    prefill = instances("kv_producer", kv_lease_duration=1)
    sent, _ = prefill.prefill([1, 2])
    begin = time.monotonic()
    prefill.until({sent}, "finished_sending")
    assert 0.9 < time.monotonic() - begin < 5


def test_waiting_requests_keep_their_blocks(instances):
    prefill, decode = (instances(role, kv_lease_duration=6) for role in ("kv_producer", "kv_consumer"))
    sent, params = prefill.prefill([1, 2])
    waiting = decode.request(2 * TOKENS, copy.deepcopy(params))  # is not scheduled yet
    begin = time.monotonic()
    while time.monotonic() - begin < 8:
        decode.step()
        assert not prefill.step().finished_sending
        time.sleep(0.01)
    decode.scheduler.request_finished_all_groups(waiting, ([],))
    decode.step()
    prefill.until({sent}, "finished_sending")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"buffer_bytes": 1}, "buffer_bytes must be at least part_bytes"),
        ({"part_bytes": 1 << 10}, "a block may need"),
        ({"codec": "none"}, "none"),
        ({"bidirectional_kv_xfer": True}, "does not support bidirectional_kv_xfer"),
    ],
)
def test_other_options_are_errors(instances, options, text):
    with pytest.raises(Exception, match=text):
        instances("kv_producer", **options)


@pytest.mark.parametrize("name", ["pipeline_parallel_size", "prefill_context_parallel_size"])
def test_other_parallelism_is_an_error(monkeypatch, model, name):
    one = Instance(monkeypatch, model, "kv_producer")
    setattr(one.config.parallel_config, name, 2)
    with pytest.raises(ValueError, match=f"does not support {name} above 1"):
        one.created(KVConnectorRole.WORKER)


def test_state_space_models_are_errors(monkeypatch, model):
    one = Instance(monkeypatch, model, "kv_producer")
    one.groups[0].kv_cache_spec = MambaSpec(block_size=TOKENS, shapes=((4, 4),), dtypes=(torch.bfloat16,))
    with pytest.raises(ValueError, match="does not support KV caches of MambaSpec"):
        one.created(KVConnectorRole.SCHEDULER)
