#include "executor/host/stream.h"

#include <unistd.h>

#include <map>

#include "bootstrap/background_thread.h"
#include "bootstrap/interrupt.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// Callers may pass any pointer as a handle. Only registered handles are dereferenced.
struct Registry {
  std::mutex mutex;
  std::map<ncast_stream, std::shared_ptr<Stream>> streams;
};

// Never destroyed: threads of streams that the program has not destroyed may outlive static objects.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

Stream::Stream() : pid_(getpid()) {}

ncast_status Stream::create(std::shared_ptr<Stream>* stream) {
  std::shared_ptr<Stream> made(new Stream);
  const auto body = [self = made.get()] { self->work(); };
  if (ncast_status status = bootstrap::start_background_thread("ncast-stream", body, &made->thread_)) return status;
  *stream = std::move(made);
  return NCAST_OK;
}

Stream::~Stream() {
  if (!thread_.joinable()) return;
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
    const Work& work = queue_.front();  // enqueue() does not move it
    lock.unlock();
    const ncast_status status = work.run();
    lock.lock();
    if (status != NCAST_OK && error_ == NCAST_OK) {
      error_ = status;
      message_ = ncast_last_error();
    }
    queue_.pop_front();
    changed_.notify_all();
  }
}

void Stream::enqueue(Work work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

ncast_status Stream::drain() {
  std::unique_lock lock(mutex_);
  if (bootstrap::wait_or_interrupt(changed_, lock, [this] { return queue_.empty(); })) return NCAST_OK;
  for (const Work& work : queue_) work.abort();
  return bootstrap::interrupted();
}

ncast_status Stream::synchronize() {
  if (ncast_status status = drain()) return status;
  const std::lock_guard lock(mutex_);
  const ncast_status status = std::exchange(error_, NCAST_OK);
  return status == NCAST_OK ? status : fail(status, "%s", message_.c_str());
}

bool Stream::forked() const { return getpid() != pid_; }

std::shared_ptr<Stream> Stream::find(ncast_stream handle) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().streams.find(handle);
  return found == registry().streams.end() || found->second->forked() ? nullptr : found->second;
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

ncast_status no_such_stream(const char* function, ncast_stream stream) {
  return fail(NCAST_INVALID_ARGUMENT, "%s: stream %p was not created by ncast_stream_create", function, stream);
}

}  // namespace narrowcast::executor::host

using namespace narrowcast::executor::host;
using narrowcast::fail;
using narrowcast::guarded;

extern "C" {

ncast_status ncast_stream_create(ncast_stream* stream) {
  return guarded("ncast_stream_create", [&] {
    if (stream == nullptr) return fail(NCAST_INVALID_ARGUMENT, "ncast_stream_create: stream is NULL");
    std::shared_ptr<Stream> made;
    if (ncast_status status = Stream::create(&made)) {
      const std::string message = ncast_last_error();
      return fail(status, "ncast_stream_create: %s", message.c_str());
    }
    *stream = Stream::add(std::move(made));
    return NCAST_OK;
  });
}

ncast_status ncast_stream_destroy(ncast_stream stream) {
  return guarded("ncast_stream_destroy", [&] {
    if (stream == nullptr) return NCAST_OK;
    std::shared_ptr<Stream> removed = Stream::remove(stream);
    if (removed == nullptr) return no_such_stream("ncast_stream_destroy", stream);
    if (removed->forked()) {
      // Leak it: its destructor would join a thread that exists only in the parent.
      static_cast<void>(new std::shared_ptr<Stream>(std::move(removed)));
      return NCAST_OK;
    }
    // Not the destructor: another thread may still hold a reference in ncast_stream_synchronize.
    const ncast_status status = removed->drain();
    if (status != NCAST_OK) static_cast<void>(removed->drain());
    return status;
  });
}

ncast_status ncast_stream_synchronize(ncast_stream stream) {
  return guarded("ncast_stream_synchronize", [&] {
    if (stream == nullptr) return NCAST_OK;  // calls on the NULL stream have run when they return
    if (const std::shared_ptr<Stream> found = Stream::find(stream)) return found->synchronize();
    return no_such_stream("ncast_stream_synchronize", stream);
  });
}

}  // extern "C"
