// The text of a cost model of one communicator, from times that its ranks measured (docs/guide/tuning.md).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

// What the times depend on. Each communicator with these properties has about the same.
struct CostsKey {
  std::string gpu, processor, link, kernels, nccl, ctas;
  int ranks = 0, driver = 0;
  uint64_t hosts = 0;  // which they are, if there are several

  // One line, without line breaks, whatever the names contain.
  std::string line() const;
};

class CostsText {
 public:
  // Times of less than a nanosecond are not added: nothing was measured.
  void add(Operation operation, std::string_view series, uint64_t bytes, double microseconds);
  std::string text(const CostsKey& key) const;

 private:
  using Points = std::map<uint64_t, double>;  // microseconds by bytes
  std::map<std::pair<Operation, std::string>, Points> curves_;
};

}  // namespace narrowcast::nccl
