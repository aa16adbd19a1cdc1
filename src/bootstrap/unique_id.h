// The content of a unique id. The remaining bytes are zero.
#pragma once

#include <cstring>

#include "bootstrap/tcp_address.h"
#include "bootstrap/world_id.h"
#include "narrowcast/comm.h"

namespace narrowcast::bootstrap {

struct UniqueIdContent {
  char magic[8];
  WorldId world;
  TcpAddress hub;  // zero if there is none
  // For the backend `host`. 0: its ranks are on one host, and meet in shared memory instead of at the hub.
  uint64_t spans_hosts;
  uint64_t host;  // own_host() of the process that created the id; 0 if the caller says that all ranks are there
};
inline constexpr char unique_id_magic[8] = {'n', 'c', 'a', 's', 't', 'i', 'd', '1'};
static_assert(sizeof(UniqueIdContent) <= NCAST_UNIQUE_ID_BYTES);

inline UniqueIdContent content_of(const ncast_unique_id& id) {
  UniqueIdContent content;
  std::memcpy(&content, id.bytes, sizeof content);
  return content;
}

inline ncast_unique_id make_unique_id(const UniqueIdContent& content) {
  ncast_unique_id id = {};
  std::memcpy(id.bytes, &content, sizeof content);
  return id;
}

// False if the id was not created by ncast_get_unique_id.
inline bool is_unique_id(const ncast_unique_id& id) {
  return std::memcmp(id.bytes, unique_id_magic, sizeof unique_id_magic) == 0;
}

}  // namespace narrowcast::bootstrap
