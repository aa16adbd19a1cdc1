// What ncast_explain says is what the CUDA backend decides by: it needs no GPU.
#include "narrowcast/explain.h"

#include <string>

#include "doctest/doctest.h"
#include "select/choice.h"
#include "support/environment.h"

namespace narrowcast::select {
namespace {

ncast_explanation explained(ncast_operation operation, uint64_t count, ncast_codec codec, int ranks,
                            uint32_t max_ctas = 64, ncast_dtype dtype = NCAST_BFLOAT16) {
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.max_ctas = max_ctas;
  ncast_explanation explanation;
  REQUIRE(ncast_explain(operation, count, dtype, codec, ranks, &config, &explanation) == NCAST_OK);
  return explanation;
}

bool contains(const char* text, const std::string& part) { return std::string(text).find(part) != std::string::npos; }

TEST_CASE("every explanation is the backend's choice") {
  for (int operation = NCAST_OP_SEND; operation <= NCAST_OP_ALL_REDUCE; ++operation) {
    for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_AUTO}) {
      for (const ncast_dtype dtype : {NCAST_INT8, NCAST_FLOAT64, NCAST_BFLOAT16}) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
          for (uint64_t count = 1; count <= uint64_t{1} << 30; count *= 32) {
            CAPTURE(operation);
            CAPTURE(codec);
            CAPTURE(ranks);
            CAPTURE(count);
            CallShape shape{static_cast<Operation>(operation), dtype, codec, count * ncast_dtype_bytes(dtype), ranks};
            const auto said = explained(static_cast<ncast_operation>(operation), count, codec, ranks, 64, dtype);
            if (operation == NCAST_OP_ALL_TO_ALL_V) shape.bytes = 0;
            const Choice choice = choose(shape, {CostModel::shipped()});
            CHECK((said.packets != 0) == choice.packets);
            CHECK(said.codec == choice.codec);
            CHECK(contains(said.sentence, choice.reason));
            CHECK(contains(said.sentence, choice.packets_reason));
            const std::string sentence = said.sentence;
            CHECK(sentence.back() == '.');
            CHECK(sentence.size() + 1 < sizeof said.sentence);
            CHECK((said.predicted.microseconds > 0) == (ranks > 1));
            CHECK(contains(said.sentence, "Predicted: ") == (ranks > 1));
            CHECK(said.ctas <= 64);
            CHECK((said.rings != 0) == (said.packets == 0));
            if (choice.packets && ranks > 1)
              CHECK(is_possible({said.two_shot != 0, said.ctas, said.warps, said.packet_bytes == 128},
                                *packet_operation(shape.operation), shape.bytes, ranks));
          }
        }
      }
    }
  }
}

TEST_CASE("short messages go by packets, long ones by blocks") {
  const auto message = explained(NCAST_OP_ALL_REDUCE, 512, NCAST_CODEC_AUTO, 8);
  CHECK(message.packets == 1);
  CHECK(message.two_shot == 0);
  CHECK(message.codec == NCAST_CODEC_RAW);
  CHECK(contains(message.sentence,
                 "all_reduce of 512 bfloat16 between 8 ranks goes by packets of 16 bytes in one shot, "));
  const auto longer = explained(NCAST_OP_ALL_REDUCE, 400 << 10, NCAST_CODEC_AUTO, 8);
  CHECK(longer.packets == 1);
  CHECK(longer.two_shot == 1);
  const auto tensor = explained(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_AUTO, 8);
  CHECK(tensor.packets == 0);
  CHECK(tensor.shots_why == nullptr);
  CHECK(tensor.codec == NCAST_CODEC_WINDOW);
  CHECK(tensor.block_bytes == 4096);
  CHECK(contains(tensor.sentence, "all_gather of 67108864 bfloat16 between 8 ranks goes by blocks of 4096 bytes, "));
}

TEST_CASE("an explanation follows the codec asked for and the ranks' fewest CTAs") {
  CHECK(explained(NCAST_OP_ALL_REDUCE, 64, NCAST_CODEC_WINDOW, 2).packets == 0);
  CHECK(explained(NCAST_OP_BROADCAST, 64 << 20, NCAST_CODEC_RAW, 2).codec == NCAST_CODEC_RAW);
  CHECK(explained(NCAST_OP_BROADCAST, 64 << 20, NCAST_CODEC_AUTO, 2, 64, NCAST_INT32).codec == NCAST_CODEC_RAW);
  CHECK(explained(NCAST_OP_SEND, 64 << 20, NCAST_CODEC_WINDOW, 2, 4, NCAST_FLOAT64).block_bytes == 8192);
  const auto few = explained(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_RAW, 2, 4);
  CHECK(few.ctas == 4);
  CHECK(few.rings == 4 * piece_warps(Operation::all_gather, NCAST_BFLOAT16, NCAST_CODEC_RAW));
}

TEST_CASE("a call without values, and a rank alone, run no kernel") {
  for (const auto& said : {explained(NCAST_OP_ALL_REDUCE, 0, NCAST_CODEC_AUTO, 4),
                           explained(NCAST_OP_ALL_REDUCE, 1 << 20, NCAST_CODEC_AUTO, 1)}) {
    CHECK(said.ctas == 0);
    CHECK(said.warps == 0);
  }
}

TEST_CASE("NARROWCAST_P2P=0 takes a call through host memory, with fewer CTAs") {
  {
    const testing::Environment set("NARROWCAST_P2P", "0");
    const auto said = explained(NCAST_OP_ALL_GATHER, 1 << 20, NCAST_CODEC_AUTO, 2);
    CHECK(said.over_host == 1);
    CHECK(said.ctas == 16);
    CHECK(said.codec == NCAST_CODEC_WINDOW);
  }
  CHECK(explained(NCAST_OP_ALL_GATHER, 1 << 20, NCAST_CODEC_AUTO, 2).over_host == 0);
}

TEST_CASE("what cannot be explained is refused") {
  ncast_explanation explanation;
  const auto refused = [&](int operation, uint64_t count, int dtype, int codec, int ranks, const char* part) {
    CHECK(ncast_explain(static_cast<ncast_operation>(operation), count, static_cast<ncast_dtype>(dtype),
                        static_cast<ncast_codec>(codec), ranks, nullptr, &explanation) == NCAST_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(ncast_last_error(), part), ncast_last_error());
  };
  refused(11, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, "operation is 11");
  refused(-1, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, "operation is -1");
  refused(NCAST_OP_SEND, 1, 12, NCAST_CODEC_RAW, 2, "dtype is 12");
  refused(NCAST_OP_SEND, 1, NCAST_INT8, 7, 2, "codec is 7");
  refused(NCAST_OP_SEND, 1, NCAST_INT8, NCAST_CODEC_RAW, 9, "ranks is 9, not 1 to 8");
  refused(NCAST_OP_SEND, uint64_t{1} << 63, NCAST_INT8, NCAST_CODEC_RAW, 2, "count is");
  CHECK(ncast_explain(NCAST_OP_SEND, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::select
