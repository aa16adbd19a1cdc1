#include "executor/cuda/generated/nvrtc.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "packages/python_packages.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

// The functions of nvrtc.h that are used. Declared here, because users' machines have no CUDA headers.
using NvrtcProgram = struct NvrtcProgramOpaque*;
constexpr int nvrtc_success = 0, nvrtc_invalid_option = 5, nvrtc_compilation_failed = 6;
struct Functions {
  int (*version)(int* major, int* minor);
  const char* (*error_string)(int result);
  int (*create)(NvrtcProgram* program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(NvrtcProgram* program);
  int (*compile)(NvrtcProgram program, int options, const char* const* texts);
  int (*log_size)(NvrtcProgram program, size_t* bytes);
  int (*log)(NvrtcProgram program, char* log);
  int (*cubin_size)(NvrtcProgram program, size_t* bytes);
  int (*cubin)(NvrtcProgram program, char* cubin);
};

constexpr const char* names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr int min_version = 12040;  // the first with the .b128 accesses of device/ptx/system_memory.cuh

bool is_file(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// Folders that may contain NVRTC, the preferred ones first. Other folders above this library are not searched: a
// checkout may be below one to which other users can write, such as /tmp.
std::vector<std::string> folders() {
  std::vector<std::string> found;
  // NVRTC is in a package of its own, on which torch depends, too.
  const auto add_packages = [&](const std::string& folder) {
    for (const char* package : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) found.push_back(folder + package);
  };
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&find_nvrtc), &self) != 0 && self.dli_fname != nullptr)
    if (const std::string own = packages::python_package_folder_of(self.dli_fname); !own.empty()) add_packages(own);
  for (const std::string& packages : packages::python_package_folders()) add_packages(packages);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const toolkit = secure_getenv(variable); toolkit != nullptr && *toolkit != '\0')
      for (const char* library : {"/lib64", "/lib"}) found.push_back(toolkit + std::string(library));
  found.push_back("/usr/local/cuda/lib64");
  return found;
}

std::string search() {
  for (const std::string& folder : folders())
    for (const char* name : names)
      if (const std::string path = folder + "/" + name; is_file(path)) return path;
  return "";
}

// Every plan that is loaded needs the path, and looking into all folders takes longer than reading a kernel. So a file
// that was found is used as long as it exists.
std::string find_path() {
  if (const char* const path = secure_getenv("NARROWCAST_NVRTC"); path != nullptr && *path != '\0') return path;
  static std::mutex mutex;
  static std::string found;
  const std::lock_guard lock(mutex);
  if (found.empty() || !is_file(found)) found = search();
  return found;
}

class Nvrtc {
 public:
  // Error message; empty if NVRTC has been loaded.
  const std::string& error() const { return error_; }
  const Functions& functions() const { return functions_; }
  int version() const { return version_; }

  static const Nvrtc& get() {
    static const Nvrtc nvrtc;
    return nvrtc;
  }

 private:
  Nvrtc() {
    void* const library = open();
    if (library == nullptr) return;
    const bool has_all = find(library, "nvrtcVersion", functions_.version) &&
                         find(library, "nvrtcGetErrorString", functions_.error_string) &&
                         find(library, "nvrtcCreateProgram", functions_.create) &&
                         find(library, "nvrtcDestroyProgram", functions_.destroy) &&
                         find(library, "nvrtcCompileProgram", functions_.compile) &&
                         find(library, "nvrtcGetProgramLogSize", functions_.log_size) &&
                         find(library, "nvrtcGetProgramLog", functions_.log) &&
                         find(library, "nvrtcGetCUBINSize", functions_.cubin_size) &&
                         find(library, "nvrtcGetCUBIN", functions_.cubin);
    int major = 0, minor = 0;
    if (!has_all || functions_.version(&major, &minor) != nvrtc_success) {
      error_ = "the NVRTC library lacks a function";
      return;
    }
    version_ = major * 1000 + minor * 10;
    if (version_ < min_version)
      error_ = "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + " is too old; 12.4 or newer is needed";
  }

  void* open() {
    const std::string path = find_path();
    if (!path.empty()) {
      if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
      const char* const reason = dlerror();
      error_ = "NVRTC cannot be loaded: " + std::string(reason != nullptr ? reason : path);
      return nullptr;
    }
    for (const char* name : names)
      if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    error_ =
        "NVRTC was not found, which compiles kernels of plans: install the package nvidia-cuda-nvrtc or a CUDA "
        "toolkit, or set NARROWCAST_NVRTC to the path of libnvrtc.so";
    return nullptr;
  }
  template <typename Function>
  static bool find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  }

  Functions functions_ = {};
  int version_ = 0;
  std::string error_;
};

}  // namespace

NvrtcFile find_nvrtc() {
  NvrtcFile file{find_path(), ""};
  struct stat status;
  if (file.path.empty() || stat(file.path.c_str(), &status) != 0) return file;
  file.identity = file.path + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec);
  return file;
}

ncast_status load_nvrtc() {
  const Nvrtc& nvrtc = Nvrtc::get();
  return nvrtc.error().empty() ? NCAST_OK : fail(NCAST_UNSUPPORTED, "%s", nvrtc.error().c_str());
}

ncast_status compile_by_nvrtc(const std::string& source, int architecture, std::string* cubin) {
  if (ncast_status status = load_nvrtc()) return status;
  const Functions& nvrtc = Nvrtc::get().functions();
  const auto failed = [&](const char* what, int result) {
    return fail(NCAST_INTERNAL, "%s failed: %s", what, nvrtc.error_string(result));
  };
  NvrtcProgram program = nullptr;
  if (const int result = nvrtc.create(&program, source.c_str(), "plan.cu", 0, nullptr, nullptr);
      result != nvrtc_success)
    return failed("nvrtcCreateProgram", result);
  const auto destroy = [&](NvrtcProgramOpaque* of) { nvrtc.destroy(&of); };
  const std::unique_ptr<NvrtcProgramOpaque, decltype(destroy)> owner(program, destroy);

  const std::string target = "-arch=sm_" + std::to_string(architecture);
  // -default-device: functions without annotation, such as constexpr functions of formats, are compiled for the GPU.
  const char* const options[] = {target.c_str(), "-std=c++20", "-default-device"};
  const int result = nvrtc.compile(program, static_cast<int>(std::size(options)), options);
  if (result == nvrtc_invalid_option)
    return fail(NCAST_UNSUPPORTED, "NVRTC %d.%d cannot compile for compute capability %d.%d",
                Nvrtc::get().version() / 1000, Nvrtc::get().version() % 1000 / 10, architecture / 10,
                architecture % 10);
  size_t bytes = 0;
  if (result == nvrtc_compilation_failed && nvrtc.log_size(program, &bytes) == nvrtc_success && bytes > 1) {
    std::string log(bytes, '\0');
    nvrtc.log(program, log.data());
    return fail(NCAST_INTERNAL, "NVRTC rejects a generated kernel: %.2000s", log.c_str());
  }
  if (result != nvrtc_success) return failed("nvrtcCompileProgram", result);
  if (const int sized = nvrtc.cubin_size(program, &bytes); sized != nvrtc_success)
    return failed("nvrtcGetCUBINSize", sized);
  cubin->resize(bytes);
  if (const int copied = nvrtc.cubin(program, cubin->data()); copied != nvrtc_success)
    return failed("nvrtcGetCUBIN", copied);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
