#include "nccl/report/statistics.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "nccl/report/file_name.h"
#include "nccl/report/json.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Statistics>> all;
};

Registry& registry() {
  static Registry& the = *new Registry;  // never freed: written when the process ends
  return the;
}

// Set once, before the first write; never freed.
constinit std::atomic<const StatisticsOutput*> chosen_output{nullptr};
constinit std::atomic<int64_t> next_write_ns{0};
constinit std::atomic<pid_t> writer{0};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string number(uint64_t value) { return std::to_string(value); }

std::string seconds(double microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9f", microseconds / 1e6);
  return text;
}

template <typename Name>
void add(std::vector<std::pair<Name, uint64_t>>* counts, const char* name, uint64_t calls) {
  const auto found =
      std::ranges::find_if(*counts, [&](const auto& one) { return std::string_view(one.first) == name; });
  if (found != counts->end())
    found->second += calls;
  else
    counts->emplace_back(name, calls);
}

// The ratio of a typical call that did not wait for other ranks: a tenth of the calls have a lower one. nullopt if too
// few calls were timed.
std::optional<double> time_ratio(std::vector<double> times) {
  constexpr size_t least_timed = 8;
  if (times.size() < least_timed) return std::nullopt;
  const auto tenth = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10);
  std::ranges::nth_element(times, tenth);
  return *tenth;
}

// traffic: NULL if it is not known.
std::string operation_json(const char* name, const OperationCount& count, const ncast_operation_counters* traffic) {
  const auto bytes = [&](uint64_t ncast_operation_counters::* which) {
    if (traffic != nullptr) return number(traffic->*which);
    return std::string(count.taken == 0 ? "0" : "null");
  };
  std::string text = std::string("{\"operation\":\"") + name + "\",\"taken\":" + number(count.taken) +
                     ",\"captured\":" + number(count.captured) + ",\"forwarded\":" + number(count.forwarded) +
                     ",\"reasons\":{";
  for (const auto& [why, times] : count.reasons)
    text += (text.back() == '{' ? "" : ",") + json_string(why) + ":" + number(times);
  text += '}';
  if (!count.plans.empty()) {
    text += ",\"plans\":{";
    for (const auto& [plan, times] : count.plans)
      text += (text.back() == '{' ? "" : ",") + json_string(plan) + ":" + number(times);
    text += '}';
  }
  if (!count.lossy.empty()) {
    text += ",\"lossy\":[";
    for (const LossyCount& one : count.lossy)
      text += std::string(text.back() == '[' ? "" : ",") + "{\"rule\":" + json_string(one.rule) +
              ",\"codec\":" + json_string(one.codec) + ",\"calls\":" + number(one.calls) + "}";
    text += ']';
  }
  if (const std::optional<double> ratio = time_ratio(count.times)) {
    char number[32];
    std::snprintf(number, sizeof number, "%.3f", *ratio);
    text += std::string(",\"time_ratio\":") + number;
  }
  return text + ",\"raw_bytes\":" + bytes(&ncast_operation_counters::raw_bytes) +
         ",\"wire_bytes\":" + bytes(&ncast_operation_counters::wire_bytes) +
         ",\"predicted\":" + number(count.predicted) + ",\"saved_seconds\":" + seconds(count.saved_microseconds) + "}";
}

// The path with %p and %r replaced.
std::string file_path() {
  const std::string path = replaced(chosen_output.load()->path, "%p", std::to_string(getpid()));
  const std::lock_guard lock(registry().mutex);
  return replaced(path, "%r", registry().all.empty() ? "none" : std::to_string(registry().all.front()->rank()));
}

std::string document() {
  const StatisticsOutput& output = *chosen_output.load();
  std::string text = "{\"pid\":" + std::to_string(getpid()) + ",\"nccl\":{\"path\":" + json_string(output.nccl_path) +
                     ",\"version\":" + json_string(output.nccl_version) + "},\"communicators\":[";
  const std::lock_guard lock(registry().mutex);
  for (const auto& one : registry().all) text += (text.back() == '[' ? "\n" : ",\n") + one->json();
  return text + "]}\n";
}

// Creates a file beside `path`, with the permissions of a new file. The folder may be /tmp, where another user could
// have put a link in place of a name that can be guessed.
int create_beside(const std::string& path, std::string* name) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return -1;
  *name = path + "." + std::to_string(random);
  return open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return true;
}

// Replaces the file atomically: it may be read while the process runs.
void write_file() {
  if (void (*const refresh)() = chosen_output.load()->refresh) refresh();
  const std::string path = file_path();
  std::string unfinished;
  const int file = create_beside(path, &unfinished);
  bool is_written = file >= 0 && write_all(file, document());
  if (file >= 0) is_written = close(file) == 0 && is_written && rename(unfinished.c_str(), path.c_str()) == 0;
  if (is_written) return;
  log(Level::warn, "NARROWCAST_STATS cannot be written to %s: %s", path.c_str(), std::strerror(errno));
  if (file >= 0) unlink(unfinished.c_str());
}

