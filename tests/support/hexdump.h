// The worked bytes of the pages in docs/format/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "doctest/doctest.h"

namespace narrowcast::tests {

using Bytes = std::vector<uint8_t>;

struct Line {
  size_t offset;
  Bytes bytes;
};

// The lines "offset hex... | comment" of the block "```hexdump <name>" of a page.
inline std::vector<Line> hexdump(const char* page, const std::string& name) {
  std::ifstream file(std::filesystem::path(NARROWCAST_TEST_DATA) / ".." / "docs" / "format" / page);
  INFO("page ", page);
  REQUIRE(file);
  std::vector<Line> lines;
  bool inside = false;
  for (std::string text; std::getline(file, text);) {
    if (inside && text.starts_with("```")) break;
    if (inside) {
      std::istringstream fields(text.substr(0, text.find('|')));
      Line line{};
      fields >> line.offset >> std::hex;
      for (unsigned byte; fields >> byte;) line.bytes.push_back(static_cast<uint8_t>(byte));
      lines.push_back(line);
    }
    inside = inside || text == "```hexdump " + name;
  }
  REQUIRE(!lines.empty());
  return lines;
}

// All lines end to end, which have to leave no gap.
inline Bytes whole(const std::vector<Line>& lines) {
  Bytes bytes;
  for (const Line& line : lines) {
    REQUIRE(line.offset == bytes.size());
    bytes.insert(bytes.end(), line.bytes.begin(), line.bytes.end());
  }
  return bytes;
}

}  // namespace narrowcast::tests
