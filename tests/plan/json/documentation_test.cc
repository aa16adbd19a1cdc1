// The tables of docs/design/plans.md have the rows of steps.def.
#include <fstream>
#include <sstream>
#include <string>

#include "doctest/doctest.h"
#include "plan/steps.h"

namespace narrowcast::plan {
namespace {

// The rows of the table with this heading.
std::string rows_below(const std::string& heading) {
  std::ifstream file(std::string(NARROWCAST_TEST_DATA) + "/../docs/design/plans.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("\n" + heading + "\n|---");
  REQUIRE(begin != text.npos);
  const size_t rows = text.find('\n', begin + heading.size() + 2) + 1;
  return text.substr(rows, text.find("\n\n", rows) + 1 - rows);
}

std::string keys_of(const StepRow& row) {
  std::string keys = row.sources == Sources::NONE ? "" : "`from`, `to` ";
  switch (row.argument) {
    case Argument::NOTHING: return keys;
    case Argument::CHANNELS: return keys + "`channels` ";
    case Argument::BARRIER: return keys + "`barrier` ";
    case Argument::LOOP: return keys + "`unit_bytes`, `steps` ";
  }
  return keys;
}

std::string json_of(PlaceKeys keys) {
  const std::string location = R"("buffer": B, "chunk": i)";
  switch (keys) {
    case PlaceKeys::LOCATION: return location;
    case PlaceKeys::CHANNEL: return R"("channel": c)";
    case PlaceKeys::LOCATION_CHANNEL: return location + R"(, "channel": c)";
    case PlaceKeys::LOCATION_SWITCH: return location + R"(, "switch": c)";
  }
  return location;
}

TEST_CASE("the documented steps are those of steps.def") {
  std::string expected;
  for (const StepRow& row : step_rows) {
    CHECK((row.sources == Sources::NONE) == (row.destinations == Destinations::NONE));
    expected += "| `" + std::string(row.name) + "` | " + keys_of(row) + "| " + row.text + " |\n";
  }
  CHECK(rows_below("| step | has | |") == expected);
}

TEST_CASE("the documented places of values are those of steps.def") {
  std::string expected;
  for (const PlaceRow& row : place_rows)
    expected += "| " + std::string(row.name) + " | `{" + json_of(row.keys) + "}` | " + row.text + " |\n";
  CHECK(rows_below("| place | JSON | |") == expected);
}

}  // namespace
}  // namespace narrowcast::plan
