"""Group offloading of diffusers, on a CPU."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")

from diffusers.hooks import apply_group_offloading  # noqa: E402
from narrowcast.integrations.diffusers import encode_groups  # noqa: E402
from torch import nn  # noqa: E402


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    # diffusers asks for the accelerator; here it is the CPU.
    if torch.accelerator.current_accelerator() is None:
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before = nn.Linear(32, 64)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)])
        self.norm = nn.BatchNorm1d(64)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.to(torch.bfloat16).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) * self.scale


X = torch.ones(3, 32, dtype=torch.bfloat16)
OPTIONS = [{"offload_type": "leaf_level"}, {"offload_type": "block_level", "num_blocks_per_group": 2}]


def run(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(X)


@pytest.mark.parametrize("options", OPTIONS, ids=["leaves", "blocks"])
def test_outputs_have_the_same_bits(options):
    model, expected = Model(), run(Model())
    apply_group_offloading(model, torch.device("cpu"), **options)
    groups = encode_groups(model)
    for _ in range(3):
        assert torch.equal(run(model), expected)
    values = [*Model().parameters(), *Model().buffers()]
    assert groups.raw_bytes == sum(one.nbytes for one in values)


class Tied(nn.Module):
    """Weights that several groups share: those of layers, and one that the module itself uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(32, 32), nn.Linear(32, 32)
        self.blocks = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.blocks[0].weight = self.blocks[2].weight
        self.after.weight = self.before.weight
        self.scale = self.blocks[1].bias
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x.float())
        for block in self.blocks:
            x = block(x)
        return self.after(x) * self.scale


@pytest.mark.parametrize("options", [OPTIONS[0], {**OPTIONS[1], "num_blocks_per_group": 1}], ids=["leaves", "blocks"])
def test_weights_of_several_groups_keep_their_bits(options):
    model, expected = Tied(), run(Tied())
    apply_group_offloading(model, torch.device("cpu"), **options)
    groups = encode_groups(model)
    for _ in range(3):
        assert torch.equal(run(model), expected)
    assert groups.raw_bytes == sum(one.nbytes for one in Tied().parameters())
    assert all(one.isnan().all() for one in model.parameters())


def test_strides_are_those_of_the_weights():
    seen = []

    class Conv(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(self.weight.stride())
            return super().forward(x)

    model = nn.Sequential(Conv(8, 8, 3)).to(memory_format=torch.channels_last)
    apply_group_offloading(model, torch.device("cpu"), offload_type="leaf_level")
    encode_groups(model)
    with torch.no_grad():
        model(torch.ones(1, 8, 4, 4))
    assert seen == [nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last).weight.stride()]


def test_copies_and_conversions_of_encoded_groups_are_errors():
    model = Model()
    apply_group_offloading(model, torch.device("cpu"), offload_type="leaf_level")
    groups = encode_groups(model)
    for function in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            function(groups)
    with pytest.raises(TypeError):  # from diffusers, also without encoded groups
        copy.deepcopy(model)
    model.float()
    with pytest.raises(TypeError, match=r"encoded as torch.bfloat16 was converted to torch.float32"):
        run(model)


def test_weights_are_in_memory_only_while_they_are_used():
    model = Model()
    apply_group_offloading(model, torch.device("cpu"), offload_type="leaf_level")
    encode_groups(model)
    layer = model.blocks[1][0]
    assert layer.weight.isnan().all()
    assert layer.weight.untyped_storage().nbytes() < 64
    run(model)
    assert layer.weight.isnan().all()
    assert layer.weight.shape == (64, 64)


def test_bfloat16_weights_take_less_memory():
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)).bfloat16()
    apply_group_offloading(model, torch.device("cpu"), offload_type="leaf_level")
    groups = encode_groups(model)
    assert groups.wire_bytes / groups.raw_bytes == groups.ratio < 0.75


def test_a_model_of_diffusers_has_the_same_output():
    def made():
        torch.manual_seed(0)
        return diffusers.UNet2DModel(
            sample_size=8,
            in_channels=3,
            out_channels=3,
            layers_per_block=1,
            block_out_channels=(32, 64),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
        ).eval()

    model, x = made(), torch.ones(1, 3, 8, 8)
    with torch.no_grad():
        expected = made()(x, 10).sample
        model.enable_group_offload(torch.device("cpu"), offload_type="leaf_level")
        encode_groups(model)
        for _ in range(2):
            assert torch.equal(model(x, 10).sample, expected)


def test_what_cannot_be_encoded_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="call apply_group_offloading first"):
        encode_groups(Model())
    model = Model()
    apply_group_offloading(model, torch.device("cpu"), offload_type="leaf_level")
    encode_groups(model)
    with pytest.raises(ValueError, match="is encoded already"):
        encode_groups(model)
    on_disk = Model()
    apply_group_offloading(on_disk, torch.device("cpu"), offload_type="leaf_level", offload_to_disk_path=str(tmp_path))
    with pytest.raises(ValueError, match="is offloaded to a disk"):
        encode_groups(on_disk)
