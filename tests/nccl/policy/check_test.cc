#include "nccl/policy/check.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "doctest/doctest.h"

using namespace narrowcast::nccl;

namespace {

// What takes all calls of the last rule.
std::vector<std::string> last_covered_by(const std::string& content) {
  Settings settings;
  parse_file(content, "test.toml", &settings);
  REQUIRE_FALSE(settings.rules.empty());
  return covered_by(settings, settings.rules.size() - 1);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a rule is covered if earlier ones together match all of its calls") {
  const std::string any = "[[rule]]\n", last = "[[rule]]\noperation = 'reduce'\ncommunicator = 'mesh_dp'\nranks = 4\n";
  CHECK(last_covered_by(last).empty());
  CHECK(last_covered_by(any + last) == Names{"rule 1"});
  CHECK(last_covered_by(last + any).empty());
  for (const char* const same : {"ranks = 4", "communicator = 'mesh_*'", "communicator = 'mesh_dp'",
                                 "operation = ['reduce', 'send']", "min_bytes = 0"})
    CHECK_MESSAGE(last_covered_by(any + same + "\n" + last) == Names{"rule 1"}, same);
  for (const char* const less : {"ranks = 5", "communicator = 'mesh_t*'", "operation = 'send'", "min_bytes = 1",
                                 "max_bytes = 9", "dtype = 'int8'", "op = 'sum'"})
    CHECK_MESSAGE(last_covered_by(any + less + "\n" + last).empty(), less);
  CHECK(last_covered_by("[[rule]]\ncommunicator = 'm*'\n[[rule]]\ncommunicator = 'mesh_*'").empty());
}

TEST_CASE("rules cover sizes, types and reductions in parts") {
  const std::string last = "[[rule]]\noperation = 'reduce'\nmin_bytes = 10\nmax_bytes = 99\n";
  const auto sizes = [](int least, int most) {
    return "[[rule]]\nmin_bytes = " + std::to_string(least) + "\nmax_bytes = " + std::to_string(most) + "\n";
  };
  CHECK(last_covered_by(sizes(50, 200) + sizes(0, 49) + last) == Names{"rule 1", "rule 2"});
  CHECK(last_covered_by(sizes(51, 200) + sizes(0, 49) + last).empty());
  CHECK(last_covered_by(sizes(0, 98) + last).empty());
  CHECK(last_covered_by("[[rule]]\nop = ['sum', 'max', 'min']\n[[rule]]\nop = ['avg', 'prod']\n" + last) ==
        Names{"rule 1", "rule 2"});
  CHECK(last_covered_by("[[rule]]\nop = ['sum', 'max', 'min']\n[[rule]]\nop = 'avg'\n" + last).empty());
}

TEST_CASE("operations that are switched off reach no rule") {
  const std::string off = "off = ['recv', 'reduce']\n[[rule]]\noperation = ";
  CHECK(last_covered_by(off + "'send'") == Names{"off"});
  CHECK(last_covered_by(off + "['send', 'reduce']") == Names{"off"});
  CHECK(last_covered_by(off + "['send', 'gather']").empty());
}

TEST_CASE("a file is explained as JSON, with its errors") {
  char path[] = "/tmp/narrowcast_check_test_XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  std::ofstream(path) << "take = 'never'\ncodec = 'send=int8'\nverfy = 1\n[[rule]]\nname = '\"'\ncodec = 'int8'\n"
                         "operation = ['reduce', 'send']\nranks = 4\ncommunicator = 'x'\n[[rule]]\nmax_bytes = 9\n";
  const std::string text = check_policy(path);
  for (
      const char* const part :
      {R"("codec":[{"operation":"send","codec":"int8","lossy":true}],"take":"never")",
       R"({"name":"\"","line":4,"operations":["send","recv","reduce"],"dtypes":["float16","float32","bfloat16"],"reductions":["sum","avg"],)"
       R"("min_bytes":65536,"max_bytes":null,"ranks":4,"communicator":"x","codec":"int8","result_codec":null,"take":null,"lossy":true,"covered_by":[]})",
       R"("max_bytes":9,"ranks":null,"communicator":null,"codec":null,"result_codec":null,"take":null,"lossy":false)",
       R"(:3: verfy is not a setting)"})
    CHECK_MESSAGE(text.find(part) != text.npos, text);
  std::ofstream(path, std::ios::trunc) << "[[rule]\n";
  CHECK(check_policy(path).find(":1: ") != std::string::npos);
  remove(path);
  CHECK(check_policy(path).find("cannot read") != std::string::npos);
}
