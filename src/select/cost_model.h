// What calls cost on a machine, as measured there: microseconds over bytes for every operation and way of running it.
// docs/guide/tuning.md specifies the text that it is read from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operation/operation.h"

namespace narrowcast::select {

using operation::Operation;

// How a call may be run. window: with values that the codec shrinks; window_random: with those that it cannot. nccl and
// nccl_default are what calls are compared with: the best of its ways, and what it does where the program does not ask for
// another.
enum class Path : uint8_t { packets, raw, window, window_random, nccl, nccl_default };
inline constexpr size_t path_count = 6;
constexpr bool is_nccl(Path path) { return path == Path::nccl || path == Path::nccl_default; }
const char* path_name(Path path);

// Microseconds over bytes. Between points straight in logarithms; before the first its time, which is latency; after the
// last as the last two rise. A time below one of fewer bytes is noise, and raised to that.
class Curve {
 public:
  struct Point {
    double bytes, microseconds;  // both above 0
  };
  // At least one point; bytes ascend.
  explicit Curve(const std::vector<Point>& points);
  double at(double bytes) const;

 private:
  struct Knot {
    double bytes, microseconds, log_bytes, log_microseconds;
  };
  std::vector<Knot> knots_;
  double microseconds_per_byte_ = 0;  // after the last
};

// A line of the model.
struct MeasuredCurve {
  Operation operation = {};
  int ranks = 0;
  bool over_host = false;
  Path path = {};
  std::vector<Curve::Point> points;
};

class CostModel {
 public:
  // h200.costs, which is built in.
  static const CostModel& shipped();
  // That of a file. setting: what names it, for errors. Errors: INVALID_ARGUMENT with the file and the line.
  static ncast_status load(const std::string& path, const std::string& setting, CostModel* model);
  // name: what errors call the text.
  static ncast_status parse(std::string text, const char* name, CostModel* model);

  // As it was parsed: for other ranks.
  const std::string& text() const { return text_; }

  // Microseconds; nothing where the model does not tell. bytes: as in CallShape. An operation or a number of ranks that
  // was not measured takes the curve of one that was, at as many bytes on the busiest link; NCCL's are not carried over.
  std::optional<double> predict(Operation operation, Path path, uint64_t bytes, int ranks, bool over_host) const;

 private:
  struct Measured {
    int ranks;
    std::array<std::optional<Curve>, path_count> curves;
  };
  using Family = std::vector<Measured>;  // of an operation and a link
  static constexpr size_t operation_count = 11;

  // False when it was there already.
  bool add(const MeasuredCurve& measured);
  const Family& family(Operation operation, bool over_host) const {
    return families_[over_host ? 1 : 0][static_cast<size_t>(operation)];
  }

  std::string text_;
  std::array<std::array<Family, operation_count>, 2> families_;
};

}  // namespace narrowcast::select
