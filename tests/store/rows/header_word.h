// The first word of a row's payload.
#pragma once

#include <cstring>

#include "codec/buffers.h"

namespace narrowcast::tests {

inline uint32_t header_of(const Bytes& payload) {
  uint32_t header;
  std::memcpy(&header, payload.data(), sizeof header);
  return header;
}

}  // namespace narrowcast::tests
