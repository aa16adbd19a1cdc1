#include "nccl/ranks/calibrate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nccl/calibration/costs_cache.h"
#include "nccl/libraries/backend.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/agreement.h"
#include "nccl/ranks/exchange.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;

constexpr ncast_dtype dtype = NCAST_BFLOAT16;
constexpr size_t dtype_bytes = 2;
constexpr size_t sample_bytes = size_t{1} << 20;

// Of the larger buffer of a call. Times of other sizes are interpolated.
struct Size {
  size_t bytes;
  int calls, batches;
};
constexpr double longest_step = 8;  // from one size to the next
constexpr size_t largest_call_bytes = 32 << 20;
constexpr Size sizes[] = {
    {4 << 10, 20, 3}, {64 << 10, 20, 3}, {512 << 10, 10, 3}, {4 << 20, 4, 3}, {largest_call_bytes, 2, 2}};
// Begins with the size that shows whether there is anything to gain. A network of 10 Gbit/s takes 30 ms for the longest
// calls.
constexpr Size sizes_between_hosts[] = {
    {4 << 20, 1, 2}, {4 << 10, 10, 3}, {64 << 10, 10, 3}, {512 << 10, 4, 3}, {largest_call_bytes, 1, 2}};
constexpr double most_seconds = 2, most_seconds_between_hosts = 4;

// Times of other operations are derived from these.
struct Measured {
  Operation operation;
  Function function;
  bool has_pieces;  // one buffer has a piece for each rank
};
constexpr Measured measured[] = {
    {NCAST_OP_ALL_REDUCE, Function::AllReduce, false}, {NCAST_OP_REDUCE_SCATTER, Function::ReduceScatter, true},
    {NCAST_OP_ALL_GATHER, Function::AllGather, true},  {NCAST_OP_BROADCAST, Function::Broadcast, false},
    {NCAST_OP_REDUCE, Function::Reduce, false},        {NCAST_OP_SEND, Function::Send, false},
};
// In two levels, where times are not derived. NCCL has the function since version 2.28.
constexpr Measured measured_in_levels = {NCAST_OP_ALL_TO_ALL, Function::AlltoAll, true};

enum class Way : uint32_t { keep, use_found, measure };

// From rank 0.
struct Order {
  Way way;
  uint32_t text_bytes;  // of the model that it found
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

CostsKey key_of(const Communicator& comm, const std::string& link) {
  char gpu[256] = "";
  int device = 0, version = 0;
  driver()->cuDeviceGet(&device, comm.device);
  driver()->cuDeviceGetName(gpu, sizeof gpu, device);
  driver()->cuDriverGetVersion(&version);
  const uint32_t ctas = comm.max_ctas.load();
  return {.gpu = gpu,
          .processor = processor_name(),
          .link = link,
          .kernels = engine()->ncast_kernels_hash(),
          .nccl = version_text(real_nccl().version),
          .ctas = ctas == environment::unset_ctas ? "not limited" : std::to_string(ctas),
          .ranks = comm.ranks,
          .driver = version,
          .hosts = comm.hosts};
}

// Multipliers as in Knuth's MMIX.
uint32_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005 + 1442695040888963407;
  return static_cast<uint32_t>(*state >> 32);
}

// bfloat16 values that codecs shrink as they do weights: sums of uniform numbers are nearly normally distributed.
std::vector<uint16_t> typical_values() {
  std::vector<uint16_t> values(sample_bytes / dtype_bytes);
  uint64_t state = 0;
  for (uint16_t& value : values) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(static_cast<int32_t>(next_random(&state)));
    value = static_cast<uint16_t>(std::bit_cast<uint32_t>(sum * 1e-11f) >> 16);
  }
  return values;
}
std::vector<uint16_t> incompressible_values() {
  std::vector<uint16_t> values(sample_bytes / dtype_bytes);
  uint64_t state = 0;
  for (uint16_t& value : values) value = static_cast<uint16_t>(next_random(&state) >> 16);
  return values;
}

