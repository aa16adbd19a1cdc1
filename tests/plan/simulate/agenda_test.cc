#include "plan/simulate/agenda.h"

#include <algorithm>
#include <map>
#include <random>

#include "doctest/doctest.h"

namespace narrowcast::plan::simulate {
namespace {

TEST_CASE("an agenda returns the earliest remaining event, and of simultaneous ones that of the lowest run") {
  constexpr uint32_t runs = 40;
  std::mt19937 random(1);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  Agenda agenda(runs);
  std::map<uint32_t, double> expected;  // times by run
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t run = below(runs), what = below(4);
    if (what < 2) {
      const double time = below(20);
      agenda.set(time, run);
      expected[run] = time;
    } else if (what == 2) {
      agenda.remove(run);
      expected.erase(run);
    } else if (!expected.empty()) {
      const auto first = std::ranges::min_element(expected, {}, [](const auto& one) { return one.second; });
      const Event event = agenda.next();
      REQUIRE(event.run == first->first);
      REQUIRE(event.time == first->second);
      expected.erase(first);
    }
    REQUIRE(agenda.empty() == expected.empty());
  }
}

TEST_CASE("times that differ only by rounding are equal") {
  Agenda agenda(2);
  agenda.set(0.1 + 0.2, 1);
  agenda.set(0.3, 0);
  CHECK(agenda.next().run == 0);
  CHECK(agenda.first_time() == whole_ticks(0.3));
}

}  // namespace
}  // namespace narrowcast::plan::simulate
