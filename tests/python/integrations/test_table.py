"""Tables of embeddings in host memory, and their training."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import narrowcast  # noqa: E402
from narrowcast import store  # noqa: E402
from narrowcast.torch import SGD, RowwiseAdagrad, Table  # noqa: E402
from torch import nn  # noqa: E402

ROWS, VALUES = 60, 24


@pytest.fixture
def weight():
    torch.manual_seed(0)
    return torch.randn(ROWS, VALUES) * 0.05


# Reading.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int64", "float8_e4m3fn"])
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("indices", [[], [0], [ROWS - 1, 0, 0, 5, ROWS - 1], [[1, 2], [3, 1]], 7])
def test_rows_are_those_of_an_embedding(weight, dtype, index_type, indices):
    weight = (weight * 50).to(getattr(torch, dtype))
    indices = torch.tensor(indices, dtype=index_type)
    found = Table.from_pretrained(weight)(indices)
    expected = weight.view(torch.uint8)[indices.long()].view(weight.dtype)
    assert (found.shape, found.dtype, found.requires_grad) == ((*indices.shape, VALUES), weight.dtype, False)
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def test_rows_have_any_shape():
    values = torch.randn(10, 3, 4)
    found = Table.from_pretrained(values)(torch.tensor([[2], [9]]))
    assert torch.equal(found, values[torch.tensor([[2], [9]])])


@pytest.mark.parametrize("index", [ROWS, -1, 1 << 40])
def test_an_index_out_of_range_is_named(weight, index):
    with pytest.raises(IndexError, match=str(index)):
        Table.from_pretrained(weight)(torch.tensor([0, index]))


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
def test_indices_that_are_not_integers_are_errors(weight, kind):
    with pytest.raises(TypeError, match="not integers"):
        Table.from_pretrained(weight)(torch.ones(3, dtype=kind))


def test_a_table_file_is_opened(weight, tmp_path):
    store.build(weight, path=tmp_path / "table").close()
    table = Table.from_pretrained(tmp_path / "table")
    assert torch.equal(table(torch.arange(ROWS)), weight)
    assert (table.num_embeddings, table.embedding_dim) == (ROWS, VALUES)
    assert f"{ROWS}, {VALUES}, dtype=float32" in repr(table)


def test_a_table_is_part_of_a_module_without_parameters(weight):
    model = nn.Sequential(Table.from_pretrained(weight), nn.Linear(VALUES, 2))
    assert model(torch.tensor([1, 2])).shape == (2, 2)
    assert sorted(model.state_dict()) == ["1.bias", "1.weight"]


def test_negated_views_are_stored_as_their_values(weight):
    negated = torch.complex(weight, weight).conj().imag
    assert negated.is_neg()
    table = Table.from_pretrained(negated)
    assert torch.equal(table(torch.arange(ROWS)), -weight)
    index = torch.arange(0, -ROWS, -1)
    assert torch.equal(table(torch._neg_view(index)), -weight)
    table.store.update([1, 2], negated[5:7])
    assert torch.equal(table(torch.tensor([1, 2])), -weight[5:7])
    with store.build(negated) as made:
        assert (made[:] == -weight.numpy()).all()


@pytest.mark.parametrize("convert", ["half", "bfloat16", "double", "float"])
def test_converted_tables_return_converted_rows(weight, convert):
    model = nn.Sequential(Table.from_pretrained(weight, trained=True), nn.Linear(VALUES, 2))
    getattr(model, convert)().to("cpu")
    expected = getattr(nn.Embedding.from_pretrained(weight.clone()), convert)()
    assert torch.equal(model[0](BATCHES[0]), expected(BATCHES[0]))
    model(BATCHES[0]).sum().backward()
    indices, sums = model[0].sparse_gradient()
    assert (indices.tolist(), sums.dtype) == (BATCHES[0].unique().tolist(), torch.float32)
    assert Table.from_pretrained(torch.arange(6).reshape(3, 2)).half()(torch.tensor(2)).dtype == torch.int64


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_of_tables_are_errors(weight, function):
    table = Table.from_pretrained(weight)
    with pytest.raises(TypeError, match="a Store cannot be copied or pickled: save it to a file"):
        function(table.store)
    if function is not copy.copy:  # which shares what is inside
        with pytest.raises(TypeError, match="a Store cannot be copied or pickled"):
            function(nn.Sequential(table))


# Training.


def gradients_of_an_embedding(weight, batches, padding_idx=None):
    dense = nn.Embedding.from_pretrained(weight.clone(), freeze=False, padding_idx=padding_idx)
    for batch in batches:
        dense(batch).square().sum().backward()
    return dense.weight.grad


BATCHES = [torch.tensor([[1, 2, 2], [7, 0, 1]]), torch.tensor([7, 7, 59])]


@pytest.mark.parametrize("padding_idx", [None, 7, -1])
def test_gradients_are_those_of_an_embedding(weight, padding_idx):
    table = Table.from_pretrained(weight, trained=True, padding_idx=padding_idx)
    for batch in BATCHES:
        table(batch).square().sum().backward()
    indices, sums = table.sparse_gradient()
    assert torch.equal(indices, indices.unique())
    expected = gradients_of_an_embedding(weight, BATCHES, padding_idx)
    torch.testing.assert_close(torch.zeros_like(weight).index_add(0, indices, sums), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sgd_changes_the_rows_that_were_used_and_no_others(weight, dtype):
    weight = weight.to(dtype)
    table = Table.from_pretrained(weight, trained=True)
    optimizer = SGD(table, lr=0.5)
    expected = weight.clone()
    for _ in range(3):
        for batch in BATCHES:
            table(batch).square().sum().backward()
        wide = torch.promote_types(dtype, torch.float32)
        gradients = gradients_of_an_embedding(expected, BATCHES).to(wide)
        optimizer.step()
        used = torch.cat([one.flatten() for one in BATCHES]).unique()
        expected[used] = (expected[used].to(wide) - 0.5 * gradients[used]).to(dtype)
    tolerance = {"rtol": 0.05, "atol": 0.01} if dtype == torch.bfloat16 else {}
    found = table(torch.arange(ROWS)).detach()
    torch.testing.assert_close(found, expected, **tolerance)
    unused = [i for i in range(ROWS) if i not in used.tolist()]
    assert torch.equal(found[unused], weight[unused])


def test_rowwise_adagrad_follows_its_definition(weight):
    table = Table.from_pretrained(weight, trained=True)
    optimizer = RowwiseAdagrad(table, lr=0.1, eps=1e-6)
    expected, sums = weight.clone(), torch.zeros(ROWS)
    for _ in range(3):
        for batch in BATCHES:
            table(batch).square().sum().backward()
        gradients = gradients_of_an_embedding(expected, BATCHES)
        sums += gradients.square().mean(1)
        expected -= (0.1 / (sums.sqrt() + 1e-6))[:, None] * gradients
        optimizer.step()
    torch.testing.assert_close(table(torch.arange(ROWS)).detach(), expected)
    other = RowwiseAdagrad(table)
    other.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(other.state_dict()["sums"][0], sums)
    with pytest.raises(ValueError, match="other numbers of rows"):
        other.load_state_dict({"sums": [torch.zeros(3)]})


def test_training_reduces_a_loss_together_with_dense_parameters(weight):
    table, dense = Table.from_pretrained(weight, trained=True), nn.Linear(VALUES, 1)
    optimizers = [RowwiseAdagrad(table, lr=0.1), torch.optim.SGD(dense.parameters(), lr=0.05)]
    indices = torch.arange(ROWS)
    target = (indices % 2).float()[:, None]
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(dense(table(indices)), target)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_gradients_are_collected_only_where_they_are_wanted(weight):
    table = Table.from_pretrained(weight, trained=True)
    with torch.no_grad():
        assert not table(BATCHES[0]).requires_grad
    assert not table.eval()(BATCHES[0]).requires_grad
    assert not Table.from_pretrained(weight)(BATCHES[0]).requires_grad
    table.train()(BATCHES[0]).sum()  # without backward
    assert len(table.sparse_gradient()[0]) == 0
    table(BATCHES[0]).sum().backward()
    table.zero_grad()
    assert len(table.sparse_gradient()[0]) == 0
    SGD(table, lr=1.0).step()
    assert torch.equal(table(torch.arange(ROWS)).detach(), weight)


def test_an_update_without_space_changes_nothing_and_keeps_the_gradients(weight):
    table = Table.from_pretrained(weight, trained=True, spare=0)
    table(torch.arange(ROWS)).square().sum().backward()
    with pytest.raises(narrowcast.NarrowcastError):
        SGD(table, lr=0.5).step()
    assert torch.equal(table.store.gather(torch.arange(ROWS), out=torch.empty_like(weight)), weight)
    assert len(table.sparse_gradient()[0]) == ROWS


def test_bad_arguments_are_named(weight):
    with pytest.raises(ValueError, match="padding_idx is 60"):
        Table.from_pretrained(weight, padding_idx=ROWS)
    with pytest.raises(ValueError, match="int64 values has no gradients"):
        Table.from_pretrained(torch.arange(10).reshape(5, 2), trained=True)
    table = Table.from_pretrained(weight, trained=True)
    with pytest.raises(ValueError, match=r"tables\[1\] is not a Table with trained"):
        SGD([table, Table.from_pretrained(weight)], lr=1.0)
    with pytest.raises(ValueError, match="lr is 0"):
        SGD(table, lr=0)
