// Looks up functions of a library that is loaded at run time.
#pragma once

#include <dlfcn.h>

namespace narrowcast::nccl {

class SymbolTable {
 public:
  explicit SymbolTable(void* library) : library_(library) {}

  template <typename Function>
  void find(Function* function, const char* name) {
    *reinterpret_cast<void**>(function) = dlsym(library_, name);
    if (*function == nullptr) missing_ = name;
  }
  // The name of a missing function; NULL: all were found.
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

}  // namespace narrowcast::nccl
