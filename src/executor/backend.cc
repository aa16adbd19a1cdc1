#include "executor/backend.h"

#include <iterator>

#include "bootstrap/unique_id.h"

namespace narrowcast::executor {
namespace {

constexpr const char* names[] = {nullptr, "host", "CUDA"};  // by number
constexpr size_t numbers = std::size(names);

// A local static, because backends are added before main() in any order.
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

void release_id(const ncast_unique_id& id, std::optional<ncast_backend> kept) {
  const bootstrap::UniqueIdContent content = bootstrap::content_of(id);
  for (const ncast_backend number : {NCAST_BACKEND_HOST, NCAST_BACKEND_CUDA}) {
    const Backend* const backend = find_backend(number);
    if (number != kept && backend != nullptr && backend->release_id != nullptr) backend->release_id(content);
  }
}

const char* backend_name(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers ? names[index] : nullptr;
}

}  // namespace narrowcast::executor
