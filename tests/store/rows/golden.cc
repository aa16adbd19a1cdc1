// The rows in tests/golden/: everything that was ever written must still decode, and today's encoders write the same
// bytes.
#include "codec/buffers.h"
#include "doctest/doctest.h"
#include "store/rows/fast.h"
#include "store/rows/golden_files.h"
#include "store/rows/header_word.h"

namespace narrowcast::tests {

using namespace golden_rows;

namespace {

std::vector<store::RowCoder> coders_of(const store::RowModel& model) {
  std::vector<store::RowCoder> coders = {store::reference};
  for (const store::InstructionSet set : store::instruction_sets())
    coders.push_back(store::fast_coder(model.model(), set));
  return coders;
}

}  // namespace

TEST_CASE("golden rows decode") {
  for (const char* kind : {"encoded", "decodes"})
    for (const std::string& name : names_of(kind)) {
      INFO("vector ", name);
      const store::RowModel model = model_of(name);
      const Bytes payload = read(name + ".payload"), row = read(name + ".row");
      REQUIRE(row.size() == model.shape().row_bytes());
      const Exact body({payload.data() + 4, payload.size() - 4});
      Guarded decoded(row.size());
      REQUIRE(model.decode(header_of(payload), body.data(), payload.size() - 4, decoded.data()));
      REQUIRE(decoded.intact());
      REQUIRE(decoded.copy(row.size()) == row);
      if (header_of(payload) == store::raw_bit) continue;
      for (const store::RowCoder& coder : coders_of(model)) {
        Guarded again(row.size());
        REQUIRE(coder.decode(model.model(), header_of(payload), body.data(), payload.size() - 4, again.data()));
        REQUIRE(again.copy(row.size()) == row);
      }
    }
}

TEST_CASE("today's encoders write the golden rows, byte for byte") {
  for (const std::string& name : names_of("encoded")) {
    INFO("vector ", name);
    const store::RowModel model = model_of(name);
    const Bytes payload = read(name + ".payload"), row = read(name + ".row");
    Bytes encoded(model.bound());
    encoded.resize(model.encode(row.data(), encoded.data()));
    CHECK(encoded == payload);
    for (const store::RowCoder& coder : coders_of(model)) {
      encoded.resize(model.bound());
      encoded.resize(coder.encode(model.model(), row.data(), encoded.data()));
      CHECK(encoded == (header_of(payload) == store::raw_bit ? Bytes() : payload));
    }
  }
}

TEST_CASE("golden invalid rows and models are rejected") {
  for (const std::string& name : names_of("invalid")) {
    INFO("vector ", name);
    const store::RowModel model = model_of(name);
    const Bytes payload = read(name + ".payload");
    const Exact body({payload.data() + 4, payload.size() - 4});
    Bytes row(model.shape().row_bytes());
    CHECK_FALSE(model.decode(header_of(payload), body.data(), payload.size() - 4, row.data()));
    if ((header_of(payload) & (store::place_mask | store::raw_bit)) != 0) continue;
    for (const store::RowCoder& coder : coders_of(model))
      CHECK_FALSE(coder.decode(model.model(), header_of(payload), body.data(), payload.size() - 4, row.data()));
  }
  for (const std::string& name : names_of("invalid_model")) {
    INFO("vector ", name);
    std::string problem;
    CHECK_FALSE(store::RowModel::parse(read(name + ".model"), &problem).has_value());
    CHECK(!problem.empty());
  }
}

}  // namespace narrowcast::tests
