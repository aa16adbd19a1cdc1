// Which models are fitted, and how much they save.
#include "doctest/doctest.h"
#include "ibp.h"
#include "nlohmann/json.hpp"
#include "tables.h"

namespace narrowcast::tests {
namespace {

uint64_t payload_bytes(const store::RowModel& model, const Table& table) {
  if (model.uncoded()) return table.bytes.size();
  Bytes payload(model.bound());
  uint64_t total = 0;
  for (uint64_t row = 0; row < table.count; ++row) total += model.encode(table.row(row), payload.data());
  return total;
}

std::string problem_of(const Table& table, const std::string& codec, const store::FitOptions& options = {}) {
  std::string problem;
  CHECK_FALSE(store::fit_rows(table.shape, table.sample(), codec, options, &problem).has_value());
  return problem;
}

// Rows of sparse small counts, most of them below 8, as word counts are.
Table counts(uint64_t rows) {
  Table table = make_table(NCAST_INT64, 64, rows, 0, 5);
  Random random(6);
  for (size_t at = 0; at < table.bytes.size(); at += 8) {
    const uint64_t count = random.chance(0.05) ? 1 + std::min<uint64_t>(std::countr_zero(random.bits()), 12) : 0;
    std::memcpy(&table.bytes[at], &count, 8);
  }
  return table;
}

}  // namespace

// A payload has a header word where IBP has a bit elsewhere. It shows in sparse rows whose other values share few bits,
// as random mantissas do.
TEST_CASE("the best codec is not larger than Invariant Bit Packing, but for a byte of sparse floating-point rows") {
  uint64_t seed = 0;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); ++kind) {
      ++seed;
      if (sanitized && seed % 13 != 0) continue;
      const uint64_t elems = 512 / ncast_dtype_bytes(dtype);
      Table table = make_table(dtype, elems, 300, kind, seed);
      const store::FitOptions packed{.layout = store::FitOptions::Layout::packed};
      INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind]);
      uint64_t least = table.bytes.size();
      for (const char* codec :
           {"invariant", "zeros+trim+invariant", "trim", "zeros+trim", "window", "trim+window", "zeros+trim+window"})
        if (mantissa_bits(dtype) != 0 || std::string(codec).find("window") == std::string::npos)
          least = std::min(least, payload_bytes(fit(table, codec, packed).model, table));
      const bool is_exception = std::string(table_kinds[kind]) == "sparse" && mantissa_bits(dtype) != 0;
      CHECK(static_cast<double>(least) <= ibp_bytes(table.bytes.data(), table.count, table.shape.row_bytes()) +
                                              (is_exception ? static_cast<double>(table.count) : 0));
    }
  Table table = counts(400);
  CHECK(static_cast<double>(payload_bytes(fit(table, "auto").model, table)) <=
        ibp_bytes(table.bytes.data(), table.count, table.shape.row_bytes()));
}

// tests/python/store/test_sampling.py has larger tables, of which a part is sampled.
TEST_CASE("auto stores at most 1% more than the best codec if the sample is the table") {
  // Stages in front of invariant must save an eighth.
  const auto allowed = [](const std::string& codec) {
    return codec.find("+invariant") != std::string::npos ? 1.01 * 8 / 7 : 1.01;
  };
  uint64_t seed = 100;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); ++kind) {
      ++seed;
      if (sanitized && seed % 13 != 0) continue;
      Table table = make_table(dtype, 256 / ncast_dtype_bytes(dtype) + 8, 300, kind, seed);
      const auto layout = seed % 2 != 0 ? store::FitOptions::Layout::stride : store::FitOptions::Layout::packed;
      {
        const auto stored = [&](const std::string& codec) {
          const bool raw = codec == "raw" && layout == store::FitOptions::Layout::packed;
          const store::RowFit fitted = fit(table, raw ? "plain" : codec, {.layout = layout, .table_rows = table.count});
          if (fitted.model.uncoded()) return static_cast<double>(table.shape.row_bytes());
          std::vector<uint32_t> sizes;
          Bytes payload(fitted.model.bound());
          for (uint64_t row = 0; row < table.count; ++row)
            sizes.push_back(static_cast<uint32_t>(fitted.model.encode(table.row(row), payload.data())));
          return layout == store::FitOptions::Layout::packed
                     ? store::packed_plan(sizes).stored_row_bytes
                     : store::best_stride(sizes, fitted.model.bound()).stored_row_bytes;
        };
        const double chosen = stored("auto");
        for (const std::string& codec : codecs_of(table.shape)) {
          INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind], ", ",
               fit(table, "auto", {.layout = layout}).model.text(), " against ", codec, ", layout ",
               static_cast<int>(layout));
          CHECK(chosen <= allowed(codec) * stored(codec));
        }
      }
    }
}

