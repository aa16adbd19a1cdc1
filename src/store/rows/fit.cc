#include "store/rows/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "nlohmann/json.hpp"
#include "store/rows/codec_text.h"
#include "store/rows/fit_invariant.h"
#include "store/rows/fit_trim.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

// What `auto` tries, the cheapest to decode first.
constexpr const char* candidates[] = {
    "raw", "trim", "window", "trim+window", "zeros+trim", "zeros+trim+window", "invariant:clusters=1", "invariant"};
// `auto` takes the first candidate that is at most this much larger than the smallest.
constexpr double tolerance = 1.005;
constexpr uint64_t least_halved_rows = 64;

// The rows with even or odd numbers.
Sample half_of(const Sample& sample, uint64_t first) {
  Sample half{sample.row_bytes, 0, {}};
  half.rows.reserve(sample.rows.size() / 2 + sample.row_bytes);
  for (uint64_t row = first; row < sample.count; row += 2, ++half.count)
    half.rows.insert(half.rows.end(), sample.row(row), sample.row(row) + sample.row_bytes);
  return half;
}

// Why a codec cannot encode rows of this shape, or "".
std::string problem_of(const RowShape& shape, const RowCodec& codec) {
  if (codec.coder == Coder::WINDOW && !window_allows(shape.dtype, 0))
    return std::string("window does not support ") + ncast_dtype_name(shape.dtype);
  if (codec.coder == Coder::INVARIANT && codec.chunk_bytes != 0 && shape.row_bytes() % codec.chunk_bytes != 0)
    return "rows of " + std::to_string(shape.row_bytes()) + " bytes do not consist of chunks of " +
           std::to_string(codec.chunk_bytes);
  return "";
}

Model fit_model(const RowShape& shape, const RowCodec& codec, const Sample& sample, int threads) {
  Model model;
  model.shape = shape;
  model.coder = codec.coder;
  model.has_zeros = codec.has_zeros;
  model.has_trim = codec.has_trim;
  if (model.has_trim) fit_trim(sample, model);
  if (model.coder == Coder::INVARIANT) fit_invariant(sample, codec.chunk_bytes, codec.clusters, threads, model);
  return model;
}

struct Candidate {
  RowModel model;
  std::vector<uint32_t> payload_bytes;
  double average;  // payload bytes
  double stride;   // stored bytes in the layout
  double packed;
  double score;
};

Candidate evaluate(const Sample& sample, RowModel model, FitOptions::Layout layout) {
  Candidate candidate{std::move(model), {}, 0, 0, 0, 0};
  std::vector<uint8_t> payload(candidate.model.bound());
  candidate.payload_bytes.reserve(sample.count);
  uint64_t total = 0;
  for (uint64_t row = 0; row < sample.count; ++row) {
    candidate.payload_bytes.push_back(static_cast<uint32_t>(candidate.model.encode(sample.row(row), payload.data())));
    total += candidate.payload_bytes.back();
  }
  bool is_packed = layout == FitOptions::Layout::packed;
  if (candidate.model.uncoded()) {
    // Rows without header words.
    candidate.average = candidate.stride = candidate.packed = static_cast<double>(sample.row_bytes);
  } else {
    const StridePlan stride = best_stride(candidate.payload_bytes, candidate.model.bound());
    const PackedPlan packed = packed_plan(candidate.payload_bytes);
    candidate.average = static_cast<double>(total) / static_cast<double>(sample.count);
    candidate.stride = stride.stored_row_bytes;
    candidate.packed = packed.stored_row_bytes;
    if (layout == FitOptions::Layout::automatic) is_packed = is_worth_packing(packed, stride);
  }
  candidate.score = is_packed ? candidate.packed : candidate.stride;
  return candidate;
}

// What the model of a codec needs for the table if it is fitted to the whole sample, from what one that was fitted to
// half of it needs for the rows of this half and of the other. A model that is fitted to twice as many rows suits them
// half as much better than it suits others. `seen` is the part of the table that is in the sample.
Candidate predict(Candidate fitted, const Candidate& other, double seen) {
  // seen x (3/4 fitted + 1/4 other) + (1 - seen) x (1/4 fitted + 3/4 other)
  const double weight = 0.25 + seen / 2;
  const auto mix = [&](double& of_fitted, double of_other) {
    of_fitted = weight * of_fitted + (1 - weight) * of_other;
  };
  mix(fitted.average, other.average);
  mix(fitted.stride, other.stride);
  mix(fitted.packed, other.packed);
  mix(fitted.score, other.score);
  return fitted;
}

std::string reason_for(const std::vector<Candidate>& fitted, const Candidate& chosen, double least, double row_bytes) {
  const std::string ratio = "stores " + ratio_text(chosen.score / row_bytes) + " of the raw bytes";
  if (fitted.size() == 1) return "asked for";
  if (chosen.model.uncoded()) {
    double packed = row_bytes;
    for (const Candidate& candidate : fitted) packed = std::min(packed, candidate.packed);
    const std::string none = "no other codec saves more than 0.5%";
    return packed * tolerance < row_bytes
               ? none + " in slots; end to end, the smallest payloads store " + ratio_text(packed / row_bytes)
               : none;
  }
  if (chosen.score > least) return ratio + ", within 0.5% of the smallest, and decodes faster";
  return ratio + ", the least";
}

