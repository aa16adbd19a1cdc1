// Replaces malloc, as allocators that are preloaded do.
#include <cstddef>

extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* malloc(size_t bytes) { return __libc_malloc(bytes); }