TEST_CASE("reports have the sample, the choice, the candidates and the reason") {
  const Table table = make_table(NCAST_BFLOAT16, 256, 600, 0, 3);
  const auto report = nlohmann::json::parse(fit(table, "auto", {.table_rows = 6000}).report);
  CHECK(report["sampled_rows"] == 600);
  CHECK(report["codec"] == "window");
  CHECK(report["candidates"].size() == 8);
  CHECK_FALSE(report["reason"].get<std::string>().empty());
}

TEST_CASE("auto compares codecs on rows that they were not fitted to, too") {
  // The low bytes are 0 in every other row: in those to which models are fitted.
  Table table = make_table(NCAST_UINT32, 32, 200, 7, 3);
  for (size_t at = 0; at < table.bytes.size(); at += 4)
    if (at / 128 % 2 == 0) table.bytes[at] = 0;
  const auto report = nlohmann::json::parse(fit(table, "auto").report);
  for (const auto& candidate : report["candidates"])
    if (candidate["codec"] == "trim") CHECK(candidate["payload_ratio"].get<double>() > 0.9);
}

TEST_CASE("auto expects models to suit the rows of the sample better than the others of the table") {
  Table table = make_table(NCAST_UINT32, 32, 200, 7, 9);
  const auto invariant_ratio = [&](uint64_t table_rows) {
    const auto report = nlohmann::json::parse(fit(table, "auto", {.table_rows = table_rows}).report);
    return report["candidates"].back()["payload_ratio"].get<double>();
  };
  CHECK(invariant_ratio(201) < invariant_ratio(400));
  CHECK(invariant_ratio(400) < invariant_ratio(20000));
  CHECK(invariant_ratio(0) >= invariant_ratio(20000));
}

TEST_CASE("random bytes are stored raw") {
  Table table = make_table(NCAST_FLOAT32, 128, 500, 7, 3);
  CHECK(fit(table, "auto").model.uncoded());
}

TEST_CASE("a few rows with other constant bits do not spoil the trim") {
  Table table = make_table(NCAST_FLOAT32, 128, 500, 4, 3);
  table.bytes[4000] |= 1;
  const store::RowFit fitted = fit(table, "trim+window");
  CHECK(payload_bytes(fitted.model, table) < table.bytes.size() * 7 / 10);
}

TEST_CASE("stages before invariant save bits in sparse rows, and dense ones are not all raw") {
  // Columns share their upper 20 bits; half of the elements are 0.
  Table sparse = make_table(NCAST_UINT32, 64, 300, 7, 4);
  Random random(5);
  for (size_t at = 0; at < sparse.bytes.size(); at += 4) {
    uint32_t value = static_cast<uint32_t>(at % 256 * 0x9e3779b9) & ~0xfffu;
    value = random.chance(0.5) ? value | (static_cast<uint32_t>(random.bits()) & 0xfff) : 0;
    std::memcpy(&sparse.bytes[at], &value, 4);
  }
  CHECK(payload_bytes(fit(sparse, "zeros+trim+invariant").model, sparse) <
        payload_bytes(fit(sparse, "invariant").model, sparse) * 6 / 10);
  CHECK(fit(sparse, "auto").model.text().find("+invariant") != std::string::npos);
  Table dense = make_table(NCAST_BFLOAT16, 256, 300, 0, 6);
  const store::RowModel model = fit(dense, "zeros+trim+invariant").model;
  CHECK(payload_bytes(model, dense) < dense.count * model.bound());
  CHECK(fit(dense, "auto").report.find("+invariant") == std::string::npos);  // not tried
}