std::string report_of(const std::vector<Candidate>& fitted, const Candidate& chosen, const Sample& sample,
                      const std::string& reason) {
  const auto row_bytes = static_cast<double>(sample.row_bytes);
  nlohmann::ordered_json report;
  report["codec"] = chosen.model.text();
  report["reason"] = reason;
  report["sampled_rows"] = sample.count;
  report["row_bytes"] = sample.row_bytes;
  auto& list = report["candidates"] = nlohmann::ordered_json::array();
  for (const Candidate& candidate : fitted) {
    const auto rounded = [&](double bytes) { return std::stod(ratio_text(bytes / row_bytes)); };
    list.push_back({{"codec", candidate.model.text()},
                    {"payload_ratio", rounded(candidate.average)},
                    {"stride_ratio", rounded(candidate.stride)},
                    {"packed_ratio", rounded(candidate.packed)}});
  }
  return report.dump();
}

}  // namespace

std::string ratio_text(double ratio) {
  const auto thousandths = static_cast<uint64_t>(std::llround(ratio * 1000));
  std::string text = std::to_string(thousandths % 1000);
  text.insert(0, 3 - text.size(), '0');
  return std::to_string(thousandths / 1000) + "." + text;
}

std::optional<RowFit> fit_rows(const RowShape& shape, const Sample& sample, std::string_view codec,
                               const FitOptions& options, std::string* problem) {
  Model raw;
  raw.shape = shape;
  *problem = store::problem_of(raw);
  if (problem->empty() && sample.count == 0) *problem = "a codec cannot be fitted to a table without rows";
  if (!problem->empty()) return std::nullopt;

  std::vector<RowCodec> wanted;
  if (codec == "auto") {
    for (const char* candidate : candidates) {
      // Rows without header words have no payloads to pack; `plain` alone stores raw rows with one.
      const bool is_raw = candidate == std::string_view("raw"), packed = options.layout == FitOptions::Layout::packed;
      const std::optional<RowCodec> parsed = parse_row_codec(is_raw && packed ? "plain" : candidate, problem);
      if (parsed && problem_of(shape, *parsed).empty()) wanted.push_back(*parsed);
    }
  } else {
    const std::optional<RowCodec> parsed = parse_row_codec(codec, problem);
    if (!parsed) return std::nullopt;
    *problem = problem_of(shape, *parsed);
    if (problem->empty() && parsed->coder == Coder::RAW && options.layout == FitOptions::Layout::packed)
      *problem = "the layout packed needs payloads, and raw rows are none: the codec plain stores such rows";
    if (!problem->empty()) return std::nullopt;
    wanted.push_back(*parsed);
  }

  const double seen = options.table_rows == 0
                          ? 0
                          : std::min(1.0, static_cast<double>(sample.count) / static_cast<double>(options.table_rows));
  // Models suit the rows that they are fitted to better than others: masks of many clusters above all. There are no
  // others if the sample is the table.
  const bool halved = wanted.size() > 1 && sample.count >= least_halved_rows && seen < 1;
  const std::array<Sample, 2> halves =
      halved ? std::array{half_of(sample, 0), half_of(sample, 1)} : std::array<Sample, 2>{};
  std::vector<std::unique_ptr<Candidate>> found(wanted.size());
  threads::for_each(wanted.size(), threads::count_of(options.threads), [&](size_t i) {
    const auto fit_to = [&](const Sample& some) {
      return RowModel(std::make_shared<const Model>(fit_model(shape, wanted[i], some, options.threads)));
    };
    if (!halved) {
      found[i] = std::make_unique<Candidate>(evaluate(sample, fit_to(sample), options.layout));
      return;
    }
    const RowModel model = fit_to(halves[0]);
    found[i] = std::make_unique<Candidate>(
        predict(evaluate(halves[0], model, options.layout), evaluate(halves[1], model, options.layout), seen));
  });
  std::vector<Candidate> fitted;
  fitted.reserve(found.size());
  for (const std::unique_ptr<Candidate>& one : found) fitted.push_back(std::move(*one));
  double least = fitted.front().score;
  for (const Candidate& candidate : fitted) least = std::min(least, candidate.score);
  const auto chosen = std::find_if(fitted.begin(), fitted.end(),
                                   [&](const Candidate& candidate) { return candidate.score <= least * tolerance; });
  const std::string reason = reason_for(fitted, *chosen, least, static_cast<double>(sample.row_bytes));
  const RowCodec& codec_chosen = wanted[static_cast<size_t>(chosen - fitted.begin())];
  Candidate result =
      halved
          ? evaluate(sample,
                     RowModel(std::make_shared<const Model>(fit_model(shape, codec_chosen, sample, options.threads))),
                     options.layout)
          : *chosen;
  return RowFit{std::move(result.model), std::move(result.payload_bytes), report_of(fitted, *chosen, sample, reason)};
}

}  // namespace narrowcast::store
