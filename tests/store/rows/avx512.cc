// The encoders with AVX-512 write the reference's bytes: with emulated instructions, so that this is tested on every
// CPU. round_trip.cc and others test them with the real ones.
#include "store/rows/emulated_avx512.h"
// After the instructions.
#include "doctest/doctest.h"
#include "store/rows/extract.h"
#include "store/rows/invariant_avx512.h"
#include "store/rows/window_avx512.h"
#include "store/rows/zero_map_avx512.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

using store::Model;

// The payload of the reference; empty for a raw row.
Bytes expected_of(const store::RowModel& model, const uint8_t* row) {
  Bytes payload(model.bound());
  payload.resize(store::reference.encode(model.model(), row, payload.data()));
  return payload;
}

void require_window(const store::RowModel& model, const uint8_t* row) {
  const Model& fitted = model.model();
  const auto encode = store::window::encoder_of(fitted.shape.dtype, fitted.trim.low_bits != 0);
  const Bytes expected = expected_of(model, row);
  const size_t room = store::aligned4(fitted.shape.row_bytes());
  Guarded payload(model.bound());
  uint32_t header = 0;
  const size_t bytes = encode(fitted, row, fitted.shape.elems, payload.data() + 4, room, &header);
  REQUIRE(payload.intact());
  REQUIRE((bytes < room ? bytes + 4 : 0) == expected.size());
  if (bytes >= room) return;
  std::memcpy(payload.data(), &header, sizeof header);
  REQUIRE(payload.copy(expected.size()) == expected);
}

void require_invariant(const store::RowModel& model, const uint8_t* row) {
  const Bytes expected = expected_of(model, row);
  Guarded payload(model.bound());
  const size_t bytes = store::encode_invariant<store::Portable>(model.model(), row, payload.data());
  REQUIRE(payload.intact());
  REQUIRE(payload.copy(bytes) == expected);
}

template <typename Elem>
void require_same_zeros(const uint8_t* row, size_t elems) {
  const size_t map_bytes = (elems + 31) / 32 * 4, row_bytes = elems * sizeof(Elem);
  Bytes map(map_bytes + 8), found_map = map;
  Bytes present(row_bytes + store::present_slack), found = present;
  const size_t count = store::split_zeros<Elem>(row, elems, map.data(), present.data());
  const Exact exact({row, row_bytes});
  REQUIRE(store::split_zeros_512<Elem>(exact.data(), elems, found_map.data(), found.data()) == count);
  map.resize(map_bytes), found_map.resize(map_bytes);
  REQUIRE(found_map == map);
  present.resize(count * sizeof(Elem)), found.resize(count * sizeof(Elem));
  REQUIRE(found == present);
}

}  // namespace

TEST_CASE("encoders with emulated AVX-512 write the reference's bytes") {
  constexpr uint64_t lengths[] = {1,   31,  32,  33,  64,   96,   100,  128,  160,
                                  255, 256, 500, 512, 1024, 1025, 1056, 1433, 3000};
  uint64_t seed = 0;
  for (const ncast_dtype dtype : all_dtypes)
    for (size_t kind = 0; kind < table_kinds.size(); ++kind) {
      const uint64_t elems = lengths[++seed * 7 % std::size(lengths)];
      if (sanitized && seed % 5 != 0) continue;
      Table table = make_table(dtype, elems, 3, kind, seed);
      // Most of these rows do not follow the model.
      Table others = make_table(dtype, elems, 2, (kind + 1) % table_kinds.size(), seed + 1000);
      for (const std::string& codec : codecs_of(table.shape)) {
        INFO(ncast_dtype_name(dtype), ", ", table_kinds[kind], ", ", elems, " values, ", codec, ", seed ", seed);
        const store::RowModel model = fit(table, codec).model;
        const Model& fitted = model.model();
        const bool is_window = fitted.coder == store::Coder::WINDOW && !fitted.has_zeros &&
                               store::window::encoder_of(dtype, false) != nullptr;
        for (const Table* each : std::initializer_list<const Table*>{&table, &others})
          for (uint64_t row = 0; row < each->count; ++row) {
            if (is_window) require_window(model, each->row(row));
            if (fitted.coder == store::Coder::INVARIANT) require_invariant(model, each->row(row));
          }
      }
      for (uint64_t row = 0; row < table.count; ++row) {
        const size_t bytes = table.shape.row_bytes();
        require_same_zeros<uint8_t>(table.row(row), bytes);
        if (bytes >= 2) require_same_zeros<uint16_t>(table.row(row), bytes / 2);
        if (bytes >= 4) require_same_zeros<uint32_t>(table.row(row), bytes / 4);
        if (bytes >= 8) require_same_zeros<uint64_t>(table.row(row), bytes / 8);
      }
    }
}

TEST_CASE("emulated AVX-512 chooses among clusters with and without whole masks") {
  std::mt19937_64 random(1);
  for (const uint32_t chunk_bytes : {1u, 2u, 4u, 8u})
    for (const size_t chunks : {5u, 128u, 700u}) {
      Model model;
      model.shape = {NCAST_UINT8, chunks * chunk_bytes};
      model.coder = store::Coder::INVARIANT;
      model.chunk_bytes = chunk_bytes;
      model.clusters = 4;
      const size_t row_bytes = model.shape.row_bytes();
      for (size_t i = 0; i < model.clusters * row_bytes; ++i) {
        const bool is_whole = i / row_bytes % 2 == 1;
        model.masks.push_back(is_whole ? 0xff : static_cast<uint8_t>(random() | random()));
        model.values.push_back(static_cast<uint8_t>(random() & model.masks.back()));
      }
      store::find_whole_masks(model);
      for (uint32_t cluster = 0; cluster < model.clusters; ++cluster)
        REQUIRE(model.is_whole(cluster) == (cluster % 2 == 1));
      const store::RowModel row_model(std::make_shared<const Model>(model));
      for (size_t row = 0; row < 40; ++row) {
        // Chunks of the clusters row % 4 and row / 4 % 4, and others: which cluster saves most bits depends on chance.
        Bytes bytes(row_bytes);
        for (size_t chunk = 0; chunk < chunks; ++chunk) {
          const uint64_t kind = random() % 5, cluster = kind < 2 ? row % 4 : row / 4 % 4;
          for (size_t i = 0; i < chunk_bytes; ++i) {
            const size_t at = chunk * chunk_bytes + i, of_cluster = cluster * row_bytes + at;
            bytes[at] = static_cast<uint8_t>(random());
            if (kind != 4)
              bytes[at] = static_cast<uint8_t>((bytes[at] & ~model.masks[of_cluster]) | model.values[of_cluster]);
          }
        }
        INFO("chunks of ", chunk_bytes, " bytes, ", chunks, " of them, row ", row);
        require_invariant(row_model, bytes.data());
      }
    }
}

}  // namespace narrowcast::tests
