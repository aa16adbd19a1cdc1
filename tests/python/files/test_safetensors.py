"""`narrowcast.safetensors` replaces `safetensors.torch`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from narrowcast import files
from narrowcast.safetensors import load_file, safe_open, save_file


def test_importing_it_does_not_import_torch():
    program = "import sys, narrowcast.safetensors; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_safe_open_reads_arrays_of_numpy(tmp_path):
    tensors = {"b": np.arange(12, dtype=np.float32).reshape(3, 4), "a": np.arange(5)}
    files.save_file(tensors, tmp_path / "model", metadata={"format": "np"})
    with safe_open(tmp_path / "model", framework="np") as model:
        assert model.keys() == ["a", "b"]
        assert sorted(model.offset_keys()) == ["a", "b"]
        assert model.metadata() == {"format": "np"}
        assert np.array_equal(model.get_tensor("b"), tensors["b"])
        part = model.get_slice("b")
        assert (part.get_shape(), part.get_dtype()) == ([3, 4], "F32")
        assert np.array_equal(part[1:, 2], tensors["b"][1:, 2])
        with pytest.raises(KeyError, match="no tensor 'c'"):
            model.get_tensor("c")
    with pytest.raises(ValueError, match="'mxnet' is not a framework"):
        safe_open(tmp_path / "model", framework="mxnet")


def some_tensors(torch):
    torch.manual_seed(0)
    wide = torch.randn(300, 40)
    return {
        "bf16": wide.bfloat16(),
        "f32": wide,
        "transposed": wide.t(),
        "f16": wide.half(),
        "e4m3": wide.to(torch.float8_e4m3fn),
        "e5m2": wide.to(torch.float8_e5m2),
        "bool": wide > 0,
        "int16": (100 * wide).short(),
        "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
        "none": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(wide),
    }


def assert_same(torch, found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        own = found[name]
        assert (own.dtype, own.shape, own.device.type) == (tensor.dtype, tensor.shape, "cpu")
        flat, other = own.reshape(-1), tensor.detach().contiguous().reshape(-1)
        assert torch.equal(flat.view(torch.uint8), other.view(torch.uint8)), name


def test_tensors_of_torch_are_saved_and_loaded(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = some_tensors(torch)
    assert save_file(tensors, tmp_path / "model", metadata={"format": "pt"}) is None
    assert_same(torch, load_file(tmp_path / "model"), tensors)
    assert_same(torch, load_file(str(tmp_path / "model"), "cpu"), tensors)
    with safe_open(tmp_path / "model", framework="pt", device="cpu") as model:
        assert model.metadata() == {"format": "pt"}
        names = model.keys()
        assert_same(torch, {name: model.get_tensor(name) for name in names}, tensors)
        part = model.get_slice("bf16")[10:20, ::3]
        assert torch.equal(part, tensors["bf16"][10:20, ::3])


def test_files_of_safetensors_torch_are_loaded_encoded_or_not(tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in some_tensors(torch).items()}
    plain, encoded, decoded = tmp_path / "a.safetensors", tmp_path / "encoded", tmp_path / "b.safetensors"
    library.save_file(tensors, plain)
    assert_same(torch, load_file(plain), library.load_file(plain))
    files.encode_file(plain, encoded)
    assert_same(torch, load_file(encoded), library.load_file(plain))
    save_file(tensors, encoded)
    files.decode_file(encoded, decoded)
    assert_same(torch, library.load_file(decoded), tensors)
