"""A long prompt that is used twice: vLLM restores its KV cache from host memory, where it is encoded.

Needs a GPU and a model: python vllm_kv_offload.py MODEL
"""

import sys
import time

from vllm import LLM, SamplingParams

transfer = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "spec_name": "EncodedOffloadingSpec",
        "spec_module_path": "narrowcast.integrations.vllm",
        "cpu_bytes_to_use": 16 << 30,
    },
}
model = LLM(sys.argv[1], kv_transfer_config=transfer, enable_prefix_caching=True)
prompt = "The quick brown fox jumps over the lazy dog. " * 500
options = SamplingParams(temperature=0, max_tokens=16)
texts = []
for _ in range(2):
    begin = time.perf_counter()
    texts.append(model.generate(prompt, options)[0].outputs[0].text)
    print(f"{time.perf_counter() - begin:.2f} s")
    time.sleep(1)  # blocks are offloaded after the step that computed them
    model.reset_prefix_cache()  # of the GPU
assert texts[0] == texts[1]
