#include "executor/cuda/generated/program_loop.h"

#include <algorithm>
#include <utility>

#include "executor/cuda/generated/plan_call.h"
#include "executor/cuda/generated/text.h"

namespace narrowcast::executor::cuda::generated {

namespace {

// The head, then the words of the lines.
void append_words(const ItemCode& item, std::vector<uint32_t>* to) {
  to->insert(to->end(), std::begin(item.head), std::end(item.head));
  for (const Line& line : item.lines) to->insert(to->end(), line.words.begin(), line.words.end());
}

// The variables that these lines use.
std::string declarations_of(const std::vector<std::string>& texts) {
  std::string out;
  constexpr const char* variables[][2] = {{"sums", "Warp::Sums sums;"}, {"payload", "Warp::Payload payload;"}};
  for (const auto& [name, declaration] : variables)
    if (std::ranges::any_of(texts, [&](const std::string& one) { return one.find(name) != std::string::npos; }))
      out += std::string("      ") + declaration + "\n";
  return out;
}

}  // namespace

bool ProgramLoop::has(const Step& step, const Line& line) {
  return step.text == line.text && step.is_list == line.is_list && (line.is_list || step.words == line.words.size());
}

bool ProgramLoop::find_steps(const ItemCode& item, std::vector<bool>* found) const {
  found->assign(steps_.size(), false);
  size_t next = 0;
  for (const Line& line : item.lines) {
    while (next < steps_.size() && !has(steps_[next], line)) ++next;
    if (next == steps_.size()) return false;
    (*found)[next++] = true;
  }
  return true;
}

// Makes the sequence with the least code that contains both the steps and the item's lines.
void ProgramLoop::insert_steps(const ItemCode& item) {
  const std::vector<Line>& lines = item.lines;
  const bool is_first = steps_.empty();
  // common[i][j]: how much code the first i steps and the first j lines have in common at most. Short lines count half.
  std::vector common(steps_.size() + 1, std::vector<size_t>(lines.size() + 1));
  for (size_t i = 1; i <= steps_.size(); ++i)
    for (size_t j = 1; j <= lines.size(); ++j)
      common[i][j] = has(steps_[i - 1], lines[j - 1]) ? common[i - 1][j - 1] + (lines[j - 1].is_short ? 1 : 2)
                                                      : std::max(common[i - 1][j], common[i][j - 1]);
  std::vector<Step> merged;  // from the last one
  for (size_t i = steps_.size(), j = lines.size(); i != 0 || j != 0;) {
    if (i != 0 && j != 0 && has(steps_[i - 1], lines[j - 1])) {
      merged.push_back(std::move(steps_[--i]));
      --j;
    } else if (j == 0 || (i != 0 && common[i - 1][j] >= common[i][j - 1])) {
      merged.push_back(std::move(steps_[--i]));
    } else {
      const Line& line = lines[--j];
      merged.push_back({line.text, line.is_list ? 1 : line.words.size(), line.is_list, is_first});
    }
  }
  std::ranges::reverse(merged);
  steps_ = std::move(merged);
}

void ProgramLoop::add(const std::vector<ItemCode>& items) {
  std::vector<bool> found;
  for (const ItemCode& item : items) {
    if (!find_steps(item, &found)) {
      insert_steps(item);
      find_steps(item, &found);
    }
    for (size_t i = 0; i < found.size(); ++i) steps_[i].is_in_all = steps_[i].is_in_all && found[i];
  }
}

// An item: how many words it has, 32 steps in each of the following words, its head, and the words of its lines.
std::vector<uint32_t> ProgramLoop::words(const std::vector<ItemCode>& items) const {
  std::vector<uint32_t> all;
  std::vector<bool> steps;
  for (const ItemCode& item : items) {
    const size_t first = all.size();
    all.resize(first + 1 + mask_words());
    find_steps(item, &steps);
    for (size_t i = 0; i < steps.size(); ++i) all[first + 1 + i / 32] |= uint32_t{steps[i]} << i % 32;
    append_words(item, &all);
    all[first] = static_cast<uint32_t>(all.size() - first);
  }
  all.push_back(0);
  return all;
}

std::string ProgramLoop::body() const {
  std::string body;
  std::vector<std::string> texts;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    texts.push_back(step.text);
    body += step.is_in_all ? "      {\n" : text("      if ((lines_%zu >> %zu & 1) != 0) {\n", i / 32, i % 32);
    if (step.is_list) body += "        const uint32_t count = q[0];\n";
    body += "        " + step.text + "\n";
    if (step.is_list) {
      body += "        q += 1 + 2 * count;\n";
    } else if (step.words != 0) {
      body += text("        q += %zu;\n", step.words);
    }
    body += "      }\n";
  }
  std::string out = "    for (const uint32_t* item = p; item[0] != 0; item += item[0]) {\n";
  out += text("      if (!w.begin_item(item + %zu)) continue;\n", 1 + mask_words());
  out += text("      const uint32_t* q = item + %zu;\n", 1 + mask_words() + ItemHead::words);
  for (size_t i = 0; i < mask_words(); ++i) out += text("      const uint32_t lines_%zu = item[%zu];\n", i, 1 + i);
  return out + declarations_of(texts) + body + "    }\n";
}

StraightProgram straight_program(const std::vector<ItemCode>& items) {
  StraightProgram program;
  const auto has_same_lines = [](const ItemCode& a, const ItemCode& b) {
    return std::ranges::equal(a.lines, b.lines, [](const Line& one, const Line& other) {
      return one.text == other.text && one.words.size() == other.words.size();
    });
  };
  for (size_t i = 0, end = 0; i < items.size(); i = end) {
    for (end = i + 1; end < items.size() && has_same_lines(items[i], items[end]);) ++end;
    const size_t first = program.words.size();
    for (size_t one = i; one < end; ++one) append_words(items[one], &program.words);
    const size_t width = (program.words.size() - first) / (end - i);
    if (end == i + 1) {
      program.body += text("    if (const uint32_t* const item = p + %zu; w.begin_item(item)) {\n", first);
    } else {
      program.body += text("    for (const uint32_t* item = p + %zu; item != p + %zu; item += %zu) {\n", first,
                           program.words.size(), width);
      program.body += "      if (!w.begin_item(item)) continue;\n";
    }
    std::vector<std::string> texts;
    std::string lines;
    size_t word = ItemHead::words;
    for (const Line& line : items[i].lines) {
      texts.push_back(line.text);
      if (!line.words.empty()) lines += text("      q = item + %zu;\n", word);
      if (line.is_list) lines += text("      constexpr uint32_t count = %u;\n", line.words[0]);
      lines += "      " + line.text + "\n";
      word += line.words.size();
    }
    program.body += "      const uint32_t* q;\n" + declarations_of(texts) + lines + "    }\n";
    program.lines += texts.size();
  }
  return program;
}

}  // namespace narrowcast::executor::cuda::generated
