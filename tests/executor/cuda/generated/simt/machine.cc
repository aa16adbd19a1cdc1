// The checks of this option reject jumps to other stacks.
#undef _FORTIFY_SOURCE
#include "executor/cuda/generated/simt/machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace simt {
namespace {

constexpr size_t stack_bytes = 64 << 10;
constexpr int most_idle_rounds = 3000;  // longer than kernels idle between looks at optional announcements
bool has_progress = false;

void wake(Warp& warp) {
  warp.arrived = 0;
  for (Lane& lane : warp.lane) lane.waits = false;
}

// A function of its own, because getcontext() can return twice for all that the compiler knows.
void prepare(Lane& lane, void (*enter)()) {
  lane.stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
  getcontext(&lane.first);
  lane.first.uc_stack.ss_sp = lane.stack.get();
  lane.first.uc_stack.ss_size = stack_bytes;
  makecontext(&lane.first, enter, 0);
}

// Continue on another stack. swapcontext() would do the same, but each time it asks the system for the mask of signals,
// which would take most of the time of the tests.
[[gnu::noinline]] void suspend_for(jmp_buf& from, jmp_buf& to) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}
[[gnu::noinline]] void suspend_to_begin(jmp_buf& from, const ucontext_t& first) {
  if (_setjmp(from) == 0) setcontext(&first);
}

uint32_t live_lanes(const Warp& warp) {
  return static_cast<uint32_t>(std::ranges::count_if(warp.lane, [](const Lane& lane) { return !lane.ended; }));
}
uint32_t live_threads(const Cta& cta) {
  uint32_t count = 0;
  for (const auto& warp : cta.warps) count += live_lanes(*warp);
  return count;
}

}  // namespace

Machine* machine = nullptr;
Lane* current = nullptr;
std::map<const void*, std::vector<Copy>> pending_loads;

void yield_to_scheduler() { suspend_for(current->registers, machine->scheduler_); }

void Machine::launch(uint32_t ctas, uint32_t warps, size_t shared_bytes, const std::function<void()>& kernel) {
  for (uint32_t number = 0; number < ctas; ++number) {
    Cta& cta = *ctas_.emplace_back(std::make_unique<Cta>());
    cta.kernel = kernel;
    cta.live_warps = warps;
    cta.shared.assign(shared_bytes + 1024, static_cast<char>(0xcd));
    for (uint32_t w = 0; w < warps; ++w) {
      Warp& warp = *cta.warps.emplace_back(std::make_unique<Warp>());
      warp.cta = &cta;
      for (uint32_t i = 0; i < lanes; ++i) {
        Lane& lane = warp.lane[i];
        lane.warp = &warp;
        lane.number = i;
        lane.thread = {w * lanes + i};
        lane.cta = {number};
        lane.ctas = {ctas};
        lane.threads = {warps * lanes};
        prepare(lane, &Machine::enter);
      }
    }
  }
}

void Machine::enter() {
  current->warp->cta->kernel();
  finish(current->bulk_stores);
  current->ended = has_progress = true;
  // The others of the warp or the CTA may wait for this thread only.
  Warp& warp = *current->warp;
  if (warp.arrived != 0 && warp.arrived == live_lanes(warp)) wake(warp);
  yield_to_scheduler();
}

void Machine::run_lane(Lane& lane) {
  current = &lane;
  if (std::exchange(lane.began, true)) {
    suspend_for(scheduler_, lane.registers);
  } else {
    suspend_to_begin(scheduler_, lane.first);
  }
}

// Runs the lanes until all of them have ended, wait or poll.
bool Machine::run_warp(Warp& warp) {
  for (Lane& lane : warp.lane) lane.polled = false;
  for (bool ran = true; ran;) {
    ran = false;
    for (Lane& lane : warp.lane) {
      if (lane.ended || lane.waits || lane.polled) continue;
      run_lane(lane);
      ran = true;
    }
  }
  return live_lanes(warp) != 0;
}

bool Machine::run(size_t most_ctas) {
  machine = this;
  std::vector<Cta*> pending;
  for (const auto& cta : ctas_) pending.push_back(cta.get());
  if (most_ctas < pending.size()) std::ranges::shuffle(pending, random_);
  std::vector<Warp*> warps;
  size_t running = 0;
  const auto run_and_count = [&](Warp* warp) {
    if (run_warp(*warp)) return false;
    if (--warp->cta->live_warps == 0) --running;
    return true;
  };
  for (int idle = 0; idle < most_idle_rounds; ++idle) {
    for (; running < most_ctas && !pending.empty(); ++running) {
      for (const auto& warp : pending.back()->warps) warps.push_back(warp.get());
      pending.pop_back();
    }
    if (warps.empty()) break;
    has_progress = false;
    std::ranges::shuffle(warps, random_);
    std::erase_if(warps, run_and_count);
    if (has_progress) idle = 0;
  }
  const bool completed = warps.empty();
  ctas_.clear();
  return completed;
}

void poll() {
  current->polled = true;
  yield_to_scheduler();
}

void wait_for_warp() {
  Warp& warp = *current->warp;
  if (++warp.arrived == live_lanes(warp)) {
    wake(warp);
    return;
  }
  current->waits = true;
  yield_to_scheduler();
}

void wait_for_cta() {
  Cta& cta = *current->warp->cta;
  if (++cta.arrived == live_threads(cta)) {
    cta.arrived = 0;
    has_progress = true;
    for (const auto& warp : cta.warps)
      for (Lane& lane : warp->lane) lane.waits = false;
    return;
  }
  current->waits = true;
  yield_to_scheduler();
}

bool wait_for_warps(uint32_t number, uint32_t warps, bool value) {
  Cta::Barrier& barrier = current->warp->cta->barriers[number];
  barrier.all = barrier.all && value;
  if (barrier.waiting.size() + 1 == warps * lanes) {
    has_progress = true;
    for (Lane* lane : barrier.waiting) lane->waits = false;
    barrier.waiting.clear();
    barrier.last_all = std::exchange(barrier.all, true);
  } else {
    barrier.waiting.push_back(current);
    current->waits = true;
    yield_to_scheduler();
  }
  return barrier.last_all;
}

const uint64_t* exchange(uint64_t value) {
  Warp& warp = *current->warp;
  // Two buffers: a thread can begin the next exchange before others have read the values of this one.
  uint64_t (&buffer)[lanes] = warp.exchanged[warp.exchanges[current->number]++ % 2];
  buffer[current->number] = value;
  wait_for_warp();
  return buffer;
}

char* shared_memory() {
  char* const memory = current->warp->cta->shared.data();
  return memory + (1024 - reinterpret_cast<uintptr_t>(memory) % 1024) % 1024;
}

void start(std::vector<Copy>& copies, const Copy& copy) {
  has_progress = true;
  copies.push_back(copy);
  if (machine->coin()) finish(copies);
}

void finish(std::vector<Copy>& copies) {
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
  copies.clear();
}

void commit_loads() {
  current->load_groups.push_back(std::move(current->loads));
  current->loads.clear();
}

void finish_loads_but(size_t groups) {
  std::vector<std::vector<Copy>>& all = current->load_groups;
  while (all.size() > groups) {
    finish(all.front());
    all.erase(all.begin());
  }
}

}  // namespace simt
