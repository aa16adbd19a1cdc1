"""Modules that run on a GPU, with weights that are encoded in host memory."""

from __future__ import annotations

import narrowcast
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast._torch.frame_reader import FrameReader  # noqa: E402
from narrowcast.torch import EncodedTensors, offload  # noqa: E402
from torch import nn  # noqa: E402


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "int8", "int64", "bool"]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (1025, 513)])
def test_tensors_keep_their_bits_shape_and_type(dtype, shape):
    values = (torch.randn(shape, device="cuda") * 9).to(getattr(torch, dtype))
    encoded = EncodedTensors({"a": values}, device="cuda")
    back = encoded["a"]
    encoded.check()
    assert (back.shape, back.dtype, back.device) == (values.shape, values.dtype, values.device)
    assert torch.equal(back.reshape(-1).view(torch.uint8), values.reshape(-1).view(torch.uint8))


def test_a_damaged_frame_is_found():
    encoded = EncodedTensors({"a": torch.randn(1 << 16)}, device="cuda")
    encoded._entries["a"].frames[0][:32] = 0
    encoded["a"]
    with pytest.raises(narrowcast.CorruptError, match="host memory has been overwritten"):
        encoded.check()


def test_memory_is_unpinned_before_it_is_freed():
    for _ in range(5):
        assert EncodedTensors({"a": torch.randn(1 << 20)}, device="cuda")["a"].shape == (1 << 20,)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_have_the_same_bits(dtype, prefetch):
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(8)]
    model = nn.Sequential(nn.Embedding(1000, 512), *layers, nn.Linear(512, 1000)).to(dtype).eval().cuda()
    tokens = torch.arange(256, device="cuda").reshape(2, 128)
    with torch.inference_mode():
        expected = model(tokens)
        offloaded = offload(model, units=layers, prefetch=prefetch)
        for _ in range(10):
            assert torch.equal(model(tokens), expected)
        offloaded.check()
        assert torch.equal(offloaded.restore()(tokens), expected)


def test_weights_are_on_the_gpu_only_while_they_are_used():
    model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(16))).cuda()
    layer_bytes = model[0].weight.nbytes
    offload(model, prefetch=1)
    with torch.inference_mode():
        model(torch.ones(1, 2048, device="cuda"))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            model(torch.ones(1, 2048, device="cuda"))
    torch.cuda.synchronize()
    # One in use, one fetched ahead, and one that the GPU may still use when the host is ahead of it.
    assert torch.cuda.max_memory_allocated() - before < 3.5 * layer_bytes


def test_a_module_moves_from_the_cpu_to_the_gpu():
    model = nn.Linear(512, 512)
    x = torch.ones(1, 512)
    expected = model.cuda()(x.cuda())
    model.cpu()
    offload(model, device="cuda")
    with torch.inference_mode():
        assert torch.equal(model(x.cuda()), expected)


def test_graphs_fetch_in_every_replay():
    reader = FrameReader(torch.device("cuda", 0), in_graphs=True)
    tensors = {str(number): torch.randn(3_000_000, device="cuda") for number in range(9)}
    encoded = EncodedTensors(tensors, device="cuda")
    outs = {name: torch.empty_like(one) for name, one in tensors.items()}

    def same():
        torch.cuda.synchronize()
        found = all(torch.equal(outs[name], one) for name, one in tensors.items())
        for one in outs.values():
            one.zero_()
        return found

    encoded.read_into(outs, reader=reader)
    assert same()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        encoded.read_into(outs, reader=reader)
    for _ in range(3):
        graph.replay()
        assert same()
        encoded.read_into(outs, reader=reader)
        assert same()
    encoded.check()
