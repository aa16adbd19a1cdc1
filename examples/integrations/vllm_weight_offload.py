"""vLLM generates text with three of four layers encoded in host memory.

Needs a GPU and a model: python vllm_weight_offload.py MODEL
"""

import sys

from vllm import LLM, SamplingParams

model = LLM(
    sys.argv[1],
    worker_cls="narrowcast.integrations.vllm_weights.EncodedOffloadWorker",
    offload_backend="prefetch",
    offload_group_size=4,
    offload_num_in_group=3,
)
prompts = ["The capital of France is", "def fibonacci(n):"]
for found in model.generate(prompts, SamplingParams(temperature=0, max_tokens=32)):
    print(found.prompt + found.outputs[0].text)
