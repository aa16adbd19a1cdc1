"""Pages of a KV cache in files, as a server of SGLang writes and reads them: encoded."""

import tempfile
from pathlib import Path

import torch
from narrowcast.integrations.sglang import EncodedHiCacheFile
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

with tempfile.TemporaryDirectory() as folder:
    config = HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name="model",
        extra_config={"file_storage_path": folder},
    )
    storage = EncodedHiCacheFile(config)
    pages = [torch.randn(1 << 17).bfloat16() for _ in range(8)]
    keys = [f"page{i}" for i in range(8)]
    assert storage.batch_set(keys, pages)
    found = storage.batch_get(keys, [torch.empty_like(one) for one in pages])
    assert all(torch.equal(one, page) for one, page in zip(found, pages, strict=True))
    written = sum(path.stat().st_size for path in Path(folder).glob("*.bin"))
    print(f"{sum(one.nbytes for one in pages)} bytes of pages take {written} bytes of files")
    storage.close()
