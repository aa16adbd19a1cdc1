#include "executor/cuda/generated/kernel_sources.h"

#include <filesystem>
#include <set>
#include <span>
#include <stdexcept>

#include "executor/cuda/generated/codec_code.h"
#include "executor/cuda/generated/kernel_constants.h"

#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr std::string_view include = "#include ";
constexpr std::string_view prelude_include = R"(
#include "executor/cuda/generated/nvrtc_prelude.cuh"
)";

const KernelSource* find(const std::string& path) {
  for (const KernelSource& source : std::span(kernel_sources, kernel_source_count))
    if (path == source.path) return &source;
  return nullptr;
}

class Includer {
 public:
  explicit Includer(std::span<const std::string_view> replaced) : included_(replaced.begin(), replaced.end()) {}
  void add(std::string_view source, const std::string& folder) {
    while (!source.empty()) {
      const size_t end = source.find('\n');
      const std::string_view line = source.substr(0, end);
      source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
      const std::string_view code = line.substr(std::min(line.find_first_not_of(' '), line.size()));
      if (code.starts_with(include)) {
        add_include(code.substr(include.size()), folder);
      } else if (!code.empty() && !code.starts_with("//") && !code.starts_with("#pragma once")) {
        text_.append(line);
        text_ += '\n';
      }
    }
  }
  std::string text() && { return std::move(text_); }

 private:
  void add_include(std::string_view target, const std::string& folder) {
    if (target.front() != '"') return;  // in the prelude
    const std::string name(target.substr(1, target.find('"', 1) - 1));
    for (const std::string& from : {folder, std::string("src"), std::string("include")}) {
      const std::string path = (std::filesystem::path(from) / name).lexically_normal().string();
      const KernelSource* const source = find(path);
      if (source == nullptr) continue;
      const bool is_repeated = path.ends_with(".def");  // these are included for different macros
      if (is_repeated || included_.insert(path).second) add(source->text, path.substr(0, path.rfind('/')));
      return;
    }
    throw std::logic_error("kernels include '" + name + "', which is not embedded");
  }

  std::string text_;
  std::set<std::string> included_;
};

}  // namespace

uint64_t kernel_sources_hash() {
  static const uint64_t hash = [] {
    XXH64_hash_t value = 0;
    for (const KernelSource& source : std::span(kernel_sources, kernel_source_count))
      for (const std::string_view text : {source.path, source.text})
        value = XXH3_64bits_withSeed(text.data(), text.size(), value);
    return value;
  }();
  return hash;
}

std::string with_included_sources(std::string_view source, std::span<const std::string_view> replaced) {
  Includer includer(replaced);
  includer.add(prelude_include, "src");
  includer.add(source, "src");
  return with_user_headers(without_variables(std::move(includer).text()));
}

}  // namespace narrowcast::executor::cuda::generated
