// The secret that the ranks of one communicator share.
#pragma once

#include <array>
#include <cstdint>

namespace narrowcast::bootstrap {

using WorldId = std::array<uint64_t, 2>;  // random

}  // namespace narrowcast::bootstrap
