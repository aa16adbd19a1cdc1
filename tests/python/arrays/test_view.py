"""Arrays of every protocol become views of their memory. Unsupported arrays are rejected with a reason."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from narrowcast._arrays import dlpack
from narrowcast._arrays.view import view

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """A DLPack tensor over NumPy memory, of any type, device and version."""

    def __init__(
        self, memory, code, bits, *, device=(1, 0), versioned=True, flags=0, strides=None, shape=None, offset=0, major=1
    ):
        shape = shape or (memory.nbytes * 8 // bits,)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        tensor = dlpack._Tensor(
            data=memory.ctypes.data,
            device=dlpack._Device(*device),
            ndim=len(shape),
            dtype=dlpack._Type(code, bits, 1),
            shape=ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64)),
            strides=ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64)) if strides else None,
            byte_offset=offset,
        )
        self._versioned, self._device, self._memory = versioned, device, memory
        self._managed = dlpack._Versioned(major, 0, None, None, flags, tensor) if versioned else tensor
        self.streams = []

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, *, stream=None, **options):
        if options and not self._versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        name = b"dltensor_versioned" if self._versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(self._managed), name, None)


class OnlyDlpack:
    """Exposes only the DLPack interface of an array."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class CudaArray:
    """An array with `__cuda_array_interface__`."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (4096, False),
            "version": 3,
            **interface,
        }


class Torchlike:
    """An object with the interface of a torch tensor."""

    def __init__(self, dtype="torch.bfloat16", device="cuda", contiguous=True):
        self.dtype, self.shape, self._contiguous = dtype, (3, 4), contiguous
        self.device = type("device", (), {"type": device, "index": 2})()

    def data_ptr(self):
        return 8192

    def is_contiguous(self):
        return self._contiguous

    def element_size(self):
        return 2

    def numel(self):
        return 12


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("wrap", [lambda a: a, OnlyDlpack, memoryview], ids=["numpy", "dlpack", "buffer"])
def test_numpy_memory_is_seen_through_every_protocol(name, wrap):
    array = np.arange(24, dtype=name).reshape(2, 3, 4)
    seen = view(wrap(array), "values", writable=True)
    assert (seen.pointer, seen.elems, seen.dtype.name) == (array.ctypes.data, 24, name)
    assert (seen.device, seen.device_id, seen.shape) == ("cpu", 0, (2, 3, 4))


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("code", "bits", "name"), [(4, 16, "bfloat16"), (10, 8, "float8_e4m3"), (12, 8, "float8_e5m2"), (2, 32, "float32")]
)
def test_dlpack_types_that_numpy_lacks_are_known(code, bits, name, versioned):
    memory = np.zeros(64, np.uint8)
    seen = view(Producer(memory, code, bits, versioned=versioned, offset=8), "values")
    assert (seen.pointer, seen.dtype.name) == (memory.ctypes.data + 8, name)


def test_dlpack_on_a_gpu_has_its_device_and_receives_the_stream():
    producer = Producer(np.zeros(64, np.uint8), 4, 16, device=(2, 3))
    seen = view(producer, "values", stream=77)
    assert (seen.device, seen.device_id) == ("cuda", 3)
    view(producer, "values", stream=None)
    # In DLPack 1 is the legacy default stream.
    assert producer.streams == [77, 1]


def test_read_only_and_copied_dlpack_tensors_are_rejected_as_outputs():
    for flags in (1, 2):
        producer = Producer(np.zeros(64, np.uint8), 2, 32, flags=flags)
        view(producer, "values")
        with pytest.raises(ValueError, match="out is read-only"):
            view(producer, "out", writable=True)


@pytest.mark.parametrize(
    ("strides", "contiguous"), [((4, 1), True), (None, True), ((1, 4), False), ((8, 1), False), ((8, 2), False)]
)
def test_dlpack_strides_decide_contiguity(strides, contiguous):
    producer = Producer(np.zeros(256, np.uint8), 2, 32, shape=(4, 4), strides=strides)
    if contiguous:
        assert view(producer, "values").elems == 16
    else:
        with pytest.raises(ValueError, match=r"values is not contiguous \(shape \(4, 4\)\)"):
            view(producer, "values")


def test_unknown_versions_and_devices_of_dlpack_are_rejected():
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="DLPack version 2"):
        view(Producer(memory, 2, 32, major=2), "values")
    with pytest.raises(ValueError, match="ROCm"):
        view(Producer(memory, 2, 32, device=(10, 0)), "values")
    with pytest.raises(TypeError, match="values holds complex64, which is not a value type"):
        view(Producer(memory, 5, 64), "values")


def test_cuda_array_interface_is_read():
    seen = view(CudaArray(), "values")
    assert (seen.pointer, seen.device, seen.elems, seen.dtype.name) == (4096, "cuda", 4, "float32")
    assert view(CudaArray(typestr="<u2"), "values", dtype="bfloat16").dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="read-only"):
        view(CudaArray(data=(4096, True)), "out", writable=True)
    with pytest.raises(ValueError, match="not contiguous"):
        view(CudaArray(strides=(8,)), "values")
    with pytest.raises(TypeError, match="big-endian"):
        view(CudaArray(typestr=">f4"), "values")


def test_torch_tensors_are_recognised_without_importing_torch():
    seen = view(Torchlike(), "values")
    assert (seen.pointer, seen.device, seen.device_id, seen.elems) == (8192, "cuda", 2, 12)
    assert seen.dtype.name == "bfloat16"
    assert view(Torchlike("torch.float8_e4m3fn"), "values", dtype="bf16").dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="not contiguous"):
        view(Torchlike(contiguous=False), "values")
    with pytest.raises(ValueError, match="device 'mps'"):
        view(Torchlike(device="mps"), "values")


def test_bytes_are_uint8_unless_a_type_is_given():
    assert view(b"abcd", "values").dtype.name == "uint8"
    assert view(b"abcd", "values", dtype="bfloat16").elems == 2
    assert view(bytearray(4), "out", writable=True).writable
    with pytest.raises(ValueError, match="values has 3 bytes, not a whole number of bfloat16 values"):
        view(b"abc", "values", dtype="bfloat16")
    with pytest.raises(ValueError, match="out is read-only"):
        view(b"abcd", "out", writable=True)


@pytest.mark.parametrize(
    ("array", "options", "error", "message"),
    [
        (3, {}, TypeError, "values is of type int, not an array"),
        (np.zeros(4, np.uint16), {}, TypeError, "values holds uint16, which is not a value type"),
        (np.zeros(4, ">f4"), {}, TypeError, "values holds >f4 values, which are big-endian"),
        (np.zeros(4, ">f4"), {"dtype": "float32"}, TypeError, "values holds >f4 values, which are big-endian"),
        (np.zeros(4, object), {}, TypeError, "values holds object values, not numbers"),
        (np.zeros(4, object), {"dtype": "uint64"}, TypeError, "values holds object values, not numbers"),
        (np.zeros(8)[::2], {}, ValueError, "values is not contiguous"),
        (np.zeros(4, np.float32), {"dtype": "float64"}, TypeError, "float32 values of 4 bytes, but float64 has 8"),
        (np.zeros(4, np.float32), {"dtype": "float31"}, ValueError, "dtype of values: 'float31' is not a value type"),
    ],
)
def test_unsupported_arrays_are_rejected_with_a_reason(array, options, error, message):
    with pytest.raises(error, match=message):
        view(array, "values", **options)


def test_ml_dtypes_arrays_have_their_types():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for theirs, ours in [
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3"),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
    ]:
        assert view(np.zeros(4, theirs), "values").dtype.name == ours
    # Its float8_e4m3 has infinities, unlike ours.
    with pytest.raises(TypeError, match="not a value type"):
        view(np.zeros(4, ml_dtypes.float8_e4m3), "values")


def test_real_torch_tensors_are_accepted():
    torch = pytest.importorskip("torch")
    for theirs, ours in [
        (torch.bfloat16, "bfloat16"),
        (torch.float8_e4m3fn, "float8_e4m3"),
        (torch.float32, "float32"),
    ]:
        tensor = torch.zeros(6, dtype=theirs)
        seen = view(tensor, "values")
        assert (seen.pointer, seen.elems, seen.dtype.name) == (tensor.data_ptr(), 6, ours)
    assert view(torch.zeros(3, requires_grad=True), "values").elems == 3
