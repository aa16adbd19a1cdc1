#include "nccl/calls/user_reductions.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "narrowcast/types.h"

namespace narrowcast::nccl {
namespace {

struct Stored {
  int dtype;
  Factor factor;
};

// Never freed: calls may come until the process ends.
std::mutex& factors_mutex() {
  static std::mutex& the = *new std::mutex;
  return the;
}
std::map<std::pair<Comm, int>, Stored>& factors() {
  static auto& the = *new std::map<std::pair<Comm, int>, Stored>;
  return the;
}

template <typename Number>
Number number_at(const void* address) {
  Number number;
  std::memcpy(&number, address, sizeof number);
  return number;
}

double number_of(const void* address, int dtype) {
  switch (dtype) {
    case NCAST_FLOAT64: return number_at<double>(address);
    case NCAST_FLOAT32: return static_cast<double>(number_at<float>(address));
    case NCAST_FLOAT16: return static_cast<double>(number_at<_Float16>(address));
    default: return static_cast<double>(std::bit_cast<float>(uint32_t{number_at<uint16_t>(address)} << 16));
  }
}

}  // namespace

void remember_factor(Comm comm, int redop, const void* factor, int dtype, bool in_memory) {
  if (dtype < NCAST_FLOAT16 || dtype > NCAST_BFLOAT16) return;
  const Factor stored = in_memory ? Factor{0, factor} : Factor{number_of(factor, dtype), nullptr};
  const std::lock_guard lock(factors_mutex());
  factors()[{comm, redop}] = {dtype, stored};
}

void forget_factor(Comm comm, int redop) {
  const std::lock_guard lock(factors_mutex());
  factors().erase({comm, redop});
}

void forget_factors(Comm comm) {
  const std::lock_guard lock(factors_mutex());
  std::erase_if(factors(), [comm](const auto& entry) { return entry.first.first == comm; });
}

std::optional<Factor> factor_of(const Call& call) {
  if (!reduces(call.operation) || call.redop < first_user_reduction) return std::nullopt;
  const std::lock_guard lock(factors_mutex());
  const auto found = factors().find({call.comm, call.redop});
  if (found == factors().end() || found->second.dtype != call.dtype) return std::nullopt;
  return found->second.factor;
}

}  // namespace narrowcast::nccl
