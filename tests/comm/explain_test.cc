// ncast_explain prints the decision that the backends execute. No GPU is needed.
#include "narrowcast/explain.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/reduction.h"
#include "select/allowed_codecs.h"
#include "select/decision.h"
#include "support/codec_table.h"
#include "support/environment.h"

namespace narrowcast::select {
namespace {

// An explanation and its decision.
class Explained {
 public:
  Explained(ncast_operation operation, uint64_t count, ncast_codec codec, int ranks, uint32_t max_ctas = 64,
            ncast_dtype dtype = NCAST_BFLOAT16) {
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.max_ctas = max_ctas;
    ncast_explanation* made = nullptr;
    REQUIRE(ncast_explain(operation, count, dtype, codec, ranks, &config, &made) == NCAST_OK);
    explanation_.reset(made);
    decision_.struct_bytes = sizeof decision_;
    REQUIRE(ncast_explanation_decision(made, &decision_) == NCAST_OK);
  }
  const ncast_decision* operator->() const { return &decision_; }
  const ncast_explanation* get() const { return explanation_.get(); }
  bool has_packets() const { return std::string(decision_.candidate) == "packets"; }
  bool has_blocks() const { return std::string(decision_.candidate).starts_with("blocks:"); }

 private:
  std::unique_ptr<ncast_explanation, void (*)(ncast_explanation*)> explanation_{nullptr, ncast_explanation_destroy};
  ncast_decision decision_ = {};
};

constexpr ncast_codec forced_window = tests::forced(NCAST_CODEC_WINDOW);

bool contains(const char* text, const std::string& part) { return std::string(text).find(part) != std::string::npos; }

TEST_CASE("every explanation is the decision of the backend") {
  const bool is_current = describe_mismatch(CostModel::shipped(), Link::nvlink).empty();
  for (int operation = NCAST_OP_SEND; operation <= NCAST_OP_ALL_REDUCE; ++operation) {
    for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_RAW}, forced_window, ncast_codec{NCAST_CODEC_AUTO}}) {
      for (const ncast_dtype dtype : {NCAST_INT8, NCAST_FLOAT64, NCAST_BFLOAT16}) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
          for (uint64_t count = 1; count <= uint64_t{1} << 30; count *= 32) {
            CAPTURE(operation);
            CAPTURE(codec);
            CAPTURE(ranks);
            CAPTURE(count);
            CallShape shape{static_cast<Operation>(operation), dtype, codec, count * ncast_dtype_bytes(dtype), ranks};
            const Explained said(static_cast<ncast_operation>(operation), count, codec, ranks, 64, dtype);
            const Decision decision = decide(shape, {CostModel::shipped()});
            CHECK(decision.candidate == said->candidate);
            CHECK(said->codec == decision.codec);
            CHECK(said->allowed == allowed_codecs(shape).text());
            CHECK(contains(said->sentence, decision.codec_reason));
            CHECK(contains(said->sentence, decision.transport_reason));
            CHECK(std::string(said->sentence).back() == '.');
            CHECK((said->microseconds > 0) == (ranks > 1));
            CHECK((said->costs_warning != nullptr) == (ranks > 1 && !is_current));
            CHECK(contains(said->sentence, "Predicted: ") == (ranks > 1));
            CHECK(said->ctas <= 64);
            if (ranks > 1) CHECK((said->rings != 0) == said.has_blocks());
            if (said.has_packets()) {
              const select::PacketForm form = said->packet_bytes == 128  ? select::PacketForm::lines
                                              : said->packet_bytes == 16 ? select::PacketForm::short_packets
                                                                         : select::PacketForm::words;
              CHECK(is_possible({said->two_shot != 0, said->ctas, said->warps, form}, shape.operation, shape.bytes,
                                ranks));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("short messages go by packets, long ones by blocks") {
  const Explained message(NCAST_OP_ALL_REDUCE, 512, NCAST_CODEC_AUTO, 8);
  CHECK(message.has_packets());
  CHECK(message->two_shot == 0);
  CHECK(message->packet_bytes == 16);
  CHECK(message->codec == NCAST_CODEC_RAW);
  CHECK(contains(message->sentence,
                 "all_reduce of 512 bfloat16 between 8 ranks runs by packets of 16 bytes in one shot, "));
  const Explained longer(NCAST_OP_ALL_REDUCE, 400 << 10, NCAST_CODEC_AUTO, 8);
  CHECK(longer.has_packets());
  CHECK(longer->two_shot == 1);
  const Explained tensor(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_AUTO, 8);
  CHECK(!tensor.has_packets());
  CHECK(tensor->shots_reason == nullptr);
  CHECK(tensor->codec == NCAST_CODEC_WINDOW);
  CHECK(tensor->block_bytes == 4096);
  CHECK(contains(tensor->sentence, "all_gather of 67108864 bfloat16 between 8 ranks runs by blocks of 4096 bytes, "));
}

TEST_CASE("an explanation has the codec that is used and those that the call allows, and uses max_ctas") {
  const Explained named(NCAST_OP_ALL_REDUCE, 64, NCAST_CODEC_WINDOW, 2);
  CHECK(named.has_packets());
  CHECK(named->codec == NCAST_CODEC_RAW);
  CHECK(contains(named->sentence, " The call allows window. "));
  const Explained forced(NCAST_OP_ALL_REDUCE, 64, forced_window, 2);
  CHECK(forced.has_blocks());
  CHECK(forced->codec == NCAST_CODEC_WINDOW);
  CHECK(contains(forced->sentence, " The call allows window!. "));
  CHECK(!contains(Explained(NCAST_OP_ALL_REDUCE, 64, NCAST_CODEC_RAW, 2)->sentence, "allows"));
  CHECK(Explained(NCAST_OP_BROADCAST, 64 << 20, NCAST_CODEC_RAW, 2)->codec == NCAST_CODEC_RAW);
  CHECK(Explained(NCAST_OP_BROADCAST, 64 << 20, NCAST_CODEC_AUTO, 2, 64, NCAST_INT32)->codec == NCAST_CODEC_RAW);
  CHECK(Explained(NCAST_OP_SEND, 64 << 20, forced_window, 2, 4, NCAST_FLOAT64)->block_bytes == 8192);
  const Explained few(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_RAW, 2, 4);
  CHECK(few->ctas == 4);
  CHECK(few->warps == move_warps(most_shared_bytes, 4096).all());
  CHECK(few->rings == 4 * move_warps(most_shared_bytes, 4096).senders);
}

TEST_CASE("a call without values, and a rank alone, run no kernel") {
  for (const Explained& said : {Explained(NCAST_OP_ALL_REDUCE, 0, NCAST_CODEC_AUTO, 4),
                                Explained(NCAST_OP_ALL_REDUCE, 1 << 20, NCAST_CODEC_AUTO, 1)}) {
    CHECK(said->ctas == 0);
    CHECK(said->warps == 0);
  }
}

TEST_CASE("with NARROWCAST_P2P=0 a call goes through host memory with fewer CTAs") {
  {
    const testing::Environment set("NARROWCAST_P2P", "0");
    const Explained said(NCAST_OP_ALL_GATHER, 1 << 20, NCAST_CODEC_AUTO, 2);
    CHECK(std::string(said->link) == "host");
    CHECK(said->ctas == 16);
    CHECK(said->codec == NCAST_CODEC_WINDOW);
    const testing::Environment small("NARROWCAST_SHARED_KIB", "99");
    const Explained of_small(NCAST_OP_ALL_GATHER, 1 << 20, NCAST_CODEC_AUTO, 2);
    CHECK(of_small->ctas == 32);  // of half as many warps that send
    CHECK(of_small->rings == said->rings);
    CHECK(of_small->warps < said->warps);
  }
  CHECK(std::string(Explained(NCAST_OP_ALL_GATHER, 1 << 20, NCAST_CODEC_AUTO, 2)->link) == "nvlink");
}

TEST_CASE("invalid arguments of ncast_explain are rejected") {
  ncast_explanation* explanation = nullptr;
  const auto rejected = [&](int operation, uint64_t count, int dtype, int codec, int ranks, const char* part) {
    CHECK(ncast_explain(static_cast<ncast_operation>(operation), count, static_cast<ncast_dtype>(dtype),
                        static_cast<ncast_codec>(codec), ranks, nullptr, &explanation) == NCAST_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(ncast_last_error(), part), ncast_last_error());
  };
  rejected(11, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, "operation is 11");
  rejected(-1, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, "operation is -1");
  rejected(NCAST_OP_SEND, 1, 12, NCAST_CODEC_RAW, 2, "dtype is 12");
  rejected(NCAST_OP_SEND, 1, NCAST_INT8, 77, 2, "codec is 77");
  rejected(NCAST_OP_SEND, 1, NCAST_INT8, NCAST_CODEC_INT4, 2, "send of int8 cannot use codec int4");
  rejected(NCAST_OP_SEND, 1, NCAST_INT8, NCAST_CODEC_RAW, 9, "ranks is 9, not 1 to 8");
  rejected(NCAST_OP_SEND, uint64_t{1} << 63, NCAST_INT8, NCAST_CODEC_RAW, 2, "count is");
  CHECK(ncast_explain(NCAST_OP_SEND, 1, NCAST_INT8, NCAST_CODEC_RAW, 2, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("the error bound of a call adds up what is encoded") {
  ncast_codec coarse = 0;
  REQUIRE(ncast_codec_parse("int6:group=64", &coarse) == NCAST_OK);
  const std::vector<double> largest = {1, 4, 2};
  const auto bound = [&](ncast_operation operation, ncast_redop op = NCAST_SUM, ncast_dtype dtype = NCAST_FLOAT32) {
    return ncast_call_error_bound(operation, dtype, op, coarse | NCAST_CODEC_FORCED, 3, largest.data());
  };
  const auto once = [&](double magnitude) { return ncast_codec_error_bound(coarse, NCAST_FLOAT32, magnitude); };
  const auto is_close = [](double found, double expected) { return found >= expected && found < expected * 1.0001; };
  for (const ncast_operation moved : {NCAST_OP_SEND, NCAST_OP_BROADCAST, NCAST_OP_ALL_GATHER, NCAST_OP_ALL_TO_ALL})
    CHECK(bound(moved) == once(4));
  const double contributions = once(4) + once(2), sum = 7 + once(1) + contributions;
  CHECK(is_close(bound(NCAST_OP_REDUCE_SCATTER), contributions));
  for (const ncast_operation reduced : {NCAST_OP_REDUCE, NCAST_OP_ALL_REDUCE})
    CHECK(is_close(bound(reduced), contributions + once(sum)));
  CHECK(is_close(bound(NCAST_OP_ALL_REDUCE, NCAST_AVG), contributions / 3 + once(sum / 3)));
  // Half an ulp of the sum in bfloat16.
  CHECK(bound(NCAST_OP_REDUCE, NCAST_SUM, NCAST_BFLOAT16) > contributions + 7 * 0x1p-8);
  CHECK(bound(NCAST_OP_ALL_REDUCE, NCAST_SUM, NCAST_FLOAT64) == 0);
  for (const ncast_codec exact : {ncast_codec{NCAST_CODEC_RAW}, forced_window, ncast_codec{NCAST_CODEC_AUTO}})
    CHECK(ncast_call_error_bound(NCAST_OP_ALL_REDUCE, NCAST_FLOAT32, NCAST_SUM, exact, 3, largest.data()) == 0);
  // A budget may choose any of several codecs: the worst one counts.
  const auto gathered = [](const char* codec) {
    const double ones[] = {1, 1, 1};
    ncast_codec parsed = 0;
    REQUIRE(ncast_codec_parse(codec, &parsed) == NCAST_OK);
    return ncast_call_error_bound(NCAST_OP_ALL_GATHER, NCAST_FLOAT32, NCAST_SUM, parsed, 3, ones);
  };
  CHECK(gathered("within:relative=0.02") == gathered("int6"));
  CHECK(gathered("within:relative=1e-5") == 0);
  const std::vector<double> huge(4, 1e38), wrong = {1, -1};
  CHECK(std::isinf(ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, NCAST_SUM, coarse, 4, huge.data())));
  const std::vector<double> larger(4, 1e308);
  for (const ncast_redop op : {NCAST_SUM, NCAST_AVG})
    CHECK(std::isinf(ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT64, op, NCAST_CODEC_ABS, 4, larger.data())));
  for (const double invalid :
       {ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, NCAST_SUM, coarse, 2, wrong.data()),
        ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, NCAST_SUM, coarse, 0, wrong.data()),
        ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, NCAST_SUM, coarse, 1, nullptr),
        ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, static_cast<ncast_redop>(5), coarse, 1, wrong.data()),
        ncast_call_error_bound(NCAST_OP_REDUCE, static_cast<ncast_dtype>(99), NCAST_SUM, coarse, 1, wrong.data()),
        ncast_call_error_bound(static_cast<ncast_operation>(99), NCAST_FLOAT32, NCAST_SUM, coarse, 1, wrong.data()),
        ncast_call_error_bound(NCAST_OP_REDUCE, NCAST_FLOAT32, NCAST_SUM, 77, 1, wrong.data()),
        bound(NCAST_OP_REDUCE, NCAST_MAX), bound(NCAST_OP_ALL_REDUCE, NCAST_SUM, NCAST_INT32)})
    CHECK(std::isnan(invalid));
}

TEST_CASE("the error bound of an all-reduce adds those of its two codecs") {
  const std::vector<double> largest = {1, 4, 2};
  const auto bound = [&](ncast_codec codec, ncast_codec result_codec) {
    return ncast_all_reduce_error_bound(NCAST_FLOAT32, NCAST_SUM, codec, result_codec, 3, largest.data());
  };
  const auto error = [](ncast_codec codec, double magnitude) {
    return ncast_codec_error_bound(codec, NCAST_FLOAT32, magnitude);
  };
  constexpr ncast_codec raw = NCAST_CODEC_RAW, int8 = NCAST_CODEC_INT8, int4 = NCAST_CODEC_INT4;
  const auto is_close = [](double found, double expected) { return found >= expected && found < expected * 1.0001; };
  const double sent = error(int8, 4) + error(int8, 2), sum = 7 + error(int8, 1) + sent;
  CHECK(is_close(bound(int8, int4), sent + error(int4, sum)));
  CHECK(is_close(bound(int8, raw), sent));
  CHECK(is_close(bound(raw, int4), error(int4, 7)));
  CHECK(bound(raw, raw) == 0);
  CHECK(std::isnan(bound(int8, NCAST_CODEC_WINDOW)));
}

TEST_CASE("an explanation states the error bound of its call") {
  ncast_codec coarse = 0;
  REQUIRE(ncast_codec_parse("int6:group=64!", &coarse) == NCAST_OK);
  const double ones[] = {1, 1, 1, 1};
  const Explained forced(NCAST_OP_ALL_REDUCE, 1 << 22, coarse, 4);
  CHECK(forced->error_bound == ncast_call_error_bound(NCAST_OP_ALL_REDUCE, NCAST_BFLOAT16, NCAST_SUM, coarse, 4, ones));
  CHECK(contains(forced->sentence, " Results are within 0.162 of exact ones, for values of at most 1."));
  const Explained exact(NCAST_OP_ALL_REDUCE, 1 << 22, forced_window, 4);
  CHECK(exact->error_bound == 0);
  CHECK_FALSE(contains(exact->sentence, "within"));
}

TEST_CASE("every candidate of an explanation can be read") {
  const Explained said(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_AUTO, 2);
  const std::vector<size_t> own = candidates_of(Link::nvlink);
  REQUIRE(ncast_explanation_candidates(said.get()) == own.size());
  bool found = false;
  for (uint32_t i = 0; i < own.size(); ++i) {
    ncast_candidate candidate = {};
    candidate.struct_bytes = sizeof candidate;
    REQUIRE(ncast_explanation_candidate(said.get(), i, &candidate) == NCAST_OK);
    CHECK(candidates()[own[i]].name == candidate.name);
    CHECK(candidate.plan == nullptr);
    if (std::string(candidate.name) != said->candidate) continue;
    found = true;
    CHECK(candidate.microseconds == said->microseconds);
    CHECK(candidate.incompressible_microseconds >= candidate.microseconds);
  }
  CHECK(found);
  ncast_candidate candidate = {};
  candidate.struct_bytes = sizeof candidate;
  CHECK(ncast_explanation_candidate(said.get(), static_cast<uint32_t>(own.size()), &candidate) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(ncast_explanation_candidate(nullptr, 0, &candidate) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_explanation_candidates(nullptr) == 0);
}

TEST_CASE("for callers of an older version, only the members that they know are written") {
  const Explained said(NCAST_OP_ALL_GATHER, 64 << 20, NCAST_CODEC_AUTO, 2);
  ncast_decision older = {};
  older.struct_bytes = offsetof(ncast_decision, ctas);
  older.ctas = 12345;
  REQUIRE(ncast_explanation_decision(said.get(), &older) == NCAST_OK);
  CHECK(std::string(older.candidate) == said->candidate);
  CHECK(older.ctas == 12345);
  older.struct_bytes = 0;
  CHECK(ncast_explanation_decision(said.get(), &older) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::select
