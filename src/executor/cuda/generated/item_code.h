// The code of an item of a group, as lines that differ between items in the words of a table only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace narrowcast::executor::cuda::generated {

// A statement. Its text refers to its words as q[0], q[1], ...
struct Line {
  std::string text;
  std::vector<uint32_t> words;
  bool is_list = false;   // words[0], to which the text refers as `count`, is how many pairs of words follow
  bool is_short = false;  // rather twice in the code of a loop than a longer line
};

struct ItemCode {
  uint32_t head[2] = {};  // ItemHead, and what it loads
  std::vector<Line> lines;

  void add(std::string text, std::initializer_list<uint32_t> words = {}) { lines.push_back({std::move(text), words}); }
};

}  // namespace narrowcast::executor::cuda::generated
