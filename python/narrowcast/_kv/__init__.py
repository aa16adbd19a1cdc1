"""Encoded blocks of KV caches go from one host to another. Neither torch nor vLLM nor NIXL is imported here."""
