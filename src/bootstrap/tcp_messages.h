// The protocol between the hub of a rendezvous and its ranks. Any change here requires a new protocol_version.
//
// The hub sends a challenge on every connection. A rank answers with its hello, which proves that the rank knows the
// secret of a hub. The welcome proves that the hub knows it, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "bootstrap/proof.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"

namespace narrowcast::bootstrap {

inline constexpr uint32_t protocol_version = 3;
inline constexpr char hello_magic[8] = {'n', 'c', 'a', 's', 't', 'r', 'v', 0};

enum class MessageKind : uint32_t {
  // From a rank.
  hello = 0x6c65686e,  // the first message, a Hello. An unusual number, so that other protocols do not match
  gather = 1,          // payload: the rank's blob
  timed_out = 2,       // the rank's time limit has passed; payload: the seconds that it waited, a double
  goodbye = 3,
  // In both directions.
  failure = 4,  // a FailureMessage
  to_peer = 9,  // a blob for one rank; value: to the hub the receiver, from the hub the sender
  // From the hub.
  challenge = 0x6c616863,  // the first message, a HubChallenge
  welcome = 5,             // all ranks have joined; value: a rank in the process of the hub, or -1. A Proof
  gathered = 6,            // payload: the blobs of all ranks
  gather_refused = 7,      // a FailureMessage that concerns only this all_gather
  hub_may_end = 8,         // all ranks in the hub's process have left, so the end of the hub is not a failure
  peer_left = 10,          // value: a rank that has left, although this one has sent it a blob and needs an answer
};

// The same in every version.
struct HubChallenge {
  char magic[8];
  Challenge challenge;
};

// The offsets of the first six members, and of the members of FailureMessage, are the same in every version, so that
// different versions can detect and report the difference.
struct Hello {
  char magic[8];
  uint32_t version;
  int32_t rank;
  Challenge challenge;
  Proof proof;  // by prove_hello()
  int32_t ranks;
  uint32_t in_hub_process;  // 1: the rank is in the hub's process
  int64_t pid;
  char host[40];
};
inline constexpr size_t hello_stable_bytes = 64;
static_assert(offsetof(Hello, ranks) == hello_stable_bytes && sizeof(Hello) == 120);

// hello: the payload, which is longer in other versions; its own proof does not matter.
inline Proof prove_hello(const WorldId& secret, const Challenge& of_hub, std::string_view hello) {
  std::string claim = std::string(bytes_of(of_hub)).append(hello);
  std::fill_n(claim.begin() + sizeof of_hub + offsetof(Hello, proof), sizeof(Proof), 0);
  return prove("narrowcast rendezvous, rank", secret, claim);
}
inline Proof prove_welcome(const WorldId& secret, const Challenge& of_hub, const Challenge& of_rank) {
  return prove("narrowcast rendezvous, hub", secret, std::string(bytes_of(of_hub)).append(bytes_of(of_rank)));
}

struct FailureMessage {
  static constexpr int32_t from_hub = -1;
  uint32_t status;
  int32_t rank;  // the rank that failed, or from_hub: the text is about the group
  char text[Rendezvous::failure_message_bytes];
};
inline constexpr size_t largest_short_message =
    Rendezvous::max_pair_bytes;  // payload bytes of messages other than blobs, in any version

template <typename Content>
Payload to_payload(const Content& content) {
  const char* bytes = reinterpret_cast<const char*>(&content);
  return std::make_shared<const std::vector<char>>(bytes, bytes + sizeof content);
}

// Members beyond the end of the payload are zero.
template <typename Content>
Content from_payload(const std::vector<char>& payload) {
  Content content = {};
  if (!payload.empty()) std::memcpy(&content, payload.data(), std::min(sizeof content, payload.size()));
  return content;
}

inline FailureMessage make_failure(ncast_status status, int32_t rank, const char* text) {
  FailureMessage failure = {static_cast<uint32_t>(status), rank, {}};
  std::snprintf(failure.text, sizeof failure.text, "%s", text);
  return failure;
}

// The payload may be hostile. The result has a valid status that is not OK, and a terminated text.
inline FailureMessage read_failure(const std::vector<char>& payload) {
  auto failure = from_payload<FailureMessage>(payload);
  if (failure.status == NCAST_OK || failure.status > NCAST_INTERNAL) failure.status = NCAST_INTERNAL;
  failure.text[sizeof failure.text - 1] = 0;
  return failure;
}

}  // namespace narrowcast::bootstrap
