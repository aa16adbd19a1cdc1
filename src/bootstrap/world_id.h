// What the ranks of one communicator share and nobody else knows.
#pragma once

#include <array>
#include <cstdint>

namespace narrowcast::bootstrap {

using WorldId = std::array<uint64_t, 2>;  // random

}  // namespace narrowcast::bootstrap
