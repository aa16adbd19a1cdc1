"""The NVML functions for links between GPUs, through ctypes. libnvidia-ml.so.1 is part of the driver."""

from __future__ import annotations

from ctypes import CDLL, byref, c_int, c_uint, c_void_p, create_string_buffer

_MAX_NVLINKS = 18
_P2P_BY_NVLINK, _P2P_OK = 2, 0
_ANCESTORS = {
    0: "the board",
    10: "a PCIe switch",
    20: "PCIe switches",
    30: "a PCIe host bridge",
    40: "the NUMA node",
    50: "the system, across NUMA nodes",
}


def load() -> Nvml | None:
    """Loads and initialises NVML. None if that fails."""
    try:
        library = CDLL("libnvidia-ml.so.1")
        return Nvml(library) if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


class Nvml:
    """The initialised library. Functions return None if the GPU or this version of NVML does not support them."""

    def __init__(self, library: CDLL) -> None:
        self._library = library

    def driver_version(self) -> str | None:
        text = create_string_buffer(96)
        return text.value.decode() if self._call("nvmlSystemGetDriverVersion", text, len(text)) else None

    def device(self, bus: str) -> c_void_p | None:
        """The device with a PCI address. NVML also counts devices that CUDA does not see."""
        handle = c_void_p()
        return handle if self._call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), byref(handle)) else None

    def active_nvlinks(self, device: c_void_p | None) -> int | None:
        states = []
        for link in range(_MAX_NVLINKS):
            active = c_int()
            if self._call("nvmlDeviceGetNvLinkState", device, c_uint(link), byref(active)):
                states.append(active.value)
        return sum(states) if states else None

    def linked_by_nvlink(self, one: c_void_p | None, other: c_void_p | None) -> bool | None:
        """Whether two devices are connected by NVLink, directly or through switches."""
        status = c_int()
        if not self._call("nvmlDeviceGetP2PStatus", one, other, c_int(_P2P_BY_NVLINK), byref(status)):
            return None
        return status.value == _P2P_OK

    def common_ancestor(self, one: c_void_p | None, other: c_void_p | None) -> str | None:
        """The closest common ancestor of two devices on PCIe."""
        level = c_int()
        if not self._call("nvmlDeviceGetTopologyCommonAncestor", one, other, byref(level)):
            return None
        return _ANCESTORS.get(level.value)

    def _call(self, name: str, *arguments: object) -> bool:
        function = getattr(self._library, name, None)
        return function is not None and None not in arguments and function(*arguments) == 0
