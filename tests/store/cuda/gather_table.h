// A table of encoded rows in memory, as gather kernels see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "store/cuda/gather_arguments.h"
#include "store/cuda/shape.h"
#include "store/rows/format.h"

namespace narrowcast::store::cuda::test {

using Bytes = std::vector<uint8_t>;

// Zeroed pages of its own, which can be registered with CUDA.
class Pages {
 public:
  explicit Pages(size_t bytes = 0)
      : bytes_((bytes + 1 + page - 1) / page * page),
        memory_(static_cast<char*>(std::aligned_alloc(page, bytes_)), std::free) {
    std::memset(memory_.get(), 0, bytes_);
  }
  char* at(size_t offset = 0) const { return memory_.get() + offset; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t page = 4096;
  size_t bytes_;
  std::unique_ptr<char, void (*)(void*)> memory_;
};

struct Table {
  std::vector<Bytes> rows;      // decoded
  std::vector<Bytes> payloads;  // encoded; the rows themselves if they are not coded
  bool is_coded = true;
  uint64_t stride = 0;  // 0: packed
  uint32_t unit;        // of the offsets
  Pages slots, entries, headers;
  std::vector<uint32_t> offsets;
  uint64_t entry_stride = 0;
  uint32_t entry_count = 0;
  uint32_t longest = 0;

  // Places payloads at a stride, or packed. Those that are longer than the stride, and `moved` others, get an entry.
  Table(std::vector<Bytes> decoded, std::vector<Bytes> encoded, bool coded, uint64_t at_stride, uint32_t at_unit,
        size_t moved, std::mt19937_64& random)
      : rows(std::move(decoded)), payloads(std::move(encoded)), is_coded(coded), stride(at_stride), unit(at_unit) {
    for (const Bytes& payload : payloads) longest = std::max(longest, static_cast<uint32_t>(payload.size()));
    entry_stride = (longest + 31) / 32 * 32;
    std::vector<bool> is_moved(rows.size());
    for (size_t i = 0; i < moved; ++i) is_moved[random() % rows.size()] = true;
    if (stride == 0) {
      is_moved.assign(rows.size(), false);
      size_t bytes = 0;
      for (const Bytes& payload : payloads) {
        offsets.push_back(static_cast<uint32_t>(bytes / unit));
        bytes += (payload.size() + unit - 1) / unit * unit;
      }
      offsets.push_back(static_cast<uint32_t>(bytes / unit));
      slots = Pages(bytes + 16);
    } else {
      slots = Pages(stride * rows.size() + 16);
    }
    entries = Pages(entry_stride * (rows.size() + 1));
    headers = Pages(rows.size() * 4);
    for (size_t i = 0; i < rows.size(); ++i) {
      char* const slot = slots.at(stride == 0 ? size_t{offsets[i]} * unit : i * stride);
      if (!is_moved[i] && (stride == 0 || payloads[i].size() <= stride)) {
        std::memcpy(slot, payloads[i].data(), payloads[i].size());
        continue;
      }
      const uint32_t redirect = place_redirect | entry_count << redirect_shift;
      if (is_coded) {
        std::memcpy(slot, &redirect, 4);
      } else {
        std::memcpy(headers.at(4 * i), &redirect, 4);
      }
      std::memcpy(entries.at(entry_stride * entry_count++), payloads[i].data(), payloads[i].size());
    }
  }

  RowPlaces places() {
    RowPlaces places = {};
    places.slots = slots.at();
    places.stride = stride;
    places.offsets = stride == 0 ? offsets.data() : nullptr;
    places.unit_bytes = unit;
    places.headers = is_coded ? nullptr : reinterpret_cast<const uint32_t*>(headers.at());
    places.entries = entries.at();
    places.entry_stride = entry_stride;
    places.entry_count = entry_count;
    return places;
  }
  // Coder raw: whether an entry has the row. Payloads that are coded say it themselves.
  bool is_moved(size_t row) const {
    uint32_t word = 0;
    std::memcpy(&word, headers.at(4 * row), 4);
    return (word & place_mask) == place_redirect;
  }
  // What the slot of a row has: its begin and its bytes.
  std::pair<uint64_t, uint64_t> slot(size_t row) const {
    if (stride != 0) return {row * stride, stride};
    return {uint64_t{offsets[row]} * unit, uint64_t{offsets[row + 1] - offsets[row]} * unit};
  }
  // What a call fetches ahead: the slot, or the payloads of most rows.
  uint32_t slot_bytes() const {
    if (stride != 0) return static_cast<uint32_t>(stride);
    std::vector<size_t> sizes;
    for (const Bytes& payload : payloads) sizes.push_back(payload.size());
    std::ranges::sort(sizes);
    return static_cast<uint32_t>(sizes[sizes.size() * 9 / 10]);
  }
};

}  // namespace narrowcast::store::cuda::test
