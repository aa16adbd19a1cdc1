// A cache of compiled kernels on disk: one file per kernel in a folder that processes of a user share. Kernels that
// other users, except root, can have written are not used.
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
  // folder: created with mode 0700 when it is needed. Nothing is stored if it is empty, or if other users can write to
  // it.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}
  // The folder that NARROWCAST_PLAN_CACHE names ("off": none), or narrowcast/plans in XDG_CACHE_HOME or ~/.cache.
  static std::string default_folder();

  // Whether the cache has the cubin.
  bool find(const CubinKey& key, std::string* cubin) const;
  // Returns the cubin from the cache, or from compile(), which one process at a time calls for a key; the others wait
  // for it. A file that is damaged or of another user, or cannot be read or written, is ignored. Errors: those of
  // compile(). is_kept: whether the cache has the cubin now; may be nullptr.
  ncast_status find_or_compile(const CubinKey& key, const std::function<ncast_status(std::string*)>& compile,
                               std::string* cubin, bool* is_kept = nullptr) const;

  // Why nothing can be stored, such as "other users can write to it"; empty if only writing can tell.
  std::string why_unusable() const;

  // The name of the file of a key. Only for tests.
  static std::string name_of(const CubinKey& key);

 private:
  std::string folder_;
};

}  // namespace narrowcast::executor::cuda::generated
