"""The GPUs and their links, from the driver and NVML. Creates no context and allocates no memory."""

from __future__ import annotations

import itertools
from ctypes import byref, c_int, c_size_t, create_string_buffer

from .._comm.explain import explain
from .._native import cuda_driver, library
from .._native.nvml import load as load_nvml
from ..errors import NarrowcastError, UnsupportedError
from .report import Section

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_MIN_CAPABILITY = 8
_EXPECTED_BYTES = 64 << 20
# Error of cuInit -> remedy.
_REMEDIES = {
    "100": "CUDA sees no GPU: check CUDA_VISIBLE_DEVICES, and that the container was started with --gpus all.",
    "802": "The NVLink fabric is not up: start the nvidia-fabricmanager of the driver's version.",
    "803": "The driver and its libraries have different versions: reboot after the update, or update the container.",
    "999": "Look for Xid errors in dmesg.",
}
_NO_DRIVER = "Install NVIDIA's driver, or run on a machine with GPUs (containers need --gpus all)."


def examine() -> list[Section]:
    """The sections of the GPUs and of the links between them."""
    gpus, links = Section("gpus", "GPUs"), Section("links", "Links between GPUs")
    try:
        cuda_driver.driver()
    except UnsupportedError as error:
        remedy = next((text for status, text in _REMEDIES.items() if str(error).endswith(f" {status}")), _NO_DRIVER)
        gpus.problem(str(error), remedy)
        return [gpus, links]
    try:
        _examine_gpus(gpus, links)
    except (NarrowcastError, AttributeError) as error:
        gpus.problem(f"the driver does not respond: {error}", "Run nvidia-smi, and look for Xid errors in dmesg.")
    return [gpus, links]


def driver_cuda_version() -> str | None:
    """The newest version of CUDA that the driver supports; None without a driver."""
    version = c_int()
    try:
        cuda_driver.call("cuDriverGetVersion", byref(version))
    except (NarrowcastError, AttributeError):
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _examine_gpus(gpus: Section, links: Section) -> None:
    count = c_int()
    cuda_driver.call("cuDeviceGetCount", byref(count))
    buses = [_bus(ordinal) for ordinal in range(count.value)]
    nvml = load_nvml()
    built = _architectures()
    handles = [nvml.device(bus) if nvml else None for bus in buses]
    for ordinal, bus in enumerate(buses):
        major, minor = (
            cuda_driver.device_attribute(which, ordinal) for which in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR)
        )
        gpus.rows.append(
            {
                "gpu": ordinal,
                "name": cuda_driver.device_name(ordinal),
                "bus": bus,
                "compute capability": f"{major}.{minor}",
                "memory": f"{_total_bytes(ordinal) >> 30} GiB",
                "NVLinks": nvml.active_nvlinks(handles[ordinal]) if nvml else None,
            }
        )
        if major < _MIN_CAPABILITY:
            gpus.problem(
                f"GPU {ordinal} has compute capability {major}.{minor}, but Narrowcast needs {_MIN_CAPABILITY}.0",
                "Exclude it with CUDA_VISIBLE_DEVICES.",
            )
        elif not is_built_for(10 * major + minor, built):
            gpus.problem(
                f"GPU {ordinal} has architecture {major}{minor}, but the library has code for {built} only",
                f"Build it with CMAKE_CUDA_ARCHITECTURES={major}{minor} (README.md).",
            )
    if nvml is None:
        gpus.problem("NVML cannot be loaded, so links are unknown", "Install libnvidia-ml.so.1 of the driver.")
    unreachable = []
    for one, other in itertools.combinations(range(count.value), 2):
        reachable = all(_can_access(*pair) for pair in ((one, other), (other, one)))
        nvlink = nvml.linked_by_nvlink(handles[one], handles[other]) if nvml else None
        links.rows.append(
            {
                "between": f"{one} and {other}",
                "peer access": _yes(reachable),
                "NVLink": None if nvlink is None else _yes(nvlink),
                "common ancestor": nvml.common_ancestor(handles[one], handles[other]) if nvml else None,
                "expected": _expected(reachable=reachable, nvlink=bool(nvlink)) if nvml else None,
            }
        )
        if not reachable:
            unreachable.append(f"{one} and {other}")
        if nvlink and not reachable:
            links.problem(
                f"GPUs {one} and {other} have NVLink, but no peer access",
                "Check that nvidia-fabricmanager runs, and that the container has all GPUs of the fabric.",
            )
    if unreachable and len(unreachable) < len(links.rows):
        links.problem(
            f"GPUs {', '.join(unreachable)} have no peer access to each other, while others do",
            "Select GPUs with peer access by CUDA_VISIBLE_DEVICES. Otherwise all data goes through host memory.",
        )


def _expected(*, reachable: bool, nvlink: bool) -> str | None:
    """The predicted speed of a long call between two GPUs."""
    try:
        said = explain("all_reduce", _EXPECTED_BYTES // 2, dtype="bfloat16", ranks=2, p2p=reachable and nvlink)
    except NarrowcastError:
        return None  # the sections of settings and versions report it
    ours, theirs = said.predicted.chosen, said.predicted.nccl_default
    if ours is None or theirs is None:
        return None
    basis = ", as through host memory" if reachable and not nvlink else ""
    return f"all_reduce of 64 MiB {theirs / ours:.1f} times as fast as NCCL{basis}"


def _architectures() -> str:
    try:
        return library.architectures()
    except NarrowcastError:
        return ""  # the section of versions reports it


def is_built_for(capability: int, architectures: str) -> bool:
    """Whether a GPU runs code for these architectures. capability: 90 for 9.0. architectures: "80-real,90"."""
    for architecture in filter(None, architectures.split(",")):
        number = int("".join(itertools.takewhile(str.isdigit, architecture)) or 0)
        # The code for a GPU runs on later ones of the same generation; "-real" leaves out that for all later GPUs.
        same = capability // 10 == number // 10 or not architecture.endswith("-real")
        if same and capability >= number:
            return True
    return not architectures  # unknown


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _bus(ordinal: int) -> str:
    text = create_string_buffer(32)
    cuda_driver.call("cuDeviceGetPCIBusId", text, len(text), cuda_driver.device_handle(ordinal))
    return text.value.decode()


def _total_bytes(ordinal: int) -> int:
    size = c_size_t()
    cuda_driver.call("cuDeviceTotalMem_v2", byref(size), cuda_driver.device_handle(ordinal))
    return size.value


def _can_access(one: int, other: int) -> bool:
    answer = c_int()
    handles = (cuda_driver.device_handle(ordinal) for ordinal in (one, other))
    cuda_driver.call("cuDeviceCanAccessPeer", byref(answer), *handles)
    return bool(answer.value)
