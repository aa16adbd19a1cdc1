#include "nccl/policy.h"

#include "doctest/doctest.h"
#include "nccl/worth.h"

using namespace narrowcast::nccl;

namespace {

Call call_of(Operation operation, size_t count = 1000, int dtype = NCAST_BFLOAT16) {
  return {.function = Function::AllReduce, .operation = operation, .count = count, .dtype = dtype};
}

Settings with(const char* key, const char* value) {
  Settings settings;
  apply_setting(key, value, "test", &settings);
  return settings;
}

}  // namespace

TEST_CASE("a call is taken where it is known to be faster, and the reason is said where it is not") {
  CHECK(decide({}, call_of(NCAST_OP_ALL_GATHER), 2).take);
  const Decision decision = decide({}, call_of(NCAST_OP_ALL_REDUCE, size_t{1} << 30), 2);
  CHECK_FALSE(decision.take);
  CHECK(decision.why_not == doctest::String("NCCL is faster at this size"));
}

TEST_CASE("a send and its receive are decided alike") {
  for (const char* off : {"send", "recv"}) {
    CHECK_FALSE(decide(with("off", off), call_of(NCAST_OP_SEND), 2).take);
    CHECK_FALSE(decide(with("off", off), call_of(NCAST_OP_RECV), 2).take);
  }
  const Settings settings = with("codec", "send=window,recv=raw");
  CHECK(decide(settings, call_of(NCAST_OP_SEND), 2).codec == NCAST_CODEC_WINDOW);
  CHECK(decide(settings, call_of(NCAST_OP_RECV), 2).codec == NCAST_CODEC_WINDOW);
}

TEST_CASE("what the engine cannot do is never taken") {
  const Settings settings = with("take", "always");
  Call by_user = call_of(NCAST_OP_ALL_REDUCE);
  by_user.redop = first_user_reduction;
  CHECK_FALSE(decide(settings, by_user, 2).take);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_ALL_REDUCE, 0), 2).take);
  Call with_config = call_of(NCAST_OP_ALL_REDUCE);
  with_config.config = &with_config;
  CHECK_FALSE(decide(settings, with_config, 2).take);
  CHECK(decide(settings, call_of(NCAST_OP_ALL_REDUCE), 2).take);
}

TEST_CASE("the environment comes before the rules, and the first rule that fits decides") {
  Settings settings = with("codec", "all_gather=raw");
  apply_file(
      "[[rule]]\noperation = \"all_gather\"\ncodec = \"window\"\ntake = \"always\"\n"
      "[[rule]]\nmin_bytes = 2000\nmax_bytes = 2000\ntake = \"never\"\n[[rule]]\ntake = \"always\"\n",
      "test.toml", &settings);
  const Decision gather = decide(settings, call_of(NCAST_OP_ALL_GATHER), 8);
  CHECK(gather.take);
  CHECK(gather.codec == NCAST_CODEC_RAW);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST), 8).take);
  CHECK(decide(settings, call_of(NCAST_OP_BROADCAST, 1001), 8).take);
  apply_setting("take", "never", "test", &settings);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST, 1001), 8).take);
}

TEST_CASE("every reason has words") {
  for (int operation = 0; operation < operation_count; ++operation)
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 40})
      for (const int ranks : {2, 3, 8})
        if (const char* const why = why_not_worth_taking(
                {static_cast<Operation>(operation), NCAST_BFLOAT16, bytes, ranks}, NCAST_CODEC_AUTO))
          CHECK(doctest::String(why).size() > 10);
}
