#include "codec/frame/cuda/nonce.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "doctest/doctest.h"

namespace narrowcast::tests {

TEST_CASE("no two launches have the same nonce, and none has that of cleared memory") {
  constexpr size_t threads = 4, launches = 20'000;
  std::vector<std::array<uint32_t, 3>> all(threads * launches);
  std::vector<std::thread> launching;
  for (size_t thread = 0; thread < threads; ++thread)
    launching.emplace_back([&, thread] {
      for (size_t i = 0; i < launches; ++i) all[thread * launches + i] = std::to_array(codec::cuda::new_nonce().of);
    });
  for (std::thread& thread : launching) thread.join();
  std::ranges::sort(all);
  CHECK(std::ranges::adjacent_find(all) == all.end());
  CHECK(std::ranges::find(all, std::array<uint32_t, 3>{}) == all.end());
}

}  // namespace narrowcast::tests
