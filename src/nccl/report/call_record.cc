#include "nccl/report/call_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <mutex>

#include "nccl/report/file_name.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// The file grows by segments. Its space is allocated before it is mapped, because a write to a mapped page for which
// the disk has no space kills the process.
constexpr size_t segment_bytes = size_t{1} << 20;
// 2 million entries.
constexpr size_t most_record_bytes = size_t{64} << 20;

class RecordFile {
 public:
  // Returns an error message; "" if the file was created.
  std::string create(const std::string& path) {
    path_ = path;
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_ < 0 || !grow()) return std::strerror(errno);
    const RecordHeader header{.pid = static_cast<uint64_t>(getpid())};
    std::memcpy(segment_, &header, sizeof header);
    used_ = sizeof header;
    return "";
  }

  void append(const RecordEntry& entry) {
    const std::lock_guard lock(mutex_);
    if (segment_ == nullptr || (used_ == segment_bytes && !grow())) return;
    auto* const slot = reinterpret_cast<RecordEntry*>(segment_ + used_);
    RecordEntry unfinished = entry;
    unfinished.kind = RecordKind::none;
    std::memcpy(slot, &unfinished, sizeof unfinished);
    // A reader that sees the kind sees the rest.
    std::atomic_ref(slot->kind).store(entry.kind, std::memory_order_release);
    used_ += sizeof entry;
  }

 private:
  bool grow() {
    if (segment_ != nullptr) munmap(segment_, segment_bytes);
    segment_ = nullptr;
    if (bytes_ == most_record_bytes) {
      log(Level::warn, "the record %s is full: later calls are not recorded", path_.c_str());
      return false;
    }
    const auto offset = static_cast<off_t>(bytes_);
    errno = posix_fallocate(file_, offset, segment_bytes);
    void* const mapped =
        errno != 0 ? MAP_FAILED : mmap(nullptr, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
    if (mapped == MAP_FAILED) {
      log(Level::warn, "the record %s cannot grow: %s. Later calls are not recorded", path_.c_str(),
          std::strerror(errno));
      return false;
    }
    segment_ = static_cast<char*>(mapped);
    bytes_ += segment_bytes;
    used_ = 0;
    return true;
  }

  std::mutex mutex_;
  std::string path_;
  int file_ = -1;
  char* segment_ = nullptr;  // NULL: nothing can be appended
  size_t bytes_ = 0;         // of the file
  size_t used_ = 0;          // of the segment
};

// Set once; never freed, because calls may come until the process ends.
constinit std::atomic<RecordFile*> record{nullptr};
constinit std::atomic<uint32_t> communicators{0};

// The clock of Python's time.monotonic_ns(), the same for all processes of a host.
uint64_t host_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

void append(const RecordEntry& entry) {
  if (RecordFile* const file = record.load(std::memory_order_acquire)) file->append(entry);
}

}  // namespace

void start_recording(const std::string& path) {
  if (path.empty()) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    const std::string own = replaced(path, "%p", std::to_string(getpid()));
    auto* const file = new RecordFile;
    if (const std::string error = file->create(own); !error.empty())
      log(Level::warn, "NARROWCAST_RECORD: %s cannot be created: %s", own.c_str(), error.c_str());
    else
      record.store(file, std::memory_order_release);
  });
}

bool is_recording() { return record.load(std::memory_order_relaxed) != nullptr; }

void record_mark() { append({.time_ns = host_ns(), .kind = RecordKind::mark}); }

CommunicatorRecord::CommunicatorRecord(int rank, int ranks) : rank_(rank), ranks_(ranks) {
  if (!is_recording()) return;
  number_ = communicators.fetch_add(1);
  set_id(0);
}

void CommunicatorRecord::set_id(uint64_t id) const {
  append({.time_ns = host_ns(),
          .count = id,
          .communicator = number_,
          .launch = static_cast<uint32_t>(ranks_),
          .peer = rank_,
          .kind = RecordKind::communicator});
}

void CommunicatorRecord::add_call(const Call& call, uint8_t flags) const {
  append({.time_ns = host_ns(),
          .count = call.count,
          .communicator = number_,
          .launch = launch_,
          .peer = call.peer,
          .operation = static_cast<uint8_t>(call.operation),
          .dtype = static_cast<uint8_t>(call.dtype),
          .flags = flags,
          .kind = RecordKind::call});
}

void CommunicatorRecord::add_time(uint32_t launch, double begin_ms, double duration_ms) const {
  append({.time_ns = static_cast<uint64_t>(std::llround(begin_ms * 1e6)),
          .count = static_cast<uint64_t>(std::llround(duration_ms * 1e6)),
          .communicator = number_,
          .launch = launch,
          .kind = RecordKind::launch});
}

}  // namespace narrowcast::nccl
