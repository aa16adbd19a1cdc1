// The coder `window` of the reference: trimmed values of a row to header word and sections, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/rows/window_layout.h"

namespace narrowcast::store {

// Returns false if the row has to be stored raw because the header word cannot express its window.
bool encode_window_values(const WindowLayout& layout, std::span<const uint64_t> values, uint32_t* header,
                          std::vector<uint8_t>& body);

// Reads values.size() values. `body` may contain anything and end later than the payload. Returns false if it does not
// follow the format.
bool decode_window_values(const WindowLayout& layout, uint32_t header, const uint8_t* body, size_t body_bytes,
                          std::span<uint64_t> values);

}  // namespace narrowcast::store
