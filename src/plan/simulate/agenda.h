// The event queue of a simulation: at most one event for each run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace narrowcast::plan::simulate {

// Event times are rounded to multiples of 2^-20 us, about a picosecond, so that simultaneous events compare equal
// however their times were computed. Otherwise rounding errors decide which event is first and are amplified, because
// transfers that share a link change the times of each other, until simulations of equal calls differ by percents.
inline double whole_ticks(double microseconds) {
  constexpr double ticks = 1 << 20;
  return std::nearbyint(microseconds * ticks) / ticks;
}

struct Event {
  double time;
  uint32_t run;
  bool operator<(const Event& other) const { return time != other.time ? time < other.time : run < other.run; }
};

// A binary heap that tracks the position of the event of each run. Rates of runs change often, so events are updated in
// place and the heap stays short.
class Agenda {
 public:
  explicit Agenda(size_t runs) : place_(runs, absent) {}

  // Makes room for the events of that many runs.
  void grow(size_t runs) { place_.resize(runs, absent); }

  bool empty() const { return heap_.empty(); }
  // Replaces the event of the run, if it has one.
  void set(double time, uint32_t run) {
    time = whole_ticks(time);
    if (place_[run] == absent) {
      place_[run] = heap_.size();
      heap_.push_back({time, run});
    } else {
      heap_[place_[run]].time = time;
    }
    settle(place_[run]);
  }
  void remove(uint32_t run) {
    const size_t at = std::exchange(place_[run], absent);
    if (at == absent) return;
    const Event last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    put(at, last);
    settle(at);
  }
  double first_time() const { return heap_.front().time; }
  // Removes and returns the earliest event.
  Event next() {
    const Event first = heap_.front();
    remove(first.run);
    return first;
  }

 private:
  static constexpr size_t absent = ~size_t{0};

  void put(size_t at, const Event& event) {
    heap_[at] = event;
    place_[event.run] = at;
  }
  // Restores the heap order at an event.
  void settle(size_t at) {
    const Event event = heap_[at];
    for (; at != 0 && event < heap_[(at - 1) / 2]; at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    for (size_t child; (child = 2 * at + 1) < heap_.size(); at = child) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < event)) break;
      put(at, heap_[child]);
    }
    put(at, event);
  }

  std::vector<Event> heap_;
  std::vector<size_t> place_;  // by run, in the heap
};

}  // namespace narrowcast::plan::simulate
