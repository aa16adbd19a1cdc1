"""Weight offloading of vLLM: its offloader, on simulated streams, with weights on the CPU in place of a GPU."""

from __future__ import annotations

import types

import narrowcast
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
prefetch = pytest.importorskip(
    "vllm.model_executor.offloader.prefetch", reason="vllm is not installed", exc_type=ImportError
)

from narrowcast._torch.frame_reader import FrameReader  # noqa: E402
from narrowcast.integrations import vllm_weights  # noqa: E402
from narrowcast.integrations.vllm_weights import EncodedOffloadWorker, EncodedPrefetchOffloader  # noqa: E402
from simulated_streams import simulate_encoded_tensors  # noqa: E402
from torch import nn  # noqa: E402
from vllm.model_executor.offloader import NoopOffloader, get_offloader, set_offloader  # noqa: E402
from vllm.v1.worker.gpu_worker import Worker  # noqa: E402

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
WIDTH = 96


class Layer(nn.Module):
    """A matrix of which vLLM's offloader believes that it is on a GPU. Its work goes to the current stream."""

    def __init__(self, seed):
        super().__init__()
        values = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed)) / WIDTH**0.5
        self.plain = nn.Parameter(values, requires_grad=False)
        self.transposed = nn.Parameter(torch.empty(WIDTH, WIDTH).T, requires_grad=False)
        self.transposed.data.copy_(values.flip(0))

    def parameters(self, recurse=True):
        yield types.SimpleNamespace(device=GPU)

    def forward(self, x):
        out = torch.empty_like(x)
        torch.cuda.current_stream().enqueue(lambda: out.copy_((x @ self.plain.data).tanh() + x @ self.transposed.data))
        return out


@pytest.fixture
def streams(monkeypatch):
    found = simulate_encoded_tensors(monkeypatch)
    real = prefetch.StaticBufferPool
    monkeypatch.setattr(
        prefetch, "StaticBufferPool", lambda param_infos, slot_capacity, device: real(param_infos, slot_capacity, CPU)
    )
    monkeypatch.setattr(vllm_weights, "FrameReader", lambda device, **options: FrameReader(CPU, **options))
    # Without a dispatcher for CPUs, the operations of vLLM are called directly.
    operations = types.SimpleNamespace(
        wait_prefetch=lambda _, index: get_offloader()._wait_for_layer(index),
        start_prefetch=lambda _, index: get_offloader()._start_prefetch(index),
    )
    monkeypatch.setattr(prefetch.torch, "ops", types.SimpleNamespace(vllm=operations))
    yield found
    set_offloader(None)


@pytest.mark.parametrize("eager", ["copies", "model"])
@pytest.mark.parametrize(("group_size", "num_in_group", "step"), [(1, 1, 1), (1, 1, 2), (3, 2, 1), (2, 1, 3)])
def test_outputs_have_the_same_bits(streams, eager, group_size, num_in_group, step):
    layers = [Layer(seed) for seed in range(6)]
    x = torch.randn(5, WIDTH)
    expected = x
    for layer in layers:
        expected = (expected @ layer.plain).tanh() + expected @ layer.transposed
    offloader = EncodedPrefetchOffloader(group_size=group_size, num_in_group=num_in_group, prefetch_step=step)
    streams.main_is_late = eager == "copies"
    set_offloader(offloader)
    wrapped = offloader.wrap_modules(iter(layers))
    assert wrapped == layers
    offloader.post_init()
    outs = []
    for _ in range(3):
        found = x
        for layer in wrapped:
            found = layer(found)
        outs.append(found)
    streams.run()
    assert all(torch.equal(out, expected) for out in outs)
    assert 0 < offloader.ratio < 1
    offloader.check()


def test_raw_weights_do_not_stay_in_host_memory(streams):
    layers = [Layer(seed) for seed in range(4)]
    offloader = EncodedPrefetchOffloader(group_size=1, num_in_group=1, prefetch_step=1)
    set_offloader(offloader)
    offloader.wrap_modules(iter(layers))
    offloader.post_init()
    parts = [one for module in offloader.module_offloaders for one in module._param_offloaders.values()]
    assert len(parts) == 8
    assert all(one._cpu_storage is None for one in parts)
    # All layers have the same buffers.
    assert len({layer.plain.data_ptr() for layer in layers}) == 1


def test_nothing_to_offload(streams):
    offloader = EncodedPrefetchOffloader(group_size=2, num_in_group=1, prefetch_step=1)
    offloader.wrap_modules(iter([Layer(0)]))
    offloader.post_init()
    offloader.check()
    assert offloader.ratio is None


def worker(monkeypatch, offloader, options):
    """A worker after `init_device`, as far as this module is concerned."""
    made = EncodedOffloadWorker.__new__(EncodedOffloadWorker)
    chosen = types.SimpleNamespace(
        offload_group_size=4, offload_num_in_group=3, offload_prefetch_step=2, offload_params={"plain"}
    )
    made.vllm_config = types.SimpleNamespace(
        offload_config=types.SimpleNamespace(prefetch=chosen), additional_config=options
    )
    monkeypatch.setattr(Worker, "init_device", lambda self: set_offloader(offloader()))
    made.init_device()


def test_the_worker_replaces_the_offloader(streams, monkeypatch):
    def theirs():
        return prefetch.PrefetchOffloader(4, 3, 2, {"plain"})

    worker(monkeypatch, theirs, {"narrowcast_codec": "raw"})
    ours = get_offloader()
    assert isinstance(ours, EncodedPrefetchOffloader)
    expected = vars(theirs())
    for name in ("group_size", "num_in_group", "prefetch_step", "offload_params", "mode"):
        assert getattr(ours, name) == expected[name]
    assert ours._codec == "raw"


def test_the_worker_needs_the_prefetch_backend(streams, monkeypatch):
    with pytest.raises(ValueError, match="--offload-backend prefetch"):
        worker(monkeypatch, NoopOffloader, {})


def test_weights_with_gaps_are_named(streams):
    layer = Layer(0)
    layer.plain.data = torch.zeros(WIDTH, 2 * WIDTH)[:, :WIDTH]
    offloader = EncodedPrefetchOffloader(group_size=1, num_in_group=1, prefetch_step=1)
    set_offloader(offloader)
    offloader.wrap_modules(iter([layer]))
    with pytest.raises(ValueError, match=r"plain are not adjacent.*--offload-params"):
        offloader.post_init()


def test_unknown_codecs_are_errors(streams):
    with pytest.raises((ValueError, narrowcast.NarrowcastError), match="nonsense"):
        EncodedPrefetchOffloader(group_size=1, num_in_group=1, prefetch_step=1, codec="nonsense")
