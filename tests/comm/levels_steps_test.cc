// The streams of long calls in two levels. No GPU is needed: what runs before what follows from the marks.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "comm/levels/steps.h"
#include "doctest/doctest.h"

namespace narrowcast::comm {
namespace {

using executor::Box;
using executor::Call;
using executor::Strides;
using operation::Operation;

constexpr uint64_t area_distance = uint64_t{1} << 40;
void* const user_memory = reinterpret_cast<void*>(100 * area_distance);

// What a stream has done, and what it has waited for: the number of operations of each stream.
using Clock = std::array<uint64_t, 2>;

struct Event {
  int stream;
  Clock clock;
  int slot;
  bool is_between;
};

// Records what is put on the streams.
class Streams final : public executor::LocalWork {
 public:
  std::vector<Event> events;

  void add(ncast_stream stream, int slot, bool is_between) {
    Clock& clock = clocks_[number_of(stream)];
    ++clock[number_of(stream)];
    events.push_back({static_cast<int>(number_of(stream)), clock, slot, is_between});
  }
  Clock of_caller() const { return clocks_[0]; }

  ncast_status allocate(size_t, void**) override { return NCAST_OK; }
  ncast_status enter(ncast_stream) override { return NCAST_OK; }
  ncast_status leave(ncast_stream) override { return NCAST_OK; }
  bool may_overlap(uint32_t) const override { return true; }
  ncast_stream side_stream(int) const override { return const_cast<Streams*>(this); }
  ncast_status set_mark(int mark, ncast_stream stream) override {
    marks_[mark] = clocks_[number_of(stream)];
    return NCAST_OK;
  }
  ncast_status wait_for_mark(int mark, ncast_stream stream) override {
    Clock& clock = clocks_[number_of(stream)];
    std::ranges::transform(clock, marks_[mark], clock.begin(), [](auto a, auto b) { return std::max(a, b); });
    return NCAST_OK;
  }
  ncast_status clear(void* memory, size_t, ncast_stream stream) override { return use(memory, memory, stream); }
  ncast_status copy(const void* from, Strides, void* to, Strides, Box, ncast_dtype, ncast_stream stream) override {
    return use(from, to, stream);
  }
  ncast_status scale(const void* from, void* to, uint64_t, ncast_dtype, const executor::Factor&,
                     ncast_stream stream) override {
    return use(from, to, stream);
  }
  ncast_status widen(const void* from, void* to, uint64_t, ncast_dtype, ncast_stream stream) override {
    return use(from, to, stream);
  }
  ncast_status finish(const void* from, void* to, uint64_t, ncast_dtype, ncast_redop, int,
                      ncast_stream stream) override {
    return use(from, to, stream);
  }
  ncast_status stop_after_failure(ncast_comm*, ncast_comm*, ncast_stream) override { return NCAST_OK; }

 private:
  size_t number_of(ncast_stream stream) const { return stream == this ? 1 : 0; }
  static bool is_area(const void* memory) { return memory < user_memory; }
  ncast_status use(const void* from, const void* to, ncast_stream stream) {
    const auto area = reinterpret_cast<uint64_t>(is_area(to) ? to : from) / area_distance - 1;
    add(stream, static_cast<int>(area / 2), stream == this);
    return NCAST_OK;
  }

  Clock clocks_[2] = {}, marks_[2] = {};
};

class Recorder final : public StepTaker {
 public:
  ncast_status take(Call call, bool is_between, int slot) override {
    streams.add(call.stream, slot, is_between);
    return NCAST_OK;
  }
  executor::LocalWork* work() override { return &streams; }
  bool overlaps() const override { return true; }
  void* area(int number) override { return reinterpret_cast<void*>((uint64_t(number) + 1) * area_distance); }

  Streams streams;
};

constexpr Operation operations[] = {Operation::broadcast,  Operation::reduce,        Operation::gather,
                                    Operation::scatter,    Operation::all_gather,    Operation::all_to_all,
                                    Operation::all_reduce, Operation::reduce_scatter};

constexpr uint64_t all_values = 150 << 20;

// Whether the count of a call is that of all values, not of those of one rank.
bool is_of_all_ranks(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce || operation == Operation::all_reduce;
}

TEST_CASE("what uses the same intermediate values runs in order, and other steps at the same time") {
  for (const Operation operation : operations) {
    CAPTURE(name_of(operation));
    Recorder recorder;
    const Call call{.operation = operation,
                    .send = user_memory,
                    .recv = user_memory,
                    .count = all_values / (is_of_all_ranks(operation) ? 1 : 16) + 5,
                    .dtype = NCAST_BFLOAT16,
                    .codec = NCAST_CODEC_AUTO};
    REQUIRE(take_steps({2, 8, 0, 0}, false, recorder, call) == NCAST_OK);
    const std::vector<Event>& events = recorder.streams.events;
    REQUIRE(events.size() > 8);
    bool overlap = false;
    for (size_t later = 0; later < events.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        const Event &first = events[earlier], &second = events[later];
        const auto stream = static_cast<size_t>(first.stream);
        const bool is_ordered = first.clock[stream] <= second.clock[stream];
        if (first.slot == second.slot) CHECK(is_ordered);
        overlap = overlap || (first.is_between != second.is_between && !is_ordered);
      }
      // The caller's stream ends after all of them.
      const auto stream = static_cast<size_t>(events[later].stream);
      CHECK(events[later].clock[stream] <= recorder.streams.of_caller()[stream]);
    }
    CHECK(overlap);
  }
}

}  // namespace
}  // namespace narrowcast::comm
