"""Tensors and streams of torch, CuPy and JAX."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from narrowcast import cuda
from narrowcast._bench import samples

ELEMS = 100_003


@pytest.fixture
def bits() -> np.ndarray:
    return samples.of_rank(samples.sample("weights", "bfloat16"), 0, ELEMS)


def test_torch_tensors_and_streams(bits):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    stream = torch.cuda.Stream()
    values = torch.from_numpy(bits.view(np.int16)).cuda().view(torch.bfloat16).requires_grad_()
    frame = torch.empty(narrowcast.bound("bfloat16", ELEMS), dtype=torch.uint8, device="cuda")
    workspace = torch.empty(cuda.workspace_bytes("bfloat16", ELEMS) + 16, dtype=torch.uint8, device="cuda")
    status = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.empty(ELEMS, dtype=torch.bfloat16, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    cuda.encode(values, out=frame, workspace=workspace, stream=stream)
    cuda.decode(frame, out=out, status=status, stream=stream)
    cuda.check(status, stream=stream)
    assert torch.equal(out.view(torch.int16), values.detach().view(torch.int16))
    host = narrowcast.encode(bits, dtype="bfloat16", checksum=False)
    assert np.array_equal(frame.cpu().numpy()[: host.size], host)
    # Also on the host.
    assert np.array_equal(narrowcast.encode(values.detach().cpu(), checksum=False), host)


def test_torch_fp8(bits):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    values = torch.randn(ELEMS, device="cuda").to(torch.float8_e4m3fn)
    frame = torch.empty(narrowcast.bound("float8_e4m3", ELEMS), dtype=torch.uint8, device="cuda")
    workspace = torch.empty(cuda.workspace_bytes("float8_e4m3", ELEMS) + 16, dtype=torch.uint8, device="cuda")
    cuda.encode(values, out=frame, workspace=workspace, stream=torch.cuda.current_stream())
    assert cuda.inspect(frame).dtype == "float8_e4m3"
    back = narrowcast.decode(frame.cpu())
    assert np.array_equal(back, values.view(torch.uint8).cpu().numpy())


def test_cupy_arrays_and_streams(bits):
    cupy = pytest.importorskip("cupy")
    values = cupy.asarray(bits)
    frame = cupy.empty(narrowcast.bound("bfloat16", ELEMS), cupy.uint8)
    workspace = cupy.empty(cuda.workspace_bytes("bfloat16", ELEMS) + 16, cupy.uint8)
    status, out = cupy.zeros(1, cupy.uint32), cupy.empty_like(values)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    cuda.encode(values, out=frame, workspace=workspace, dtype="bfloat16", stream=stream)
    cuda.decode(frame, out=out, dtype="bfloat16", status=status, stream=stream)
    cuda.check(status, stream=stream)
    assert np.array_equal(out.get(), bits)


def test_jax_arrays_are_accepted_as_inputs_only(bits):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    values = jax.lax.bitcast_convert_type(jax.numpy.asarray(bits), jax.numpy.bfloat16).block_until_ready()
    frame = cuda_bytes(narrowcast.bound("bfloat16", ELEMS))
    workspace = cuda_bytes(cuda.workspace_bytes("bfloat16", ELEMS) + 16)
    cuda.encode(values, out=frame, workspace=workspace)
    host = narrowcast.encode(bits, dtype="bfloat16", checksum=False)
    assert np.array_equal(frame.read(host.size), host)
    with pytest.raises(ValueError, match="out is read-only"):
        cuda.decode(frame, out=values, status=cuda_bytes(16).fill(0))


def cuda_bytes(count: int):
    from narrowcast._native.cuda_driver import DeviceBuffer

    return DeviceBuffer(count)
