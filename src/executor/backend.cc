#include "executor/backend.h"

#include <iterator>

#include "bootstrap/tcp_hub_server.h"
#include "bootstrap/unique_id.h"

namespace narrowcast::executor {
namespace {

constexpr const char* names[] = {nullptr, "host", "CUDA"};  // by number
constexpr size_t numbers = std::size(names);
constexpr double unused_hub_seconds = 3600;  // for unique ids that no communicator is created from

// A local static, because backends are added before main() in any order.
Backend* registry() {
  static Backend backends[numbers] = {};
  return backends;
}

bool uses_hub(ncast_backend number) {
  const Backend* const backend = find_backend(number);
  return backend != nullptr && backend->uses_hub != nullptr && backend->uses_hub();
}

}  // namespace

void add_backend(ncast_backend number, const Backend& backend) { registry()[static_cast<size_t>(number)] = backend; }

const Backend* find_backend(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers && registry()[index].create != nullptr ? &registry()[index] : nullptr;
}

ncast_status open_hub(bootstrap::UniqueIdContent* content, bool is_local) {
  if (!uses_hub(NCAST_BACKEND_HOST) && !uses_hub(NCAST_BACKEND_CUDA)) return NCAST_OK;
  const bootstrap::Reach reach = is_local ? bootstrap::Reach::local : bootstrap::Reach::anywhere;
  return bootstrap::open_rendezvous(content->world, bootstrap::Limit{unused_hub_seconds}, reach, &content->hub);
}

void close_hub(const ncast_unique_id& id, std::optional<ncast_backend> kept) {
  if (!kept || !uses_hub(*kept)) bootstrap::close_unused_rendezvous(bootstrap::content_of(id).world);
}

const char* backend_name(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers ? names[index] : nullptr;
}

}  // namespace narrowcast::executor
