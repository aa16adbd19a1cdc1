"""A pipeline of DGL's GraphBolt that fetches features from host memory, where they are encoded."""

import torch
from dgl import graphbolt
from narrowcast import store
from narrowcast.integrations.graphbolt import StoreFeature

torch.manual_seed(0)
nodes = 5000
values = torch.randn(nodes, 128).bfloat16()
features = graphbolt.BasicFeatureStore({("node", None, "feat"): StoreFeature(store.build(values))})

ring = graphbolt.fused_csc_sampling_graph(torch.arange(nodes + 1), (torch.arange(nodes) + 1) % nodes)
pipe = graphbolt.ItemSampler(graphbolt.ItemSet(torch.arange(nodes), names="seed_nodes"), batch_size=500)
pipe = pipe.sample_neighbor(ring, [1]).fetch_feature(features, node_feature_keys=["feat"])
batches = 0
for batch in graphbolt.DataLoader(pipe):
    assert torch.equal(batch.node_features["feat"], values[batch.input_nodes])
    batches += 1
print(f"{batches} batches")
