#include "nccl/ranks/agreement.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "digest/sha256.h"
#include "environment/communicator_variables.h"
#include "environment/host_name.h"
#include "environment/level_shape.h"
#include "files/read_file.h"
#include "nccl/libraries/backend.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/ranks/exchange.h"
#include "nccl/ranks/left_hosts.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr uint64_t most_cost_model_bytes = uint64_t{1} << 20;
constexpr const char* zero_cta_policy = "the communicator's CTA policy is NCCL_CTA_POLICY_ZERO";
constexpr const char* left_hosts = "an earlier communicator between hosts was left to NCCL";

// The properties of a rank that the ranks compare.
struct Offer {
  char magic[8];     // with the version of this structure
  char version[16];  // of libnarrowcast.so; empty: not loaded
  uint64_t host;     // as the library tells hosts apart
  char place[136];   // boot id and namespaces; if these are equal, ranks can share memory
  SettingsDigest settings;
  uint64_t id;       // rank 0's becomes the id of the communicator
  uint64_t process;  // process id, unique within `place`
  uint8_t backend;
  bool can_attach;
  uint8_t max_ctas;
  bool zero_ctas;
  uint32_t reserved;
};
// The size must stay the same in every release: NCCL's all-gather requires equal sizes on all ranks.
static_assert(sizeof(Offer) == 304 && sizeof(Offer) <= max_exchange_bytes);
static_assert(std::is_trivially_copyable_v<Offer>);

uint64_t first_word_of(const digest::Sha256& digest) {
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Must tell the same ranks apart as bootstrap::own_machine().
uint64_t own_host() {
  const std::string name = environment::given_host_name();
  return first_word_of(name.empty() ? digest::sha256("narrowcast machine", boot_id())
                                    : digest::sha256("narrowcast host name", name));
}

std::string own_place() {
  std::string place = boot_id();
  for (const char* const name : {"/proc/self/ns/ipc", "/proc/self/ns/net", "/proc/self/ns/pid"}) {
    char target[40];
    const ssize_t length = readlink(name, target, sizeof target);
    if (length > 0) place.append(target, static_cast<size_t>(length));
  }
  return place;
}

Offer own_offer(const Communicator& comm) {
  Offer offer = {};
  std::memcpy(offer.magic, "NcNccl5", sizeof offer.magic);
  if (const Engine* const found = engine()) {
    std::snprintf(offer.version, sizeof offer.version, "%s", found->ncast_version());
    offer.backend = static_cast<uint8_t>(backend.id);
    offer.can_attach = true;
  }
  offer.host = own_host();
  std::snprintf(offer.place, sizeof offer.place, "%s", own_place().c_str());
  offer.process = static_cast<uint64_t>(getpid());
  offer.settings = digest(settings());
  // These also affect decisions that are made before the engine's communicator exists, or what kind of communicator it
  // is. For the cost model the content is compared, not the path.
  struct Variable {
    Shared setting;
    const char *name, *unset;  // unset: the value that means the same as none
  };
  constexpr Variable variables[] = {{Shared::path, "NARROWCAST_PATH", ""},
                                    {Shared::levels, "NARROWCAST_LEVELS", "auto"},
                                    {Shared::partial_sums, "NARROWCAST_PARTIAL_SUMS", "exact"}};
  for (const auto& [setting, name, unset] : variables) {
    const char* const text = secure_getenv(name);
    if (text != nullptr && *text != '\0' && std::string_view(text) != unset) offer.settings.mix(setting, text);
  }
  if (const std::string& path = settings().cost_model; !path.empty()) {
    std::string content;
    static_cast<void>(files::read_file(path, most_cost_model_bytes, &content));  // the library reports errors
    offer.settings.mix(Shared::cost_model, content);
  }
  // Names matter only by the rules that match them.
  const auto mix_match = [&](const auto& rule) {
    if (!rule.communicator.empty())
      offer.settings.mix(Shared::names, uint64_t{rule.suit(comm.ranks, comm.config.name)});
  };
  std::ranges::for_each(settings().rules, mix_match);
  std::ranges::for_each(settings().plan_rules, mix_match);
  offer.max_ctas = static_cast<uint8_t>(std::min(settings().max_ctas, comm.config.max_ctas));
  offer.zero_ctas = comm.config.zero_ctas;
  if (getrandom(&offer.id, sizeof offer.id, 0) != sizeof offer.id) offer.id = static_cast<uint64_t>(getpid());
  return offer;
}

bool is_same_place(const Offer& a, const Offer& b) { return std::strncmp(a.place, b.place, sizeof a.place) == 0; }

bool is_in_same_process(const Offer& a, const Offer& b) { return a.process == b.process && is_same_place(a, b); }

// Of Communicator.
uint64_t hosts_of(const std::vector<Offer>& offers) {
  std::string hosts;
  for (const Offer& offer : offers) hosts.append(reinterpret_cast<const char*>(&offer.host), sizeof offer.host);
  const bool is_one = std::ranges::all_of(offers, [&](const Offer& offer) { return offer.host == offers[0].host; });
  return is_one ? 0 : first_word_of(digest::sha256("narrowcast hosts", hosts)) | 1;
}

// A string constant.
const char* different_settings(std::string_view name) {
  static const auto& reasons = *[] {
    auto* const made = new std::map<std::string_view, std::string>;
    for (const std::string_view one : shared_setting_names)
      (*made)[one] = "the ranks have different settings of Narrowcast: " + std::string(one);
    return made;
  }();
  return reasons.at(name).c_str();
}

// A string constant that is the same on every rank; NULL if all ranks can attach. ranks: those whose settings differ
// from those of rank 0, for people.
const char* why_forward_all(const std::vector<Offer>& offers, std::string* ranks) {
  const auto all = [&](auto&& same) {
    return std::ranges::all_of(offers, [&](const Offer& offer) { return same(offer, offers[0]); });
  };
  if (!all([](const Offer& a, const Offer& b) { return std::memcmp(a.magic, b.magic, sizeof a.magic) == 0; }))
    return "the ranks have different releases of the drop-in";
  if (!all([](const Offer& a, const Offer&) { return !a.zero_ctas; })) return zero_cta_policy;
  if (!all([](const Offer& a, const Offer&) { return a.can_attach; })) return "a rank has no libnarrowcast.so";
  if (!all([](const Offer& a, const Offer& b) {
        return std::strncmp(a.version, b.version, sizeof a.version) == 0 && a.backend == b.backend;
      }))
    return "the ranks have different releases of libnarrowcast.so";
  const char* setting = nullptr;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const char* const differing = offers[rank].settings.difference(offers[0].settings);
    if (differing == nullptr) continue;
    if (setting == nullptr) setting = differing;
    *ranks += (ranks->empty() ? "" : ", ") + std::to_string(rank);
  }
  if (setting != nullptr) return different_settings(setting);
  for (const Offer& one : offers)
    if (!is_same_place(one, *std::ranges::find(offers, one.host, &Offer::host)))
      return "ranks on one host are in several containers";
  return nullptr;
}

