"""Modules whose parameters are encoded in host memory, and decoded for the time that forward needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from .encoded import EncodedTensors, reject_special, supported_codec, supported_device
from .releases import Releases
from .units import Released, Slot, Stored, Unit, parameters_of, surround_forward, unit_modules

# Smaller parameters stay on the device: a frame has a header, and every fetch a latency.
MIN_BYTES = 16 << 10


def offload(
    module: nn.Module,
    *,
    device: Any = None,
    units: Iterable[nn.Module] | None = None,
    codec: str = "window",
    prefetch: int = 1,
    min_bytes: int = MIN_BYTES,
    keep: Callable[[str, nn.Parameter], bool] | None = None,
    threads: int = 0,
) -> Offloaded:
    """Keeps the parameters of a module encoded in host memory; they are on the device only while they are used.

    The module is changed in place: the parameters of each unit are decoded before its forward and released after it.
    With a lossless codec the outputs are those of the frozen module (`module.requires_grad_(False)`), bit for bit. If
    gradients are disabled, these are the outputs that it had before; otherwise torch may round differently where a
    parameter requires a gradient, as in `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`.

    device: where the module runs, a CPU or a GPU; None: where its parameters are. Other parameters and all buffers are
        moved there.
    units: modules whose parameters are fetched together, such as the blocks of a transformer: a few large ones are the
        fastest. Parameters outside of them stay on the device. None: every module that has parameters of its own.
    codec: one of `narrowcast.codecs()`.
    prefetch: how many units are fetched ahead, in the order of the previous pass; this takes the memory of as many
        units. On a GPU, fetches run on a stream of their own.
    min_bytes: smaller parameters stay on the device.
    keep: called with the name of each parameter and the parameter; if it returns True, that one stays on the device.
        Tied parameters stay if one of their names does, or is outside of the units.
    threads: for encoding and decoding on the CPU; 0: the CPUs that this process may use.

    Offloaded parameters are frozen. Gradients of other parameters and of inputs are right, but until backward has run,
    the graph keeps the decoded weights; under activation checkpointing they are fetched again instead.
    `module.state_dict()` decodes into host memory. Using a parameter outside of its unit's forward raises RuntimeError;
    copying, pickling, converting or moving the module raises TypeError.

    Raises ValueError if the module is offloaded already, and TypeError if it is not a module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}, not a torch.nn.Module")
    supported_codec(codec)
    if prefetch < 0 or min_bytes < 0:
        raise ValueError(f"prefetch is {prefetch} and min_bytes is {min_bytes}: both must be at least 0")
    first = next(module.parameters(), None)
    target = supported_device(device if device is not None else "cpu" if first is None else first.device)
    released = next((name for name, one in module.named_parameters() if isinstance(one, Released)), None)
    if released is not None:
        raise ValueError(f"{released} is offloaded already: call restore() on the result of the first offload")
    return Offloaded(module, target, list(unit_modules(module, units)), codec, prefetch, min_bytes, keep, threads)


