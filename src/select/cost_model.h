// How long calls take on a machine: curves of measured times by operation, number of ranks, link and candidate.
// docs/guide/tuning.md specifies the text that a model is read from.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operation/operation.h"
#include "select/block_shape.h"
#include "select/candidate.h"

namespace narrowcast::select {

using operation::Operation;

// Microseconds as a function of bytes: constant before the first point, interpolated in logarithms between points, and
// after the last point linear, with the slope between the last two. Times never decrease: a measured time that is
// shorter than that of fewer bytes is noise, and is replaced by it.
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

// The values that a curve was measured with.
enum class Data : uint8_t { typical, incompressible };
inline constexpr size_t data_count = 2;

// A line of the model.
struct MeasuredCurve {
  Operation operation = {};
  int ranks = 0;
  Link link = {};
  size_t candidate = 0;
  std::string plan;  // the name of a plan; empty: the curve is of `candidate`
  Data data = {};
  std::vector<Curve::Point> points;
};

class CostModel {
 public:
  // The built-in model, h200.costs.
  static const CostModel& shipped();
  // Reads a file. setting: the setting that names the file, for messages. Errors: INVALID_ARGUMENT with file and line.
  static ncast_status load(const std::string& path, const std::string& setting, CostModel* model);
  // name: of the text, for messages.
  static ncast_status parse(std::string text, const char* name, CostModel* model);

  // The text that was parsed, for other ranks.
  const std::string& text() const { return text_; }
  // kernels_hash() of the measured library; empty if the text does not contain it.
  const std::string& kernels() const { return kernels_; }
  // Whether the model has curves that were measured over this link.
  bool is_measured(Link link) const;
  // The link whose curves calls over this link use: the link itself, if it has any.
  Link source_of(Link link) const;
  // The shared memory that a CTA had: kernels have fewer warps if it is less (block_shape.h).
  uint32_t shared_bytes() const { return shared_bytes_; }
  // Gbit/s between two hosts, if the text contains it.
  std::optional<double> network_gbps() const { return network_gbps_; }

  // Microseconds; nothing if the model has no suitable curve. bytes: as in CallShape. If the operation or the number of
  // ranks was not measured, the curve of a similar one is used, at the size that puts the same traffic on the busiest
  // link; over NVLink this does not apply to NCCL. PCIe without curves uses those of host memory, or else of NVLink.
  std::optional<double> predict(Operation operation, size_t candidate, uint64_t bytes, int ranks, Link link,
                                Data data = Data::typical) const;
  // Microseconds of a plan, or of a candidate, that was measured for exactly these ranks, this operation and this link:
  // which of several plans is faster does not carry over to others.
  std::optional<double> measured(Operation operation, std::string_view name, uint64_t bytes, int ranks,
                                 Link link) const;
  // Whether plans were measured on the link.
  bool has_plans(Link link) const;

 private:
  using Curves = std::array<std::optional<Curve>, data_count>;
  struct Measured {
    int ranks;
    std::vector<Curves> curves;                       // by candidate
    std::map<std::string, Curve, std::less<>> plans;  // by name
  };
  using Family = std::vector<Measured>;  // the curves of an operation on a link

  // False if the model has the curve already.
  bool add(const MeasuredCurve& measured);
  ncast_status check_complete(const char* name) const;
  const Family& family(Operation operation, Link link) const {
    return families_[static_cast<size_t>(source_of(link))][static_cast<size_t>(operation)];
  }
  Family& family_at(Operation operation, Link link) {
    return families_[static_cast<size_t>(link)][static_cast<size_t>(operation)];
  }

  std::string text_, kernels_;
  uint32_t shared_bytes_ = most_shared_bytes;
  std::optional<double> network_gbps_;
  std::array<std::array<Family, operation::count>, link_count> families_;
};

// A hash of the sources of the kernels that calls run (cmake/kernels_hash.cmake).
const char* kernels_hash();
// Why times of calls over this link may be wrong: they were measured over another one, or with another library. Empty:
// neither.
std::string describe_mismatch(const CostModel& model, Link link);

}  // namespace narrowcast::select