// GPU memory that is freed in the order of the stream.
class Memory {
 public:
  explicit Memory(void* stream) : stream_(stream) {
    if (driver()->cuMemAllocAsync(&pointer_, largest_call_bytes, stream) != 0) pointer_ = nullptr;
  }
  ~Memory() {
    if (pointer_ != nullptr) driver()->cuMemFreeAsync(pointer_, stream_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* get() const { return pointer_; }
  bool fill(const std::vector<uint16_t>& sample) const {
    if (pointer_ == nullptr || driver()->cuMemcpyHtoDAsync_v2(pointer_, sample.data(), sample_bytes, stream_) != 0)
      return false;
    for (size_t at = sample_bytes; at < largest_call_bytes; at += sample_bytes)
      if (driver()->cuMemcpyDtoDAsync_v2(static_cast<char*>(pointer_) + at, pointer_, sample_bytes, stream_) != 0)
        return false;
    return true;
  }

 private:
  void* const stream_;
  void* pointer_ = nullptr;
};

class Calibration {
 public:
  Calibration(Communicator& comm, ncast_comm* created)
      : comm_(comm),
        created_(created),
        measured_(std::begin(measured), std::end(measured)),
        typical_(comm.exchange_stream),
        incompressible_(comm.exchange_stream),
        output_(comm.exchange_stream) {
    const std::vector<uint16_t> typical = typical_values(), incompressible = incompressible_values();
    is_ready_ = typical_.fill(typical) && incompressible_.fill(incompressible) && output_.get() != nullptr && wait();
    series_ = {{"", NCAST_CODEC_RAW, &typical_, true}};
    if (comm.has_levels) {
      // The levels choose the codecs of their steps.
      series_.push_back({"", NCAST_CODEC_AUTO, &typical_, false});
      if (real_nccl().has[static_cast<size_t>(measured_in_levels.function)]) measured_.push_back(measured_in_levels);
      return;
    }
    series_.push_back({"", NCAST_CODEC_RAW, &typical_, false});
    for (const ncast_codec codec : exact_codecs()) {
      series_.push_back({"", codec | NCAST_CODEC_FORCED, &typical_, false});
      series_.push_back({"/incompressible", codec | NCAST_CODEC_FORCED, &incompressible_, false});
    }
  }
  bool is_ready() const { return is_ready_; }

  // The same text on all ranks. False: a rank failed.
  bool run(CostsText* text) {
    const Clock::time_point begin = Clock::now();
    const bool one_host = comm_.hosts == 0;
    const double most = one_host ? most_seconds : most_seconds_between_hosts;
    double now = 0, longest = 0;  // seconds: since the beginning, for one size
    size_t most_bytes = 0;
    for (const Size& size : one_host ? sizes : sizes_between_hosts) {
      // All ranks stop before the same size.
      if (size.bytes > most_bytes && now + longest_step * longest > most) break;
      // The first item is the time since the beginning, or negative if this rank failed.
      std::vector<float> times{0};
      for (const Measured& one : measured_)
        for (const Series& series : series_) times.push_back(static_cast<float>(1e6 * seconds_of(one, size, series)));
      const bool failed = std::ranges::any_of(times, [](float time) { return time < 0; });
      times[0] = failed ? -1 : duration<float>(Clock::now() - begin).count();
      if (!exchange_slowest(&times)) return false;
      const float* time = &times[1];
      for (const Measured& one : measured_)
        for (const Series& series : series_) add(one, size, series, *time++, text);
      longest = std::max(longest, times[0] - now);
      now = times[0];
      most_bytes = std::max(most_bytes, size.bytes);
      if (!one_host && size.bytes == sizes_between_hosts[0].bytes && !gains(times)) break;
    }
    return true;
  }

 private:
  struct Series {
    const char* suffix;
    ncast_codec codec;
    const Memory* input;
    bool by_nccl;
  };

  size_t count_of(const Measured& one, const Size& size) const {
    return size.bytes / dtype_bytes / static_cast<size_t>(one.has_pieces ? comm_.ranks : 1);
  }

  // Whether a call was faster than NCCL's, whose time is the first of each operation.
  bool gains(const std::vector<float>& times) const {
    const auto count = static_cast<std::ptrdiff_t>(series_.size());
    for (auto nccl = times.begin() + 1; nccl != times.end(); nccl += count)
      if (*std::min_element(nccl + 1, nccl + count) < *nccl) return true;
    return false;
  }

  // Ends the calls of the engine if the communicator is aborted meanwhile.
  bool wait() {
    for (;;) {
      const int state = driver()->cuStreamQuery(comm_.exchange_stream);
      if (state != cuda_not_ready) return state == 0;
      if (comm_.aborted.load()) {
        engine()->ncast_comm_abort(created_);
        return false;
      }
      std::this_thread::yield();
    }
  }

  // Every second rank sends to the next one: transfers of KV caches and between pipeline stages go in one direction. In
  // two levels the ranks of every second host send to those of the next.
  bool send_or_receive(Call call, const Series& series) {
    const int distance = comm_.has_levels ? comm_.ranks_of_group : 1;
    const bool sends = comm_.rank / distance % 2 == 0;
    call.peer = sends ? comm_.rank + distance : comm_.rank - distance;
    if (call.peer >= comm_.ranks) return true;
    call.function = sends ? Function::Send : Function::Recv;
    call.operation = sends ? NCAST_OP_SEND : NCAST_OP_RECV;
    return make(call, series);
  }
  bool make(const Call& call, const Series& series) {
    if (series.by_nccl) {
      // An abort waits for this lock before NCCL frees the handle.
      const std::lock_guard lock(comm_.exchanging);
      return !comm_.aborted.load() && forward(call) == success;
    }
    return run_on_engine(call, series.codec, std::nullopt, created_, stream_) == NCAST_OK;
  }

  // Negative if a call failed. The other ranks then wait for this one in calls of the engine, which are ended.
  double seconds_of(const Measured& one, const Size& size, const Series& series) {
    const Call call{.function = one.function,
                    .operation = one.operation,
                    .send = series.input->get(),
                    .recv = output_.get(),
                    .count = count_of(one, size),
                    .dtype = dtype,
                    .comm = comm_.handle,
                    .stream = comm_.exchange_stream};
    const auto make_calls = [&](int count) {
      bool made = true;
      for (int i = 0; made && i < count; ++i)
        made = one.operation == NCAST_OP_SEND ? send_or_receive(call, series) : make(call, series);
      return made && wait();
    };
    double fastest = -1;
    bool made = !failed_ && make_calls(1);
    for (int batch = 0; made && batch < size.batches; ++batch) {
      const Clock::time_point begin = Clock::now();
      made = make_calls(size.calls);
      const double seconds = duration<double>(Clock::now() - begin).count() / size.calls;
      if (fastest < 0 || seconds < fastest) fastest = seconds;
    }
    if (made) return fastest;
    failed_ = true;
    engine()->ncast_comm_abort(created_);
    return -1;
  }

  // Replaces each time by that of the slowest rank. False if a rank failed.
  bool exchange_slowest(std::vector<float>* times) {
    constexpr size_t most = max_exchange_bytes / sizeof(float);
    std::vector<float> all(most * static_cast<size_t>(comm_.ranks));
    for (size_t at = 0; at < times->size(); at += most) {
      const size_t count = std::min(most, times->size() - at);
      if (exchange_bytes(&comm_, times->data() + at, count * sizeof(float), all.data()) != success) return false;
      for (size_t i = 0; i < all.size() && i < count * static_cast<size_t>(comm_.ranks); ++i) {
        if (all[i] < 0) return false;
        float& slowest = (*times)[at + i % count];
        slowest = std::max(slowest, all[i]);
      }
    }
    return true;
  }

  void add(const Measured& one, const Size& size, const Series& series, double microseconds, CostsText* text) const {
    const size_t count = count_of(one, size);
    if (series.by_nccl) {
      // Models of processes on CPUs have no times of NCCL.
      if (backend.id == NCAST_BACKEND_HOST && !comm_.has_levels) return;
      // Without peer access, and between hosts, NCCL is not measured in any other way than its default.
      for (const char* const name : {"nccl", "nccl:default"})
        text->add(one.operation, name, count * dtype_bytes, microseconds);
      return;
    }
    const std::string candidate = explain(created_, one.operation, count, dtype, series.codec).candidate;
    text->add(one.operation, candidate + series.suffix, count * dtype_bytes, microseconds);
  }

  Communicator& comm_;
  ncast_comm* const created_;
  std::vector<Measured> measured_;
  const Memory typical_, incompressible_, output_;
  // The host backend runs calls immediately.
  void* const stream_ = backend.id == NCAST_BACKEND_CUDA ? comm_.exchange_stream : nullptr;
  std::vector<Series> series_;
  bool is_ready_ = false, failed_ = false;
};

// Rank 0 applies a model that it has found, so an invalid one is measured again.
Order order_of_rank_0(const Communicator& comm, ncast_comm* created, const CostsCache& cache, const CostsKey& key,
                      const CostsCache::Lock& lock, std::string* text) {
  if (comm.rank != 0) return {Way::keep, 0};
  *text = cache.find(key);
  if (!text->empty()) {
    const std::string place = cache.place_of(key);
    if (engine()->ncast_comm_set_costs(created, text->c_str()) == NCAST_OK) {
      log(Level::info, "uses the costs in %s", place.c_str());
      return {Way::use_found, static_cast<uint32_t>(text->size())};
    }
    log(Level::warn, "measures costs again: %s: %s", place.c_str(), engine()->ncast_last_error());
  }
  return {lock.is_held() ? Way::measure : Way::keep, 0};
}

// Sends rank 0's value to all ranks.
template <typename Value>
bool broadcast(Communicator& comm, Value* value) {
  std::vector<Value> all(static_cast<size_t>(comm.ranks));
  if (exchange_bytes(&comm, value, sizeof *value, all.data()) != success) return false;
  *value = all[0];
  return true;
}

bool use_found(Communicator& comm, ncast_comm* created, size_t bytes, std::string text) {
  text.resize(bytes);
  for (size_t at = 0; at < bytes; at += max_exchange_bytes) {
    std::array<char, max_exchange_bytes> part = {};
    const size_t count = std::min(part.size(), bytes - at);
    std::memcpy(part.data(), text.data() + at, count);
    if (!broadcast(comm, &part)) return false;
    std::memcpy(text.data() + at, part.data(), count);
  }
  return engine()->ncast_comm_set_costs(created, text.c_str()) == NCAST_OK;
}

bool measure(Communicator& comm, ncast_comm* created, const CostsCache& cache, const CostsKey& key) {
  const Clock::time_point begin = Clock::now();
  Calibration calibration(comm, created);
  CostsText costs;
  if (!all_ranks(comm, calibration.is_ready())) {
    log(Level::info, "a rank has no memory to measure costs: predictions use the built-in model");
    return true;
  }
  if (!calibration.run(&costs)) return false;
  const std::string text = costs.text(key);
  if (engine()->ncast_comm_set_costs(created, text.c_str()) != NCAST_OK) {
    // The same on all ranks, because the text is.
    log(Level::warn, "cannot use the measured costs: %s", engine()->ncast_last_error());
    return true;
  }
  if (comm.rank != 0) return true;
  const std::string place = cache.store(key, text) ? "kept in " + cache.place_of(key) : "they could not be stored";
  log(Level::info, "measured the costs of %d ranks over %s in %.2f s: %s", comm.ranks, key.link.c_str(),
      duration<double>(Clock::now() - begin).count(), place.c_str());
  return true;
}

}  // namespace

bool calibrate(Communicator& comm, ncast_comm* created) {
  const Explained explained =
      explain(created, NCAST_OP_ALL_REDUCE, largest_call_bytes / dtype_bytes, dtype, NCAST_CODEC_RAW);
  const bool wants = settings().calibrate.value_or(backend.calibrates) && settings().cost_model.empty() &&
                     !explained.link.empty() && explained.link != "nvlink";
  const CostsKey key = key_of(comm, explained.link);
  // How fast NCCL is between hosts depends on more than a key can tell: its variables, its plugins, the network.
  const bool is_kept = wants && comm.rank == 0 && comm.hosts == 0;
  const CostsCache cache(is_kept ? CostsCache::default_folder() : "");
  const CostsCache::Lock lock(cache, key);
  std::string text;
  Order order{Way::keep, 0};
  if (wants) order = order_of_rank_0(comm, created, cache, key, lock, &text);
  if (!broadcast(comm, &order)) return false;
  switch (order.way) {
    case Way::use_found: return use_found(comm, created, order.text_bytes, std::move(text));
    case Way::measure: return measure(comm, created, cache, key);
    default: return true;
  }
}

}  // namespace narrowcast::nccl
