// Values that the communicators of a process share while one of them holds them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace narrowcast::executor::cuda::generated {

template <typename Value>
class SharedValues {
 public:
  // Returns the value of a key. If nobody holds one, make(value) makes it, while others that need it wait. Returns what
  // make() returns; 0: it has made the value. Any thread.
  template <typename Make>
  auto find_or_make(const std::string& key, std::shared_ptr<Value>* value, Make make) -> decltype(make(value)) {
    const std::shared_ptr<Entry> entry = entry_of(key);
    const std::lock_guard lock(entry->mutex);
    *value = entry->value.lock();
    if (*value != nullptr) return {};
    const auto status = make(value);
    entry->value = *value;
    return status;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::weak_ptr<Value> value;
  };

  std::shared_ptr<Entry> entry_of(const std::string& key) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& one) {
      const std::shared_ptr<Entry>& entry = one.second;
      if (entry.use_count() != 1) return false;  // a thread is using it
      const std::lock_guard unused(entry->mutex);
      return entry->value.expired();
    });
    std::shared_ptr<Entry>& entry = entries_[key];
    if (entry == nullptr) entry = std::make_shared<Entry>();
    return entry;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace narrowcast::executor::cuda::generated
