// Settings that must be the same on every rank: ranks that differ in one would lay out memory differently, or run
// calls in different ways.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// The settings of one rank, as text. Copied as bytes between ranks.
class SharedSettings {
 public:
  // Contains the version of the library.
  SharedSettings();

  // Names and values are for messages: "scratch_bytes", "4194304". Every rank adds the same names in the same order.
  // Errors: INTERNAL if there are too many.
  ncast_status add(std::string_view name, std::string_view value);
  ncast_status add(std::string_view name, uint64_t value) { return add(name, std::to_string(value)); }

  // "name=value" for each setting, by line.
  std::string_view text() const { return {text_, bytes_ <= sizeof text_ ? bytes_ : 0}; }

 private:
  uint32_t bytes_ = 0;
  char text_[252] = {};
};

// MISMATCH if a setting differs. The message is the same on all ranks: it names the setting, the ranks that differ from
// most others, and both values.
ncast_status check_same_settings(std::span<const SharedSettings> by_rank);

}  // namespace narrowcast::bootstrap
