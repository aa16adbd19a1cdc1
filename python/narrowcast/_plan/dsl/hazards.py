"""Orders tasks that access the same chunks, and pinned tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .nodes import Node, ranges
from .record import Buffer, Operand, Place, Range
from .sites import PlanError

Alias = Callable[[int, int], int | None]
#: Rank, or identity of the buffer; kind of buffer; chunk.
Cell = tuple[int, str, int]


def require_before(first: Node, second: Node, *, needed: bool = False) -> None:
    """Orders two nodes; loops as a whole, unless both are in the same one.

    needed: `second` needs what `first` did at the same rank.
    """
    if first is second:
        return
    if first.loop is not second.loop:
        first, second = first.loop or first, second.loop or second
        if first is second:
            return
    elif needed and first.loop is not None and first.place != second.place:
        raise PlanError(
            f"this needs what another group of the rank does at {first.task.site} in the same loop: use one group, "
            "or a semaphore",
            second.task.site,
        )
    second.before.add(first)
    if needed:
        second.needs.add(first)


def order_accesses(nodes: Sequence[Node], alias: Alias | None, output_is_defined: bool) -> None:
    """Orders the accesses to each chunk as they were written.

    alias: the chunk of a rank's output that is the same memory as a chunk of its input; None: no chunk is. Reads of the
    input mean the values of the call, so they come before whatever overwrites these.
    output_is_defined: the output has values at the beginning.

    Raises PlanError for chunks that are read, but never written before, and Cycle for a step that would read and write
    overlapping chunks in place.
    """
    put = {cell for node in nodes for operand in node.destinations for cell in _remote_cells(operand)}
    writer: dict[Cell, Node] = {}
    readers: dict[Cell, list[Node]] = {}
    all_readers: dict[Cell, list[Node]] = {}
    first_writer: dict[Cell, Node] = {}
    first_change: dict[Cell, Node] = {}  # without copies of a chunk to itself, in place
    for node in nodes:
        for where in ranges(node.sources):
            producers = set()
            for cell in cells(where):
                found = writer.get(cell)
                producers.add(found)
                if found is not None:
                    require_before(found, node, needed=True)
                elif cell not in put and not _is_defined(where.buffer, output_is_defined):
                    raise PlanError(
                        f"chunk {cell[-1]} of the {where.buffer.kind} of rank {where.buffer.rank} is read before "
                        "anything is written there",
                        node.task.site,
                    )
                readers.setdefault(cell, []).append(node)
                if where.buffer.kind == "input":
                    all_readers.setdefault(cell, []).append(node)
            producer = producers.pop() if len(producers) == 1 else None
            if producer is not None and node.task.kind == "copy" and where in ranges(producer.destinations):
                node.producer = producer
        for where in ranges(node.destinations):
            for cell in cells(where):
                for earlier in (*readers.pop(cell, ()), *((writer[cell],) if cell in writer else ())):
                    require_before(earlier, node, needed=True)
                writer[cell] = node
                if alias is not None:
                    first_writer.setdefault(cell, node)
                    if not _is_same_memory(node, where, cell[-1], alias):
                        first_change.setdefault(cell, node)
    for (rank, _, chunk), reading in all_readers.items() if alias is not None else ():
        assert alias is not None
        same = alias(rank, chunk)
        if same is None:
            continue
        for node in reading:
            writing = first_writer.get((rank, "output", same))
            if writing is not None and writing.places == node.places:
                writing = first_change.get((rank, "output", same))
            if writing is node and overlap_partly(node, node, alias):
                raise Cycle([node])
            if writing is not None:
                require_before(node, writing, needed=True)
    _order_packets(nodes)


def keep_places(nodes: Sequence[Node]) -> None:
    """Orders pinned nodes after all earlier ones of their groups, and before all later ones."""
    last: dict[tuple[Place, Node | None], Node] = {}
    since: dict[tuple[Place, Node | None], list[Node]] = {}
    for node in nodes:
        for place in node.places:
            key = (place, node.loop)
            if key in last:
                require_before(last[key], node)
            if node.pinned:
                for earlier in since.pop(key, ()):
                    require_before(earlier, node)
                last[key] = node
            else:
                since.setdefault(key, []).append(node)


def cells(where: Range) -> Iterator[Cell]:
    """A key for each chunk of a range."""
    buffer = where.buffer
    owner = buffer.rank if buffer.kind in ("input", "output") else id(buffer)
    for chunk in range(where.start, where.start + where.count):
        yield owner, buffer.kind, chunk


def _remote_cells(operand: Operand) -> Iterator[Cell]:
    """The chunks of other ranks that a destination writes."""
    where, channel = operand.where, operand.channel
    if where is None or channel is None:
        return
    if channel.kind != "switch":
        yield from cells(where)
        return
    for rank in channel.ranks:
        for chunk in range(where.start, where.start + where.count):
            yield rank, where.buffer.kind, chunk


class Cycle(Exception):
    """The nodes wait for each other."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self.nodes = nodes


def overlap_partly(reader: Node, writer: Node, alias: Alias | None) -> bool:
    """Whether ranges that one node reads and the other one writes overlap without being the same.

    One step cannot do both.
    """
    for source in ranges(reader.sources):
        for destination in ranges(writer.destinations):
            for i in range(source.count):
                chunk: int | None = source.start + i
                if source.buffer is not destination.buffer:
                    if (source.buffer.kind, destination.buffer.kind) != ("input", "output") or alias is None:
                        break
                    chunk = alias(source.buffer.rank, source.start + i)
                place = None if chunk is None else chunk - destination.start
                if place is not None and place != i and 0 <= place < destination.count:
                    return True
    return False


def _is_same_memory(node: Node, where: Range, chunk: int, alias: Alias) -> bool:
    """Whether a node copies, in place, a chunk of the output to itself."""
    source = node.sources[0].local if node.task.kind == "copy" else None
    if source is None or source.buffer.kind != "input" or where.buffer.kind != "output":
        return False
    return alias(source.buffer.rank, source.start + chunk - where.start) == chunk


def _is_defined(buffer: Buffer, output_is_defined: bool) -> bool:
    """Whether chunks of a buffer have values before any step writes them."""
    return buffer.kind == "input" or (buffer.kind == "output" and output_is_defined)


def _order_packets(nodes: Sequence[Node]) -> None:
    """Orders what reads packets after the put that alone writes them."""
    writers: dict[Cell, list[Node]] = {}
    for node in nodes:
        for operand in node.destinations:
            if operand.where is not None and operand.where.buffer.packets:
                for cell in (*_remote_cells(operand), *(cells(operand.local) if operand.local is not None else ())):
                    writers.setdefault(cell, []).append(node)
    for node in nodes:
        for where in ranges(node.sources):
            for cell in cells(where) if where.buffer.packets else ():
                found = writers.get(cell, [])
                if len(found) == 1 and found[0].loop is node.loop:
                    require_before(found[0], node)
