"""Features of a graph for PyTorch Geometric, encoded in host memory."""

import torch
from narrowcast.integrations.pyg import StoreFeatures
from torch_geometric.loader.utils import filter_custom_hetero_store
from torch_geometric.testing import MyGraphStore

torch.manual_seed(0)
bags_of_words = (torch.rand(5000, 500) < 0.03).float()
features = StoreFeatures()
features["paper", "x", None] = bags_of_words

nodes = torch.tensor([4, 17, 4096])
assert torch.equal(features["paper", "x", nodes], bags_of_words[nodes])
# What a loader does for each batch: edges between the sampled nodes, and their features.
batch = filter_custom_hetero_store(features, MyGraphStore(), {"paper": nodes}, {}, {}, {})
assert torch.equal(batch["paper"].x, bags_of_words[nodes])

store = features.store("paper", "x")
print(f"{len(store)} rows take {store.ratio:.2f} of their size ({store.codec})")
