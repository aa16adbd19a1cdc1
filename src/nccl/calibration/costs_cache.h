// Measured cost models: one for each kind of communicator, as files in a folder that processes of a user share, or in
// this process.
#pragma once

#include <string>

#include "nccl/calibration/costs_text.h"

namespace narrowcast::nccl {

class CostsCache {
 public:
  // folder: created with mode 0700 when it is needed. Nothing is found or stored if other users can write to it. Empty:
  // models are kept in this process.
  explicit CostsCache(std::string folder) : folder_(std::move(folder)) {}
  // narrowcast/costs in XDG_CACHE_HOME or ~/.cache.
  static std::string default_folder();

  // The text that was stored for the key; empty if there is none.
  std::string find(const CostsKey& key) const;

  // While an object exists, no other process measures for the key: measurements at the same time would disturb each
  // other.
  class Lock {
   public:
    Lock(const CostsCache& cache, const CostsKey& key);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // False: another process holds it.
    bool is_held() const { return is_held_; }

   private:
    int file_ = -1;
    bool is_held_;
  };

  // False if the file could not be written.
  bool store(const CostsKey& key, const std::string& text) const;

  // Where the model of a key is, for messages: a path, or "this process".
  std::string place_of(const CostsKey& key) const;

 private:
  std::string folder_;
};

}  // namespace narrowcast::nccl
