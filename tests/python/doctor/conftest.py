from __future__ import annotations

import json

import pytest


@pytest.fixture
def doctor(cli, stand_in, fakes):
    """The report on a machine with two fake GPUs and no problems, except for the changes of a test."""

    def examine(*command, without=(), **changes):
        variables = {
            "LD_LIBRARY_PATH": str(fakes),
            "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
            "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
            **changes,
        }
        for name in without:
            variables[name] = ""
        done = cli("doctor", "--json", "--", *command, **variables)
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0) == (not report["problems"])
        assert done.returncode in (0, 1)
        return report

    return examine
