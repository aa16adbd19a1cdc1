#include "executor/cuda/generated/kernel_constants.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr std::string_view of_namespace = "inline constexpr ", of_class = "static constexpr ";

bool is_in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_integer(std::string_view type) {
  constexpr std::string_view types[] = {"bool", "int", "uint8_t", "uint32_t", "uint64_t", "size_t"};
  return std::ranges::find(types, type) != std::end(types);
}

struct Constant {
  std::string_view type, name;
  std::string_view rest;  // after the name: its value, and other constants of the same type
  bool is_template, is_member;
};

// The constant that a line defines. previous: the line before.
std::optional<Constant> constant_of(std::string_view previous, std::string_view line) {
  const bool is_member = line.starts_with(of_class);
  if (!is_member && !line.starts_with(of_namespace)) return std::nullopt;
  line.remove_prefix(of_namespace.size());
  const size_t value = line.find_first_of("=({"), end = line.find(';');
  if (value == std::string_view::npos || end == std::string_view::npos || line[value] == '(') return std::nullopt;
  const size_t name_end = line.find_last_not_of(' ', value - 1) + 1;
  const size_t type_end = line.find_last_of(' ', name_end - 1);
  if (type_end == std::string_view::npos) return std::nullopt;
  const std::string_view name = line.substr(type_end + 1, name_end - type_end - 1);
  if (!std::ranges::all_of(name, is_in_name)) return std::nullopt;  // an array
  const std::string_view type = line.substr(0, type_end);
  if (is_member && !is_integer(type) && !type.starts_with("ncast_")) return std::nullopt;
  return Constant{type, name, line.substr(name_end, end - name_end),
                  previous.starts_with("template <") && previous.ends_with('>'), is_member};
}

bool is_enumerator(const Constant& constant) { return !constant.is_template && is_integer(constant.type); }

std::string definition_of(const Constant& constant) {
  const std::string type(constant.type), name(constant.name), rest(constant.rest);
  if (is_enumerator(constant)) return "enum : " + type + " { " + name + rest + " };";
  const std::string value = rest.starts_with(" = ") ? rest.substr(3) : rest;
  return (constant.is_member ? "static constexpr " : "constexpr ") + type + " " + name + "() { return " + value + "; }";
}

// Calls the function that the constant has become wherever the line uses the constant.
std::string with_calls(std::string line, const Constant& constant) {
  for (size_t at = line.find(constant.name); at != std::string::npos; at = line.find(constant.name, at)) {
    const bool is_qualified = at >= 2 && line.compare(at - 2, 2, "::") == 0;
    const bool begins = at == 0 || !is_in_name(line[at - 1]);
    at += constant.name.size();
    if (!begins || (constant.is_member && !is_qualified)) continue;
    if (at < line.size() && (is_in_name(line[at]) || line[at] == '(')) continue;
    if (constant.is_template) {
      if (at == line.size() || line[at] != '<') continue;
      at = std::min(line.find('>', at), line.size() - 1) + 1;
    }
    line.insert(at, "()");
  }
  return line;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    lines.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string without_variables(std::string_view source) {
  std::vector<std::string> lines;
  std::vector<Constant> functions;
  std::string_view previous;
  for (const std::string_view line : lines_of(source)) {
    const std::optional<Constant> constant = constant_of(previous, line);
    lines.push_back(constant ? definition_of(*constant) : std::string(line));
    if (constant && !is_enumerator(*constant)) functions.push_back(*constant);
    previous = line;
  }
  std::string text;
  for (std::string& line : lines) {
    for (const Constant& function : functions) line = with_calls(std::move(line), function);
    text += line + "\n";
  }
  return text;
}

}  // namespace narrowcast::executor::cuda::generated
