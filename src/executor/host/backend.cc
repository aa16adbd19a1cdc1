// The host backend: ranks are processes or threads, of one host or several; data is in host memory.
#include "executor/backend.h"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

#include "bootstrap/host.h"
#include "bootstrap/outcome.h"
#include "bootstrap/unique_id.h"
#include "channel/host/shared_world.h"
#include "channel/network/network_world.h"
#include "codec/codec.h"
#include "codec/user/registered.h"
#include "executor/host/communicator.h"
#include "executor/host/launch.h"
#include "executor/host/local_work.h"
#include "executor/host/stream.h"
#include "select/options.h"
#include "status/error.h"
#include "status/fnv1a.h"

namespace narrowcast::executor::host {
namespace {

ncast_status choose_shape(int ranks, const ncast_comm_config& config, StagingShape* shape) {
  return StagingShape::choose(scratch_bytes_of(config), ranks, shape);
}

ncast_status check_config(int ranks, const ncast_comm_config& config) {
  if (ranks > channel::max_ranks) {
    return fail(NCAST_INVALID_ARGUMENT, "ranks is %d, not 1 to %d", ranks, channel::max_ranks);
  }
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  StagingShape shape;
  return choose_shape(ranks, config, &shape);
}

bool spans_hosts(const bootstrap::UniqueIdContent& content) { return content.spans_hosts != 0; }

// Where the ranks of an id for one host share memory.
ncast_status check_host(const bootstrap::UniqueIdContent& content, uint64_t host) {
  if (spans_hosts(content) || content.host == 0 || content.host == host) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED,
              "the unique id is for ranks of one host, and was created on another host or in another container. Set "
              "NARROWCAST_SOCKET_IFNAME where it is created, if ranks may be on several hosts");
}

// Only what a file says matters: the built-in model has no times of this backend.
ncast_status load_costs(const select::Options& options, select::CostModel* costs) {
  return options.cost_model.empty() ? NCAST_OK : options.load_costs(costs);
}

// All that the layouts of rings and plans, and the choice between plans, depend on.
ncast_status add_settings(const ncast_comm_config& config, const select::Options& options,
                          const select::CostModel& costs, bootstrap::SharedSettings* settings) {
  if (ncast_status status = settings->add("scratch_bytes", scratch_bytes_of(config))) return status;
  if (ncast_status status = settings->add("the set of registered codecs", codec::user::registered_codecs()))
    return status;
  if (ncast_status status = settings->add("NARROWCAST_PARTIAL_SUMS", options.rounds_partial_sums ? "rounded" : "exact"))
    return status;
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016" PRIx64, fnv1a(costs.text()));
  return settings->add("the hash of the cost model", costs.text().empty() ? "none" : hash);
}

ncast_status create(const ncast_unique_id& id, std::unique_ptr<bootstrap::Rendezvous> rendezvous, int ranks, int rank,
                    const ncast_comm_config& config, ncast_comm** comm) {
  constexpr const char* function = "ncast_comm_create";
  codec::fixed_rows();  // staging has room for the payloads of all codecs
  StagingShape shape;
  if (ncast_status status = choose_shape(ranks, config, &shape)) return status;
  select::Options settings;
  select::CostModel costs;
  const bootstrap::UniqueIdContent content = bootstrap::content_of(id);
  channel::WorldOptions options{rank, ranks, shape.rings, {config.create_timeout_seconds}};
  options.call_limit = {config.timeout_seconds};
  options.host = bootstrap::own_host();
  std::unique_ptr<channel::World> world;
  ncast_status status = select::Options::of(config, &settings);
  if (status == NCAST_OK) status = load_costs(settings, &costs);
  if (status == NCAST_OK) status = add_settings(config, settings, costs, &options.settings);
  if (status == NCAST_OK) status = check_host(content, options.host);
  if (status != NCAST_OK) {
    // The others need not wait for this rank.
    const bootstrap::Outcome own = bootstrap::Outcome::of(status);
    if (rendezvous != nullptr)
      rendezvous->publish_failure(status, own.message);
    else
      channel::SharedWorld::decline(content.world, rank, status);
    return fail(status, "%s: %s", function, own.message);
  }
  status = rendezvous != nullptr ? channel::NetworkWorld::join(*rendezvous, content.world, options, &world)
                                 : channel::SharedWorld::join(content.world, options, &world);
  if (status != NCAST_OK) return fail(status, "%s: %s", function, std::string(ncast_last_error()).c_str());
  *comm =
      new Communicator(std::move(world), shape, bootstrap::Limit{config.timeout_seconds}, settings, std::move(costs));
  return NCAST_OK;
}

ncast_status check(const Call& call) {
  if (call.stream == nullptr || Stream::find(call.stream) != nullptr) return NCAST_OK;
  return no_such_stream(function_of(call), call.stream);
}

const bool added =
    (add_backend(NCAST_BACKEND_HOST, {check_config, create, launch, make_local_work, check, spans_hosts}), true);

}  // namespace
}  // namespace narrowcast::executor::host
