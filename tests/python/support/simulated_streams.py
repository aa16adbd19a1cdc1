"""CUDA streams for tests without a GPU: their work is enqueued, and runs as early or as late as events allow.

Memory of the GPU is host memory. `simulate` replaces the functions of torch and of the library that the modules of
`narrowcast._torch` call.
"""

from __future__ import annotations

import contextlib
import ctypes
import types

import narrowcast
import numpy as np
import torch
from narrowcast._native import cuda_driver
from narrowcast._torch import encoded, frame_reader, gpu_batches, kv_blocks
from narrowcast.types import BY_NUMBER


class Streams:
    """All streams of a test."""

    def __init__(self):
        self.all = []
        self.main = self.current = Stream(self)
        self.kept = []  #: memory that enqueued work uses
        self.main_is_late = False  #: whether it goes on only when the others wait for it, instead of before them

    def run(self, until=lambda: False):
        """Runs everything, or less if something has happened. Raises if streams wait for each other."""
        others = [one for one in self.all if one is not self.main]
        while any(one.work for one in self.all) and not until():
            if self.main_is_late:
                while sum(one.run() for one in others):
                    pass
                ran = until() or self.main.step() or not any(one.work for one in self.all)
            else:
                ran = any([self.main.run(), *(one.step() for one in others)])
            assert ran, "the streams wait for each other"


class Stream:
    """A queue of work."""

    def __init__(self, streams):
        self.cuda_stream, self.device_index = self, 0  # the handle, for calls of the library
        self.streams = streams
        self.work = []
        streams.all.append(self)

    def enqueue(self, work):
        self.work.append((work, None))

    def wait_event(self, event):
        self.work.append((None, event.recorded))  # later records do not count

    def wait_stream(self, other):
        self.wait_event(Event(self.streams).record(other))

    def record_event(self, event):
        event.record(self)

    def synchronize(self):
        self.streams.run(until=lambda: not self.work)

    def step(self):
        """Runs the next work, if it can run."""
        if not self.work:
            return False
        work, awaited = self.work[0]
        if awaited is not None and not awaited["done"]:
            return False
        self.work.pop(0)
        if work is not None:
            work()
        return True

    def run(self):
        """Runs all work that can run."""
        ran = False
        while self.step():
            ran = True
        return ran


class Event:
    """A mark in the work of a stream."""

    def __init__(self, streams):
        self.streams = streams
        self.recorded = None

    def record(self, stream=None):
        mark = self.recorded = {"done": False}
        (stream or self.streams.current).enqueue(lambda: mark.update(done=True))
        return self

    def synchronize(self):
        if self.recorded:
            self.streams.run(until=self.query)

    def query(self):
        return self.recorded is None or self.recorded["done"]

    def elapsed_time(self, end):
        return 0.0


def _copy(pointer, host, count_bytes, stream):
    # The driver has copied pageable memory when its call returns. Page-locked memory does not change meanwhile.
    content = ctypes.string_at(host, count_bytes)
    stream.enqueue(lambda: ctypes.memmove(pointer, content, count_bytes))


def _copy_back(host, pointer, count_bytes, stream):
    stream.enqueue(lambda: ctypes.memmove(host, pointer, count_bytes))


def _decode(frame, frame_bytes, dtype, codec, elems, out, status, options, stream):
    def run():
        values = np.ctypeslib.as_array((ctypes.c_uint8 * (elems * BY_NUMBER[dtype].bytes)).from_address(out))
        content = np.ctypeslib.as_array((ctypes.c_uint8 * frame_bytes).from_address(frame))
        values[:] = narrowcast.decode(content).view(np.uint8).reshape(-1)

    stream.enqueue(run)
    return 0


def _decode_batch(
    count, frames, frame_bytes, codec, outs, capacities, value_bytes, statuses, workspace, size, options, stream
):
    def column(pointer):
        return list((ctypes.c_uint64 * count).from_address(pointer))

    def run():
        rows = zip(column(frames), column(frame_bytes), column(outs), column(capacities), strict=True)
        found = (ctypes.c_uint64 * count).from_address(value_bytes)
        for number, (frame, size, out, capacity) in enumerate(rows):
            values = np.ctypeslib.as_array((ctypes.c_uint8 * capacity).from_address(out))
            content = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(frame))
            try:
                decoded = narrowcast.decode(content).view(np.uint8).reshape(-1)
            except narrowcast.CorruptError:
                decoded = values[:0]
            values[: len(decoded)] = decoded
            found[number] = len(decoded)

    stream.enqueue(run)
    return 0


