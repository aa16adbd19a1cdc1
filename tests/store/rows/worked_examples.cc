// The worked bytes of docs/format/rows.md.
#include "doctest/doctest.h"
#include "store/rows/fast.h"
#include "support/hexdump.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

void require_example(const store::RowModel& model, const Bytes& row, const Bytes& payload) {
  uint32_t header;
  std::memcpy(&header, payload.data(), sizeof header);
  std::vector<store::RowCoder> coders = {store::reference};
  for (const store::InstructionSet set : store::instruction_sets())
    coders.push_back(store::fast_coder(model.model(), set));
  for (const store::RowCoder& coder : coders) {
    Bytes encoded(model.bound()), decoded(row.size());
    encoded.resize(coder.encode(model.model(), row.data(), encoded.data()));
    CHECK(encoded == payload);
    CHECK(coder.decode(model.model(), header, payload.data() + 4, payload.size() - 4, decoded.data()));
    CHECK(decoded == row);
  }
}

}  // namespace

TEST_CASE("the plain row of the specification is what six elements encode to, with the model of the specification") {
  std::string problem;
  const auto model = store::RowModel::parse(whole(hexdump("rows.md", "rows_plain_model")), &problem);
  REQUIRE_MESSAGE(model.has_value(), problem);
  CHECK(model->text() == "zeros+trim");
  require_example(*model, {5, 0, 0, 7, 0, 4}, whole(hexdump("rows.md", "rows_plain")));
}

TEST_CASE("the row of the specification with stages in front of invariant is what six elements encode to") {
  std::string problem;
  const auto model = store::RowModel::parse(whole(hexdump("rows.md", "rows_invariant_model")), &problem);
  REQUIRE_MESSAGE(model.has_value(), problem);
  CHECK(model->text() == "zeros+trim+invariant:chunk=1,clusters=1");
  require_example(*model, {5, 0, 0, 7, 0, 12}, whole(hexdump("rows.md", "rows_invariant")));
}

TEST_CASE("the window row of the specification is what 33 elements encode to") {
  Table table;
  table.shape = {NCAST_BFLOAT16, 33};
  table.count = 1;
  std::vector<uint16_t> elems(33, 0x3f80);
  elems[4] = 0xbcc0;
  elems[5] = 0x6400;
  table.bytes.resize(66);
  std::memcpy(table.bytes.data(), elems.data(), 66);
  require_example(fit(table, "window").model, table.bytes, whole(hexdump("rows.md", "rows_window")));
}

}  // namespace narrowcast::tests
