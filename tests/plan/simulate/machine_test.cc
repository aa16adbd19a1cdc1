#include "plan/simulate/machine.h"

#include <string>

#include "doctest/doctest.h"
#include "predictions.h"

namespace narrowcast::plan::simulate {
namespace {

TEST_CASE("a machine's description is checked") {
  Machine machine;
  const auto error_of = [&](std::string text) {
    CHECK(read_machine(text, &machine) == NCAST_INVALID_ARGUMENT);
    return std::string(ncast_last_error());
  };
  CHECK(error_of("{").starts_with("machine: not JSON: parse error at line 1, column 2: "));
  CHECK(error_of("{}") == "machine: expected an object with \"narrowcast_machine\": 1");
  const auto changed = [](const std::string& old, const std::string& by) {
    std::string text(machine_text);
    return text.replace(text.find(old), old.size(), by);
  };
  CHECK(error_of(changed("\"ctas\": 10", "\"ctas\": 0")) == "machine: ctas must be a whole number from 1 to 1024");
  CHECK(error_of(changed("\"link_gbps\": 100", "\"link_gbps\": 0")) ==
        "machine: link_gbps must be a number greater than 0");
  CHECK(error_of(changed("\"step_us\": 0", "\"steps_us\": 0")) == "machine: step_us must be a number, 0 or more");
  CHECK(error_of(changed("\"step_us\": 0", "\"step_us\": 0, \"colour\": 1")) == "machine: unknown key 'colour'");
  CHECK(error_of(changed("\"step_us\": 0", "\"step_us\": 0, \"link_response_share\": -1")) ==
        "machine: link_response_share must be a number, 0 or more");
}

}  // namespace
}  // namespace narrowcast::plan::simulate
