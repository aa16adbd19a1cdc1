// The codecs that a call allows, by name or by an error budget.
#include "select/allowed_codecs.h"

#include <cmath>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "doctest/doctest.h"
#include "models.h"
#include "select/decider.h"
#include "select/decision.h"
#include "select/error_bound.h"

namespace narrowcast::select {
namespace {

using namespace testing;

ncast_codec within(const char* relative) {
  ncast_codec codec = 0;
  REQUIRE(ncast_codec_parse(("within:relative=" + std::string(relative)).c_str(), &codec) == NCAST_OK);
  return codec;
}

CallShape all_reduce_of(ncast_redop op, int ranks, ncast_codec codec, ncast_dtype dtype = NCAST_FLOAT32) {
  return {.operation = Operation::all_reduce,
          .dtype = dtype,
          .codec = codec,
          .bytes = 1 << 20,
          .ranks = ranks,
          .redop = op};
}

TEST_CASE("an error budget allows exactly the lossy codecs whose bound of the call fits, shortest payloads first") {
  for (const char* relative : {"0.003", "0.008", "0.02", "0.3", "0.9"}) {
    for (const int ranks : {1, 2, 8}) {
      for (const ncast_redop op : {NCAST_SUM, NCAST_AVG, NCAST_MAX}) {
        const CallShape shape = all_reduce_of(op, ranks, within(relative));
        const AllowedCodecs allowed = allowed_codecs(shape);
        CAPTURE(relative);
        CAPTURE(allowed.text());
        const std::vector<double> largest(static_cast<size_t>(ranks), 8), smaller(largest.size(), 8 * 0x1p-8);
        const double limit = std::stod(relative) * 8 * (op == NCAST_SUM ? ranks : 1);
        for (size_t i = 0; i < ncast_codec_count(); ++i) {
          ncast_codec_info info = {};
          info.struct_bytes = sizeof info;
          REQUIRE(ncast_codec_describe(i, &info) == NCAST_OK);
          if (info.exact || codec::prior_ratio(info.codec, shape.dtype) == 1) continue;
          const double bound = error_bound(shape.operation, shape.dtype, op, info.codec, largest);
          if (std::abs(bound - limit) < 1e-5 * limit) continue;
          const bool is_relative = error_bound(shape.operation, shape.dtype, op, info.codec, smaller) <= 0x1p-7 * bound;
          CHECK(allowed.contains(info.codec) == (bound < limit && is_relative && op != NCAST_MAX));
        }
        CHECK(allowed.contains(NCAST_CODEC_WINDOW));
        for (size_t i = 1; i < allowed.codecs.size(); ++i)
          CHECK(codec::prior_ratio(allowed.codecs[i - 1], NCAST_FLOAT32) <=
                codec::prior_ratio(allowed.codecs[i], NCAST_FLOAT32));
      }
    }
  }
  CHECK_FALSE(allowed_codecs(all_reduce_of(NCAST_SUM, 4, within("1e-4"))).has_lossy());
  CHECK_FALSE(allowed_codecs(all_reduce_of(NCAST_SUM, 4, within("0.5"), NCAST_INT32)).has_lossy());
}

TEST_CASE("within a budget the fastest codec runs by the model or, if none was measured, that of shortest payloads") {
  const std::string lines =
      "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:80\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000000:101\n";
  const auto decided = [&](const std::string& more, const char* relative, ncast_codec flag = 0) {
    return decide(gather_of(1000000, within(relative) | flag), {model_of(lines + more)});
  };
  CHECK(decided("", "0.05").codec == NCAST_CODEC_INT6);
  CHECK(decided("", "0.05").codec_reason ==
        std::string("it meets the error budget, with shorter payloads than the others that do, none of which was "
                    "measured"));
  const std::string measured =
      "all_gather 2 nvlink blocks:int8 1000000:60\nall_gather 2 nvlink blocks:e4m3 1000000:55\n"
      "all_gather 2 nvlink blocks:int4 1000000:40\n";
  CHECK(decided(measured, "0.05").codec == NCAST_CODEC_E4M3);
  CHECK(decided(measured, "0.05").codec_reason ==
        std::string("it meets the error budget, and is predicted to be faster than the others that do"));
  CHECK(decided(measured, "0.02").codec == NCAST_CODEC_INT8);
  const Decision exact = decided(measured, "0.0001");
  CHECK(exact.codec == NCAST_CODEC_WINDOW);
  CHECK(exact.codec_reason == std::string("no lossy codec meets the error budget, and this one loses nothing"));
  const std::string slow = "all_gather 2 nvlink blocks:int8 1000000:90\n";
  CHECK(decided(slow, "0.02").codec == NCAST_CODEC_WINDOW);
  CHECK(decided("all_gather 2 nvlink packets 1000000:1\n", "0.02").codec == NCAST_CODEC_RAW);
  CHECK(decided("all_gather 2 nvlink packets 1000000:1\n" + measured, "0.05", NCAST_CODEC_FORCED).codec ==
        NCAST_CODEC_E4M3);
}

TEST_CASE("calls with a budget that reduce in different ways are decided apart") {
  const CommTraits traits{2, Link::nvlink};
  Decider decider(traits, model_of("all_reduce 2 nvlink blocks:raw 1:100\nall_reduce 2 nvlink blocks:int8 1:9\n"));
  const auto codec_of = [&](ncast_redop op) {
    return decider.decide(decider.shape_of(Operation::all_reduce, NCAST_FLOAT32, within("0.0075"), 4096, op)).codec;
  };
  CHECK(codec_of(NCAST_SUM) == NCAST_CODEC_INT8);
  CHECK(codec_of(NCAST_PROD) == NCAST_CODEC_RAW);  // of products the errors add up
}

TEST_CASE("a call allows no codec, the one that it names, or every exact one") {
  const auto allowed = [](ncast_codec codec) { return allowed_codecs(gather_of(1, codec)); };
  CHECK(allowed(NCAST_CODEC_RAW).codecs.empty());
  CHECK(allowed(NCAST_CODEC_AUTO).codecs == std::vector<ncast_codec>{NCAST_CODEC_WINDOW, NCAST_CODEC_DENSE});
  CHECK(allowed(bounded()).codecs == std::vector{bounded()});
  CHECK_FALSE(allowed(bounded()).forced);
  const AllowedCodecs forced = allowed(bounded() | NCAST_CODEC_FORCED);
  CHECK(forced.codecs == std::vector{bounded()});
  CHECK(forced.forced);
  CHECK(forced.text() == "int8:group=64!");
}

}  // namespace
}  // namespace narrowcast::select
