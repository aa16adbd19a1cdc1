// Loads the libraries of users' codecs.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "codec/codec.h"
#include "codec/user/binding.h"
#include "codec/user/registered.h"
#include "digest/sha256.h"
#include "files/read_file.h"
#include "narrowcast/user_codec.h"
#include "status/error.h"

namespace narrowcast::codec::user {
namespace {

constexpr const char* exported = "ncast_user_codec";
constexpr size_t most_library_bytes = size_t{256} << 20;

// The digests of the registered libraries by the names of their codecs.
struct Registered {
  std::mutex mutex;
  std::map<std::string, std::string> digests;
  std::map<const ncast_user_codec_description*, ncast_codec> ids;
};
Registered& registered() {
  static Registered& all = *new Registered;
  return all;
}

// The path of the file that a loaded symbol is in.
std::string file_of(const void* symbol) {
  Dl_info info = {};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The CUDA header beside a library: its name ends in .cuh instead of .so. Lines that include headers of Narrowcast,
// which precede it in kernels, become empty. Returns an error message; `header` stays NULL if there is none.
std::string read_cuda_header(const std::string& library, std::unique_ptr<CudaHeader>* header) {
  const std::filesystem::path path = std::filesystem::path(library).replace_extension(".cuh");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return "";
  std::string content;
  if (std::string error = files::read_file(path, most_library_bytes, &content); !error.empty())
    return path.string() + " cannot be read: " + error;
  auto made = std::make_unique<CudaHeader>();
  made->path = path;
  std::ranges::replace_if(made->path, [](char c) { return c == '"' || c == '\\' || c == '\n'; }, '_');
  made->digest = digest::hex(digest::sha256("narrowcast user codec", content), 16);
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    const bool is_known = line.starts_with("#include \"narrowcast/") || line.starts_with("#pragma once");
    made->text += (is_known ? "" : line) + "\n";
  }
  *header = std::move(made);
  return "";
}

ncast_status add(const char* path, ncast_codec* codec) {
  constexpr const char* function = "ncast_codec_register";
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s", function, reason != nullptr ? reason : path);
  }
  void* const symbol = dlsym(library, exported);
  const auto describe = reinterpret_cast<ncast_user_codec_function>(symbol);
  const ncast_user_codec_description* const description = describe != nullptr ? describe() : nullptr;
  dlclose(library);  // RTLD_NODELETE: it stays
  if (description == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s has no function %s, or it returns NULL", function, path, exported);
  if (description->version != NCAST_USER_CODEC_VERSION || description->struct_bytes < sizeof *description)
    return fail(NCAST_UNSUPPORTED, "%s: %s was made for version %u of user codecs, but this library reads version %d",
                function, path, description->version, NCAST_USER_CODEC_VERSION);

  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.ids.find(description); found != all.ids.end()) {
    *codec = found->second;
    return NCAST_OK;
  }
  if (const std::string fault = fault_of(*description); !fault.empty())
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s: %s", function, path, fault.c_str());
  std::string content;
  if (const std::string error = files::read_file(file_of(symbol), most_library_bytes, &content); !error.empty())
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s cannot be read: %s", function, path, error.c_str());
  if (find_row(description->id) != nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s: the codec %s has the id %u, too", function, path,
                find_row(description->id)->name, description->id);
  std::unique_ptr<CudaHeader> header;
  if (const std::string error = read_cuda_header(file_of(symbol), &header); !error.empty())
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s", function, error.c_str());
  if (header != nullptr) content += header->digest;
  const HostCodec* const host = make_host(*description, header.release());
  if (const std::string error = add_row(row_of(*description), host); !error.empty())
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s: %s", function, path, error.c_str());
  all.digests[description->name] = digest::hex(digest::sha256("narrowcast user codec", content), 16);
  all.ids[description] = *codec = description->id;
  return NCAST_OK;
}

}  // namespace

std::string registered_codecs() {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  std::string list;
  for (const auto& [name, digest] : all.digests)
    list.append(list.empty() ? "" : ", ").append(name).append(" ").append(digest);
  // Settings that ranks compare are short.
  if (all.digests.size() > 2)
    return std::to_string(all.digests.size()) + " codecs, " +
           digest::hex(digest::sha256("narrowcast user codecs", list), 16);
  return list.empty() ? "none" : list;
}

}  // namespace narrowcast::codec::user

extern "C" ncast_status ncast_codec_register(const char* path, ncast_codec* codec) {
  constexpr const char* function = "ncast_codec_register";
  return narrowcast::guarded(function, [&] {
    if (path == nullptr) return narrowcast::null_argument(function, "path");
    ncast_codec id = 0;
    if (ncast_status status = narrowcast::codec::user::add(path, &id)) return status;
    if (codec != nullptr) *codec = id;
    return NCAST_OK;
  });
}
