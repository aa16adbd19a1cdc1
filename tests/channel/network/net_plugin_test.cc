// Network plugins of NCCL: how they are found, and what happens if they fail. CTest also runs the other tests of this
// folder over each version of the test plugin.
#include "channel/network/net_plugin.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channel/network/plugin_stream.h"
#include "network_hub.h"
#include "stream_checks.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

std::string path_of(int version) {
  return std::string(NARROWCAST_TEST_LIBRARIES) + "/libnccl-net-test_v" + std::to_string(version) + ".so";
}

Variables with_plugin(int version) { return {{"NARROWCAST_NET", "plugin"}, {"NCCL_NET_PLUGIN", path_of(version)}}; }

TEST_CASE("a plugin is found where NCCL finds it, with its newest table") {
  const std::vector<Variables> settings = {
      {{"NCCL_NET_PLUGIN", path_of(9)}},
      {{"NCCL_NET_PLUGIN", "nowhere,," + path_of(9)}},
      {{"NCCL_NET_PLUGIN", "libm.so.6," + path_of(9) + "," + path_of(12)}},
      {{"NCCL_NET_PLUGIN", path_of(9)}, {"NCCL_NET", "test"}},
  };
  for (const Variables& variables : settings)
    run_with({variables}, [](int) {
      const NetPlugin* plugin = nullptr;
      EXPECT_OK(NetPlugin::load(&plugin));
      EXPECT(plugin->name() == "Test (version 9)");
      EXPECT(plugin->devices() == 2);
    });
}

TEST_CASE("why a plugin is not used is said of every library") {
  const std::vector<std::pair<Variables, std::vector<const char*>>> reasons = {
      {{}, {"libnccl-net.so: cannot open"}},
      {{{"NCCL_NET_PLUGIN", "None"}}, {"NCCL_NET_PLUGIN is None"}},
      {{{"NCCL_NET_PLUGIN", "aws,/nowhere/x"}}, {"; aws: ", "; libnccl-net-aws.so: ", "; /nowhere/x: "}},
      {{{"NCCL_NET_PLUGIN", "libm.so.6"}}, {"libm.so.6: it has no table of version 6 to 12"}},
      {{{"NCCL_NET_PLUGIN", path_of(7)}, {"NCCL_NET", "Socket"}}, {"the network Test, but NCCL_NET is Socket"}},
      {{{"NCCL_NET_PLUGIN", path_of(7)}, {"NARROWCAST_TEST_NET_FAIL", "init:1"}},
       {"init of the network plugin Test (version 7) failed: unhandled system error; its last warning: init was told "
        "to fail"}},
      {{{"NCCL_NET_PLUGIN", path_of(7)}, {"NARROWCAST_TEST_NET_POINTERS", "2"}}, {"does not support host memory"}},
  };
  for (const auto& [variables, texts] : reasons)
    run_with({variables}, [&texts = texts](int) {
      const NetPlugin* plugin = nullptr;
      EXPECT(NetPlugin::load(&plugin) == NCAST_UNSUPPORTED);
      EXPECT(plugin == nullptr);
      for (const char* const text : texts) EXPECT(error_contains(text));
    });
}

// --- streams --------------------------------------------------------------------------------------------------------

TEST_CASE("every version of the table carries bytes of any number in both directions") {
  for (int version = 6; version <= 12; ++version) {
    CAPTURE(version);
    run_with({with_plugin(version)}, [](int) { exchange_messages(); });
  }
}

TEST_CASE("what was sent before the end arrives, then the stream is closed") {
  run_with({with_plugin(12)}, [](int) { send_before_the_end(); });
}

