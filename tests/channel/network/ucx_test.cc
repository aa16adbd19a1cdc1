// UCX: how it is found, and streams over it. CTest also runs the other tests of this folder over it, in a process of
// their own: those that it forks would have what it has loaded.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "channel/network/carrier.h"
#include "channel/network/ucx_library.h"
#include "network_hub.h"
#include "stream_checks.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

const Variables with_ucx = {{"NARROWCAST_NET", "ucx"}};

// In a process of its own: forked processes would share what UCX opens.
bool has_ucx() {
  const pid_t process = start_process([] {
    const UcxLibrary* library = nullptr;
    if (UcxLibrary::load(&library) == NCAST_OK) return;
    MESSAGE("skipped: ", std::string(ncast_last_error()));
    _exit(1);
  });
  return wait_for_process(process) == 0;
}

void expect_no_ucx(const Variables& variables, const std::vector<std::string>& texts) {
  run_with({variables}, [&](int) {
    const UcxLibrary* library = nullptr;
    EXPECT(UcxLibrary::load(&library) == NCAST_UNSUPPORTED);
    EXPECT(library == nullptr);
    for (const std::string& text : texts) EXPECT(error_contains(text.c_str()));
  });
}

TEST_CASE("where UCX was looked for, and why it is not used, is said") {
  expect_no_ucx({{"NARROWCAST_UCX", "/nowhere/libucp.so.0"}},
                {"; /nowhere/libucp.so.0: cannot open", "NARROWCAST_UCX can name"});
  expect_no_ucx({{"NARROWCAST_UCX", "libm.so.6"}}, {"; libm.so.6: it has no function ucp_get_version"});
  if (void* const system = dlopen("libucp.so.0", RTLD_LAZY)) {
    dlclose(system);
    return;
  }
  char folder[] = "/tmp/narrowcast_ucx_XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string package = std::string(folder) + "/lib/python3.11/site-packages/libucx/lib";
  std::filesystem::create_directories(package);
  std::ofstream(package + "/libucp.so.0") << "no library";
  expect_no_ucx({{"NARROWCAST_UCX", ""}, {"VIRTUAL_ENV", folder}},
                {"; libucp.so.0: cannot open", "; " + package + "/libucp.so.0: "});
  std::filesystem::remove_all(folder);
}

TEST_CASE("the transports of networks are found in what UCX prints") {
  constexpr char info[] =
      "#\n# UCP context\n#\n"
      "#     component 0  :  self\n"
      "#            md 0  :  component 0  self \n"
      "#      resource 0  :  md 0  dev 0  flags -- self/memory\n"
      "#      resource 1  :  md 1  dev 1  flags -- tcp/eth0\n"
      "#      resource 2  :  md 1  dev 2  flags -- tcp/lo\n"
      "#      resource 3  :  md 2  dev 3  flags -- rc_verbs/mlx5_0:1\n"
      "#      resource 4  :  md 2  dev 3  flags a- ud_verbs/mlx5_0:1\n"
      "#      resource 5  :  md 3  dev 0  flags -- cuda_copy/cuda\n";
  CHECK(network_transports_in(info) == "tcp, rc_verbs, ud_verbs");
  CHECK(network_transports_in("").empty());
}

TEST_CASE("auto does not load UCX on hosts without InfiniBand or RoCE devices") {
  if (UcxLibrary::host_has_rdma()) return;
  run_with({{{"NCCL_NET_PLUGIN", "none"}}}, [](int) {
    Carrier carrier;
    std::string why;
    EXPECT_OK(find_carrier("auto", &carrier, &why));
    EXPECT(carrier.name() == "TCP");
    EXPECT(why.find("NCCL_NET_PLUGIN is none") != why.npos);
    EXPECT(why.find("no InfiniBand or RoCE devices") != why.npos);
  });
}

TEST_CASE("streams over UCX carry bytes of any number in both directions") {
  if (has_ucx()) run_with({with_ucx}, [](int) { exchange_messages(); });
}

TEST_CASE("what was sent over UCX before the end arrives, then the stream is closed") {
  if (has_ucx()) run_with({with_ucx}, [](int) { send_before_the_end(); });
}

TEST_CASE("an end that does not know the secret does not connect over UCX") {
  if (has_ucx()) run_with({with_ucx}, [](int) { connect_without_the_secret(); });
}

TEST_CASE("a worker keeps what arrives for its receivers, and drops the rest") {
  if (!has_ucx()) return;
  struct Receiver final : UcxWorker::Receiver {
    std::vector<std::pair<uint64_t, size_t>> arrived;
    ucx::Status arrive(uint64_t number, void*, size_t bytes, bool) override {
      arrived.emplace_back(number, bytes);
      return ucx::ok;  // it has seen it
    }
  };
  run_with({with_ucx}, [](int) {
    const UcxLibrary* library = nullptr;
    EXPECT_OK(UcxLibrary::load(&library));
    const std::shared_ptr<UcxWorker> from = worker_of(*library), to = worker_of(*library);
    Receiver receiver;
    to->add(7, &receiver);
    ucx::EndpointParameters place = {};
    place.mask = ucx::EndpointParameters::with_address;
    place.address = to->address().data();
    ucx::Endpoint endpoint = nullptr;
    EXPECT(library->ep_create(from->get(), &place, &endpoint) == ucx::ok);
    const std::vector<char> content(1 << 20);
    const auto wait = [&](ucx::StatusOrRequest request) {
      if (ucx::status_of(request) != ucx::in_progress) return;
      while (library->request_check_status(request) == ucx::in_progress) {
        from->progress();
        to->progress();
      }
      library->request_free(request);
    };
    ucx::RequestParameters parameters = {};
    const auto send = [&](const void* header, size_t header_bytes, size_t bytes) {
      wait(library->am_send(endpoint, UcxWorker::message_id, header, header_bytes, content.data(), bytes, &parameters));
    };
    const UcxWorker::Header known = {7, 1}, unknown = {8, 2}, last = {7, 3};
    for (const size_t bytes : {size_t{100}, content.size()}) {
      send(&unknown, sizeof unknown, bytes);
      send(&known, 4, bytes);  // too short
      send(&known, sizeof known, bytes);
    }
    send(&last, sizeof last, 1);
    while (receiver.arrived.empty() || receiver.arrived.back().first != 3) {
      from->progress();
      to->progress();
    }
    EXPECT(receiver.arrived == (std::vector<std::pair<uint64_t, size_t>>{{1, 100}, {1, content.size()}, {3, 1}}));
    parameters.mask = ucx::RequestParameters::with_flags;
    parameters.flags = ucx::RequestParameters::force_close;
    wait(library->ep_close(endpoint, &parameters));
  });
}

TEST_CASE("a rank without UCX fails on all ranks, which name it") {
  if (!has_ucx()) return;
  const Variables missing = {{"NARROWCAST_NET", "ucx"}, {"NARROWCAST_UCX", "/nowhere/libucp.so.0"}};
  expect_failure(with_ucx, missing, NCAST_UNSUPPORTED, {"rank 1: UCX cannot be used; /nowhere/libucp.so.0"});
}

}  // namespace
}  // namespace narrowcast::testing
