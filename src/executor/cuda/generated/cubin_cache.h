// A cache of compiled kernels on disk: one file per kernel in a folder that processes share.
#pragma once

#include <functional>
#include <string>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda::generated {

// Everything that determines a cubin.
struct CubinKey {
  std::string kernel;    // the source, its headers or their hash, and the architecture
  std::string compiler;  // NvrtcFile::identity; if empty, a cubin of any compiler is accepted
};

class CubinCache {
 public:
  // folder: created when it is needed. Empty: nothing is stored.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}
  // The folder that NARROWCAST_PLAN_CACHE names ("off": none), or narrowcast/plans in XDG_CACHE_HOME or ~/.cache.
  static std::string default_folder();

  // Whether the cache has the cubin.
  bool find(const CubinKey& key, std::string* cubin) const;
  // Returns the cubin from the cache, or from compile(), which one process at a time calls for a key; the others wait
  // for it. A file that is damaged, or cannot be read or written, is ignored. Errors: those of compile().
  // is_kept: whether the cache has the cubin now; may be nullptr.
  ncast_status find_or_compile(const CubinKey& key, const std::function<ncast_status(std::string*)>& compile,
                               std::string* cubin, bool* is_kept = nullptr) const;

  // The file of a key. Only for tests.
  std::string path_of(const CubinKey& key) const;

 private:
  bool read(const std::string& path, std::string* cubin) const;
  bool read_of_any_compiler(const CubinKey& key, std::string* cubin) const;
  bool write(const std::string& path, const std::string& cubin) const;

  std::string folder_;
};

}  // namespace narrowcast::executor::cuda::generated