TEST_CASE("clusters separate rows of different kinds") {
  Table table = make_table(NCAST_UINT32, 32, 400, 5, 9);
  const uint64_t one = payload_bytes(fit(table, "invariant:chunk=4,clusters=1").model, table);
  const uint64_t four = payload_bytes(fit(table, "invariant:chunk=4,clusters=4").model, table);
  CHECK(four < one * 9 / 10);
}

TEST_CASE("messages about codecs say what is wrong") {
  Table table = make_table(NCAST_INT32, 5, 4, 0, 1);
  CHECK(problem_of(table, "windw") ==
        "codec 'windw': 'windw' is not a stage or coder of rows (known: auto, zeros, trim, raw, plain, window, "
        "invariant)");
  CHECK(problem_of(table, "window") == "window does not support int32");
  CHECK(problem_of(table, "trim+zeros") == "codec 'trim+zeros': zeros must be the first stage, once");
  CHECK(problem_of(table, "zeros+raw") == "codec 'zeros+raw': no stage can precede raw");
  CHECK(problem_of(table, "invariant:chunk=3") == "codec 'invariant:chunk=3': chunk is '3', not 1, 2, 4 or 8");
  CHECK(problem_of(table, "invariant:chunk=8") == "rows of 20 bytes do not consist of chunks of 8");
  CHECK(problem_of(table, "trim:k=1") == "codec 'trim:k=1': plain has no parameter 'k'");
  CHECK(problem_of(table, "invariant:chunk=4,chunk=4") == "codec 'invariant:chunk=4,chunk=4': chunk is given twice");
  CHECK(problem_of(table, "trim+trim") == "codec 'trim+trim': trim is given twice");
  CHECK(problem_of(table, "trim:") == "codec 'trim:': '' is not key=value");
  CHECK(problem_of(table, "trim+").find("codec 'trim+': '' is not a stage or coder of rows") == 0);
  CHECK(problem_of(table, "") != "");
  table.count = 0;
  CHECK(problem_of(table, "auto") == "a codec cannot be fitted to a table without rows");
}

TEST_CASE("the stride holds most rows, and the rest overflow") {
  std::vector<uint32_t> sizes(1000, 356);
  for (size_t i = 0; i < 10; ++i) sizes[i] = 516;
  const store::StridePlan plan = store::best_stride(sizes, 516);
  CHECK(plan.stride_bytes == 384);
  CHECK(plan.overflow_rows == 10);
  CHECK(plan.stored_row_bytes == doctest::Approx(384 + 0.01 * 544));
}

TEST_CASE("slots are preferred unless payloads end to end store and fetch 5% less") {
  const auto is_packed = [](const std::vector<uint32_t>& sizes, size_t bound) {
    return store::is_worth_packing(store::packed_plan(sizes), store::best_stride(sizes, bound));
  };
  CHECK_FALSE(is_packed(std::vector<uint32_t>(1000, 356), 516));  // 372 against 384
  CHECK(is_packed(std::vector<uint32_t>(1000, 8), 132));          // 20 against 32, of one line each
  std::vector<uint32_t> sizes(1000);
  for (uint32_t i = 0; i < sizes.size(); ++i) sizes[i] = 4 * (i + 1);
  CHECK(is_packed(sizes, 5000));
  // Short payloads would straddle lines: 100 against 128, but of 13 lines in 8 rows.
  CHECK_FALSE(is_packed(std::vector<uint32_t>(1000, 92), 132));
  CHECK(store::packed_plan(std::vector<uint32_t>(1000, 92)).fetched_row_bytes == 128 * 13 / 8.0);
  // What GPUs fetch at once is what 99% of the payloads need.
  std::vector<uint32_t> most(1000, 16);
  std::fill_n(most.begin(), 9, 400);
  CHECK(store::packed_plan(most).fetched_row_bytes == 128);
  most[9] = 400;
  CHECK(store::packed_plan(most).fetched_row_bytes == 128 * 4);
}

TEST_CASE("auto fits a codec with payloads if they are to be packed") {
  Table table = make_table(NCAST_FLOAT32, 128, 6000, 7, 3);  // random bytes
  CHECK(fit(table, "auto", {.layout = store::FitOptions::Layout::packed}).model.text() == "plain");
  CHECK(problem_of(table, "raw", {.layout = store::FitOptions::Layout::packed}) ==
        "the layout packed needs payloads, and raw rows are none: the codec plain stores such rows");
}

}  // namespace narrowcast::tests
