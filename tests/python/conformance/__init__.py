"""What every backend's communicators must do: cases and rank jobs, written once for all backends.

`suite.Conformance` has the tests; test_conformance.py runs them on the host backend, gpu/test_collectives.py on GPUs.
"""
