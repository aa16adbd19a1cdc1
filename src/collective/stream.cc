#include "collective/stream.h"

#include <map>

#include "status/error.h"

namespace narrowcast::collective {
namespace {

// Handles come from users: only those in here are followed.
struct Registry {
  std::mutex mutex;
  std::map<ncast_stream, std::shared_ptr<Stream>> streams;
};

// Never destroyed: threads of streams that nobody destroyed may outlive static objects.
Registry& registry() {
  static Registry& the = *new Registry;
  return the;
}

}  // namespace

Stream::Stream() : thread_([this] { work(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    busy_ = true;
    {
      Work work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const ncast_status status = work();
      lock.lock();
      if (status != NCAST_OK && error_ == NCAST_OK) {
        error_ = status;
        sentence_ = ncast_last_error();
      }
    }
    busy_ = false;
    changed_.notify_all();
  }
}

void Stream::enqueue(Work work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

ncast_status Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  const ncast_status status = std::exchange(error_, NCAST_OK);
  return status == NCAST_OK ? status : fail(status, "%s", sentence_.c_str());
}

std::shared_ptr<Stream> Stream::find(ncast_stream handle) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().streams.find(handle);
  return found == registry().streams.end() ? nullptr : found->second;
}

ncast_stream Stream::add(std::shared_ptr<Stream> stream) {
  const std::lock_guard lock(registry().mutex);
  ncast_stream handle = stream.get();
  registry().streams.emplace(handle, std::move(stream));
  return handle;
}

std::shared_ptr<Stream> Stream::remove(ncast_stream handle) {
  const std::lock_guard lock(registry().mutex);
  auto node = registry().streams.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped());
}

}  // namespace narrowcast::collective
