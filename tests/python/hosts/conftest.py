"""The fixture of faked hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from hosts.fake_hosts import FakeHosts


@pytest.fixture(scope="module")
def fake_hosts() -> Iterator[FakeHosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    hosts = FakeHosts(3)
    try:
        hosts.start()
    except subprocess.CalledProcessError as error:
        hosts.stop()
        pytest.skip(f"cannot make network namespaces: {error.stderr.strip()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_SOCKET_IFNAME", hosts.bridge)
        yield hosts
    hosts.stop()
