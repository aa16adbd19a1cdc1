"""Features of GraphBolt. The packages of DGL need torch 2.2 or older."""

from __future__ import annotations

import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
graphbolt = pytest.importorskip("dgl.graphbolt", reason="dgl is not installed", exc_type=ImportError)

from narrowcast import store  # noqa: E402
from narrowcast.integrations import graphbolt as ours  # noqa: E402
from narrowcast.integrations.graphbolt import StoreFeature  # noqa: E402
from simulated_streams import simulate  # noqa: E402

ROWS = 40


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(ROWS, 12)


@pytest.fixture
def feature(x):
    return StoreFeature(store.build(x))


def test_reads_are_those_of_a_tensor(feature, x):
    other = graphbolt.TorchBasedFeature(x)
    assert torch.equal(feature.read(), other.read())
    for ids in (torch.tensor([5, 5, 39, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([1], dtype=torch.int32)):
        assert torch.equal(feature.read(ids), other.read(ids))
    assert feature.size() == x.shape[1:]
    assert feature.count() == ROWS


def test_reads_run_in_the_background(feature, x):
    futures = list(feature.read_async(torch.tensor([3, 1])))
    assert len(futures) == feature.read_async_num_stages(torch.device("cpu"))
    assert torch.equal(futures[-1].wait(), x[[3, 1]])
    (bad,) = feature.read_async(torch.tensor([ROWS]))
    with pytest.raises(IndexError):
        bad.wait()


@pytest.mark.parametrize("other", [False, True], ids=["same stream", "other stream"])
def test_reads_of_a_gpu_are_awaited_by_streams(monkeypatch, feature, x, other):
    streams, recorded, found = simulate(monkeypatch), [], []

    def gather(_, ids):
        out = torch.zeros(len(ids.numbers), 12)
        streams.current.enqueue(lambda: out.copy_(x[ids.numbers]))
        return out

    monkeypatch.setattr(ours, "gather", gather)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append(stream))
    ids = types.SimpleNamespace(is_cuda=True, numbers=torch.tensor([3, 1]))
    reading = torch.cuda.Stream() if other else streams.main
    with torch.cuda.stream(reading):
        (read,) = feature.read_async(ids)
    rows = read.wait()
    streams.main.enqueue(lambda: found.append(rows.clone()))
    streams.run()
    assert torch.equal(found[0], x[[3, 1]])
    assert recorded == [streams.main]


def test_updates_are_those_of_a_tensor(feature, x):
    feature.update(torch.ones(2, 12), torch.tensor([3, 0]))
    x[[3, 0]] = 1
    assert torch.equal(feature.read(), x)
    feature.update(x + 1)
    assert torch.equal(feature.read(), x + 1)
    with pytest.raises(ValueError, match=r"value has shape \(2, 12\), but \(1, 12\) is needed"):
        feature.update(torch.ones(2, 12), torch.tensor([3]))


def test_metadata_is_that_of_the_store_or_given(x):
    made = store.build(x, metadata={"source": "test"})
    assert StoreFeature(made).metadata() == {"source": "test"}
    assert StoreFeature(made, {"a": 1}).metadata() == {"a": 1}
    assert StoreFeature(store.build(x)).metadata() == {}


def test_a_bad_id_is_an_index_error(feature):
    with pytest.raises(IndexError):
        feature.read(torch.tensor([0, ROWS]))


def test_a_feature_store_of_graphbolt_has_it(feature, x):
    features = graphbolt.BasicFeatureStore({("node", None, "feat"): feature})
    assert torch.equal(features.read("node", None, "feat", torch.tensor([7])), x[[7]])
    assert features.size("node", None, "feat") == (12,)


def test_a_pipeline_of_graphbolt_fetches_from_it(feature, x):
    indptr = torch.arange(ROWS + 1)
    graph = graphbolt.fused_csc_sampling_graph(indptr, (torch.arange(ROWS) + 1) % ROWS)
    items = graphbolt.ItemSet(torch.arange(ROWS), names="seed_nodes")
    pipe = graphbolt.ItemSampler(items, batch_size=8).sample_neighbor(graph, [1])
    features = graphbolt.BasicFeatureStore({("node", None, "feat"): feature})
    pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
    batches = list(graphbolt.DataLoader(pipe))
    assert len(batches) == ROWS // 8
    for batch in batches:
        assert torch.equal(batch.node_features["feat"], x[batch.input_nodes])
