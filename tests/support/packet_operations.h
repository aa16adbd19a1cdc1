// The operations that can run by packets.
#pragma once

#include <vector>

#include "operation/operation.h"

namespace narrowcast::testing {

inline const std::vector<operation::Operation>& packet_operations() {
  static const std::vector<operation::Operation> all = [] {
    std::vector<operation::Operation> found;
    for (const operation::Description& row : operation::descriptions)
      if (can_use_packets(row.operation)) found.push_back(row.operation);
    return found;
  }();
  return all;
}

}  // namespace narrowcast::testing
