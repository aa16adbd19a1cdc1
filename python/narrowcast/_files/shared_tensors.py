"""Tensors of torch that share memory, which safetensors does not save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def shared_names(tensors: Mapping[str, Any]) -> Iterator[list[str]]:
    """The names of the tensors that overlap in memory: groups of two or more."""
    places = defaultdict(list)
    for name, tensor in tensors.items():
        storage = _storage(tensor)
        if storage is not None:
            last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
            begin = tensor.data_ptr()
            # As in safetensors, equal addresses in storages of different sizes are not shared.
            key = (str(tensor.device), storage.data_ptr(), storage.nbytes())
            places[key].append((begin, begin + (last + 1) * tensor.element_size(), name))
    for ranges in places.values():
        group: list[str] = []
        group_end = 0
        for begin, end, name in sorted(ranges):
            if begin >= group_end:
                if len(group) > 1:
                    yield group
                group = []
            group.append(name)
            group_end = max(group_end, end)
        if len(group) > 1:
            yield group


def duplicates(tensors: Mapping[str, Any], preferred: Collection[str] = ()) -> dict[str, str]:
    """The names of tensors that are parts of another one, and the name of that.

    The other one must cover its whole storage. If several do, it is one of `preferred`, and the first by name.

    Raises RuntimeError if tensors overlap and none covers the storage.
    """
    found = {}
    for names in shared_names(tensors):
        complete = [name for name in sorted(names) if _is_complete(tensors[name])]
        if not complete:
            raise RuntimeError(
                f"the tensors {', '.join(sorted(names))} share memory, and none of them covers all of it: clone those "
                "that do not belong together"
            )
        kept = next((name for name in complete if name in preferred), complete[0])
        found.update({name: kept for name in sorted(names) if name != kept})
    return found


def _storage(tensor: Any) -> Any:
    """The storage of a tensor; None if it has no memory, or, as sparse tensors, none of its own."""
    if tensor.device.type == "meta" or not tensor.numel():
        return None
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() else None
    except (NotImplementedError, RuntimeError):
        return None


def _is_complete(tensor: Any) -> bool:
    storage = tensor.untyped_storage()
    return bool(tensor.data_ptr() == storage.data_ptr() and tensor.numel() * tensor.element_size() == storage.nbytes())
