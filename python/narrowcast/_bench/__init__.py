"""Benchmarks and tuning: what `narrowcast bench`, `tune` and `demo` run, and the oracle that checks results."""
