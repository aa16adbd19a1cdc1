"""Decoding restores all bits, and invalid frames are errors."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle

import ml_dtypes
import narrowcast
import narrowcast.files
import numpy as np
import pytest
from codec_names import EXACT
from hypothesis import given
from hypothesis import strategies as st
from narrowcast.types import VALUE_TYPES, value_type
from sample_values import normal

FLOATS = [kind for kind in VALUE_TYPES if kind.is_float]


@given(
    kind=st.sampled_from(VALUE_TYPES),
    elems=st.one_of(st.integers(0, 70), st.integers(0, 9000)),
    codec=st.sampled_from(EXACT),
    checksum=st.booleans(),
    more=st.booleans(),
    spread=st.sampled_from(["normal", "random", "constant"]),
    seed=st.integers(0, 1000),
)
def test_both_implementations_round_trip(kind, elems, codec, checksum, more, spread, seed):
    if spread == "normal":
        bits = normal(kind.name, elems, seed)
    else:
        step = 0 if spread == "constant" else 1
        bits = np.random.default_rng(seed * step).integers(0, 256, elems * kind.bytes, np.uint8).view(kind.numpy)
    options = {"codec": codec, "dtype": kind.name, "checksum": checksum, "more": more}
    frame = narrowcast.encode(bits, **options)
    assert np.array_equal(frame, narrowcast.encode(bits, reference=True, **options))
    assert frame.size <= narrowcast.bound(kind.name, elems, codec=codec)
    info = narrowcast.inspect(frame)
    assert (info.elems, info.raw_bytes, info.wire_bytes) == (elems, bits.nbytes, frame.size)
    assert (info.dtype, info.more, info.checksum is not None) == (kind.name, more, checksum)
    for reference in (False, True):
        back = narrowcast.decode(frame, reference=reference)
        assert back.dtype == kind.numpy
        assert back.tobytes() == bits.tobytes()


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_window_shrinks_values_that_cluster(kind):
    frame = narrowcast.encode(normal(kind.name, 1 << 16), dtype=kind.name)
    info, stats = narrowcast.inspect(frame), narrowcast.inspect_blocks(frame)
    assert info.codec == "window"
    assert info.ratio < 1
    assert sum(stats.blocks_of_width.values()) == info.blocks
    assert 0 <= stats.far_escapes <= stats.escapes < info.elems


def test_integers_and_random_bits_cost_little_more_than_raw():
    for dtype, codec in (("int32", "raw"), ("bfloat16", "window")):
        bits = np.random.default_rng(0).integers(0, 256, 1 << 18, np.uint8)
        info = narrowcast.inspect(narrowcast.encode(bits, dtype=dtype))
        assert info.codec == codec
        assert info.ratio < 1.005


@pytest.mark.parametrize("shift", range(5))
def test_every_alignment_of_input_and_output_works(shift):
    bits = normal("bfloat16", 5000).view(np.uint8)
    values = np.empty(bits.size + shift, np.uint8)[shift:]
    values[:] = bits
    room = np.empty(narrowcast.bound("bfloat16", 5000) + shift, np.uint8)[shift:]
    frame = narrowcast.encode(values, dtype="bfloat16", out=room)
    assert frame.ctypes.data == room.ctypes.data
    out = np.full(bits.size + shift, 0xA5, np.uint8)[shift:]
    assert narrowcast.decode(frame, out=out) is out
    assert np.array_equal(out, bits)


@pytest.mark.parametrize("shift", [-64, -1, 0, 1, 1999])
def test_out_that_overlaps_the_input_is_rejected(shift):
    memory = np.zeros(1 << 14, np.uint8)
    memory[4096 : 4096 + 2000] = normal("bfloat16", 1000).view(np.uint8)
    before = memory.copy()
    values = memory[4096 : 4096 + 2000]
    out = memory[4096 + shift :] if shift >= 0 else memory[4096 + shift : 4097]
    with pytest.raises(ValueError, match="overlap in memory"):
        narrowcast.encode(values, dtype="bfloat16", out=out)
    assert np.array_equal(memory, before)
    # Adjacent arrays do not overlap.
    narrowcast.encode(values, dtype="bfloat16", out=memory[4096 + 2000 :])
    assert narrowcast.decode(memory[4096 + 2000 :]).tobytes() == values.tobytes()


@pytest.mark.parametrize("shift", [-1999, -1, 0, 1, 64])
def test_out_that_overlaps_the_frame_is_rejected(shift):
    frame = narrowcast.encode(normal("bfloat16", 1000), dtype="bfloat16")
    memory = np.zeros(1 << 14, np.uint8)
    memory[4096 : 4096 + frame.size] = frame
    before = memory.copy()
    found = memory[4096 : 4096 + frame.size]
    with pytest.raises(ValueError, match="overlap in memory"):
        narrowcast.decode(found, out=memory[4096 + shift :][:2000])
    assert np.array_equal(memory, before)


def test_out_accepts_arrays_of_the_type_of_bytes_and_of_bits():
    frame = narrowcast.encode(normal("bfloat16", 100), dtype="bfloat16")
    for out in (np.empty(100, np.uint16), np.empty(200, np.uint8), bytearray(200), np.empty((10, 10), np.int16)):
        narrowcast.decode(frame, out=out)
    with pytest.raises(TypeError, match="out holds float16 values, not bfloat16"):
        narrowcast.decode(frame, out=np.empty(100, np.float16))
    with pytest.raises(ValueError, match="out holds 99 bfloat16 values, but frame has 100"):
        narrowcast.decode(frame, out=np.empty(99, np.uint16))
    with pytest.raises(ValueError, match="out is read-only"):
        narrowcast.decode(frame, out=bytes(200))


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_out_accepts_unsigned_integers_of_the_same_width(kind):
    bits = normal(kind.name, 72)
    out = np.empty(72, f"u{kind.bytes}")
    narrowcast.decode(narrowcast.encode(bits, dtype=kind.name), out=out)
    assert out.tobytes() == bits.tobytes()
    other = np.empty(72, f"u{kind.bytes * 2 if kind.bytes < 8 else 4}")
    with pytest.raises(TypeError):
        narrowcast.decode(narrowcast.encode(bits, dtype=kind.name), out=other)


def test_a_frame_that_does_not_fit_out_is_an_error():
    with pytest.raises(narrowcast.TooSmallError) as caught:
        narrowcast.encode(normal("bfloat16", 1000), dtype="bfloat16", out=bytearray(100))
    assert caught.value.status == narrowcast.Status.TOO_SMALL


def test_bytes_after_the_last_frame_are_allowed():
    frame = narrowcast.encode(normal("float32", 10))
    assert narrowcast.decode(np.concatenate([frame, frame])).size == 10


def test_the_first_frame_of_several_is_not_decoded_alone(tmp_path):
    values = normal("float32", 10)
    first, second = (narrowcast.encode(values, more=more) for more in (True, False))
    whole = np.concatenate([first, second])
    with pytest.raises(ValueError, match=r"more frames follow: use narrowcast\.files\.decode_file"):
        narrowcast.decode(whole)
    with pytest.raises(ValueError, match=r"frames\[1\] has .* more frames follow"):
        narrowcast.decode_batch([second, whole])
    assert narrowcast.decode(whole[: first.size]).tobytes() == values.tobytes()
    narrowcast.files.save_file({"a": normal("float32", 100_000)}, tmp_path / "file")
    with pytest.raises(ValueError, match=r"narrowcast\.files"):
        narrowcast.decode((tmp_path / "file").read_bytes())


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (bool, "uint8"),
        ("i2", "uint8"),
        ("u2", "uint8"),
        (ml_dtypes.float8_e8m0fnu, "uint8"),
        (ml_dtypes.float8_e4m3fnuz, "uint8"),
        ("c8", "float32"),
        ("c16", "float64"),
    ],
)
def test_types_without_a_codec_are_stored_as_in_files(tmp_path, dtype, stored):
    values = np.arange(30_000).reshape(3, 10_000).astype(dtype)
    frame = narrowcast.encode(values)
    info = narrowcast.inspect(frame)
    assert (info.dtype, info.raw_bytes) == (stored, values.nbytes)
    np.save(tmp_path / "a.npy", values)
    narrowcast.files.encode_file(tmp_path / "a.npy", tmp_path / "a")
    assert [one.info.dtype for one in narrowcast.files.frames_of(tmp_path / "a")][-1] == stored
    assert frame.size <= narrowcast.bound(values.dtype, values.size)
    out = np.empty_like(values)
    (batched,) = narrowcast.encode_batch([values])
    assert np.array_equal(frame, batched)
    for back in (
        narrowcast.decode(frame),
        narrowcast.decode(frame.tobytes(), shape=(3, 10_000), dtype=values.dtype),
        narrowcast.decode(frame, out=out),
        *narrowcast.decode_batch([frame]),
    ):
        assert (back.shape, back.dtype, back.tobytes()) == (values.shape, values.dtype, values.tobytes())
    assert narrowcast.decode(frame.tobytes()).dtype == stored
    named = narrowcast.encode(values.tobytes(), dtype=values.dtype)
    assert (named.tobytes(), named.values_shape) == (frame.tobytes(), (30_000,))


def test_a_frame_of_bytes_becomes_whole_values_only():
    odd = narrowcast.encode(b"123")
    with pytest.raises(ValueError, match="dtype is int16, but the frame has 3 bytes"):
        narrowcast.decode(odd, dtype=np.int16)
    with pytest.raises(ValueError, match=r"shape is \(3,\), but the frame has 2 values"):
        narrowcast.decode(narrowcast.encode(b"1234"), dtype=np.int16, shape=(3,))
    with pytest.raises(TypeError, match="dtype is float32, but the frame has uint8 values"):
        narrowcast.decode(narrowcast.encode(b"1234"), dtype=np.float32)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["<f4", "<i8", "<u2", "bfloat16", "float8_e5m2"])
def test_decoding_keeps_the_shape_and_the_type(shape, dtype):
    kind = getattr(ml_dtypes, dtype, dtype)
    values = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    given = {"dtype": "bfloat16"} if dtype == "<u2" else {}
    frame = narrowcast.encode(values, **given)
    for one in (frame, frame.copy(), pickle.loads(pickle.dumps(frame)), copy.deepcopy(frame)):
        back = narrowcast.decode(one)
        assert (back.shape, back.dtype) == (shape, values.dtype)
        assert back.tobytes() == values.tobytes()
    bits = narrowcast.decode(frame.tobytes())
    assert (bits.ndim, bits.dtype) == (1, value_type(narrowcast.inspect(frame).dtype).numpy)
    back = narrowcast.decode(frame.tobytes(), shape=shape, dtype=kind)
    assert (back.shape, back.dtype) == (shape, values.dtype)
    assert back.tobytes() == values.tobytes()


def test_a_frame_in_out_keeps_the_shape_too():
    values = np.ones((3, 5), np.float32)
    assert narrowcast.decode(narrowcast.encode(values, out=bytearray(1000))).shape == (3, 5)


def test_a_part_of_a_frame_or_changed_content_has_no_shape():
    frame = narrowcast.encode(np.ones((2, 2), np.float32))
    assert frame[:-1].values_shape is None
    frame[:] = np.frombuffer(narrowcast.encode(np.ones(3)), np.uint8)[: frame.size]
    with pytest.raises(narrowcast.CorruptError):
        narrowcast.decode(frame)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"shape": (3, 2)}, ValueError, r"shape is \(3, 2\), but the frame has 4 values"),
        ({"shape": (-2, -2)}, ValueError, "shape is -2: it must not be negative"),
        ({"shape": (2.0, 2)}, TypeError, r"shape is 2\.0, not an integer"),
        ({"dtype": "f8"}, TypeError, "dtype is float64, but the frame has float32 values of 4 bytes"),
        ({"out": np.empty(4, np.float32), "shape": (4,)}, TypeError, "out has a shape and a type already"),
    ],
)
def test_a_form_that_does_not_fit_the_frame_is_rejected(options, error, words):
    with pytest.raises(error, match=words):
        narrowcast.decode(narrowcast.encode(np.ones(4, np.float32)), **options)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_batch_has_the_frames_and_values_of_single_calls(threads):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(i, 50)).astype(kind) for i in range(9) for kind in ("f4", "f8", ml_dtypes.bfloat16)]
    frames = narrowcast.encode_batch(arrays, threads=threads)
    for array, frame, back in zip(arrays, frames, narrowcast.decode_batch(frames, threads=threads), strict=True):
        assert np.array_equal(frame, narrowcast.encode(array))
        assert (back.shape, back.dtype, back.tobytes()) == (array.shape, array.dtype, array.tobytes())
    outs = [np.empty_like(array) for array in arrays]
    results = narrowcast.decode_batch([frame.tobytes() for frame in frames], outs=outs, threads=threads)
    assert all(one is out for one, out in zip(results, outs, strict=True))
    assert all(out.tobytes() == array.tobytes() for out, array in zip(outs, arrays, strict=True))
    assert narrowcast.encode_batch([]) == narrowcast.decode_batch([]) == []


def test_errors_of_a_batch_name_the_array():
    arrays = [np.ones(1000, np.float32) for _ in range(4)]
    with pytest.raises(TypeError, match=r"arrays\[2\] is of type str, not an array"):
        narrowcast.encode_batch([*arrays[:2], "text"])
    with pytest.raises(TypeError, match=r"threads is 1\.5, not an integer"):
        narrowcast.encode_batch(arrays, threads=1.5)
    frames = narrowcast.encode_batch(arrays)
    with pytest.raises(ValueError, match="outs has 1 arrays for 4 frames"):
        narrowcast.decode_batch(frames, outs=arrays[:1])
    with pytest.raises(ValueError, match=r"outs\[3\] holds 2 float32 values, but frames\[3\] has 1000"):
        narrowcast.decode_batch(frames, outs=[*arrays[:3], np.zeros(2, np.float32)])
    frames[1][200] ^= 1
    with pytest.raises(narrowcast.CorruptError, match=r"frame 1: .*checksum"):
        narrowcast.decode_batch(frames)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda frame: frame[:-1], "frame 2: .*bytes"),
        (lambda frame: frame[:10], "frame 2: .*"),
        (lambda frame: frame[:0], "frame 2: .*"),
        (lambda frame: np.zeros(100, np.uint8), "frame 2: .*magic"),
        (lambda frame: np.concatenate([frame[:-1], frame[-1:] ^ 1]), "frame 2: .*checksum"),
    ],
)
def test_a_batch_names_an_invalid_frame_and_decodes_the_valid_ones(damage, why):
    arrays = [np.full(1000 + i, i, np.float32) for i in range(5)]
    frames = [np.asarray(frame) for frame in narrowcast.encode_batch(arrays)]
    frames[2] = damage(frames[2])
    outs = [np.full_like(array, -1) for array in arrays]
    with pytest.raises(narrowcast.CorruptError, match=why):
        narrowcast.decode_batch(frames, outs=outs)
    for i in (0, 1, 3, 4):
        assert np.array_equal(outs[i], arrays[i])
    with pytest.raises(narrowcast.CorruptError, match=why):
        narrowcast.decode_batch(frames)


def test_arrays_of_a_batch_that_overlap_are_rejected():
    frames = narrowcast.encode_batch([np.ones(100, np.float32)] * 2)
    memory = np.full(250, 7, np.float32)
    with pytest.raises(ValueError, match=r"outs\[0\] and outs\[1\] overlap in memory"):
        narrowcast.decode_batch(frames, outs=[memory[:100], memory[99:199]])
    both = np.zeros(4096, np.uint8)
    both[: frames[1].size] = frames[1]
    with pytest.raises(ValueError, match=r"outs\[0\] and frames\[1\] overlap in memory"):
        narrowcast.decode_batch([frames[0], both[: frames[1].size]], outs=[both[:400].view(np.float32), memory[:100]])
    assert np.all(memory == 7)
    narrowcast.decode_batch([frames[0]] * 2, outs=[memory[:100], memory[100:200]])
    assert np.all(memory[:200] == 1)


def test_a_batch_may_be_a_generator():
    arrays = [np.arange(i, dtype=np.float32) for i in range(4)]
    frames = narrowcast.encode_batch(array for array in arrays)
    for results in (
        narrowcast.decode_batch(frame for frame in frames),
        narrowcast.decode_batch(iter(frames), outs=(np.empty_like(array) for array in arrays)),
    ):
        assert all(np.array_equal(back, array) for back, array in zip(results, arrays, strict=True))


def test_frames_have_a_checksum_by_default():
    frame = narrowcast.encode(np.ones(1000, np.float32))
    assert narrowcast.inspect(frame).checksum is not None
    frame[-1] ^= 1
    with pytest.raises(narrowcast.CorruptError, match="checksum"):
        narrowcast.decode(frame)
    assert narrowcast.inspect(narrowcast.encode(np.ones(9), checksum=False)).checksum is None


@given(data=st.binary(max_size=300), keep=st.integers(0, 64), at=st.integers(0, 4000), flip=st.integers(1, 255))
def test_without_a_checksum_hostile_frames_give_values_or_an_error(data, keep, at, flip):
    frame = narrowcast.encode(normal("bfloat16", 3000), dtype="bfloat16", checksum=False)
    flipped = frame.copy()
    flipped[at % frame.size] ^= flip
    for hostile in (np.frombuffer(frame[:keep].tobytes() + data, np.uint8), flipped):
        for call in (narrowcast.inspect, narrowcast.inspect_blocks, narrowcast.decode):
            # A header may claim more values than this machine can hold.
            with contextlib.suppress(narrowcast.CorruptError, MemoryError):
                call(hostile)


def test_bounds_beyond_the_limit_of_a_frame_are_errors():
    assert narrowcast.bound("bfloat16", 0) >= 64
    for elems in (-1, 1 << 35, 1 << 64, 1 << 70):
        with pytest.raises(ValueError, match=f"elems is {elems}"):
            narrowcast.bound("bfloat16", elems)
    with pytest.raises(ValueError, match="'bfloat17' is not a value type"):
        narrowcast.bound("bfloat17", 1)
    with pytest.raises(ValueError, match="'zip' is not a codec"):
        narrowcast.encode(b"", codec="zip")


def test_gpu_arrays_are_rejected_with_a_hint_at_the_cuda_module():
    class OnGpu:
        def __init__(self):
            self.__cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(ValueError, match=r"values is in GPU memory: use narrowcast\.cuda"):
        narrowcast.encode(OnGpu())
    with pytest.raises(ValueError, match="values is in host memory"):
        narrowcast.cuda.encode(np.zeros(4, np.float32), out=OnGpu())
