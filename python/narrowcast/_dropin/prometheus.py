"""Serves the traffic of running processes to Prometheus: text format 0.0.4, over HTTP at /metrics."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..errors import SystemFailure
from .traffic import RankTraffic, Report, Traffic

Samples = Callable[[RankTraffic], Iterator[tuple[dict[str, str], float]]]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
MAX_CONNECTIONS = 64
CONNECTION_SECONDS = 10.0


def text(report: Report) -> str:
    """The metrics as text. Counters of ended processes remain until the command ends."""
    families: list[tuple[str, str, str, Samples]] = [
        ("calls_total", "counter", "Calls, executed by Narrowcast or by NCCL.", _of_operations(_calls)),
        ("captured_calls_total", "counter", "Executed calls captured in CUDA graphs, counted once.", _of("captured")),
        ("forwarded_calls_total", "counter", "Calls forwarded to NCCL, by reason.", _of_operations(_reasons)),
        (
            "lossy_calls_total",
            "counter",
            "Executed calls with a lossy codec, by the rule that allows it.",
            _of_operations(_lossy),
        ),
        ("raw_bytes_total", "counter", "Bytes of values sent by executed calls.", _of_links("raw_bytes")),
        ("wire_bytes_total", "counter", "Bytes sent over links for these values.", _of_links("wire_bytes")),
        (
            "predicted_calls_total",
            "counter",
            "Executed calls outside of graphs with predicted times.",
            _of("predicted"),
        ),
        ("saved_seconds", "gauge", "Predicted time that these calls save over NCCL.", _of("saved_seconds")),
        ("scratch_bytes", "gauge", "Bytes of GPU memory of the communicator.", _of_rank("scratch_bytes")),
    ]
    lines = [
        "# HELP narrowcast_processes Processes that have reported.",
        "# TYPE narrowcast_processes gauge",
        f"narrowcast_processes {len(report.processes)}",
    ]
    for name, kind, about, samples in families:
        lines += [f"# HELP narrowcast_{name} {about}", f"# TYPE narrowcast_{name} {kind}"]
        for key, value in _sums(report.ranks, samples).items():
            labels = ",".join(f'{label}="{_escaped(content)}"' for label, content in key)
            lines.append(f"narrowcast_{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def _sums(ranks: list[RankTraffic], samples: Samples) -> dict[tuple[tuple[str, str], ...], float]:
    """One sample for each set of labels, as the format requires."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for one in ranks:
        for more, value in samples(one):
            key = tuple(({"communicator": one.communicator, "rank": str(one.rank)} | more).items())
            found[key] = found.get(key, 0) + value
    return found


def _of_operations(samples: Callable[[Traffic], Iterator[tuple[dict[str, str], float]]]) -> Samples:
    def of_all(one: RankTraffic) -> Iterator[tuple[dict[str, str], float]]:
        for traffic in one.operations:
            for more, value in samples(traffic):
                yield {"operation": traffic.operation} | more, value

    return of_all


def _calls(traffic: Traffic) -> Iterator[tuple[dict[str, str], float]]:
    yield {"by": "narrowcast"}, traffic.taken
    yield {"by": "nccl"}, traffic.forwarded


def _reasons(traffic: Traffic) -> Iterator[tuple[dict[str, str], float]]:
    for reason, count in traffic.reasons.items():
        yield {"reason": reason}, count


def _lossy(traffic: Traffic) -> Iterator[tuple[dict[str, str], float]]:
    for (rule, codec), count in traffic.lossy.items():
        yield {"rule": rule, "codec": codec}, count


def _of(name: str) -> Samples:
    return _of_operations(lambda traffic: iter([({}, getattr(traffic, name))]))


def _of_links(name: str) -> Samples:
    return _of_operations(lambda traffic: iter([] if traffic.links is None else [({}, getattr(traffic.links, name))]))


def _of_rank(name: str) -> Samples:
    return lambda one: iter([({}, getattr(one, name))])


def _escaped(content: str) -> str:
    return content.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Server(ThreadingHTTPServer):
    """Refuses connections beyond MAX_CONNECTIONS, and ends those that last CONNECTION_SECONDS."""

    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._deadlines) >= MAX_CONNECTIONS:
                return False
            self._deadlines[request] = time.monotonic() + CONNECTION_SECONDS
        return True

    def service_actions(self) -> None:
        """Called by serve_forever() about twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection, deadline in self._deadlines.items():
                if deadline < now:
                    # The thread that reads or writes gets an end of file or an error, and closes the connection.
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing, because standard error belongs to the command."""


class MetricsServer:
    """Answers GET /metrics with the text of `render`, on its own threads, from start() to close().

    At most MAX_CONNECTIONS are open, each for CONNECTION_SECONDS.
    """

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != PATH:
                    self.send_error(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}")
                    return
                body = render().encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Logs nothing, because standard error belongs to the command."""

        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise SystemFailure(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{PATH}"

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