void write_last_time() {
  if (getpid() != writer.load()) return;  // a forked child did not make these calls
  static std::once_flag once;
  std::call_once(once, write_file);
}

}  // namespace

void Statistics::set_id(uint64_t id) {
  const std::lock_guard lock(mutex_);
  id_ = id;
}

void Statistics::set_scratch(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  scratch_bytes_ = bytes;
}

void Statistics::count_taken(Operation operation, uint64_t calls, std::optional<double> saved_microseconds) {
  const std::lock_guard lock(mutex_);
  OperationCount& count = operations_[operation];
  count.taken += calls;
  if (!saved_microseconds) return;
  count.predicted += calls;
  count.saved_microseconds += *saved_microseconds * static_cast<double>(calls);
}

void Statistics::count_captured(Operation operation, uint64_t calls) {
  const std::lock_guard lock(mutex_);
  operations_[operation].taken += calls;
  operations_[operation].captured += calls;
}

void Statistics::count_plan(Operation operation, uint64_t calls, const char* plan) {
  const std::lock_guard lock(mutex_);
  add(&operations_[operation].plans, plan, calls);
}

void Statistics::count_lossy(Operation operation, uint64_t calls, const std::string& rule, const std::string& codec) {
  const std::lock_guard lock(mutex_);
  std::vector<LossyCount>& counts = operations_[operation].lossy;
  auto found = std::ranges::find_if(counts, [&](const auto& one) { return one.rule == rule && one.codec == codec; });
  if (found == counts.end()) found = counts.insert(found, {rule, codec});
  found->calls += calls;
}

void Statistics::count_time(Operation operation, double ratio) {
  const std::lock_guard lock(mutex_);
  operations_[operation].times.push_back(ratio);
}

void Statistics::count_forwarded(Operation operation, const char* why) {
  const std::lock_guard lock(mutex_);
  OperationCount& count = operations_[operation];
  ++count.forwarded;
  add(&count.reasons, why, 1);
}

void Statistics::set_traffic(const TrafficByOperation& traffic) {
  const std::lock_guard lock(mutex_);
  traffic_ = traffic;
  for (size_t i = 0; i < traffic.size(); ++i) {
    (*traffic_)[i].raw_bytes += closed_traffic_[i].raw_bytes;
    (*traffic_)[i].wire_bytes += closed_traffic_[i].wire_bytes;
  }
}

void Statistics::close_traffic() {
  const std::lock_guard lock(mutex_);
  if (traffic_) closed_traffic_ = *traffic_;
}

std::string Statistics::json() const {
  const std::lock_guard lock(mutex_);
  char id[20];
  std::snprintf(id, sizeof id, "%016" PRIx64, id_);
  std::string text = std::string("{\"id\":\"") + (id_ == 0 ? "" : id) + "\",\"rank\":" + std::to_string(rank_) +
                     ",\"ranks\":" + std::to_string(ranks_) + ",\"scratch_bytes\":" + std::to_string(scratch_bytes_) +
                     ",\"operations\":[";
  for (int i = 0; i < operation_count; ++i) {
    if (operations_[i].taken + operations_[i].forwarded == 0) continue;
    const ncast_operation_counters* const traffic = traffic_ ? &(*traffic_)[static_cast<size_t>(i)] : nullptr;
    text += (text.back() == '[' ? "" : ",") + operation_json(operation_names[i], operations_[i], traffic);
  }
  return text + "]}";
}

std::shared_ptr<Statistics> add_statistics(int rank, int ranks) {
  auto statistics = std::make_shared<Statistics>(rank, ranks);
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(statistics);
  return statistics;
}

void write_statistics_at_exit(const StatisticsOutput& output) {
  if (output.path.empty()) return;
  if (chosen_output.load() == nullptr) {
    const auto* const copy = new StatisticsOutput(output);
    const StatisticsOutput* none = nullptr;
    if (!chosen_output.compare_exchange_strong(none, copy)) delete copy;
  }
  writer.store(getpid());
  std::atexit(write_last_time);
}

void write_statistics_when_due() {
  const StatisticsOutput* const output = chosen_output.load(std::memory_order_relaxed);
  if (output == nullptr || output->period_seconds <= 0) return;
  int64_t due = next_write_ns.load(std::memory_order_relaxed);
  const int64_t now = now_ns();
  const auto period_ns = static_cast<int64_t>(output->period_seconds * 1e9);
  if (now < due || !next_write_ns.compare_exchange_strong(due, now + period_ns)) return;
  write_file();
}

}  // namespace narrowcast::nccl
