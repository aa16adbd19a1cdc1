#include "nccl/report/log.h"

#include <string>
#include <string_view>

#include "doctest/doctest.h"

using namespace narrowcast::nccl;

TEST_CASE("control characters are escaped, and nothing else is") {
  CHECK(printable("a\x1b[31mb\nc\r\t\x7f") == "a\\x1b[31mb\\x0ac\\x0d\\x09\\x7f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\x9b31m");  // CSI in UTF-8
  CHECK(printable("/home/\xc3\xa4\xe2\x82\xac \\ \xc2\xa0 \xc2") == "/home/\xc3\xa4\xe2\x82\xac \\ \xc2\xa0 \xc2");
  CHECK(printable("").empty());
}
