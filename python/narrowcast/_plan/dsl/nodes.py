"""Nodes: tasks with their dependences, while they are being ordered."""

from __future__ import annotations

from collections.abc import Sequence

from .record import Operand, Place, Range, Task


class Node:
    """A task, its dependences, and the step that it was merged into."""

    __slots__ = (
        "before",
        "body",
        "destinations",
        "host",
        "index",
        "level",
        "loop",
        "needs",
        "pinned",
        "places",
        "producer",
        "site",
        "sources",
        "task",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.index = task.index
        self.site = task.site  #: that the step names
        self.places: list[Place] = task.places
        self.pinned = task.pinned
        self.sources: list[Operand] = list(task.sources)
        self.destinations: list[Operand] = list(task.destinations)
        self.before: set[Node] = set()  #: of the same scope: the program, or the body of a loop
        self.needs: set[Node] = set()  #: those of `before` at the same rank whose results it reads or overwrites
        self.producer: Node | None = None  #: of a copy: the node that stored exactly its source
        self.host: Node | None = None  #: the node whose step includes this one
        self.loop: Node | None = None  #: the loop that it is in
        self.body: list[Node] = []  #: of a loop
        self.level = 0  #: hops between groups on the longest path to it

    @property
    def place(self) -> Place:
        """The group of a node with one."""
        return self.places[0]

    @property
    def final(self) -> Node:
        """The node whose step includes this one; itself if none does."""
        return self if self.host is None else self.host

    @property
    def key(self) -> tuple[int, int]:
        """Sorting by this key is an order in which the steps of a group can run."""
        return self.level, self.index


def nodes_of(tasks: Sequence[Task]) -> list[Node]:
    """A node for each task, with the links between loops and their bodies."""
    nodes = {id(task): Node(task) for task in tasks}
    for node in nodes.values():
        node.body = [nodes[id(task)] for task in node.task.body]
        for inner in node.body:
            inner.loop = node
    return list(nodes.values())


def with_fetches_inlined(nodes: Sequence[Node]) -> list[Node]:
    """Makes the operand of `r.receive(...)` and `r.get(...)` that of the reduction that alone reads it, right after."""
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for operand in node.sources:
            if operand.local is not None and operand.local.buffer.kind == "value":
                readers.setdefault(id(operand.local.buffer), []).append(node)
    removed: set[Node] = set()
    pending: dict[Place, list[Node]] = {}  # the fetches since the last other node of the group
    for node in nodes:
        if node.task.kind == "reduce":
            fetched = pending.get(node.place, [])
            found = {
                operand.local: node_of
                for node_of in fetched
                for operand in node_of.destinations
                if operand.local is not None
                and readers.get(id(operand.local.buffer)) == [node]
                and node_of.loop is node.loop
            }
            uses = [found[operand.local] for operand in node.sources if operand.local in found]
            # All of them, in the order in which they were fetched: messages of a ring stay in order.
            if uses and uses == fetched[len(fetched) - len(uses) :]:
                node.sources = [
                    found[operand.local].sources[0] if operand.local in found else operand for operand in node.sources
                ]
                node.pinned = True
                removed.update(uses)
        for place in node.places:
            if is_fetch(node):
                pending.setdefault(place, []).append(node)
            else:
                pending[place] = []
    for node in nodes:
        node.body = [inner for inner in node.body if inner not in removed]
    return [node for node in nodes if node not in removed]


def is_fetch(node: Node) -> bool:
    """Whether the node only receives a message or reads remote memory, at its place among the statements."""
    return node.task.kind == "copy" and node.task.pinned and node.sources[0].channel is not None


def ranges(operands: Sequence[Operand]) -> list[Range]:
    """The ranges of the rank itself among the operands."""
    return [operand.local for operand in operands if operand.local is not None]
