"""Conformance tests of communicators, shared by all backends.

`suite.Conformance` has the tests; test_conformance.py runs them on the host backend, gpu/test_collectives.py on GPUs.
"""
