#include "select/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "select/packet_shape.h"

namespace narrowcast::select {
namespace {

// Its calls are those of another operation, or carry the same.
Operation measured_as(Operation operation) {
  switch (operation) {
    case Operation::recv: return Operation::send;
    case Operation::all_to_all_v: return Operation::all_to_all;
    default: return operation;
  }
}

// Whose curves an operation without any takes: its ranks do as much for a byte.
std::optional<Operation> stand_in(Operation operation) {
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

// What a call sends through its busiest link: so many times, one after the other, so much of its bytes.
struct Traffic {
  double flights, share;
};

Traffic traffic(Operation operation, Path path, uint64_t bytes, int ranks) {
  const double others = ranks - 1;
  switch (operation) {
    case Operation::send: return {1, 1};
    case Operation::broadcast:
    case Operation::reduce: return {1, path == Path::packets ? others : 1};
    case Operation::all_reduce:
      if (path != Path::packets) return {1, 2 * others / ranks};
      if (bytes > most_one_shot_bytes(ranks)) return {2, others / ranks};
      return {1, others};
    default: return {1, others};
  }
}

}  // namespace

const char* path_name(Path path) {
  constexpr const char* names[path_count] = {"packets", "raw", "window", "window-random", "nccl", "nccl-default"};
  return names[static_cast<size_t>(path)];
}

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
  return std::clamp(between, below.microseconds, above->microseconds);  // rounded it could leave them
}

bool CostModel::add(const MeasuredCurve& measured) {
  Family& family = families_[measured.over_host ? 1 : 0][static_cast<size_t>(measured.operation)];
  auto found = std::ranges::find(family, measured.ranks, &Measured::ranks);
  if (found == family.end()) found = family.insert(family.end(), Measured{measured.ranks, {}});
  std::optional<Curve>& place = found->curves[static_cast<size_t>(measured.path)];
  if (place.has_value()) return false;
  place = Curve(measured.points);
  return true;
}

std::optional<double> CostModel::predict(Operation operation, Path path, uint64_t bytes, int ranks,
                                         bool over_host) const {
  const Operation asked = measured_as(operation);
  Operation source = asked;
  if (family(source, over_host).empty()) {
    const auto other = stand_in(asked);
    if (!other || family(*other, over_host).empty()) return std::nullopt;
    source = *other;
  }
  const Measured& nearest = *std::ranges::min_element(family(source, over_host), {}, [&](const Measured& measured) {
    // The more of two that are as near.
    return 2 * std::abs(measured.ranks - ranks) + (measured.ranks < ranks ? 1 : 0);
  });
  const std::optional<Curve>& curve = nearest.curves[static_cast<size_t>(path)];
  if (!curve) return std::nullopt;
  if (source == asked && nearest.ranks == ranks) return curve->at(static_cast<double>(bytes));
  if (is_nccl(path)) return std::nullopt;
  const auto scaled = [&](uint64_t of_bytes) {
    const Traffic here = traffic(asked, path, of_bytes, ranks), there = traffic(source, path, of_bytes, nearest.ranks);
    return here.flights / there.flights * curve->at(static_cast<double>(of_bytes) * here.share / there.share);
  };
  double predicted = scaled(bytes);
  if (asked == Operation::all_reduce && path == Path::packets) {
    // Two shots begin at other bytes there: that must not look faster than what fewer bytes take.
    for (const uint64_t one_shot : {most_one_shot_bytes(ranks), most_one_shot_bytes(nearest.ranks)})
      if (one_shot < bytes) predicted = std::max(predicted, scaled(one_shot));
  }
  return predicted;
}

}  // namespace narrowcast::select
