// Measured cost models on disk: one file for each kind of communicator, in a folder that processes of a user share.
#pragma once

#include <string>

#include "nccl/calibration/costs_text.h"

namespace narrowcast::nccl {

class CostsCache {
 public:
  // folder: created with mode 0700 when it is needed. Nothing is found or stored if it is empty, or if other users can
  // write to it.
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

  // Returns the path of the file; empty if it could not be written.
  std::string store(const CostsKey& key, const std::string& text) const;

  // The name of the file of a key.
  static std::string name_of(const CostsKey& key);

 private:
  std::string folder_;
};

}  // namespace narrowcast::nccl
