// The checksum of table files: the 64-bit XXH3 with seed 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::store::file {

uint64_t checksum(const void* bytes, size_t count);

}  // namespace narrowcast::store::file
