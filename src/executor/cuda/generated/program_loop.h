// The text of programs: of each by itself, or of all as one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/generated/item_code.h"

namespace narrowcast::executor::cuda::generated {

// The items of a group one after another, with a loop for consecutive ones that differ in their words only.
struct StraightProgram {
  std::string body;
  std::vector<uint32_t> words;  // the group's table
  size_t lines = 0;             // of items in the body
};
StraightProgram straight_program(const std::vector<ItemCode>& items);

// All programs as one loop. Its body is a sequence of lines, of which every item executes some in order; bits in the
// table say which. So lines that items have in common, such as those that reduce and send, exist once. But an item
// jumps over the others, and instructions are fetched late after each jump.
class ProgramLoop {
 public:
  // Must be called first, for all groups whose straight programs differ.
  void add(const std::vector<ItemCode>& items);
  size_t lines() const { return steps_.size(); }
  std::string body() const;
  // The table of a group.
  std::vector<uint32_t> words(const std::vector<ItemCode>& items) const;

 private:
  struct Step {
    std::string text;
    size_t words;  // of a list: 1
    bool is_list;
    bool is_in_all;  // items
  };
  static bool has(const Step& step, const Line& line);
  // Which steps are the item's lines. Returns false if these are not among them in this order.
  bool find_steps(const ItemCode& item, std::vector<bool>* found) const;
  void insert_steps(const ItemCode& item);
  size_t mask_words() const { return (steps_.size() + 31) / 32; }

  std::vector<Step> steps_;
};

}  // namespace narrowcast::executor::cuda::generated
