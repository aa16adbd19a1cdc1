// The programs of all groups as one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/generated/item_code.h"

namespace narrowcast::executor::cuda::generated {

// Its body is a sequence of lines, of which every item executes some in order; bits in the table say which. So lines
// that items have in common, such as those that reduce and send, exist once, and the code has the length of the longest
// item rather than of the plan.
class ProgramLoop {
 public:
  // Must be called for all groups first.
  void add(const std::vector<ItemCode>& items);
  std::string code() const;
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
