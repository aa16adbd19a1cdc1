"""A prompt that one instance of vLLM computes and another one continues: its KV cache is sent encoded, over NIXL.

Needs NIXL, a model, and two GPUs or vLLM for CPUs: python vllm_disaggregated.py MODEL
"""

import contextlib
import logging
import multiprocessing
import os
import sys

PROMPT = "The quick brown fox jumps over the lazy dog. " * 200


def instance(number, model, role, connection):
    """An instance of vLLM, which answers (prompt, tokens, kv_transfer_params) until the connection is closed."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)
    os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(5600 + number)
    logging.basicConfig()
    logging.getLogger("narrowcast").setLevel(logging.INFO)  # what is received
    from vllm import LLM, SamplingParams

    transfer = {
        "kv_connector": "EncodedNixlConnector",
        "kv_connector_module_path": "narrowcast.integrations.vllm_transfer",
        "kv_role": role,
        "kv_load_failure_policy": "recompute",
    }
    llm = LLM(model, kv_transfer_config=transfer)
    llm.generate("Warm up.", use_tqdm=False)  # on CPUs, decoding fails in a process that has not computed a prompt
    with contextlib.suppress(EOFError):
        while True:
            prompt, tokens, params = connection.recv()
            options = SamplingParams(temperature=0, max_tokens=tokens, extra_args={"kv_transfer_params": params})
            (answer,) = llm.generate(prompt, options, use_tqdm=False)
            connection.send((answer.outputs[0].text, answer.kv_transfer_params))


def main():
    processes = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        ends = []
        for number, role in enumerate(["kv_producer", "kv_consumer"]):
            here, there = processes.Pipe()
            ends.append(stack.enter_context(here))
            with there:
                processes.Process(target=instance, args=(number, sys.argv[1], role, there)).start()
        prefill, decode = ends
        # What a proxy does:
        prefill.send((PROMPT, 1, {"do_remote_decode": True, "do_remote_prefill": False}))
        _, params = prefill.recv()
        decode.send((PROMPT, 16, params))
        text, _ = decode.recv()
        prefill.send((PROMPT, 16, None))
        expected, _ = prefill.recv()
        assert text == expected, (text, expected)


if __name__ == "__main__":
    main()