class Offloaded:
    """A module that `offload` has changed."""

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        units: list[tuple[str, nn.Module, bool]],
        codec: str,
        prefetch: int,
        min_bytes: int,
        keep: Callable[[str, nn.Parameter], bool] | None,
        threads: int,
    ) -> None:
        self.module: nn.Module = module
        self.device: torch.device = device
        self._prefetch = prefetch
        self._lock = threading.RLock()
        self._units: list[Unit] = []
        self._encoded: list[EncodedTensors] = []
        self._undo: list[Callable[[], None]] = []
        self._following: dict[Unit, Unit] = {}
        self._last: Unit | None = None
        self._fetcher: Any = _GpuFetcher(device) if device.type == "cuda" else _CpuFetcher(device)
        self._pending: dict[Unit, Any] = {}
        stored: dict[nn.Parameter, tuple[EncodedTensors, str]] = {}
        try:
            staying = self._staying(units, min_bytes, keep)
            for name, part, recurse in units:
                unit = Unit(name, part)
                uses: dict[nn.Parameter, list[tuple[str, Slot]]] = {}
                for full, slot, parameter in parameters_of(part, name, recurse):
                    if parameter not in staying:
                        uses.setdefault(parameter, []).append((full, slot))
                if not uses:
                    continue
                new = {places[0][0]: parameter for parameter, places in uses.items() if parameter not in stored}
                encoded = EncodedTensors(new, device=device, codec=codec, threads=threads)
                self._encoded.append(encoded)
                stored.update({parameter: (encoded, full) for full, parameter in new.items()})
                for parameter, places in uses.items():
                    held, full = stored[parameter]
                    placeholder = nn.Parameter(Released(parameter, full, device), requires_grad=False)
                    unit.stored.append(
                        Stored([slot for _, slot in places], held, full, placeholder, parameter.requires_grad)
                    )
                self._units.append(unit)
                # Parameters of finished units are freed, unless a later unit has them too.
                unit.release()
        except BaseException:
            self.restore()
            raise
        del stored, staying  # the parameters are freed
        for unit in self._units:
            self._hook(unit)
        self._move_the_rest()

    def _staying(
        self,
        units: list[tuple[str, nn.Module, bool]],
        min_bytes: int,
        keep: Callable[[str, nn.Parameter], bool] | None,
    ) -> set[nn.Parameter]:
        """The parameters that stay on the device. Tied ones stay if one of their uses is outside of the units."""
        used = [use for name, part, recurse in units for use in parameters_of(part, name, recurse)]
        inside = {slot for _, slot, _ in used}
        staying = {one for _, slot, one in parameters_of(self.module, "", True) if slot not in inside}
        for name, _, parameter in used:
            if parameter.nbytes < min_bytes or (keep is not None and keep(name, parameter)):
                staying.add(parameter)
        for name, _, parameter in used:
            if parameter not in staying:
                reject_special(name, parameter)
        return staying

    def _move_the_rest(self) -> None:
        for inner in self.module.modules():
            for parameter in inner._parameters.values():
                if parameter is not None and not isinstance(parameter, Released):
                    parameter.data = parameter.data.to(self.device)
            for name, buffer in inner._buffers.items():
                if buffer is not None:
                    inner._buffers[name] = buffer.to(self.device)

    def _hook(self, unit: Unit) -> None:
        def enter(*_: Any) -> None:
            self._enter(unit)

        def leave(*_: Any) -> None:
            self._leave(unit)

        def describe(_: nn.Module, found: dict[str, Any], prefix: str, __: Any) -> None:
            places = _names(unit.module, prefix)
            for stored in unit.stored:
                names = [place + slot.name for slot in stored.slots for place in places[slot.module]]
                names = [name for name in names if name in found]
                if names:
                    found.update(dict.fromkeys(names, stored.encoded.read([stored.name], device="cpu")[0]))

        def reject(*_: Any) -> None:
            raise RuntimeError(f"{unit.name or 'the module'} is offloaded: call restore() before load_state_dict()")

        self._undo += [
            *surround_forward(unit.module, enter, leave),
            unit.module._register_state_dict_hook(describe).remove,
            unit.module._register_load_state_dict_pre_hook(reject).remove,
        ]

    def _enter(self, unit: Unit) -> None:
        with self._lock:
            if unit.active == 0:
                pending = self._pending.pop(unit, None)
                unit.install(self._fetcher.finish(self._fetcher.start(unit) if pending is None else pending))
            unit.active += 1
            if self._last is not None and self._last is not unit:
                self._following[self._last] = unit
            self._last = unit
            self._fetch_ahead(unit)

    def _fetch_ahead(self, unit: Unit) -> None:
        window: list[Unit] = []
        ahead = self._following.get(unit)
        while ahead is not None and ahead is not unit and ahead not in window and len(window) < self._prefetch:
            window.append(ahead)
            ahead = self._following.get(ahead)
        for stale in [one for one in self._pending if one not in window]:
            del self._pending[stale]
        for one in window:
            if one not in self._pending and not one.active:
                self._pending[one] = self._fetcher.start(one)

    def _leave(self, unit: Unit) -> None:
        with self._lock:
            # 0 if the fetch failed: this hook runs after every error.
            unit.active = max(unit.active - 1, 0)
            if unit.active == 0:
                unit.release()
                self._fetcher.left()

    def restore(self) -> nn.Module:
        """Decodes all parameters and removes the hooks: the module is as before, on the device. Returns it.

        Raises RuntimeError while forward runs.
        """
        with self._lock:
            if any(unit.active for unit in self._units):
                raise RuntimeError("the module cannot be restored while its forward runs")
            self._pending.clear()
            made: dict[tuple[int, str], nn.Parameter] = {}
            for unit in self._units:
                for stored, tensor in zip(unit.stored, unit.read(self.device), strict=True):
                    # Units that share a parameter share it again.
                    key = (id(stored.encoded), stored.name)
                    parameter = made.setdefault(key, nn.Parameter(tensor, requires_grad=stored.requires_grad))
                    for slot in stored.slots:
                        slot.write(parameter)
            for undo in self._undo:
                undo()
            self._units, self._encoded, self._undo, self._following = [], [], [], {}
            self._fetcher.close()
        return self.module

    def check(self) -> None:
        """Waits for fetches on a GPU and raises CorruptError if encoded parameters have been damaged."""
        for one in self._encoded:
            one.check()

    @property
    def raw_bytes(self) -> int:
        """Bytes of the offloaded parameters."""
        return sum(one.raw_bytes for one in self._encoded)

    @property
    def wire_bytes(self) -> int:
        """Bytes that they take in host memory."""
        return sum(one.wire_bytes for one in self._encoded)

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None if nothing is offloaded."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an offloaded module cannot be copied or pickled: call restore() before")

    def __repr__(self) -> str:
        return f"Offloaded({len(self._units)} units, {self.wire_bytes} of {self.raw_bytes} bytes, {self.device})"


