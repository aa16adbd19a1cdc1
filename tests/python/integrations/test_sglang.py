"""Storage of SGLang's hierarchical cache, created by its factory."""

from __future__ import annotations

import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
hicache = pytest.importorskip(
    "sglang.srt.mem_cache.hicache_storage", reason="sglang is not installed", exc_type=ImportError
)

from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

PAGE = (2, 4, 16, 128)


def config_of(extra: dict):
    return hicache.HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name="some/model",
        extra_config=extra,
    )


@pytest.fixture
def create(tmp_path):
    made = []

    def create(**options):
        extra = {
            "backend_name": "narrowcast",
            "module_path": "narrowcast.integrations.sglang",
            "class_name": "EncodedHiCacheFile",
            "file_storage_path": str(tmp_path / "pages"),
        }
        config = config_of(extra | options)
        made.append(StorageBackendFactory.create_backend("dynamic", config, None))
        return made[-1]

    yield create
    for one in made:
        one.close()


def pages(count: int, dtype=torch.bfloat16) -> list:
    torch.manual_seed(0)
    return [(torch.randn(PAGE) * 0.3).to(dtype).flatten() for _ in range(count)]


def files(tmp_path) -> list:
    return sorted((tmp_path / "pages").glob("*.bin"))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.int8, torch.uint8]
)
def test_pages_come_back_with_the_same_bits(create, dtype):
    storage, data = create(), pages(5, dtype)
    keys = [f"key{i}" for i in range(5)]
    assert storage.batch_set(keys, data)
    found = storage.batch_get([*keys, "missing"], [torch.empty_like(data[0]) for _ in range(6)])
    assert found[5] is None
    for one, expected in zip(found, data, strict=False):
        assert torch.equal(one.view(torch.uint8), expected.view(torch.uint8))
    assert storage.set("alone", data[0])
    assert torch.equal(storage.get("alone", torch.empty_like(data[0])).view(torch.uint8), data[0].view(torch.uint8))


def test_files_are_smaller_than_pages(create, tmp_path):
    assert create().batch_set(["a", "b"], pages(2))
    raw_bytes = pages(1)[0].nbytes
    assert [one.stat().st_size < 0.75 * raw_bytes for one in files(tmp_path)] == [True, True]


def test_an_unknown_codec_is_an_error_at_once(create):
    with pytest.raises(ValueError, match="nonsense"):
        create(codec="nonsense")


def test_prefixes_are_found(create):
    storage = create()
    assert storage.batch_set(["a", "b", "d"], pages(3))
    assert storage.batch_exists(["a", "b", "c", "d"]) == 2
    assert [storage.exists(key) for key in "abcd"] == [True, True, False, True]
    assert storage.batch_exists_v2(["a", "b", "c"]).kv_hit_pages == 2


def test_another_process_finds_the_pages(create):
    data = pages(1)[0]
    assert create().set("a", data)
    assert torch.equal(create().get("a", torch.empty_like(data)), data)


def test_pages_are_not_written_twice(create, tmp_path):
    storage, (first, second) = create(), pages(2)
    assert storage.set("a", first)
    (path,) = files(tmp_path)
    before = path.stat().st_mtime_ns
    assert storage.set("a", second)
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("damage", ["changed", "cut", "empty"])
def test_a_damaged_page_is_a_miss_and_written_again(create, tmp_path, cached, damage):
    storage, data = create(enable_metadata_cache=cached), pages(1)[0]
    assert storage.set("a", data)
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes({"changed": content, "cut": content[:500], "empty": b""}[damage])
    assert storage.get("a", torch.empty_like(data)) is None
    assert not storage.exists("a")
    assert storage.set("a", data)
    assert torch.equal(storage.get("a", torch.empty_like(data)), data)


def test_a_page_of_another_size_is_a_miss(create):
    storage, data = create(), pages(1)[0]
    assert storage.set("a", data)
    assert storage.batch_get(["a"], [torch.empty(7, dtype=torch.bfloat16)]) == [None]


def test_a_target_that_is_not_contiguous_is_an_error(create):
    storage, data = create(), pages(1)[0]
    assert storage.set("a", data)
    with pytest.raises(RuntimeError, match="view"):
        storage.get("a", torch.empty(2 * len(data), dtype=data.dtype).view(2, -1, 2)[..., 0])


def test_limits_apply_to_encoded_pages(create, tmp_path):
    raw_bytes = pages(1)[0].nbytes
    storage = create(max_size=10 * raw_bytes, eviction_ratio=1.0)
    keys = [f"key{i}" for i in range(30)]
    for key, page in zip(keys, pages(30), strict=True):
        assert storage.set(key, page)
    used = sum(one.stat().st_size for one in files(tmp_path))
    assert used <= 10 * raw_bytes
    assert len(files(tmp_path)) > 10
    assert storage.exists("key29")
    assert not storage.exists("key0")


def test_raw_files_in_the_same_folder_are_not_mixed_up(create, tmp_path):
    storage, data = create(), pages(1)[0]
    raw = hicache.HiCacheFile(config_of({"file_storage_path": str(tmp_path / "pages")}))
    assert raw.set("a", data)
    assert not storage.exists("a")
    assert storage.set("a", data)
    assert torch.equal(raw.get("a", torch.empty_like(data)), data)


def test_extra_pools_are_stored_too(create):
    storage, data = create(), pages(3)

    class Pool:
        page_size = 2

        def __init__(self) -> None:
            self.content = dict(enumerate(data))

        def get_data_page(self, index, flat=True):
            return self.content[index // self.page_size]

        def get_dummy_flat_data_page(self):
            return torch.empty_like(data[0])

        def set_from_flat_data_page(self, index, page):
            self.content[index // self.page_size] = page

    pool = Pool()
    storage.register_mem_host_pool_v2(pool, "swa")
    transfer = types.SimpleNamespace(name="swa", keys=["a", "b", "c"], host_indices=torch.arange(6))
    assert storage.batch_set_v2([transfer]) == {"swa": [True] * 3}
    pool.content = {}
    assert storage.batch_get_v2([transfer]) == {"swa": [True] * 3}
    assert all(torch.equal(pool.content[i], data[i]) for i in range(3))


def test_clearing_removes_all_pages(create, tmp_path):
    storage = create()
    assert storage.batch_set(["a", "b"], pages(2))
    storage.clear()
    assert files(tmp_path) == []
    assert not storage.exists("a")
