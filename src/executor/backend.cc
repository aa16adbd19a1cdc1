#include "executor/backend.h"

#include <iterator>

#include "bootstrap/tcp_hub_server.h"

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

}  // namespace

void add_backend(ncast_backend number, const Backend& backend) { registry()[static_cast<size_t>(number)] = backend; }

const Backend* find_backend(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers && registry()[index].create != nullptr ? &registry()[index] : nullptr;
}

bool uses_hub(ncast_backend number, const bootstrap::UniqueIdContent& content) {
  const Backend* const backend = find_backend(number);
  return backend != nullptr && backend->uses_hub != nullptr && backend->uses_hub(content);
}

ncast_status open_hub(bootstrap::UniqueIdContent* content, bootstrap::Reach reach) {
  if (!uses_hub(NCAST_BACKEND_HOST, *content) && !uses_hub(NCAST_BACKEND_CUDA, *content)) return NCAST_OK;
  return bootstrap::open_rendezvous(content->world, bootstrap::Limit{unused_hub_seconds}, reach, &content->hub);
}

void close_hub(const ncast_unique_id& id, std::optional<ncast_backend> kept) {
  const bootstrap::UniqueIdContent content = bootstrap::content_of(id);
  if (!kept || !uses_hub(*kept, content)) bootstrap::close_unused_rendezvous(content.world);
}

const char* backend_name(ncast_backend number) {
  const auto index = static_cast<size_t>(number);
  return index < numbers ? names[index] : nullptr;
}

}  // namespace narrowcast::executor
