// Reductions of the fake NCCL. They add in another order than Narrowcast and round after every addition, as NCCL may.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nccl_transfers.h"

namespace {

char* at(const void* buffer, size_t offset) { return static_cast<char*>(const_cast<void*>(buffer)) + offset; }

float widen(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

uint16_t narrow(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// Adds the values of all ranks from the last to the first, whereas Narrowcast begins with the first.
int reduce(Comm* comm, const void* send, void* recv, size_t count, int type, int op, bool scatter, bool has_result,
           void* stream, int root) {
  const bool by_user = op >= first_user_reduction;
  if (by_user && ((type != 2 && type != 7) || op - first_user_reduction >= static_cast<int>(comm->factors.size())))
    return invalid_argument;
  if ((op != 0 && !by_user) || (type != 9 && type != 2 && type != 7)) return invalid_argument;
  const float factor = by_user ? comm->factors[static_cast<size_t>(op - first_user_reduction)] : 1;
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Part> sends, receives;
  auto* gathered = new char[bytes * static_cast<size_t>(comm->ranks)];
  for (int r = 0; r < comm->ranks; ++r) {
    if (root < 0 || r == root) sends.push_back({at(send, scatter ? static_cast<size_t>(r) * bytes : 0), bytes, r});
    if (has_result) receives.push_back({gathered + static_cast<size_t>(r) * bytes, bytes, r});
  }
  auto finish = [=, ranks = comm->ranks] {
    const auto value = [&](int rank, size_t i) {
      return gathered + (static_cast<size_t>(rank) * count + i) * static_cast<size_t>(bytes_of(type));
    };
    for (size_t i = 0; has_result && i < count; ++i) {
      if (type == 2) {
        int32_t total = 0;
        for (int r = 0; r < ranks; ++r) total += *reinterpret_cast<int32_t*>(value(r, i));
        static_cast<int32_t*>(recv)[i] = static_cast<int32_t>(factor) * total;
      } else if (type == 7) {
        float total = 0;
        for (int r = ranks - 1; r >= 0; --r) total += factor * *reinterpret_cast<float*>(value(r, i));
        static_cast<float*>(recv)[i] = total;
      } else {
        uint16_t total = *reinterpret_cast<uint16_t*>(value(ranks - 1, i));
        for (int r = ranks - 2; r >= 0; --r)
          total = narrow(widen(total) + widen(*reinterpret_cast<uint16_t*>(value(r, i))));
        static_cast<uint16_t*>(recv)[i] = total;
      }
    }
    if (std::getenv("FAKE_NCCL_WRONG") != nullptr && has_result && count > 4) {
      static_cast<uint16_t*>(recv)[3] ^= 0x4000;
    }
  };
  return submit(comm, sends, receives, stream, finish);
}

}  // namespace
