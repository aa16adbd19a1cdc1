// The implementations behind RowModel: a reference, and fast ones for each coder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/rows/model.h"

namespace narrowcast::store {

// Functions for rows that are not stored raw.
struct RowCoder {
  // Returns the bytes of the payload, or 0 if the row has to be stored raw: it does not follow the model, or its
  // payload would not be shorter than a raw one. May write up to RowModel::bound() bytes in both cases.
  size_t (*encode)(const Model& model, const uint8_t* row, uint8_t* payload);
  // As RowModel::decode(). The header's place is place_here and its raw bit is 0.
  bool (*decode)(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row);
};

// Simple scalar code for all coders, the oracle of the tests.
extern const RowCoder reference;

// Writes the payload of a row that is stored raw and returns its bytes.
size_t store_raw(uint64_t row_bytes, const uint8_t* row, uint8_t* payload);

}  // namespace narrowcast::store
