#include "store/rows/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

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
// The best of these follows if its stages can save bits and its payloads are at most this much larger than the least,
// also with several clusters if they save more. Some rows show which is the best, as evaluating each on all takes long.
// GPUs decode them up to 20 times slower than `zeros+trim`, so they must save an eighth.
constexpr const char* staged_candidates[] = {"trim+invariant:clusters=1", "zeros+invariant:clusters=1",
                                             "zeros+trim+invariant:clusters=1"};
constexpr double staged_limit = 1.1, staged_saving = 1.0 / 8;
constexpr uint64_t compared_rows = 512;
// `auto` takes the first candidate that is at most this much larger than the smallest.
constexpr double tolerance = 1.005;
constexpr uint64_t least_halved_rows = 64;

// Every `step`th row.
Sample part_of(const Sample& sample, uint64_t first, uint64_t step) {
  Sample part{sample.row_bytes, 0, {}};
  part.rows.reserve((sample.count / step + 1) * sample.row_bytes);
  for (uint64_t row = first; row < sample.count; row += step, ++part.count)
    part.rows.insert(part.rows.end(), sample.row(row), sample.row(row) + sample.row_bytes);
  return part;
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

// A model without what only the coder needs.
Model fit_stages(const RowShape& shape, const RowCodec& codec, const Sample& sample) {
  Model model;
  model.shape = shape;
  model.coder = codec.coder;
  model.has_zeros = codec.has_zeros;
  model.has_trim = codec.has_trim;
  if (model.has_trim) fit_trim(sample, model);
  return model;
}

RowModel fit_coder(Model model, const RowCodec& codec, const Sample& sample, int threads) {
  if (model.coder == Coder::INVARIANT) fit_invariant(sample, codec.chunk_bytes, codec.clusters, threads, model);
  return RowModel(std::make_shared<const Model>(std::move(model)));
}

struct Candidate {
  RowCodec codec;
  RowModel model;
  std::vector<uint32_t> payload_bytes;
  double average;  // payload bytes
  double stride;   // stored bytes in the layout
  double packed;
  double score;
};

Candidate evaluate(const Sample& sample, const RowCodec& codec, RowModel model, FitOptions::Layout layout) {
  Candidate candidate{codec, std::move(model), {}, 0, 0, 0, 0};
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
// half as much better than it suits others.
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

// Fits codecs to a sample, and says what they need for the table.
class Trials {
 public:
  // is_choice: there are several codecs.
  Trials(const RowShape& shape, const Sample& sample, const FitOptions& options, bool is_choice)
      : shape_(shape), sample_(sample), options_(options) {
    if (options.table_rows != 0)
      seen_ = std::min(1.0, static_cast<double>(sample.count) / static_cast<double>(options.table_rows));
    // Models suit the rows that they are fitted to better than others: masks of many clusters above all. There are no
    // others if the sample is the table.
    is_halved_ = is_choice && sample.count >= least_halved_rows && seen_ < 1;
    if (is_halved_) halves_ = {part_of(sample, 0, 2), part_of(sample, 1, 2)};
  }

  const std::vector<Candidate>& fitted() const { return fitted_; }

  // Fits codecs at the same time.
  void add(const std::vector<RowCodec>& codecs) {
    std::vector<std::unique_ptr<Candidate>> found(codecs.size());
    threads::for_each(codecs.size(), threads::count_of(options_.threads), [&](size_t i) {
      found[i] = std::make_unique<Candidate>(expected(codecs[i], fit_to(fitted_rows(), codecs[i])));
    });
    for (std::unique_ptr<Candidate>& one : found) fitted_.push_back(std::move(*one));
  }
  // Adds the best of these codecs with one cluster, and the same with more if it is better, unless the candidates are
  // much better.
  void add_best(const std::vector<RowCodec>& codecs) {
    const Sample& others = is_halved_ ? halves_[1] : sample_;
    const Sample compared = part_of(others, 0, others.count / compared_rows + 1);
    std::vector<std::unique_ptr<Candidate>> found(codecs.size());
    const auto compare = [&](const RowCodec& codec) {
      return std::make_unique<Candidate>(evaluate(compared, codec, fit_to(fitted_rows(), codec), options_.layout));
    };
    threads::for_each(codecs.size(), threads::count_of(options_.threads), [&](size_t i) {
      if (codecs[i].has_trim && fit_stages(shape_, codecs[i], compared).trim == Trim{}) return;  // the same without it
      found[i] = compare(codecs[i]);
    });
    std::unique_ptr<Candidate> best;
    for (std::unique_ptr<Candidate>& one : found)
      if (one != nullptr && (best == nullptr || one->average * tolerance < best->average)) best = std::move(one);
    const double least = std::ranges::min(fitted_, {}, &Candidate::average).average;
    if (best == nullptr || best->average > least * staged_limit) return;
    RowCodec several = best->codec;
    several.chunk_bytes = best->model.model().chunk_bytes;
    several.clusters = tried_clusters;
    const std::unique_ptr<Candidate> clustered = compare(several);
    fitted_.push_back(expected(best->codec, best->model));
    if (clustered->average < best->average) fitted_.push_back(expected(clustered->codec, clustered->model));
  }

  // The candidate fitted to the whole sample.
  Candidate finish(const Candidate& chosen) const {
    return is_halved_ ? evaluate(sample_, chosen.codec, fit_to(sample_, chosen.codec), options_.layout) : chosen;
  }

 private:
  const Sample& fitted_rows() const { return is_halved_ ? halves_[0] : sample_; }
  RowModel fit_to(const Sample& sample, const RowCodec& codec) const {
    return fit_coder(fit_stages(shape_, codec, sample), codec, sample, options_.threads);
  }
  Candidate expected(const RowCodec& codec, const RowModel& fitted) const {
    Candidate candidate = evaluate(fitted_rows(), codec, fitted, options_.layout);
    if (!is_halved_) return candidate;
    return predict(std::move(candidate), evaluate(halves_[1], codec, fitted, options_.layout), seen_);
  }

  const RowShape& shape_;
  const Sample& sample_;
  const FitOptions& options_;
  double seen_ = 0;  // the part of the table that is in the sample
  bool is_halved_ = false;
  std::array<Sample, 2> halves_{};
  std::vector<Candidate> fitted_;
};

// What `auto` compares.
void try_all(const RowShape& shape, const Sample& sample, bool is_packed, Trials& trials) {
  const auto parsed = [&](std::span<const char* const> codecs) {
    std::vector<RowCodec> found;
    std::string problem;
    for (const std::string_view codec : codecs) {
      // Rows without header words have no payloads to pack; `plain` alone stores raw rows with one.
      const std::optional<RowCodec> one = parse_row_codec(codec == "raw" && is_packed ? "plain" : codec, &problem);
      if (one && problem_of(shape, *one).empty()) found.push_back(*one);
    }
    return found;
  };
  trials.add(parsed(candidates));
  std::vector<RowCodec> staged = parsed(staged_candidates);
  if (!zero_map_can_save(sample)) std::erase_if(staged, [](const RowCodec& codec) { return codec.has_zeros; });
  trials.add_best(staged);
}

bool is_staged(const Candidate& candidate) {
  return candidate.codec.coder == Coder::INVARIANT && (candidate.codec.has_zeros || candidate.codec.has_trim);
}

// The first candidate that is about as small as any. Those with stages in front of `invariant` must be much smaller.
const Candidate& choose(const std::vector<Candidate>& fitted) {
  double least = std::numeric_limits<double>::infinity();  // of the others
  for (const Candidate& one : fitted)
    if (!is_staged(one)) least = std::min(least, one.score);
  const double staged_most = least * (1 - staged_saving);
  const auto can_be_chosen = [&](const Candidate& one) { return !is_staged(one) || one.score <= staged_most; };
  for (const Candidate& one : fitted)
    if (can_be_chosen(one)) least = std::min(least, one.score);
  return *std::ranges::find_if(
      fitted, [&](const Candidate& one) { return can_be_chosen(one) && one.score <= least * tolerance; });
}

std::string reason_for(const std::vector<Candidate>& fitted, const Candidate& chosen, double row_bytes) {
  const std::string ratio = "stores " + ratio_text(chosen.score / row_bytes) + " of the raw bytes";
  if (fitted.size() == 1) return "asked for";
  const Candidate& least = *std::ranges::min_element(fitted, {}, &Candidate::score);
  if (chosen.score > least.score * tolerance)
    return ratio + ", and GPUs decode it much faster than " + least.model.text() + ", which stores " +
           ratio_text(least.score / row_bytes);
  if (chosen.model.uncoded()) {
    double packed = row_bytes;
    for (const Candidate& candidate : fitted) packed = std::min(packed, candidate.packed);
    const std::string none = "no other codec saves more than 0.5%";
    return packed * tolerance < row_bytes
               ? none + " in slots; end to end, the smallest payloads store " + ratio_text(packed / row_bytes)
               : none;
  }
  if (chosen.score > least.score) return ratio + ", within 0.5% of the smallest, and decodes faster";
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

  Trials trials(shape, sample, options, codec == "auto");
  const bool is_packed = options.layout == FitOptions::Layout::packed;
  if (codec == "auto") {
    try_all(shape, sample, is_packed, trials);
  } else {
    const std::optional<RowCodec> parsed = parse_row_codec(codec, problem);
    if (!parsed) return std::nullopt;
    *problem = problem_of(shape, *parsed);
    if (problem->empty() && parsed->coder == Coder::RAW && is_packed)
      *problem = "the layout packed needs payloads, and raw rows are none: the codec plain stores such rows";
    if (!problem->empty()) return std::nullopt;
    trials.add({*parsed});
  }

  const std::vector<Candidate>& fitted = trials.fitted();
  const Candidate& chosen = choose(fitted);
  const std::string reason = reason_for(fitted, chosen, static_cast<double>(sample.row_bytes));
  Candidate result = trials.finish(chosen);
  return RowFit{std::move(result.model), std::move(result.payload_bytes), report_of(fitted, chosen, sample, reason)};
}

}  // namespace narrowcast::store
