// Readers of a table, and the wait of a writer until they have left their calls.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "bootstrap/deadline.h"
#include "bootstrap/shared_memory.h"
#include "store/table/control.h"

namespace narrowcast::store {

// The reader contexts that this process has claimed. They are claimed one by one, as many as calls run at the same
// time.
class Readers {
 public:
  // owners: of the shared segment; NULL if the table belongs to this process alone. number: 1 + that of this process.
  void attach(ReaderWords* words, const bootstrap::SegmentOwners* owners, uint64_t number);
  // Frees the contexts of this process.
  void detach();

  // Begins a call that reads rows; ends it with leave(). Waits while all contexts are in use.
  uint32_t enter();
  void leave(uint32_t reader);

  // A context for a user of its own, such as a stream of a GPU, until release(). Returns max_readers if none is free.
  uint32_t claim();
  void release(uint32_t reader);

  // Waits until every reader, of any process, that is inside a call now has left it. Contexts of processes that have
  // ended are freed. Errors: TIMEOUT after 60 seconds, or the limit for tests; ABORTED.
  ncast_status wait_for_grace();
  void limit_grace(double seconds) { grace_limit_.seconds = seconds; }
  uint64_t grace_waits() const { return grace_waits_; }

 private:
  bool is_alive(uint64_t owner) const;
  void free_dead();

  ReaderWords* words_ = nullptr;
  const bootstrap::SegmentOwners* owners_ = nullptr;
  uint64_t own_ = 0;                // the owner's word of this process
  std::mutex mutex_;                // of claimed_
  std::atomic<uint32_t> count_{0};  // contexts in claimed_
  std::array<uint32_t, max_readers> claimed_ = {};
  std::array<std::atomic<bool>, max_readers> busy_ = {};  // by number of the context
  bootstrap::Limit grace_limit_{60};
  std::atomic<uint64_t> grace_waits_{0};
};

// A call that reads rows.
class ReadScope {
 public:
  explicit ReadScope(Readers& readers) : readers_(readers), reader_(readers.enter()) {}
  ~ReadScope() { readers_.leave(reader_); }
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

 private:
  Readers& readers_;
  uint32_t reader_;
};

}  // namespace narrowcast::store