TEST_CASE("the end of a stream ends the waits of its own threads") {
  // No request is ever done.
  run_with({with_plugin(12)}, [](int) {
    const StreamPair pair;
    setenv("NARROWCAST_TEST_NET_STALL", "test:1", 1);
    char byte = 0;
    std::thread sender([&] {
      iovec part = {&byte, 1};
      EXPECT(pair.first->send({&part, 1}) == EPIPE);
    });
    std::thread receiver([&] { EXPECT(pair.first->receive_all(&byte, 1) == Stream::closed); });
    usleep(50'000);
    pair.first->shut_down();
    sender.join();
    receiver.join();
  });
}

TEST_CASE("an end that does not know the secret does not connect") {
  run_with({with_plugin(12)}, [](int) { connect_without_the_secret(); });
}

// --- ranks ----------------------------------------------------------------------------------------------------------

TEST_CASE("ranks that do not want or have the same network get an error that names what differs") {
  const Variables tcp = {{"NARROWCAST_NET", "tcp"}}, invalid = {{"NARROWCAST_NET", "fast"}};
  const Variables missing = {{"NARROWCAST_NET", "plugin"}, {"NCCL_NET_PLUGIN", "nowhere"}};
  expect_failure(tcp, with_plugin(12), NCAST_MISMATCH, {"NARROWCAST_NET is ", "plugin on rank 1", "tcp on rank 0"});
  expect_failure(with_plugin(9), with_plugin(12), NCAST_MISMATCH, {"the network is Test (version"});
  expect_failure(with_plugin(9), missing, NCAST_UNSUPPORTED, {"rank 1: no network plugin", "libnccl-net-nowhere.so"});
  expect_failure(invalid, invalid, NCAST_INVALID_ARGUMENT, {"NARROWCAST_NET is 'fast', not tcp, plugin, ucx or auto"});
}

TEST_CASE("auto means a plugin that all ranks have, or TCP") {
  Variables found = {{"NARROWCAST_NET", "auto"}, {"NCCL_NET_PLUGIN", path_of(12)}};
  const Variables other = {{"NARROWCAST_NET", "auto"}, {"NCCL_NET_PLUGIN", path_of(11)}},
                  missing = {{"NARROWCAST_NET", "auto"}};
  const auto join = [](const Variables& first, const Variables& second) {
    const NetworkHub hub;
    run_with({first, second}, [&](int rank) { EXPECT_OK(hub.must_join(rank, 2)->check_failure()); });
  };
  join(found, found);
  // Whoever uses the plugin notices this.
  found.emplace_back("NARROWCAST_TEST_NET_FAIL", "listen:1");
  join(found, other);
  join(found, missing);
  expect_failure(found, found, NCAST_SYSTEM_ERROR, {"listen of the network plugin Test (version 12)"});
}

TEST_CASE("a plugin that fails while ranks connect fails on all of them, with the rank and its function") {
  for (const std::string function : {"listen", "connect", "accept", "regMr"}) {
    CAPTURE(function);
    Variables failing = with_plugin(12);
    failing.emplace_back("NARROWCAST_TEST_NET_FAIL", function + ":1");
    const NetworkHub hub;
    run_with({with_plugin(12), failing}, [&](int rank) {
      std::unique_ptr<World> world;
      EXPECT(hub.join(rank, 2, &world) == (rank == 1 ? NCAST_SYSTEM_ERROR : NCAST_REMOTE_ERROR));
      EXPECT(error_contains(rank == 1 ? "the connection to rank 0 (pid " : "rank 1"));
      EXPECT(error_contains(function + " of the network plugin Test (version 12) failed: unhandled system error"));
    });
  }
}

TEST_CASE("a plugin that fails later ends the connection, with the rank and the function") {
  // The number of the call: after the ranks have connected.
  for (const auto& [function, number] :
       {std::pair<std::string, const char*>("isend", ":40"), {"irecv", ":40"}, {"test", ":10000"}}) {
    CAPTURE(function);
    Variables failing = with_plugin(9);
    failing.emplace_back("NARROWCAST_TEST_NET_FAIL", function + number);
    const NetworkHub hub;
    run_with({with_plugin(9), failing}, [&](int rank) {
      const std::unique_ptr<World> world = hub.must_join(rank, 2);
      Tag tag = {};
      for (uint64_t number = 0; world->dead() == 0; ++number) {
        std::memcpy(tag.bytes, &number, sizeof number);
        world->publish_current(tag);
        world->wake_peers();
        usleep(500);
      }
      EXPECT(world->dead() == rank_bit(1 - rank));
      EXPECT(world->fail_of_dead(1 - rank) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains(rank == 1 ? "the connection to rank 0 (pid " : "rank 1 (pid "));
      if (rank == 1) EXPECT(error_contains(function + " of the network plugin Test (version 9) failed"));
    });
  }
}

}  // namespace
}  // namespace narrowcast::testing
