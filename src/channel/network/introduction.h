// Before anything else, ranks that may be on several hosts tell each other where they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"

namespace narrowcast::channel {

// By rank.
struct Introductions {
  std::vector<std::string> names;  // "rank 2 (pid 77 on a)"
  std::vector<uint64_t> hosts;     // the same number for ranks of one host
};

// Every rank calls this. host: the number of its host. Errors, which all ranks get: MISMATCH (ranks on different
// machines say that they are on the same host), and those of the rendezvous.
ncast_status introduce(bootstrap::Rendezvous& rendezvous, uint64_t host, Introductions* all);

}  // namespace narrowcast::channel
