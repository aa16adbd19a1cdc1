"""`narrowcast.safetensors` replaces `safetensors.torch`."""

from __future__ import annotations

import gc
import io
import struct
import subprocess
import sys
import warnings

import narrowcast
import numpy as np
import pytest
from narrowcast import files
from narrowcast.safetensors import (
    SafetensorError,
    load,
    load_file,
    load_model,
    safe_open,
    save,
    save_file,
    save_model,
)


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
        for read in (model.get_tensor, model.get_slice):
            with pytest.raises(KeyError, match="no tensor 'c'") as caught:
                read("c")
            assert isinstance(caught.value, SafetensorError)
        assert model.get_tensors().keys() == tensors.keys()
    with pytest.raises(ValueError, match="'mxnet' is not a framework"):
        safe_open(tmp_path / "model", framework="mxnet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"framework": "mxnet"}, "'mxnet' is not a framework"),
        ({"framework": "np", "backend": "io_uring"}, "'io_uring' is not a backend"),
        ({"framework": "np", "device": "cuda"}, "arrays of NumPy are on the CPU"),
    ],
)
def test_arguments_of_safe_open_are_checked(tmp_path, arguments, words):
    files.save_file({"a": np.zeros(3)}, tmp_path / "model")
    with pytest.raises(SafetensorError, match=words):
        safe_open(tmp_path / "model", **arguments)
    with safe_open(tmp_path / "model", "np", backend="pread") as model:
        assert model.get_tensor("a").shape == (3,)


