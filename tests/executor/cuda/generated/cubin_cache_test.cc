#include "executor/cuda/generated/cubin_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

namespace files = std::filesystem;

struct Folder {
  Folder() {
    char name[] = "/tmp/narrowcast_cache_XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { files::remove_all(path); }
  std::string path;
};

// Finds a key and counts the compilations.
struct Compiler {
  int calls = 0;
  bool is_kept = false;
  std::string find(const CubinCache& cache, const CubinKey& key, const std::string& made = "cubin") {
    std::string cubin;
    const auto compile = [&](std::string* result) {
      ++calls;
      *result = made;
      return NCAST_OK;
    };
    REQUIRE(cache.find_or_compile(key, compile, &cubin, &is_kept) == NCAST_OK);
    return cubin;
  }
};

TEST_CASE("a kernel is compiled once") {
  const Folder folder;
  const CubinCache cache(folder.path + "/new/plans");
  Compiler compiler;
  CHECK(compiler.find(cache, {"kernel", "13.0"}) == "cubin");
  CHECK(compiler.is_kept);
  CHECK(compiler.find(CubinCache(folder.path + "/new/plans"), {"kernel", "13.0"}) == "cubin");
  CHECK(compiler.is_kept);
  CHECK(compiler.calls == 1);
}

TEST_CASE("another source or compiler is another kernel") {
  const Folder folder;
  const CubinCache cache(folder.path);
  Compiler compiler;
  CHECK(compiler.find(cache, {"kernel", "13.0"}, "a") == "a");
  CHECK(compiler.find(cache, {"kernel ", "13.0"}, "b") == "b");
  CHECK(compiler.find(cache, {"kernel", "13.1"}, "c") == "c");
  CHECK(compiler.find(cache, {"kernel", "13.0"}, "d") == "a");
}

TEST_CASE("without a compiler a kernel of any compiler is found") {
  const Folder folder;
  const CubinCache cache(folder.path);
  Compiler compiler;
  compiler.find(cache, {"kernel", "13.0"}, "a");
  CHECK(compiler.find(cache, {"kernel", ""}, "b") == "a");
}

TEST_CASE("damaged files are ignored and written again") {
  const Folder folder;
  const CubinCache cache(folder.path);
  const CubinKey key{"kernel", "13.0"};
  Compiler compiler;
  compiler.find(cache, key);
  const std::string path = cache.path_of(key);
  const auto size = files::file_size(path);
  const auto damage = [&](const auto& how) {
    how();
    const int before = compiler.calls;
    CHECK(compiler.find(cache, key) == "cubin");
    CHECK(compiler.calls == before + 1);
    CHECK(compiler.find(cache, key) == "cubin");
    CHECK(compiler.calls == before + 1);
  };
  damage([&] { files::resize_file(path, size - 1); });
  damage([&] { files::resize_file(path, 3); });
  damage([&] { files::resize_file(path, 0); });
  damage([&] { std::ofstream(path, std::ios::app) << "more"; });
  damage([&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('?');
  });
}

TEST_CASE("a folder that cannot be written does not prevent compilation") {
  const Folder folder;
  std::ofstream(folder.path + "/file") << "not a folder";
  const CubinCache cache(folder.path + "/file/plans");
  Compiler compiler;
  CHECK(compiler.find(cache, {"kernel", "13.0"}) == "cubin");
  CHECK_FALSE(compiler.is_kept);
  CHECK(compiler.find(CubinCache(""), {"kernel", "13.0"}) == "cubin");
  CHECK_FALSE(compiler.is_kept);
  CHECK(compiler.calls == 2);
}

TEST_CASE("errors of the compiler are returned and not stored") {
  const Folder folder;
  const CubinCache cache(folder.path);
  std::string cubin;
  const auto fails = [](std::string*) { return fail(NCAST_UNSUPPORTED, "no compiler"); };
  CHECK(cache.find_or_compile({"kernel", "13.0"}, fails, &cubin) == NCAST_UNSUPPORTED);
  Compiler compiler;
  CHECK(compiler.find(cache, {"kernel", "13.0"}) == "cubin");
}

TEST_CASE("threads and processes that need the same kernel compile it once") {
  const Folder folder;
  const CubinCache cache(folder.path);
  const auto compile = [&](std::string* cubin) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(folder.path + "/compilations", std::ios::app) << "x";
    *cubin = "cubin";
    return NCAST_OK;
  };
  const auto find = [&] {
    std::string cubin;
    return cache.find_or_compile({"kernel", "13.0"}, compile, &cubin) == NCAST_OK && cubin == "cubin";
  };
  const pid_t child = fork();
  if (child == 0) _exit(find() ? 0 : 1);
  std::atomic<int> found = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { found += find() ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(found == 3);
  CHECK(files::file_size(folder.path + "/compilations") == 1);
}

TEST_CASE("the folder is that of the environment") {
  const auto with = [](const char* setting, const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    };
    set("NARROWCAST_PLAN_CACHE", setting);
    set("XDG_CACHE_HOME", cache);
    const std::string old_home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
    set("HOME", home);
    const std::string folder = CubinCache::default_folder();
    set("HOME", old_home.c_str());
    set("NARROWCAST_PLAN_CACHE", nullptr);
    set("XDG_CACHE_HOME", nullptr);
    return folder;
  };
  CHECK(with("/plans", "/cache", "/home") == "/plans");
  CHECK(with("off", "/cache", "/home") == "");
  CHECK(with(nullptr, "/cache", "/home") == "/cache/narrowcast/plans");
  CHECK(with(nullptr, "relative", "/home") == "/home/.cache/narrowcast/plans");
  CHECK(with(nullptr, nullptr, nullptr) == "");
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
