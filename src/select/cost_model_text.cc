// Parses the text of a cost model, which docs/guide/tuning.md specifies.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "channel/peer/peers.h"
#include "codec/codec.h"
#include "files/read_file.h"
#include "select/cost_model.h"
#include "status/error.h"

namespace narrowcast::select {

extern const char* const shipped_costs;  // the text of h200.costs (cmake/shipped_costs.cmake)

namespace {

constexpr std::string_view heading = "narrowcast-costs 2 ";
constexpr std::string_view kernels_line = "kernels ";
constexpr std::string_view unknown_kernels = "unknown";
constexpr std::string_view shared_line = "shared_kib ";
constexpr std::string_view network_line = "network_gbps ";
constexpr std::string_view incompressible_suffix = "/incompressible";
constexpr size_t most_text_bytes = size_t{1} << 20;
constexpr int most_world_ranks = 1024;

constexpr Operation measured_operations[] = {Operation::send,       Operation::broadcast,      Operation::reduce,
                                             Operation::gather,     Operation::scatter,        Operation::all_gather,
                                             Operation::all_to_all, Operation::reduce_scatter, Operation::all_reduce};
struct Series {
  size_t candidate;
  Data data;
  std::string plan;  // as in MeasuredCurve
};

std::optional<Series> find_series(std::string_view word) {
  if (is_plan_name(word)) return Series{0, Data::typical, std::string(word)};
  const bool incompressible = word.ends_with(incompressible_suffix);
  if (incompressible) word.remove_suffix(incompressible_suffix.size());
  const auto candidate = find_candidate(word);
  if (!candidate) return std::nullopt;
  return Series{*candidate, incompressible ? Data::incompressible : Data::typical, {}};
}

// Whether the candidate runs on the link.
bool runs_on(const Series& series, Link link) {
  if (!series.plan.empty()) return true;
  return select::runs_on(candidates()[series.candidate], link);
}

// Removes the next word from the line and returns it; empty at the end.
std::string_view next_word(std::string_view* line) {
  const size_t begin = std::min(line->find_first_not_of(' '), line->size());
  const size_t end = std::min(line->find(' ', begin), line->size());
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

template <typename Number>
bool read_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// Returns an error message, or an empty string.
std::string read_point(std::string_view word, const std::vector<Curve::Point>& before, Curve::Point* point) {
  const size_t colon = word.find(':');
  uint64_t bytes = 0;
  if (colon == std::string_view::npos || !read_number(word.substr(0, colon), &bytes) ||
      !read_number(word.substr(colon + 1), &point->microseconds))
    return "'" + std::string(word) + "' is not BYTES:MICROSECONDS";
  if (bytes == 0 || !std::isfinite(point->microseconds) || point->microseconds <= 0)
    return "'" + std::string(word) + "' must be positive";
  point->bytes = static_cast<double>(bytes);
  if (!before.empty() && before.back().bytes >= point->bytes)
    return "the bytes of '" + std::string(word) + "' do not ascend";
  return {};
}

// Returns an error message, or an empty string.
std::string read_curve(std::string_view line, MeasuredCurve* curve) {
  const auto quoted = [](std::string_view word) { return "'" + std::string(word) + "'"; };
  std::string_view word = next_word(&line);
  const auto* const operation =
      std::ranges::find_if(measured_operations, [&](Operation one) { return word == name_of(one); });
  if (operation == std::end(measured_operations)) return quoted(word) + " is not an operation that is measured";
  curve->operation = *operation;

  word = next_word(&line);
  const std::string_view ranks = word;
  word = next_word(&line);
  const auto link = find_link(word);
  const bool is_of_one_level = !link || (!is_between_processes(*link) && *link != Link::two_levels);
  const int most_ranks = is_of_one_level ? channel::max_gpu_ranks : most_world_ranks;
  if (!read_number(ranks, &curve->ranks) || curve->ranks < 2 || curve->ranks > most_ranks)
    return quoted(ranks) + " is not a number of ranks, 2 to " + std::to_string(most_ranks);
  if (!link) return quoted(word) + " is not a link: nvlink, pcie, host, shm, network, gpu_network or two_levels";
  curve->link = *link;

  word = next_word(&line);
  const auto series = find_series(word);
  if (!series) return quoted(word) + " is not a candidate";
  if (!runs_on(*series, *link)) return quoted(word) + " is not a candidate on the link " + name_of(*link);
  curve->candidate = series->candidate;
  curve->plan = series->plan;
  curve->data = series->data;

  for (word = next_word(&line); !word.empty(); word = next_word(&line)) {
    Curve::Point point = {};
    if (std::string wrong = read_point(word, curve->points, &point); !wrong.empty()) return wrong;
    curve->points.push_back(point);
  }
  return curve->points.empty() ? "the curve has no points" : "";
}

// Returns an error message, or an empty string.
std::string read_shared_kib(std::string_view text, uint32_t* shared_bytes) {
  constexpr uint32_t least = least_shared_bytes >> 10, most = most_shared_bytes >> 10;
  uint32_t kib = 0;
  if (!read_number(text, &kib) || kib < least || kib > most)
    return "'" + std::string(text) + "' is not a number of KiB, " + std::to_string(least) + " to " +
           std::to_string(most);
  *shared_bytes = kib << 10;
  return {};
}

// Returns an error message, or an empty string.
std::string read_network_gbps(std::string_view text, double* gbps) {
  if (read_number(text, gbps) && std::isfinite(*gbps) && *gbps > 0) return {};
  return "'" + std::string(text) + "' is not a number of Gbit/s above 0";
}

}  // namespace

const CostModel& CostModel::shipped() {
  static const CostModel model = [] {
    CostModel made;
    if (parse(shipped_costs, "h200.costs", &made) != NCAST_OK) throw std::logic_error(ncast_last_error());
    return made;
  }();
  return model;
}

ncast_status CostModel::load(const std::string& path, const std::string& setting, CostModel* model) {
  std::string text;
  if (const std::string error = files::read_file(path, most_text_bytes, &text); !error.empty())
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s cannot be read: %s", setting.c_str(), path.c_str(), error.c_str());
  return parse(std::move(text), path.c_str(), model);
}

ncast_status CostModel::parse(std::string text, const char* name, CostModel* model) {
  *model = {};
  model->text_ = std::move(text);
  int number = 0;
  for (std::string_view rest = model->text_; !rest.empty() || number == 0;) {
    ++number;
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (number == 1) {
      if (line.starts_with(heading)) continue;
      return fail(NCAST_INVALID_ARGUMENT, "%s, line 1: expected 'narrowcast-costs 2' and the name of a machine", name);
    }
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with(kernels_line)) {
      const std::string_view hash = line.substr(kernels_line.size());
      model->kernels_ = hash == unknown_kernels ? "" : hash;
      continue;
    }
    MeasuredCurve curve;
    std::string wrong;
    if (line.starts_with(shared_line)) {
      wrong = read_shared_kib(line.substr(shared_line.size()), &model->shared_bytes_);
    } else if (line.starts_with(network_line)) {
      wrong = read_network_gbps(line.substr(network_line.size()), &model->network_gbps_.emplace());
    } else {
      wrong = read_curve(line, &curve);
      if (wrong.empty() && !model->add(curve)) wrong = "the curve is given twice";
    }
    if (!wrong.empty()) return fail(NCAST_INVALID_ARGUMENT, "%s, line %d: %s", name, number, wrong.c_str());
  }
  return model->check_complete(name);
}

// Raw and encoded values, and plans and the built-in way, can be compared only if both were measured. The times of one
// codec suffice: those of others are derived from them.
ncast_status CostModel::check_complete(const char* name) const {
  for (const Operation operation : measured_operations) {
    for (size_t link = 0; link < link_count; ++link) {
      const bool in_levels = static_cast<Link>(link) == Link::two_levels;
      const bool on_host = is_between_processes(static_cast<Link>(link));
      for (const Measured& measured : families_[link][static_cast<size_t>(operation)]) {
        const auto is_measured = [&](const Candidate& candidate) {
          const auto index = static_cast<size_t>(&candidate - candidates().data());
          return measured.curves[index][static_cast<size_t>(Data::typical)].has_value();
        };
        const auto is_coded = [](const Candidate& candidate) {
          return candidate.transport == Transport::blocks && candidate.is_coded();
        };
        const Candidate* missing = &candidates()[index_of(in_levels ? "steps" : on_host ? "frames:raw" : "blocks:raw")];
        if (is_measured(*missing)) {
          const auto any = [&](const Candidate& candidate) { return is_coded(candidate) && is_measured(candidate); };
          if (on_host || in_levels || std::ranges::any_of(candidates(), any)) continue;
          missing = &*std::ranges::find_if(candidates(), is_coded);
        }
        return fail(NCAST_INVALID_ARGUMENT, "%s: there is no line '%s %d %s %s'", name, name_of(operation),
                    measured.ranks, link_names[link], missing->name.c_str());
      }
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::select