def _scatter_pages(row_count, rows, numbers, page_count, pages, strides, offsets, options, stream):
    def column(pointer, count):
        return list((ctypes.c_uint64 * count).from_address(pointer))

    def run():
        places = list(zip(column(pages, page_count), column(strides, page_count), strict=True))
        ends = column(offsets, page_count + 1)
        for row, number in enumerate(column(numbers, row_count)):
            for page, (place, stride) in enumerate(places):
                begin = rows + row * ends[-1] + ends[page]
                ctypes.memmove(place + number * stride, begin, ends[page + 1] - ends[page])

    stream.enqueue(run)
    return 0


def _encode_batch(
    count, arrays, kinds, elems, codec, flags, frames, capacities, sizes, statuses, workspace, size, options, stream
):
    rows = list(
        zip(*((ctypes.c_uint64 * count).from_address(one) for one in (arrays, elems, frames, capacities)), strict=True)
    )
    types_of = list((ctypes.c_int32 * count).from_address(kinds))

    def run():
        found = (ctypes.c_uint64 * count).from_address(sizes)
        for number, ((array, length, frame, capacity), kind) in enumerate(zip(rows, types_of, strict=True)):
            dtype = BY_NUMBER[kind]
            values = np.ctypeslib.as_array((ctypes.c_uint8 * (length * dtype.bytes)).from_address(array))
            encoded = narrowcast.encode(values, dtype=dtype.name)
            assert encoded.size <= capacity
            ctypes.memmove(frame, encoded.view().ctypes.data, encoded.size)
            found[number] = encoded.size

    stream.enqueue(run)
    return 0


def simulate(monkeypatch):
    """Replaces streams, copies and decoding until the test ends. Returns the streams."""
    streams = Streams()

    @contextlib.contextmanager
    def stream_guard(stream):
        before, streams.current = streams.current, stream
        yield
        streams.current = before

    monkeypatch.setattr(torch.cuda, "Stream", lambda *_: Stream(streams))
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event(streams))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: streams.current)
    monkeypatch.setattr(torch.cuda, "stream", stream_guard)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: streams.run())
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cuda_driver, "on_device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(cuda_driver, "copy_from_host", _copy)
    monkeypatch.setattr(cuda_driver, "copy_to_host_later", _copy_back)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: streams.kept.append(tensor))

    def kept(create):
        # On a GPU, memory that is freed is not used again before the stream has run what was enqueued.
        def create_and_keep(*arguments, **options):
            streams.kept.append(create(*arguments, **options))
            return streams.kept[-1]

        return create_and_keep

    for name in ("zeros_like", "full_like"):
        monkeypatch.setattr(torch, name, kept(getattr(torch, name)))
    functions = types.SimpleNamespace(
        ncast_cuda_decode=_decode,
        ncast_cuda_decode_batch=_decode_batch,
        ncast_cuda_encode_batch=_encode_batch,
        ncast_cuda_scatter_pages=_scatter_pages,
        ncast_cuda_encode_batch_workspace_bytes=lambda count, raw_bytes, codec: 16 * count,
        ncast_cuda_decode_batch_workspace_bytes=lambda count: 16 * count,
    )
    for module in (frame_reader, gpu_batches, kv_blocks):
        monkeypatch.setattr(module, "library", lambda: functions)
    return streams


def simulate_encoded_tensors(monkeypatch):
    """As `simulate`, for tensors that are encoded in host memory: all of them are read as on a GPU, in many pieces."""
    streams, cpu = simulate(monkeypatch), torch.device("cpu")
    on_gpu = encoded.EncodedTensors._decode_on_gpu
    reader = frame_reader.FrameReader(cpu)

    # On the GPU the status word is there, too.
    def decode(self, entries, outs, device, given):
        on_gpu(self, entries, outs, cpu, given or reader)

    monkeypatch.setattr(encoded.EncodedTensors, "_decode", decode)
    monkeypatch.setattr(encoded, "supported_device", lambda device: cpu)
    monkeypatch.setattr(frame_reader, "_PIECE_BYTES", 20_000)
    return streams
