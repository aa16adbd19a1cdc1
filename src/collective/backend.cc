#include "collective/backend.h"

#include <iterator>

namespace narrowcast::collective {
namespace {

constexpr const char* names[] = {nullptr, "host", "CUDA"};  // by number
constexpr size_t numbers = std::size(names);

// A local static, as backends are added before main() and in any order.
Backend* registry() {
  static Backend backends[numbers] = {};
  return backends;
}

}  // namespace

void add_backend(ncast_backend number, const Backend& backend) { registry()[static_cast<size_t>(number)] = backend; }

const Backend* find_backend(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers && registry()[index].create != nullptr ? &registry()[index] : nullptr;
}

const char* backend_name(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers ? names[index] : nullptr;
}

}  // namespace narrowcast::collective
