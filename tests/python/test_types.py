"""What describes a value type, in arguments of all functions."""

from __future__ import annotations

import types

import narrowcast
import numpy as np
import pytest
from narrowcast.types import VALUE_TYPES, value_type

ml_dtypes = pytest.importorskip("ml_dtypes")
BITS = np.arange(32, dtype=np.uint16)


class TorchType:
    """Like `torch.dtype`, which is not imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


TorchType.__module__, TorchType.__name__ = "torch", "dtype"


class JaxType:
    """Like `jax.numpy.bfloat16`."""

    dtype = np.dtype(ml_dtypes.bfloat16)

    def __repr__(self) -> str:
        return "bfloat16"


@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        "BF16",
        "torch.bfloat16",
        TorchType("bfloat16"),
        np.dtype(ml_dtypes.bfloat16),
        ml_dtypes.bfloat16,
        JaxType(),
        value_type("bfloat16"),
    ],
    ids=lambda dtype: f"{type(dtype).__name__}-{dtype}",
)
def test_every_framework_may_describe_the_type(dtype):
    assert value_type(dtype).name == "bfloat16"
    frame = narrowcast.encode(BITS, dtype=dtype)
    assert narrowcast.inspect(frame).dtype == "bfloat16"
    assert narrowcast.bound(dtype, 32) == narrowcast.bound("bfloat16", 32)
    assert narrowcast.codec.error_bound("window", dtype, 1.0) == 0
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as comm:
        values = BITS.copy()
        comm.all_reduce(values, dtype=dtype)
        assert np.array_equal(values, BITS)


@pytest.mark.parametrize("kind", VALUE_TYPES, ids=lambda kind: kind.name)
def test_numpy_and_ml_dtypes_describe_every_type_that_they_have(kind):
    theirs = {"float8_e4m3": "float8_e4m3fn"}.get(kind.name, kind.name)
    scalar = getattr(np, theirs, None) or getattr(ml_dtypes, theirs)
    assert value_type(scalar) is value_type(np.dtype(scalar)) is kind


def test_torch_describes_every_type():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for kind in VALUE_TYPES:
        theirs = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(kind.name, kind.name))
        assert value_type(theirs) is kind


@pytest.mark.parametrize(
    "dtype",
    [np.complex64, np.dtype(">f4"), ml_dtypes.float8_e4m3, ml_dtypes.int4, TorchType("complex64"), "float"[::-1]],
)
def test_types_that_the_library_does_not_have_are_rejected(dtype):
    with pytest.raises(ValueError, match=r"is not a value type|byte order"):
        value_type(dtype)


@pytest.mark.parametrize("dtype", [float, 16, ["float32"], np.zeros(3), types, None])
def test_objects_that_describe_no_type_are_rejected(dtype):
    with pytest.raises(TypeError, match="is not a value type"):
        value_type(dtype)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: narrowcast.bound("float32", 1.0), r"elems is 1\.0"),
        (lambda: narrowcast.bound("float32", "8"), "elems is '8'"),
        (lambda: narrowcast.cuda.workspace_bytes("float32", 1.5), r"elems is 1\.5"),
        (lambda: narrowcast.cuda.slot_count("float32", None), "elems is None"),
        (lambda: narrowcast.explain("all_reduce", 1e6, dtype="float32", ranks=2), r"count is 1000000\.0"),
        (lambda: narrowcast.explain("all_reduce", 1, dtype="float32", ranks=2.0), r"ranks is 2\.0"),
        (lambda: narrowcast.LocalRanks("2"), "ranks is '2'"),
        (lambda: narrowcast.LocalRanks(1, scratch_bytes=1e6), r"scratch_bytes is 1000000\.0"),
        (lambda: narrowcast.LocalRanks(1, timeout_seconds="9"), "timeout_seconds is '9'"),
        (lambda: narrowcast.LocalRanks(1, timeout_seconds=[9]), r"timeout_seconds is \[9\]"),
    ],
)
def test_an_argument_that_is_not_a_number_is_named(call, name):
    with pytest.raises(TypeError, match=f"{name}, not an? "):
        call()


@pytest.mark.parametrize(
    ("counts", "offsets", "name"),
    [([4.0], None, r"send_counts\[0\] is 4\.0"), ([4], ["0"], r"send_offsets\[0\] is '0'")],
)
def test_a_count_or_offset_that_is_not_an_integer_is_named(counts, offsets, name):
    with (
        narrowcast.LocalRanks(1) as (comm,),
        pytest.raises(TypeError, match=f"{name}, not an integer"),
    ):
        comm.all_to_all_v(np.zeros(4), np.zeros(4), counts, [4], send_offsets=offsets)