def _names(module: nn.Module, prefix: str) -> dict[nn.Module, list[str]]:
    """The modules inside of `module`, and how the names of their parameters begin in its state dict: a module that
    occurs twice has both names."""
    names: dict[nn.Module, list[str]] = {}
    for name, inner in module.named_modules(remove_duplicate=False):
        names.setdefault(inner, []).append(f"{prefix}{name}." if name else prefix)
    return names


class _CpuFetcher:
    """Decodes on a thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="narrowcast-offload")

    def start(self, unit: Unit) -> Future[list[torch.Tensor]]:
        return self._thread.submit(unit.read, self._device)

    def finish(self, pending: Future[list[torch.Tensor]]) -> list[torch.Tensor]:
        return pending.result()

    def left(self) -> None:
        pass

    def close(self) -> None:
        self._thread.shutdown()


class _GpuFetcher:
    """Copies and decodes on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._releases = Releases()

    def left(self) -> None:
        """To be called when the forward of a unit was enqueued."""
        self._releases.add(self._device)

    def start(self, unit: Unit) -> tuple[list[torch.Tensor], Any]:
        self._releases.wait()
        with torch.cuda.stream(self._stream):
            tensors = unit.read(self._device)
            done = torch.cuda.Event()
            done.record(self._stream)
        return tensors, done

    def finish(self, pending: tuple[list[torch.Tensor], Any]) -> list[torch.Tensor]:
        tensors, done = pending
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(done)
        for tensor in tensors:
            # They were allocated on the other stream: their memory is not reused before this stream is done with it.
            tensor.record_stream(stream)
        return tensors

    def close(self) -> None:
        self._stream.synchronize()
