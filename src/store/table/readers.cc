#include "store/table/readers.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/interrupt.h"
#include "status/error.h"

namespace narrowcast::store {
namespace {

constexpr int spins = 200;  // before a wait sleeps

std::atomic_ref<uint64_t> atomic(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

// Where a thread looks for a context first, so that threads find different ones.
uint32_t hint_of_this_thread() {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t hint = next++;
  return hint;
}

// The owner's word of a context: the number of the process in the low bits, and what distinguishes it from others that
// had or will have this number.
constexpr int number_bits = 8, start_time_bits = 34;
static_assert(bootstrap::SegmentOwners::capacity < 1 << number_bits);

uint64_t owner_word(uint64_t number, const bootstrap::ProcessIdentity& process) {
  const uint64_t start_time = process.start_time & ((uint64_t{1} << start_time_bits) - 1);
  return static_cast<uint64_t>(process.pid) << (start_time_bits + number_bits) | start_time << number_bits | number;
}

}  // namespace

void Readers::attach(ReaderWords* words, const bootstrap::SegmentOwners* owners, uint64_t number) {
  words_ = words;
  owners_ = owners;
  own_ = owners == nullptr ? number : owner_word(number, owners->owner[number - 1].process);
}

void Readers::detach() {
  for (uint32_t i = 0; i < count_; ++i) atomic(words_[claimed_[i]].owner).store(0, std::memory_order_release);
  count_ = 0;
}

bool Readers::is_alive(uint64_t owner) const {
  if (owners_ == nullptr || owner == own_) return true;
  const uint64_t number = owner & ((1u << number_bits) - 1);
  if (number == 0 || number > bootstrap::SegmentOwners::capacity) return false;
  const bootstrap::ProcessIdentity process = owners_->owner[number - 1].process;
  return owner_word(number, process) == owner && bootstrap::is_alive(process);
}

// Frees the contexts of processes that have ended. Several processes may do so at the same time, and the context may
// have a new owner before this one has finished: words only change from the values that the dead process left.
void Readers::free_dead() {
  for (uint32_t i = 0; i < max_readers; ++i) {
    uint64_t finished = atomic(words_[i].finished).load();
    const uint64_t started = atomic(words_[i].started).load();
    uint64_t owner = atomic(words_[i].owner).load();
    if (owner == 0 || is_alive(owner)) continue;
    atomic(words_[i].finished).compare_exchange_strong(finished, started);
    atomic(words_[i].owner).compare_exchange_strong(owner, 0);
  }
}

uint32_t Readers::claim() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (uint32_t i = 0; i < max_readers; ++i) {
      uint64_t none = 0;
      if (atomic(words_[i].owner).compare_exchange_strong(none, own_)) return i;
    }
    free_dead();
  }
  return max_readers;
}

void Readers::release(uint32_t reader) { atomic(words_[reader].owner).store(0, std::memory_order_release); }

uint32_t Readers::enter() {
  uint32_t found = max_readers;
  while (found == max_readers) {
    const uint32_t count = count_.load(std::memory_order_acquire);
    const uint32_t hint = hint_of_this_thread();
    for (uint32_t i = 0; i < count && found == max_readers; ++i) {
      const uint32_t reader = claimed_[(hint + i) % count];
      if (!busy_[reader].exchange(true, std::memory_order_acquire)) found = reader;
    }
    if (found != max_readers) break;
    found = claim();
    if (found == max_readers) {
      std::this_thread::yield();
      continue;
    }
    busy_[found] = true;
    const std::lock_guard lock(mutex_);
    claimed_[count_] = found;
    count_.store(count_ + 1, std::memory_order_release);
  }
  // Sequentially consistent, as the loads of the words of rows: a writer that changes such a word either sees this
  // call, or the call sees the change.
  atomic(words_[found].started).store(atomic(words_[found].started).load(std::memory_order_relaxed) + 1);
  return found;
}

void Readers::leave(uint32_t reader) {
  ReaderWords& words = words_[reader];
  atomic(words.finished).store(atomic(words.started).load(std::memory_order_relaxed), std::memory_order_release);
  busy_[reader].store(false, std::memory_order_release);
}

ncast_status Readers::wait_for_grace() {
  std::vector<std::pair<uint32_t, uint64_t>> inside;
  for (uint32_t i = 0; i < max_readers; ++i) {
    const uint64_t started = atomic(words_[i].started).load();
    if (atomic(words_[i].finished).load(std::memory_order_acquire) != started) inside.emplace_back(i, started);
  }
  if (inside.empty()) return NCAST_OK;
  ++grace_waits_;
  const auto begin = bootstrap::Clock::now();
  auto checked = begin;
  for (int round = 0;; ++round) {
    std::erase_if(inside, [&](const auto& reader) {
      return atomic(words_[reader.first].finished).load(std::memory_order_acquire) >= reader.second;
    });
    if (inside.empty()) return NCAST_OK;
    if (round < spins) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (bootstrap::Clock::now() - checked < bootstrap::interrupt_interval) continue;
    checked = bootstrap::Clock::now();
    free_dead();
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
    if (grace_limit_.passed(begin))
      return fail(NCAST_TIMEOUT, "%zu readers have been inside a call for %g seconds", inside.size(),
                  grace_limit_.seconds);
  }
}

}  // namespace narrowcast::store
