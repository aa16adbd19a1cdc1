// The files of plans: those of the folder, and those that rules name.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "files/read_file.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t most_bytes = uint64_t{256} << 20;

// Sorted, so that the order is the same on all ranks.
std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code unknown;
    const fs::path& path = entry->path();
    if (path.filename().string().starts_with('.') || !entry->is_regular_file(unknown)) continue;
    if (path.extension() == ".json")
      paths.push_back(path);
    else
      log(Level::warn, "%s is not used: plans are files .json. `narrowcast plan import` converts other formats",
          path.c_str());
  }
  if (error) log(Level::warn, "plans: cannot read the folder %s: %s", folder.c_str(), error.message().c_str());
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

void read_plan_files(Settings* settings) {
  settings->plan_files.clear();
  std::vector<fs::path> paths;
  if (!settings->plans.empty()) paths = files_in(settings->plans);
  const auto path_of = [&](const PlanRule& rule) { return fs::path(settings->plans) / rule.file; };
  for (const PlanRule& rule : settings->plan_rules) {
    if (rule.file.empty())
      log(Level::warn, "a [[plan]] has no file: name one of the folder `plans`, or an absolute path");
    else if (settings->plans.empty() && !fs::path(rule.file).is_absolute())
      log(Level::warn, "%s: the plan is not used: without a folder `plans`, its path must be absolute",
          rule.file.c_str());
    else if (std::ranges::find(paths, path_of(rule)) == paths.end())
      paths.push_back(path_of(rule));
  }
  for (const fs::path& path : paths) {
    PlanFile file{path.string(), "", {}};
    if (const std::string error = files::read_file(file.path, most_bytes, &file.content); !error.empty()) {
      log(Level::warn, "%s: the plan is not used: the file cannot be read: %s", path.c_str(), error.c_str());
      continue;
    }
    std::ranges::copy_if(settings->plan_rules, std::back_inserter(file.rules),
                         [&](const PlanRule& rule) { return !rule.file.empty() && path_of(rule) == path; });
    if (file.rules.empty()) file.rules.emplace_back();
    settings->plan_files.push_back(std::move(file));
  }
}

}  // namespace narrowcast::nccl
