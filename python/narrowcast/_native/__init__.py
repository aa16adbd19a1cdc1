"""The C libraries that the bindings call, through ctypes: libnarrowcast, the CUDA driver, NVML."""
