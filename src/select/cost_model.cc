#include "select/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "select/packet_shape.h"

namespace narrowcast::select {
namespace {

// The operation whose curves apply. A receive is measured together with its send.
Operation measured_as(Operation operation) {
  switch (operation) {
    case Operation::recv: return Operation::send;
    case Operation::all_to_all_v: return Operation::all_to_all;
    default: return operation;
  }
}

// The operation whose curves are used if this one was not measured: its ranks do the same work per byte.
std::optional<Operation> substitute_for(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::broadcast:
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all: return Operation::all_gather;
    case Operation::reduce: return Operation::all_reduce;
    default: return std::nullopt;
  }
}

// The traffic on the busiest link: `steps` messages in sequence, each with this share of the call's bytes.
struct Traffic {
  double steps, share;
};

Traffic traffic_of(Operation operation, bool packets, uint64_t bytes, int ranks, Link link) {
  const double others = ranks - 1;
  switch (operation) {
    case Operation::send: return {1, 1};
    case Operation::broadcast:
    case Operation::reduce: return {1, packets ? others : 1};
    case Operation::all_reduce:
      if (!packets) return {1, 2 * others / ranks};
      if (bytes > most_one_shot_bytes(ranks, link)) return {2, others / ranks};
      return {1, others};
    default: return {1, others};
  }
}

}  // namespace

Curve::Curve(const std::vector<Point>& points) {
  double slowest = 0;
  for (const Point& point : points) {
    slowest = std::max(slowest, point.microseconds);
    knots_.push_back({point.bytes, slowest, std::log(point.bytes), std::log(slowest)});
  }
  const Knot& last = knots_.back();
  if (knots_.size() == 1) {
    microseconds_per_byte_ = last.microseconds / last.bytes;
  } else {
    const Knot& before = knots_[knots_.size() - 2];
    microseconds_per_byte_ = (last.microseconds - before.microseconds) / (last.bytes - before.bytes);
  }
}

double Curve::at(double bytes) const {
  const Knot &first = knots_.front(), &last = knots_.back();
  if (bytes <= first.bytes) return first.microseconds;
  if (bytes >= last.bytes) return last.microseconds + (bytes - last.bytes) * microseconds_per_byte_;
  const auto above = std::ranges::upper_bound(knots_, bytes, {}, &Knot::bytes);
  const Knot& below = above[-1];
  const double part = (std::log(bytes) - below.log_bytes) / (above->log_bytes - below.log_bytes);
  const double between = std::exp(below.log_microseconds + part * (above->log_microseconds - below.log_microseconds));
  return std::clamp(between, below.microseconds, above->microseconds);  // rounding errors
}

bool CostModel::add(const MeasuredCurve& measured) {
  Family& family = family_at(measured.operation, measured.link);
  auto found = std::ranges::find(family, measured.ranks, &Measured::ranks);
  if (found == family.end())
    found = family.insert(family.end(), Measured{measured.ranks, std::vector<Curves>(candidates().size()), {}});
  if (!measured.plan.empty()) return found->plans.try_emplace(measured.plan, measured.points).second;
  std::optional<Curve>& place = found->curves[measured.candidate][static_cast<size_t>(measured.data)];
  if (place.has_value()) return false;
  place = Curve(measured.points);
  return true;
}

bool CostModel::is_measured(Link link) const {
  const auto has = [](const Family& family) { return !family.empty(); };
  return std::ranges::any_of(families_[static_cast<size_t>(link)], has);
}

Link CostModel::source_of(Link link) const {
  if (is_measured(link)) return link;
  // The path through host memory also crosses PCIe.
  if (link == Link::pcie) return is_measured(Link::host) ? Link::host : Link::nvlink;
  return link == Link::nvlink ? Link::pcie : link;
}

std::optional<double> CostModel::predict(Operation operation, size_t candidate, uint64_t bytes, int ranks, Link link,
                                         Data data) const {
  const Operation asked = measured_as(operation);
  Operation source = asked;
  if (family(source, link).empty()) {
    const auto other = substitute_for(asked);
    if (!other || family(*other, link).empty()) return std::nullopt;
    source = *other;
  }
  const Measured& nearest = *std::ranges::min_element(family(source, link), {}, [&](const Measured& measured) {
    // If two are equally near, the one with more ranks.
    return 2 * std::abs(measured.ranks - ranks) + (measured.ranks < ranks ? 1 : 0);
  });
  const std::optional<Curve>& curve = nearest.curves[candidate][static_cast<size_t>(data)];
  if (!curve) return std::nullopt;
  if (source == asked && nearest.ranks == ranks) return curve->at(static_cast<double>(bytes));
  // With NVLink, NCCL's algorithms depend on the number of ranks. Over PCIe its ring is bound by the same link.
  if (candidates()[candidate].transport == Transport::nccl && link == Link::nvlink) return std::nullopt;
  const bool packets = candidates()[candidate].transport == Transport::packets;
  const auto scaled = [&](uint64_t of_bytes) {
    const Traffic here = traffic_of(asked, packets, of_bytes, ranks, link),
                  there = traffic_of(source, packets, of_bytes, nearest.ranks, link);
    return here.steps / there.steps * curve->at(static_cast<double>(of_bytes) * here.share / there.share);
  };
  double predicted = scaled(bytes);
  if (asked == Operation::all_reduce && packets) {
    // The sizes at which two shots begin differ. A longer call must not appear faster than a shorter one.
    for (const uint64_t one_shot : {most_one_shot_bytes(ranks, link), most_one_shot_bytes(nearest.ranks, link)})
      if (one_shot < bytes) predicted = std::max(predicted, scaled(one_shot));
  }
  return predicted;
}

std::optional<double> CostModel::measured(Operation operation, std::string_view name, uint64_t bytes, int ranks,
                                          Link link) const {
  const Family& all = families_[static_cast<size_t>(link)][static_cast<size_t>(measured_as(operation))];
  const auto found = std::ranges::find(all, ranks, &Measured::ranks);
  if (found == all.end()) return std::nullopt;
  const auto at = [&](const Curve& curve) { return curve.at(static_cast<double>(bytes)); };
  if (const auto plan = found->plans.find(name); plan != found->plans.end()) return at(plan->second);
  const auto candidate = find_candidate(name);
  if (!candidate) return std::nullopt;
  const std::optional<Curve>& curve = found->curves[*candidate][static_cast<size_t>(Data::typical)];
  return curve ? std::optional(at(*curve)) : std::nullopt;
}

bool CostModel::has_plans(Link link) const {
  const auto in_family = [](const Family& family) {
    return std::ranges::any_of(family, [](const Measured& measured) { return !measured.plans.empty(); });
  };
  return std::ranges::any_of(families_[static_cast<size_t>(link)], in_family);
}

std::string describe_mismatch(const CostModel& model, Link link) {
  if (is_between_hosts(link) && !model.is_measured(link)) {
    if (model.network_gbps()) return {};
    return "the network was not measured: it is assumed to carry 10 Gbit/s";
  }
  if (link == Link::two_levels && !model.is_measured(link))
    return "calls in two levels were not measured: their times are the sums of those of their steps";
  const Link source = model.source_of(link);
  if (source != link) return std::string("the times are those of another link, ") + name_of(source);
  if (model.kernels().empty()) return "the cost model does not say which kernels it was measured on";
  if (model.kernels() == kernels_hash()) return {};
  return "the cost model was measured on other kernels (" + model.kernels() + ", this library has " + kernels_hash() +
         ")";
}

}  // namespace narrowcast::select
