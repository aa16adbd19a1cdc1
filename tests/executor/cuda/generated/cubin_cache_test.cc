#include "executor/cuda/generated/cubin_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "status/error.h"
#include "support/other_user.h"
#include "support/ranks.h"

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

mode_t mode_of(const std::string& path) {
  struct stat about;
  REQUIRE(stat(path.c_str(), &about) == 0);
  return about.st_mode & 0777;
}

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
  const std::string path = folder.path + "/" + CubinCache::name_of(key);
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

TEST_CASE("folders and files are created for their user alone") {
  const Folder folder;
  const mode_t before = umask(0);
  Compiler().find(CubinCache(folder.path + "/new/plans"), {"kernel", "13.0"});
  umask(before);
  CHECK(mode_of(folder.path + "/new") == 0700);
  CHECK(mode_of(folder.path + "/new/plans") == 0700);
  int count = 0;
  for (const auto& entry : files::directory_iterator(folder.path + "/new/plans")) {
    CHECK(mode_of(entry.path()) == 0600);
    ++count;
  }
  CHECK(count == 2);  // the cubin and its lock
}

TEST_CASE("kernels that other users can have written are not used") {
  const Folder folder;
  const CubinCache cache(folder.path);
  const CubinKey key{"kernel", "13.0"};
  const std::string path = folder.path + "/" + CubinCache::name_of(key);
  const auto is_ignored = [&](const auto& change, const std::string& place) {
    files::remove(path);
    Compiler theirs, own;
    theirs.find(cache, key, "theirs");
    REQUIRE(change(place.c_str()) == 0);
    std::string cubin;
    // Without a compiler, kernels of any compiler would be found.
    return !cache.find(key, &cubin) && !cache.find({"kernel", ""}, &cubin) && own.find(cache, key, "own") == "own";
  };
  CHECK(is_ignored([](const char* file) { return chmod(file, 0620); }, path));
  CHECK(is_ignored([](const char* file) { return chmod(file, 0602); }, path));
  CHECK(is_ignored(
      [](const char* file) {
        const std::string target = std::string(file) + ".target";
        return rename(file, target.c_str()) != 0 ? 1 : symlink(target.c_str(), file);
      },
      path));
  CHECK(is_ignored([](const char* file) { return unlink(file) != 0 ? 1 : mkfifo(file, 0600); }, path));
  CHECK(is_ignored([](const char* file) { return chmod(file, 0777); }, folder.path));
  CHECK(CubinCache(folder.path).why_unusable() == "other users can write to it");
  REQUIRE(chmod(folder.path.c_str(), 0700) == 0);
  if (!narrowcast::testing::can_be_other_users("kernels of another user")) return;
  CHECK(is_ignored([](const char* file) { return chown(file, narrowcast::testing::other_uid, 0); }, path));
  CHECK(is_ignored([](const char* file) { return chown(file, narrowcast::testing::other_uid, 0); }, folder.path));
  CHECK(cache.why_unusable() == "it belongs to another user (uid 54321)");
}

TEST_CASE("kernels of root are used") {
  if (!narrowcast::testing::can_be_other_users("kernels of root")) return;
  const Folder folder;
  Compiler().find(CubinCache(folder.path), {"kernel", "13.0"});
  for (const auto& entry : files::directory_iterator(folder.path)) REQUIRE(chmod(entry.path().c_str(), 0644) == 0);
  REQUIRE(chmod(folder.path.c_str(), 0755) == 0);
  CHECK(narrowcast::testing::wait_for_process(narrowcast::testing::start_process([&] {
          EXPECT(setuid(narrowcast::testing::other_uid) == 0);
          std::string cubin;
          EXPECT(CubinCache(folder.path).find({"kernel", "13.0"}, &cubin));
        })) == 0);
}

TEST_CASE("a file in place of the temporary one is not followed") {
  // The name was that of the file and the process id.
  const Folder folder;
  const CubinKey key{"kernel", "13.0"};
  const std::string target = folder.path + "/target";
  std::ofstream(target) << "precious";
  const std::string link = folder.path + "/" + CubinCache::name_of(key) + "." + std::to_string(getpid());
  REQUIRE(symlink(target.c_str(), link.c_str()) == 0);
  Compiler().find(CubinCache(folder.path), key);
  CHECK(files::file_size(target) == 8);
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
