"""Features of PyTorch Geometric."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")

from narrowcast import store  # noqa: E402
from narrowcast.integrations.pyg import StoreFeatures  # noqa: E402
from torch_geometric.data import Data, HeteroData, TensorAttr  # noqa: E402
from torch_geometric.loader.utils import filter_custom_hetero_store, filter_custom_store  # noqa: E402
from torch_geometric.testing import MyGraphStore  # noqa: E402

ROWS = 40


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(ROWS, 12)


@pytest.fixture
def features(x):
    made = StoreFeatures()
    assert made.put_tensor(x, group_name="paper", attr_name="x", index=None)
    return made


INDICES = [
    None,
    slice(None),
    slice(3, 30, 4),
    slice(30, 3, -4),
    slice(50, 60),
    0,
    -1,
    torch.tensor(7),
    torch.tensor([[5, 1, 3], [-1, 0, 0]]),
    torch.empty((0, 2), dtype=torch.int64),
    np.array(3),
    torch.tensor([5, 5, 39, 0]),
    torch.tensor([-1, -40]),
    torch.tensor([], dtype=torch.int64),
    torch.arange(ROWS) % 3 == 0,
    np.array([7]),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reads_and_sizes_are_those_of_the_tensor(features, x, index):
    expected = torch.from_numpy(x.numpy()[index].copy() if index is not None else x.numpy())
    assert torch.equal(features.get_tensor("paper", "x", index), expected)
    assert features.get_tensor_size("paper", "x", index) == tuple(expected.shape)


def test_negated_views_are_stored_as_their_values(x):
    features = StoreFeatures()
    negated = torch.complex(x, x).conj().imag
    assert negated.is_neg()
    features["paper", "x", None] = negated
    assert torch.equal(features.get_tensor("paper", "x", None), -x)
    features.update_tensor(torch.complex(x, -x).conj().imag[:2], "paper", "x", torch.tensor([0, 1]))
    assert torch.equal(features.get_tensor("paper", "x", torch.tensor([0, 1])), x[:2])


def test_views_read_too(features, x):
    assert torch.equal(features["paper"].x[torch.tensor([1, 3])], x[[1, 3]])
    assert torch.equal(features["paper", "x"](), x)
    assert features.get_tensor_size("paper", "x") == (ROWS, 12)


def test_the_result_has_the_type_of_the_index_on_request(features, x):
    found = features.get_tensor("paper", "x", np.array([7]), convert_type=True)
    assert np.array_equal(found, x[[7]].numpy())


def test_several_features_are_read_at_once(features, x):
    attributes = [TensorAttr("paper", "x", torch.tensor([i])) for i in range(3)]
    assert [one.tolist() for one in features.multi_get_tensor(attributes)] == [x[i : i + 1].tolist() for i in range(3)]


def test_a_missing_feature_is_named(features):
    with pytest.raises(KeyError, match="no feature 'y' of group 'paper'"):
        features.get_tensor("paper", "y", None)
    with pytest.raises(KeyError, match="no feature 'x' of group 'author'"):
        features.update_tensor(torch.ones(1, 12), "author", "x", torch.tensor([0]))
    assert features.get_tensor_size("paper", "y") is None
    assert not features.remove_tensor("paper", "y", None)


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1])
def test_an_index_out_of_range_is_an_index_error(features, index):
    with pytest.raises(IndexError):
        features.get_tensor("paper", "x", torch.tensor([index]))
    with pytest.raises(IndexError, match="mask"):
        features.get_tensor("paper", "x", torch.ones(3, dtype=torch.bool))


def test_rows_are_changed_in_place(features, x):
    before = features.store("paper", "x")
    features.update_tensor(torch.ones(2, 12), "paper", "x", torch.tensor([3, -1]))
    expected = x.clone()
    expected[[3, -1]] = 1
    assert torch.equal(features.get_tensor("paper", "x", None), expected)
    features["paper", "x", slice(0, 2)] = torch.zeros(2, 12)
    expected[:2] = 0
    assert torch.equal(features.get_tensor("paper", "x", None), expected)
    assert features.store("paper", "x") is before
    features.update_tensor(x[:5], "paper", "x", None)
    assert features.get_tensor_size("paper", "x") == (5, 12)


def test_features_are_listed_and_removed(features, x):
    features["author", "x", None] = x[:7].numpy()
    assert {(one.group_name, one.attr_name) for one in features.get_all_tensor_attrs()} == {
        ("paper", "x"),
        ("author", "x"),
    }
    assert not any(one.is_set("index") for one in features.get_all_tensor_attrs())
    assert len(features) == 2
    del features["paper", "x"]
    assert len(features) == 1


def test_open_stores_are_attached(x, tmp_path):
    store.build(x, path=tmp_path / "x").close()
    features = StoreFeatures()
    features.attach(store.open(tmp_path / "x"), "paper", "x")
    assert torch.equal(features.get_tensor("paper", "x", torch.tensor([2, 1])), x[[2, 1]])


def test_loaders_of_pyg_fill_batches_from_it(features, x):
    node = torch.tensor([4, 1, 9])
    row, col = torch.tensor([0, 1]), torch.tensor([2, 2])
    graph = MyGraphStore()
    graph.put_edge_index((row, col), edge_type=("paper", "cites", "paper"), layout="coo", size=(ROWS, ROWS))
    batch = filter_custom_hetero_store(
        features,
        graph,
        {"paper": node},
        {("paper", "cites", "paper"): row},
        {("paper", "cites", "paper"): col},
        {("paper", "cites", "paper"): None},
    )
    assert isinstance(batch, HeteroData)
    assert torch.equal(batch["paper"].x, x[node])
    alone = StoreFeatures()
    alone.put_tensor(x, group_name=None, attr_name="x", index=None)
    batch = filter_custom_store(alone, graph, node, row, col, None)
    assert isinstance(batch, Data)
    assert torch.equal(batch.x, x[node])


def test_a_model_trains_on_batches_of_the_neighbor_loader(features, x):
    pytest.importorskip("pyg_lib", reason="pyg_lib, which samples neighbors, is not installed")
    from torch_geometric.loader import NeighborLoader

    graph = MyGraphStore()
    edges = torch.stack([torch.arange(ROWS), (torch.arange(ROWS) + 1) % ROWS])
    graph.put_edge_index(tuple(edges), edge_type=("paper", "cites", "paper"), layout="coo", size=(ROWS, ROWS))
    for batch in NeighborLoader((features, graph), num_neighbors=[2], batch_size=8, input_nodes="paper"):
        assert torch.equal(batch["paper"].x, x[batch["paper"].n_id])
