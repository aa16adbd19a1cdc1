// The choice of codec and layout.
#include <algorithm>
#include <cstring>
#include <optional>

#include "codec/codec.h"
#include "nlohmann/json.hpp"
#include "status/error.h"
#include "store/build/builder.h"
#include "store/file/header.h"

namespace narrowcast::store {
namespace {

constexpr uint64_t frame_raw_bytes = 256u << 10;         // of layout blocks
constexpr uint64_t most_spare_bytes = 16u << 20;         // of the default
constexpr uint64_t least_spare = 16, most_spare = 1024;  // of the default

constexpr const char* asked_for = "asked for";

Sample sample_of(const RowBlock& rows, uint64_t row_bytes) {
  Sample sample{row_bytes, rows.count, std::vector<uint8_t>(rows.count * row_bytes)};
  for (uint64_t i = 0; i < rows.count; ++i)
    std::memcpy(sample.rows.data() + i * row_bytes, rows.rows + i * rows.stride, row_bytes);
  return sample;
}

uint64_t default_spare(uint64_t entry_stride) {
  return std::clamp(most_spare_bytes / entry_stride, least_spare, most_spare);
}

ncast_status plan_blocks(const BuildOptions& options, TablePlan* plan) {
  if (options.spare > 0 || options.capacity > options.rows) {
    return fail(NCAST_UNSUPPORTED, "%s: rows %s, which is read-only: it has no capacity and no spare", builder_function,
                options.layout == NCAST_STORE_BLOCKS ? "have the layout blocks"
                                                     : "over 64 KiB and single values have the layout blocks");
  }
  if (options.codec == "auto")
    plan->codec = codec::canonical(codec::effective_codec(options.dtype, NCAST_CODEC_WINDOW));
  else if (ncast_status status = ncast_codec_parse(options.codec.c_str(), &plan->codec))
    return status;
  if (plan->codec == NCAST_CODEC_AUTO || !codec::is_exact(plan->codec))
    return fail(NCAST_UNSUPPORTED, "%s: the codec %s is not exact", builder_function, options.codec.c_str());
  plan->codec = codec::canonical(codec::effective_codec(options.dtype, plan->codec));
  plan->codec_text = codec::describe(plan->codec);
  plan->header.layout = file::blocks_layout;
  plan->header.stride = frame_raw_bytes / ncast_dtype_bytes(options.dtype);

  plan->layout_reason = options.layout == NCAST_STORE_BLOCKS ? asked_for
                        : plan->header.row_rank == 0         ? "a row is a single value"
                                                             : "a row has more than 64 KiB";
  const char* const reason = options.codec != "auto"          ? asked_for
                             : plan->codec == NCAST_CODEC_RAW ? "window does not support the type"
                                                              : "no other codec is tried for blocks";
  plan->fit = nlohmann::ordered_json{{"codec", plan->codec_text},
                                     {"reason", reason},
                                     {"sampled_rows", 0},
                                     {"row_bytes", file::row_bytes_of(plan->header)},
                                     {"candidates", nlohmann::ordered_json::array()}}
                  .dump();
  return NCAST_OK;
}

// Of rows with payloads, if the layout is the library's choice.
std::string layout_reason(const PackedPlan& packed, const StridePlan& stride, uint64_t row_bytes) {
  const auto text = [&](double stored, double fetched) {
    const auto raw = static_cast<double>(row_bytes);
    return "store " + ratio_text(stored / raw) + " of the raw bytes, and GPUs fetch " + ratio_text(fetched / raw);
  };
  const std::string end_to_end = "payloads end to end " + text(packed.stored_row_bytes, packed.fetched_row_bytes);
  const std::string slots = "slots " + text(stride.stored_row_bytes, stride.fetched_row_bytes);
  return is_worth_packing(packed, stride) ? end_to_end + "; " + slots
                                          : slots + "; " + end_to_end + ", not 5% less in all";
}

}  // namespace

ncast_status plan_table(const BuildOptions& options, const RowBlock& sample, TablePlan* plan) {
  file::Header& header = plan->header;
  header.dtype = static_cast<uint8_t>(options.dtype);
  header.row_rank = static_cast<uint8_t>(options.row_shape.size());
  std::ranges::copy(options.row_shape, header.row_shape);
  const uint64_t row_bytes = file::row_bytes_of(header);
  const bool blocks = options.layout == NCAST_STORE_BLOCKS || (options.layout == NCAST_STORE_AUTO_LAYOUT &&
                                                               (header.row_rank == 0 || row_bytes > max_row_bytes));
  if (blocks) return plan_blocks(options, plan);
  if (row_bytes > max_row_bytes) {
    return fail(NCAST_UNSUPPORTED, "%s: rows of %llu bytes need the layout blocks: others have at most %llu",
                builder_function, static_cast<unsigned long long>(row_bytes),
                static_cast<unsigned long long>(max_row_bytes));
  }

  FitOptions fit_options;
  fit_options.table_rows = options.rows;
  fit_options.threads = options.threads;
  if (options.layout == NCAST_STORE_STRIDE) fit_options.layout = FitOptions::Layout::stride;
  if (options.layout == NCAST_STORE_PACKED) fit_options.layout = FitOptions::Layout::packed;
  std::string problem;
  const RowShape shape{options.dtype, header.row_elems()};
  std::optional<RowFit> fit = fit_rows(shape, sample_of(sample, row_bytes), options.codec, fit_options, &problem);
  if (!fit) return fail(NCAST_INVALID_ARGUMENT, "%s: %s", builder_function, problem.c_str());
  plan->model = std::make_shared<const RowModel>(fit->model);
  plan->codec_text = fit->model.text();
  plan->fit = fit->report;

  header.uncoded = fit->model.uncoded() ? 1 : 0;
  header.entry_stride = file::aligned(header.uncoded != 0 ? row_bytes : row_bytes + header_bytes, file::slot_align);
  header.spare = options.spare >= 0 ? static_cast<uint64_t>(options.spare) : default_spare(header.entry_stride);
  header.capacity = options.capacity;
  if (header.uncoded != 0) {
    header.layout = file::stride_layout;
    header.stride = row_bytes;
    plan->layout_reason = options.layout == NCAST_STORE_STRIDE ? asked_for : "raw rows have one size";
    return NCAST_OK;
  }
  const StridePlan stride = best_stride(fit->payload_bytes, fit->model.bound());
  const PackedPlan packed = packed_plan(fit->payload_bytes);
  const bool is_chosen = options.layout == NCAST_STORE_AUTO_LAYOUT;
  plan->layout_reason = is_chosen ? layout_reason(packed, stride, row_bytes) : asked_for;
  if (is_chosen ? is_worth_packing(packed, stride) : options.layout == NCAST_STORE_PACKED) {
    header.layout = file::packed_layout;
    // Offsets of 32 bits must reach the end of the longest possible payloads.
    const uint64_t most_rows = std::max(options.rows, options.capacity);
    header.unit = packed_unit_bytes;
    while (header.unit < file::page_bytes &&
           most_rows * file::aligned(fit->model.bound(), header.unit) / header.unit > UINT32_MAX)
      header.unit *= 2;
  } else {
    header.layout = file::stride_layout;
    header.stride = stride.stride_bytes;
  }
  return NCAST_OK;
}

}  // namespace narrowcast::store