def test_a_missing_file_has_the_message_of_safetensors(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        safe_open(tmp_path / "none", "np")
    assert str(caught.value) == f"No such file or directory: {tmp_path / 'none'}"


def test_errors_are_those_of_safetensors_where_it_is_installed(tmp_path):
    library = pytest.importorskip("safetensors")
    files.save_file({"a": np.zeros(3)}, tmp_path / "model")
    with safe_open(tmp_path / "model", "np") as model, pytest.raises(library.SafetensorError):
        model.get_tensor("b")


def test_malformed_files_are_errors_of_safetensors(tmp_path):
    files.save_file({"a": np.zeros(100_000, np.float32)}, tmp_path / "model")
    content = bytearray((tmp_path / "model").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model").write_bytes(content)
    with safe_open(tmp_path / "model", "np") as model:
        for read in (model.get_tensors, lambda: model.get_tensor("a"), lambda: model.get_slice("a")[50_000:]):
            with pytest.raises(SafetensorError, match="checksum") as caught:
                read()
            assert isinstance(caught.value, narrowcast.CorruptError)
    with pytest.raises(SafetensorError, match="neither"):
        safe_open(__file__, "np")


def test_a_closed_file_keeps_its_slices_and_is_closed_after_them(tmp_path):
    files.save_file({"a": np.arange(6)}, tmp_path / "model")
    with safe_open(tmp_path / "model", "np") as model:
        part = model.get_slice("a")
    for call in (model.keys, model.offset_keys, model.metadata, model.get_tensors):
        with pytest.raises(SafetensorError, match="File is closed"):
            call()
    assert part[2:4].tolist() == [2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        file = part._tensor._file._content._reader._file
        del part
        gc.collect()
        assert file.closed


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (np.s_[2:, -6], r"Invalid index -6 for dimension 1 of size 5"),
        (
            np.s_[2:, 20],
            r"slicing \[2:, 20\] with shape \[10, 5\]: index 20 out of bounds for tensor dimension #1 of size 5",
        ),
        (np.s_[:20:3], r"slicing \[:20:3\] with shape \[10, 5\]: index 19 out of bounds for tensor dimension #0"),
        ([0, 1], "Non empty lists are not implemented"),
        (np.s_[0, 0, 0], "3 indices for a tensor with 2 dimensions"),
    ],
)
def test_arrays_are_not_sliced_beyond_their_end(tmp_path, index, words):
    values = np.arange(50).reshape(10, 5)
    files.save_file({"a": values}, tmp_path / "model")
    with safe_open(tmp_path / "model", "np") as model:
        part = model.get_slice("a")
        with pytest.raises(SafetensorError, match=words):
            part[index]
        for valid in (np.s_[-3:, -1], np.s_[...], np.s_[:10:3, 4], np.s_[True], np.s_[None, 2], [], ()):
            assert np.array_equal(part[valid], values[np.array(valid, int) if valid == [] else valid])


def some_tensors(torch):
    torch.manual_seed(0)
    wide = torch.randn(300, 40)
    return {
        "bf16": wide.bfloat16(),
        "f32": wide,
        "transposed": wide.t().contiguous(),
        "f16": wide.half(),
        "e4m3": wide.to(torch.float8_e4m3fn),
        "e5m2": wide.to(torch.float8_e5m2),
        "bool": wide > 0,
        "int16": (100 * wide).short(),
        "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
        "none": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(wide.clone()),
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
        assert torch.equal(model.get_slice("f32")[True], tensors["f32"][True])
        assert_same(torch, model.get_tensors(), tensors)
    content = save(tensors, {"format": "pt"})
    assert content == (tmp_path / "model").read_bytes()
    assert_same(torch, load(content), tensors)
    assert_same(torch, load_file(tmp_path / "model", backend="pread"), tensors)


def test_tensors_are_loaded_to_the_cpu_whatever_the_default_device(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = some_tensors(torch)
    save_file(tensors, tmp_path / "model")
    with torch.device("meta"):
        assert_same(torch, load_file(tmp_path / "model"), tensors)


def test_tensors_that_safetensors_does_not_save_are_rejected(tmp_path):
    torch = pytest.importorskip("torch")
    whole = torch.zeros(6, 4)
    for tensors, error, words in (
        ({"a": whole.t()}, ValueError, "'a' is not contiguous"),
        ({"b": whole, "a": whole[1:3]}, RuntimeError, "the tensors a, b share memory"),
        ({"a": whole[:4], "b": whole[:1], "c": whole[2:]}, RuntimeError, "the tensors a, b, c share memory"),
        ({"a": whole.to_sparse()}, ValueError, r"sparse tensors: `\['a'\]`"),
        ({"a": np.zeros(3)}, ValueError, "Key `a` is invalid"),
        ([whole], ValueError, "Expected a dict"),
        ({"a": torch.zeros(3, device="meta")}, RuntimeError, "meta tensor"),
        ({"a": torch.zeros((), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, TypeError, "scalar of 2 packed"),
    ):
        for call in (lambda: save_file(tensors, tmp_path / "model"), lambda: save(tensors)):  # noqa: B023
            with pytest.raises(error, match=words):
                call()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="'a' is sparse"):
        files.save_file({"a": whole.to_sparse()}, tmp_path / "model")
    # Parts of one memory that do not overlap are saved.
    save_file({"a": whole[:2], "b": whole[2:], "c": whole[6:]}, tmp_path / "model")
    assert load_file(tmp_path / "model")["b"].shape == (4, 4)


PACKED = ["float4_e2m1fn_x2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", PACKED)
def test_types_of_safetensors_without_arithmetic_are_kept(tmp_path, name):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    values = torch.arange(40, dtype=torch.uint8).view(5, 8).view(getattr(torch, name))
    save_file({"a": values}, tmp_path / "own")
    files.decode_file(tmp_path / "own", tmp_path / "decoded")
    assert (tmp_path / "decoded").read_bytes() == library.save({"a": values})
    for path in (tmp_path / "own", tmp_path / "decoded"):
        assert_same(torch, load_file(path), {"a": values})
        with safe_open(path, "pt") as model:
            part = model.get_slice("a")
            packed = 2 if name == "float4_e2m1fn_x2" else 1
            assert part.get_shape() == [5, 8 * packed]
            for index in (np.s_[1:3], np.s_[2], np.s_[..., 2 * packed : 6 * packed], np.s_[1:, : 4 * packed]):
                stored = tuple(
                    slice(one.start and one.start // packed, one.stop // packed) if place and one is not ... else one
                    for place, one in enumerate(index if isinstance(index, tuple) else (index,))
                )
                expected = values.view(torch.uint8)[stored]
                assert torch.equal(part[index].view(torch.uint8), expected)
            if packed == 2:
                for odd in (np.s_[:, 1:3], np.s_[0, 4], np.s_[..., ::2], np.s_[True]):
                    with pytest.raises(ValueError, match="tensor 'a'"):
                        part[odd]


def test_rows_of_packed_values_that_are_no_bytes_are_rejected():
    torch = pytest.importorskip("torch")
    header = (
        b'{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"b":{"dtype":"F4","shape":[6],"data_offsets":[3,6]}}'
    )
    content = struct.pack("<Q", len(header)) + header + bytes(range(6))
    with pytest.raises(ValueError, match=r"tensor 'a' has shape \[2, 3\], but torch packs 2 values of F4 per byte"):
        load(content)
    with files.open(io.BytesIO(content)) as model:
        assert model["b"].shape == (6,)
        with pytest.raises(ValueError, match="NumPy does not have"):
            model["b"][2:4]
        assert torch is not None


def module_with_shared_weights(torch):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(20, 20)
            self.b = self.a
            self.part = torch.nn.Parameter(self.a.weight[:3])

    torch.manual_seed(1)
    return Module()


def test_a_module_with_shared_weights_is_saved_once_and_loaded(tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    module = module_with_shared_weights(torch)
    given = {"format": "pt"}
    save_model(module, tmp_path / "own", metadata=given)
    library.save_model(module, tmp_path / "peer", metadata=given.copy())
    assert given == {"format": "pt"}
    with safe_open(tmp_path / "own", "pt") as own, safe_open(tmp_path / "peer", "pt") as peer:
        assert (own.keys(), own.metadata()) == (peer.keys(), peer.metadata())
    with torch.no_grad():
        other = module_with_shared_weights(torch)
        other.a.weight.zero_()
    assert load_model(other, tmp_path / "own") == (set(), [])
    assert torch.equal(other.b.weight, module.a.weight)


def test_loading_a_module_reports_what_differs(tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    module = module_with_shared_weights(torch)
    state = {"a.weight": torch.ones(20, 20), "b.weight": torch.zeros(20, 20), "c": torch.zeros(3)}
    save_file(state, tmp_path / "own")
    library.save_file(state, tmp_path / "peer")
    missing, unexpected = load_model(module, tmp_path / "own", strict=False)
    expected = library.load_model(module, tmp_path / "peer", strict=False)
    assert (missing, sorted(unexpected)) == (expected[0], sorted(expected[1]))
    with pytest.raises(RuntimeError) as found:
        load_model(module, tmp_path / "own")
    with pytest.raises(RuntimeError) as theirs:
        library.load_model(module, tmp_path / "peer")
    assert str(found.value) == str(theirs.value)


def test_a_module_of_parts_or_strides_is_not_saved_silently(tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    whole = torch.zeros(6, 4)
    module.a, module.b = torch.nn.Parameter(whole[:4]), torch.nn.Parameter(whole[2:])
    with pytest.raises(RuntimeError, match="none of them covers all of it"):
        save_model(module, tmp_path / "model")
    module.a = module.b = torch.nn.Parameter(whole.t())
    with pytest.raises(ValueError, match=r"use save_model\(\.\.\., force_contiguous=True\)"):
        save_model(module, tmp_path / "model", force_contiguous=False)
    save_model(module, tmp_path / "model")
    assert load_file(tmp_path / "model").keys() == {"a"}


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
