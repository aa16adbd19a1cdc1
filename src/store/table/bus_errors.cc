#include "store/table/bus_errors.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "bootstrap/descriptor.h"

namespace narrowcast::store {

// In a list that only grows, and without a lock, because a signal handler reads it. Unused ranges are used again.
struct WatchedMapping::Range {
  std::atomic<bool> used{true}, lost{false};
  std::atomic<uintptr_t> begin{0}, end{0};  // 0: not watched
  std::atomic<int> file{-1};
  Range* next = nullptr;

  bool contains(uintptr_t address) const { return begin <= address && address < end; }
  bool replace(uintptr_t address);
};

namespace {

std::atomic<WatchedMapping::Range*> ranges{nullptr};
int scopes = 0;  // as previous, only used while forks are blocked, except in the handler
struct sigaction previous;

uintptr_t page_size() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

// Ends the process, unless somebody else has sent the signal and it is ignored.
void take_default_action(const siginfo_t& info) {
  const bool is_sent = info.si_code <= 0;
  if (is_sent && previous.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &action, nullptr);
  if (is_sent) raise(SIGBUS);
  // Otherwise the access fails again.
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code > 0) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (WatchedMapping::Range* range = ranges; range != nullptr; range = range->next) {
      if (!range->contains(address) || !range->replace(address)) continue;
      errno = error;
      return;
    }
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0)
    previous.sa_sigaction(number, info, context);
  else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN)
    take_default_action(*info);
  else
    previous.sa_handler(number);
}

}  // namespace

// Async-signal-safe. Puts zeros in place of the page, and of those after it if they are behind the end of the file.
bool WatchedMapping::Range::replace(uintptr_t address) {
  const uintptr_t page_bytes = page_size();
  const uintptr_t page = address / page_bytes * page_bytes;
  uintptr_t bytes = page_bytes;
  struct stat about;
  if (fstat(file, &about) == 0 && page - begin >= static_cast<uintptr_t>(about.st_size)) bytes = end - page;
  lost = true;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const place = reinterpret_cast<void*>(page);
  return mmap(place, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place;
}

WatchedMapping::WatchedMapping(const uint8_t* memory, uint64_t bytes, int file) : range_(ranges) {
  while (range_ != nullptr && range_->used.exchange(true)) range_ = range_->next;
  if (range_ == nullptr) {
    range_ = new Range;
    range_->next = ranges;
    while (!ranges.compare_exchange_weak(range_->next, range_)) continue;
  }
  range_->lost = false;
  range_->file = file;
  range_->begin = reinterpret_cast<uintptr_t>(memory);
  range_->end = range_->begin + (bytes + page_size() - 1) / page_size() * page_size();
}

WatchedMapping::~WatchedMapping() {
  range_->end = 0;
  range_->begin = 0;
  range_->used = false;
}

bool WatchedMapping::has_lost_pages() const { return range_->lost; }

BusErrorScope::BusErrorScope() {
  const auto lock = bootstrap::block_forks();
  if (scopes++ != 0) return;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &action, &previous);
}

BusErrorScope::~BusErrorScope() {
  const auto lock = bootstrap::block_forks();
  if (--scopes != 0) return;
  struct sigaction current;
  sigaction(SIGBUS, &previous, &current);
  // Somebody has set another one in the meantime: it stays.
  if ((current.sa_flags & SA_SIGINFO) == 0 || current.sa_sigaction != on_bus_error)
    sigaction(SIGBUS, &current, nullptr);
}

}  // namespace narrowcast::store
