"""Tables of embeddings whose rows a GPU reads."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast.torch import SGD, RowwiseAdagrad, Table  # noqa: E402

ROWS, WIDTH = 5000, 96


def weight(dtype=torch.bfloat16):
    return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)) / 8).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16, torch.float8_e4m3fn])
@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64, torch.int16])
def test_rows_are_those_of_the_weight(dtype, layout, index_type):
    values = weight(dtype)
    table = Table.from_pretrained(values, layout=layout)
    for shape in ((), (0,), (7,), (3, 50), (40_000,)):
        indices = torch.randint(0, ROWS, shape, device="cuda").to(index_type)
        rows = table(indices)
        assert (rows.device, rows.dtype, rows.shape) == (indices.device, dtype, (*shape, WIDTH))
        assert torch.equal(rows.cpu().view(torch.uint8), values[indices.cpu().long()].view(torch.uint8))
    table.check()


def test_large_rows_are_read_by_slices():
    values = torch.randn(40, 50_000)
    table = Table.from_pretrained(values, layout="blocks")
    indices = torch.tensor([3, 39, 0, 3], device="cuda")
    assert torch.equal(table(indices).cpu(), values[indices.cpu()])


def test_indices_out_of_range_are_zeros_and_reported():
    values = weight()
    table = Table.from_pretrained(values)
    rows = table(torch.tensor([1, ROWS, -1, 2], device="cuda"))
    assert torch.equal(rows[[0, 3]].cpu(), values[[1, 2]])
    assert not rows[1:3].any()
    with pytest.raises(IndexError):
        table.check()
    table.check()


def test_graphs_read_the_table_as_it_is():
    values = weight()
    table = Table.from_pretrained(values, spare=8)
    indices = torch.arange(100, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            table(indices)
        with torch.cuda.graph(graph, stream=stream):
            rows = table(indices)
        graph.replay()
        assert torch.equal(rows.cpu(), values[:100])
        table.store.update([3], torch.zeros(1, WIDTH, dtype=torch.bfloat16))
        graph.replay()
        assert not rows[3].any()
        assert torch.equal(rows[4:].cpu(), values[4:100])
    torch.cuda.synchronize()


@pytest.mark.parametrize("optimizer", [SGD, RowwiseAdagrad])
def test_training_changes_the_same_rows_as_on_the_cpu(optimizer):
    indices = torch.randint(0, ROWS, (8, 300), generator=torch.Generator().manual_seed(1))
    tables = []
    for device in ("cpu", "cuda"):
        table = Table.from_pretrained(weight(torch.float32), trained=True, spare=ROWS)
        update = optimizer([table], lr=0.05)
        for chosen in indices.to(device):
            table(chosen).square().sum().backward()
            update.step()
        tables.append(torch.from_numpy(table.store[:]))
    assert torch.allclose(*tables, rtol=1e-5, atol=1e-6)
    assert not torch.equal(tables[0], weight(torch.float32))
