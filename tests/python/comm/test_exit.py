"""Programs end although communicators, streams and creations wait for other ranks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import narrowcast
import numpy as np
import pytest
from segments import segment_of

SOON_SECONDS = 60  # on a busy machine; the limits of the waits below are 300 s


def start(program: str) -> subprocess.Popen[str]:
    code = "import threading, time\nimport narrowcast\nimport numpy as np\n" + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_abort(unique_id: bytes) -> None:
    """Joins the program as rank 1 of 2, and waits until rank 0 aborts."""
    with narrowcast.Communicator(unique_id, 1, 2) as comm:
        while (error := comm.async_error()) is None:
            time.sleep(0.05)
        assert isinstance(error, narrowcast.AbortedError)


def test_a_program_may_end_while_a_communicator_is_created_in_the_background():
    unique_id = narrowcast.unique_id()
    program = start(f"""
        pending = narrowcast.Communicator.in_background({unique_id!r}, 0, 2)
        input()
    """)
    while segment_of(unique_id) is None:
        assert program.poll() is None
        time.sleep(0.01)
    output, errors = program.communicate("\n", timeout=60)
    assert (program.returncode, output, errors) == (0, "", "")
    assert segment_of(unique_id) is None
    # The rank that comes later is told.
    begin = time.monotonic()
    with pytest.raises(narrowcast.AbortedError, match="rank 0 aborted"):
        narrowcast.Communicator(unique_id, 1, 2)
    assert time.monotonic() - begin < SOON_SECONDS


@pytest.mark.parametrize(
    "wait",
    [
        "threading.Thread(target=comm.recv, args=(values, 1), daemon=True).start()",
        "comm.recv(values, 1, stream=stream); threading.Thread(target=stream.synchronize, daemon=True).start()",
    ],
)
def test_a_program_may_end_while_a_call_waits_and_the_peer_is_told(wait):
    unique_id = narrowcast.unique_id()
    program = start(f"""
        comm, stream, values = narrowcast.Communicator({unique_id!r}, 0, 2), narrowcast.Stream(), np.ones(4)
        {wait}
        time.sleep(0.2)
        print(time.monotonic())
    """)
    wait_for_abort(unique_id)
    output, errors = program.communicate(timeout=60)
    assert time.monotonic() - float(output) < SOON_SECONDS
    assert (program.returncode, errors) == (0, "")


def test_threads_report_only_exceptions_of_the_program_during_the_exit():
    # Python aborts the process if a daemon thread is writing its report when the interpreter is finalized. Here the
    # handler, which runs after those of the library, gives the threads the time to report.
    unique_id = narrowcast.unique_id()
    program = start(f"""
        import atexit

        def synchronize_repeatedly():
            while True:
                idle.synchronize()

        def divide():
            ending.wait()
            1 / 0

        @atexit.register
        def end():
            ending.set()
            for thread in threads:
                thread.join()

        ending = threading.Event()
        comm, stream, idle = narrowcast.Communicator({unique_id!r}, 0, 2), narrowcast.Stream(), narrowcast.Stream()
        comm.recv(np.ones(4), 1, stream=stream)
        targets = [lambda: comm.recv(np.ones(4), 1), stream.synchronize, synchronize_repeatedly, divide]
        threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    """)
    wait_for_abort(unique_id)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    assert errors.count("Exception in thread") == 1, errors
    assert "(divide)" in errors


def test_calls_of_a_program_that_ends_are_completed():
    unique_id = narrowcast.unique_id()
    program = start(f"""
        comm, stream = narrowcast.Communicator({unique_id!r}, 0, 2), narrowcast.Stream()
        comm.send(np.arange(1_000_000.0), 1, stream=stream)
    """)
    with narrowcast.Communicator(unique_id, 1, 2) as comm:
        time.sleep(0.3)
        assert comm.recv(np.empty(1_000_000), 0)[-1] == 999_999
    assert program.wait(60) == 0


def test_the_library_stays_loaded_while_its_threads_run():
    program = start("""
        import _ctypes
        import ctypes
        from narrowcast._native.library import library_path

        loaded = ctypes.CDLL(str(library_path()))
        stream = ctypes.c_void_p()
        assert loaded.ncast_stream_create(ctypes.byref(stream)) == 0
        _ctypes.dlclose(loaded._handle)
        assert "libnarrowcast" in open("/proc/self/maps").read()
        loaded.ncast_stream_destroy(stream)
    """)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")
