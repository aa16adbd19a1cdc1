// A program that runs with the rights of another user must not let its caller choose libraries, files or settings.
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "bootstrap/tcp_address.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/nvrtc.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"
#include "select/options.h"
#include "support/other_user.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

constexpr const char* variables[][2] = {{"NARROWCAST_TAKE", "always"},
                                        {"NARROWCAST_DEBUG", "NONE"},
                                        {"NARROWCAST_CONFIG", "/dev/null/none"},
                                        {"NARROWCAST_P2P", "wrong"},
                                        {"NARROWCAST_MAX_CTAS", "0"},
                                        {"NARROWCAST_NVRTC", "/named/libnvrtc.so"},
                                        {"NARROWCAST_PLAN_CACHE", "/named"},
                                        {"XDG_CACHE_HOME", "/cache"},
                                        {"NARROWCAST_NCCL_LIBRARY", "/named/libnccl.so"},
                                        {"VIRTUAL_ENV", "/tmp"},
                                        {"HOME", "/home"},
                                        {"NARROWCAST_SOCKET_IFNAME", "nowhere"}};

constexpr const char* started = "NARROWCAST_TEST_SET_USER_ID";  // set if the program was started by this test

void check_that_variables_are_ignored() {
  const nccl::Settings& settings = nccl::settings();
  EXPECT(!settings.take);
  EXPECT(settings.nccl_library.empty());
  EXPECT(nccl::logs(nccl::Level::warn));
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  select::Options options;
  EXPECT(select::Options::of(config, &options) == NCAST_OK);
  EXPECT(executor::cuda::generated::CubinCache::default_folder().empty());
  EXPECT(executor::cuda::generated::find_nvrtc().path != "/named/libnvrtc.so");
  EXPECT(bootstrap::wanted_interfaces(bootstrap::Reach::anywhere).empty());
}

int run_with_set_user_id(const std::string& program) {
  return wait_for_process(start_process([&] {
    setenv(started, "1", 1);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    execl(program.c_str(), program.c_str(), "-tc=a program with set-user-ID ignores the environment", nullptr);
    _exit(127);
  }));
}

TEST_CASE("a program with set-user-ID ignores the environment") {
  if (getauxval(AT_SECURE) != 0) {
    check_that_variables_are_ignored();
    _exit(0);  // the sanitizer of leaks cannot examine such programs
  }
  if (std::getenv(started) != nullptr) {
    MESSAGE("skipped: the file system of /tmp, or this container, does not support set-user-ID");
    return;
  }
  if (!can_be_other_users("programs with set-user-ID")) return;
  char folder[] = "/tmp/narrowcast_set_uid_XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string program = std::string(folder) + "/program";
  std::filesystem::copy_file("/proc/self/exe", program);
  REQUIRE(chown(program.c_str(), other_uid, 0) == 0);
  REQUIRE(chmod(program.c_str(), 04755) == 0);
  CHECK(run_with_set_user_id(program) == 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace narrowcast::testing
