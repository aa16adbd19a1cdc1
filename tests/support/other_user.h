// Tests with two users. Only root can act as another user; for anyone else the tests say what they skip.
#pragma once

#include <unistd.h>

#include <string>

#include "doctest/doctest.h"
#include "support/ranks.h"

namespace narrowcast::testing {

inline constexpr uid_t other_uid = 54321;  // a user without an account

// Whether this process can act as other users. If not, says what is not tested.
inline bool can_be_other_users(const char* what) {
  // Root of a container may lack rights. Tried in a child, because sanitizers cannot examine a process that has changed
  // its user.
  if (geteuid() == 0 && wait_for_process(start_process([] { _exit(setuid(other_uid) == 0 ? 0 : 1); })) == 0)
    return true;
  MESSAGE("skipped, because only root can act as other users: ", std::string(what));
  return false;
}

}  // namespace narrowcast::testing
