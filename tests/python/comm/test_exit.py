"""The end of programs and of the use of the library."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def start(program: str) -> subprocess.Popen[str]:
    code = "import threading, time\nimport narrowcast\nimport numpy as np\n" + textwrap.dedent(program)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_library_stays_loaded_while_its_threads_run():
    program = start("""
        import _ctypes
        import ctypes
        import os

        loaded = ctypes.CDLL(os.environ["NARROWCAST_LIBRARY"])
        stream = ctypes.c_void_p()
        assert loaded.ncast_stream_create(ctypes.byref(stream)) == 0
        _ctypes.dlclose(loaded._handle)
        assert "libnarrowcast" in open("/proc/self/maps").read()
        loaded.ncast_stream_destroy(stream)
    """)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")
