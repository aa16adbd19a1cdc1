"""An embedding table that is encoded in host memory, trained together with a dense layer."""

import torch
from narrowcast.torch import RowwiseAdagrad, Table
from torch import nn

torch.manual_seed(0)
weight = torch.randn(10_000, 128).mul(0.05).bfloat16()
table = Table.from_pretrained(weight, trained=True)
dense = nn.Linear(128, 1)
optimizers = [RowwiseAdagrad(table, lr=0.1), torch.optim.SGD(dense.parameters(), lr=0.05)]

losses = []
for _ in range(50):
    indices = torch.randint(0, 1000, (256,))
    loss = nn.functional.mse_loss(dense(table(indices).float()), (indices % 2).float()[:, None])
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())

assert losses[-1] < losses[0]
table.store.save("trained.ncs")
with torch.inference_mode():
    again = Table.from_pretrained("trained.ncs")
    assert torch.equal(again(torch.arange(10)), table(torch.arange(10)))
print(
    f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; rows take {table.store.ratio:.2f} of their size ({table.store.codec})"
)
