"""The properties of tables hold on a GPU, with results in its memory and indices there or on the host."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_store import Array, Columns
from narrowcast import store
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import Stream
from store_properties import *  # noqa: F403  # the tests
from store_properties import without_gaps
from store_tables import table


class OnGpu:
    """Results in GPU memory, and indices there or, if the host checks them, on the host."""

    def __init__(self, stream: Stream, checks_indices: bool) -> None:
        self.options, self.checks_indices = {"stream": stream}, checks_indices

    def indices(self, values):
        return values if self.checks_indices else Array(values)

    def out(self, shape, gap=0):
        whole = Array(np.full((*shape[:-1], shape[-1] + gap), 7, np.float32))
        return Columns(whole, shape[-1]) if gap else whole

    def content(self, out):
        self.options["stream"].synchronize()
        return without_gaps(out.whole.read(), out.shape[-1]) if isinstance(out, Columns) else out.read()


@pytest.fixture(scope="module", params=["indices on the GPU", "indices on the host"])
def reads(request):
    with cuda_driver.on_device(0):
        return OnGpu(Stream(), request.param == "indices on the host")


@pytest.fixture(scope="module", params=["window", "raw", "zeros+trim+window, packed", "invariant, packed", "blocks"])
def choice(request):
    return request.param


@pytest.fixture(scope="module")
def rows(choice):
    return table(shape=(6000,) if choice == "blocks" else (24,))  # blocks: several frames


@pytest.fixture(scope="module")
def opened(rows, choice):
    codec, _, layout = choice.partition(", ")
    options = {"layout": "blocks"} if choice == "blocks" else {"codec": codec, "layout": layout or "stride"}
    with store.build(rows, **options) as made:
        yield made
