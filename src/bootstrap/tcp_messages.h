// What the hub of a rendezvous and its ranks say to each other. A change of anything here is a new protocol_version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"

namespace narrowcast::bootstrap {

inline constexpr uint32_t protocol_version = 1;
inline constexpr char hello_magic[8] = {'n', 'c', 'a', 's', 't', 'r', 'v', 0};

enum class MessageKind : uint32_t {
  // From a rank.
  hello = 0x6c65686e,  // the first: a Hello; not a number that a stranger would begin with
  gather = 1,          // the rank's blob
  gave_up = 2,         // its time is up; the seconds that it waited, a double
  goodbye = 3,
  // Both ways.
  failure = 4,  // a FailureMessage
  // From the hub.
  welcome = 5,      // all ranks are there; value: a rank in the process of the hub, or -1
  gathered = 6,     // the blobs of all ranks
  refused = 7,      // a FailureMessage of this all_gather alone
  hub_may_end = 8,  // the ranks in its process have left, so that its end is no failure
};

// The first four members, and those of FailureMessage, stay where they are in every version, so that versions can tell
// that they differ.
struct Hello {
  char magic[8];
  WorldId secret;
  uint32_t version;
  int32_t rank;
  int32_t ranks;
  uint32_t beside_hub;  // the rank is in the hub's process
  int64_t pid;
  char host[40];
};
inline constexpr size_t hello_stable_bytes = 32;
static_assert(offsetof(Hello, ranks) == hello_stable_bytes && sizeof(Hello) == 88);

struct FailureMessage {
  static constexpr int32_t from_hub = -1;
  uint32_t status;
  int32_t rank;  // where it comes from, or from_hub: a sentence about the group
  char sentence[Rendezvous::sentence_bytes];
};
inline constexpr size_t largest_short_message = 4096;  // of those that are not blobs, in any version

template <typename Content>
Payload to_payload(const Content& content) {
  const char* bytes = reinterpret_cast<const char*>(&content);
  return std::make_shared<const std::vector<char>>(bytes, bytes + sizeof content);
}

// Zeros where the payload is too short.
template <typename Content>
Content from_payload(const std::vector<char>& payload) {
  Content content = {};
  if (!payload.empty()) std::memcpy(&content, payload.data(), std::min(sizeof content, payload.size()));
  return content;
}

inline FailureMessage make_failure(ncast_status status, int32_t rank, const char* sentence) {
  FailureMessage failure = {static_cast<uint32_t>(status), rank, {}};
  std::snprintf(failure.sentence, sizeof failure.sentence, "%s", sentence);
  return failure;
}

// Of a peer that may send anything: a status that exists, a sentence that ends.
inline FailureMessage read_failure(const std::vector<char>& payload) {
  auto failure = from_payload<FailureMessage>(payload);
  if (failure.status == NCAST_OK || failure.status > NCAST_INTERNAL) failure.status = NCAST_INTERNAL;
  failure.sentence[sizeof failure.sentence - 1] = 0;
  return failure;
}

}  // namespace narrowcast::bootstrap