// Sets comm.ranks_of_group. Returns why the library cannot create the communicator, or NULL.
const char* find_levels(Communicator& comm, const std::vector<Offer>& offers) {
  std::vector<uint64_t> hosts(offers.size());
  std::ranges::transform(offers, hosts.begin(), &Offer::host);
  const char* why = nullptr;
  const auto counts = environment::level_counts(hosts, &why);
  if (counts) comm.ranks_of_group = counts->of_group;
  if (comm.ranks <= environment::most_ranks_of_level) return nullptr;
  if (!counts) return why;
  // The same on all ranks, who have compared it.
  const char* const setting = secure_getenv("NARROWCAST_LEVELS");
  if (setting != nullptr && environment::levels_of(setting) == environment::Levels::one)
    return "there are more than 8 ranks, and NARROWCAST_LEVELS is 1";
  // The steps of a call are launched one after the other. A thread that makes the calls of several ranks would wait for
  // itself if they filled the queue of a stream.
  std::set<std::pair<std::string, uint64_t>> processes;
  for (const Offer& one : offers) processes.emplace(std::string(one.place, sizeof one.place), one.process);
  return processes.size() == offers.size() ? nullptr : "there are more than 8 ranks, and a process has several";
}

}  // namespace

bool all_ranks(Communicator& comm, bool own) {
  const char mine = own ? 1 : 0;
  std::vector<char> all(static_cast<size_t>(comm.ranks));
  return exchange_bytes(&comm, &mine, sizeof mine, all.data()) == success && std::ranges::find(all, '\0') == all.end();
}

void agree(Communicator& comm) {
  const DeviceGuard guard(comm.device);
  const Offer own = own_offer(comm);
  std::vector<Offer> offers(static_cast<size_t>(comm.ranks));
  comm.agreed = true;
  if (exchange_bytes(&comm, &own, sizeof own, offers.data()) != success) {
    comm.forward_all("NCCL failed when the ranks compared their settings");
    return;
  }
  comm.id = offers[0].id;
  comm.hosts = hosts_of(offers);
  comm.local_ranks = static_cast<int>(
      std::ranges::count_if(offers, [&](const Offer& offer) { return is_in_same_process(offer, own); }));
  comm.statistics->set_id(comm.id);
  comm.record.set_id(comm.id);
  std::string differing;
  const char* why = why_forward_all(offers, &differing);
  if (why == nullptr) why = find_levels(comm, offers);
  if (why == nullptr) {
    comm.max_ctas.store(std::ranges::min(offers, {}, &Offer::max_ctas).max_ctas);
    comm.predictor.reset();
  }
  // The exchange has shown whether the communicator blocks. A nonblocking call returns before its stream may be used,
  // so the engine's calls would have to wait.
  if (!all_ranks(comm, comm.blocking) && why == nullptr) why = "the communicator does not block";
  if (why == nullptr && comm.hosts != 0 && !all_ranks(comm, !are_left(comm.hosts))) why = left_hosts;
  if (why == nullptr) return;
  comm.forward_all(why);
  const bool is_notable = comm.rank == 0 && why != zero_cta_policy && why != left_hosts;
  if (!differing.empty()) differing = " (other than rank 0: " + differing + ")";
  log(is_notable ? Level::warn : Level::info, "a communicator of %d ranks is left to NCCL: %s%s", comm.ranks, why,
      differing.c_str());
}

}  // namespace narrowcast::nccl
