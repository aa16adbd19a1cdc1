#include "nccl/ranks/agreement.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "nccl/libraries/backend.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/ranks/exchange.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// What a rank tells the others.
struct Offer {
  char magic[8];      // with the version of this record
  char version[16];   // of the engine; empty: it has none
  char place[160];    // the boot and the namespaces that it runs in: ranks of one can meet and share memory
  uint64_t settings;  // their digest, with the communicator's name
  uint64_t id;        // rank 0's names the communicator
  uint64_t process;   // of that place
  uint32_t backend;
  uint32_t can_attach;  // 0: it has no engine
};

std::string own_place() {
  std::string place;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> place;
  for (const char* const name : {"/proc/self/ns/ipc", "/proc/self/ns/net", "/proc/self/ns/pid"}) {
    char target[40];
    const ssize_t length = readlink(name, target, sizeof target);
    if (length > 0) place.append(target, static_cast<size_t>(length));
  }
  return place;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Offer own_offer(const Communicator& comm) {
  Offer offer = {};
  std::memcpy(offer.magic, "NcNccl1", sizeof offer.magic);
  if (const Engine* const found = engine()) {
    std::snprintf(offer.version, sizeof offer.version, "%s", found->ncast_version());
    offer.backend = backend.id;
    offer.can_attach = 1;
  }
  std::snprintf(offer.place, sizeof offer.place, "%s", own_place().c_str());
  offer.process = static_cast<uint64_t>(getpid());
  offer.settings = digest(settings());
  // What the engine decides by, too, before its ranks have met. A path may lead elsewhere on another rank.
  if (const char* const text = std::getenv("NARROWCAST_PATH"))
    offer.settings ^= std::hash<std::string>()(std::string("NARROWCAST_PATH") + text);
  if (const std::string& path = settings().cost_model; !path.empty())
    offer.settings ^= std::hash<std::string>()(content_of(path));
  // A name that no rule asks for may differ.
  if (std::ranges::any_of(settings().rules, [](const Rule& rule) { return !rule.communicator.empty(); }))
    offer.settings ^= std::hash<std::string>()(comm.traits.name);
  if (getrandom(&offer.id, sizeof offer.id, 0) != sizeof offer.id) offer.id = static_cast<uint64_t>(getpid());
  return offer;
}

// By what every rank has: NULL when all can attach.
const char* why_forward_all(const std::vector<Offer>& offers) {
  const auto all = [&](auto&& same) {
    return std::ranges::all_of(offers, [&](const Offer& offer) { return same(offer, offers[0]); });
  };
  if (!all([](const Offer& a, const Offer& b) { return std::memcmp(a.magic, b.magic, sizeof a.magic) == 0; }))
    return "the ranks have different releases of the drop-in";
  if (!all([](const Offer& a, const Offer&) { return a.can_attach != 0; })) return "a rank has no libnarrowcast.so";
  if (!all([](const Offer& a, const Offer& b) {
        return std::strncmp(a.version, b.version, sizeof a.version) == 0 && a.backend == b.backend;
      }))
    return "the ranks have different releases of libnarrowcast.so";
  if (!all([](const Offer& a, const Offer& b) { return a.settings == b.settings; }))
    return "the ranks have different settings of Narrowcast";
  if (!all([](const Offer& a, const Offer& b) { return std::strncmp(a.place, b.place, sizeof a.place) == 0; }))
    return "the communicator spans several hosts or containers";
  if (offers.size() > static_cast<size_t>(backend.max_ranks)) return "the communicator has too many ranks";
  return nullptr;
}

}  // namespace

bool all_ranks(Communicator& comm, bool own) {
  const char mine = own ? 1 : 0;
  std::vector<char> all(static_cast<size_t>(comm.ranks));
  return exchange_bytes(&comm, &mine, sizeof mine, all.data()) == success && std::ranges::find(all, '\0') == all.end();
}

void agree(Communicator& comm) {
  const OnDevice on_device(comm.device);
  const Offer own = own_offer(comm);
  std::vector<Offer> offers(static_cast<size_t>(comm.ranks));
  comm.agreed = true;
  if (exchange_bytes(&comm, &own, sizeof own, offers.data()) != success) {
    comm.forward_all("NCCL failed when the ranks compared their settings");
    return;
  }
  comm.id = offers[0].id;
  comm.ranks_here = static_cast<int>(std::ranges::count(offers, own.process, &Offer::process));
  comm.statistics->set_id(comm.id);
  const char* why = why_forward_all(offers);
  // The first exchange has shown whether the communicator blocks. One that does not says when a stream may be used, and
  // the engine's calls would have to wait for that.
  if (!all_ranks(comm, comm.blocking) && why == nullptr) why = "the communicator does not block";
  if (why == nullptr) return;
  comm.forward_all(why);
  log(comm.rank == 0 ? Level::warn : Level::info, "a communicator of %d ranks is left to NCCL: %s", comm.ranks, why);
}

}  // namespace narrowcast::nccl
