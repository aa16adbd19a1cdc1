// Launches calls of one group that different code launches.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "executor/call.h"
#include "status/error.h"

namespace narrowcast::executor {

// The communicators of the calls, in the order of their first calls.
std::vector<ncast_comm*> communicators_of(const std::vector<Call>& calls);

// Calls launch(key, those) for each key that some calls have, in the order of `keys`. Launches all even if some fail,
// because other ranks may be waiting for them. Returns the first error.
template <typename Key, typename KeyOf, typename Launch>
ncast_status launch_apart(const std::vector<Call>& calls, const std::vector<Key>& keys, KeyOf key_of, Launch launch) {
  const Key first = std::invoke(key_of, calls[0]);
  if (std::ranges::all_of(calls, [&](const Call& call) { return std::invoke(key_of, call) == first; }))
    return launch(first, calls);
  ncast_status first_error = NCAST_OK;
  std::string message;
  for (const Key& key : keys) {
    std::vector<Call> those;
    std::ranges::copy_if(calls, std::back_inserter(those),
                         [&](const Call& call) { return std::invoke(key_of, call) == key; });
    if (those.empty()) continue;
    const ncast_status status = launch(key, those);
    if (status == NCAST_OK || first_error != NCAST_OK) continue;
    first_error = status;
    message = ncast_last_error();
  }
  return first_error == NCAST_OK ? NCAST_OK : fail(first_error, "%s", message.c_str());
}

}  // namespace narrowcast::executor
