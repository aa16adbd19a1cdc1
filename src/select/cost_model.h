// What calls cost on a machine, as measured there: microseconds over bytes for each operation, number of ranks, link
// and candidate. docs/guide/tuning.md specifies the text that it is read from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operation/operation.h"
#include "select/candidate.h"

namespace narrowcast::select {

using operation::Operation;

// Microseconds over bytes: linear in logarithms between points, constant before the first, and linear after the last
// with the slope of the last two. A time below that of fewer bytes is noise, and is raised to it.
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

// Values that a curve was measured with.
enum class Data : uint8_t { typical, incompressible };
inline constexpr size_t data_count = 2;

// A line of the model.
struct MeasuredCurve {
  Operation operation = {};
  int ranks = 0;
  Link link = {};
  size_t candidate = 0;
  Data data = {};
  std::vector<Curve::Point> points;
};

class CostModel {
 public:
  // The built-in model, h200.costs.
  static const CostModel& shipped();
  // Reads a file. setting: what names the file, for errors. Errors: INVALID_ARGUMENT with the file and the line.
  static ncast_status load(const std::string& path, const std::string& setting, CostModel* model);
  // name: what errors call the text.
  static ncast_status parse(std::string text, const char* name, CostModel* model);

  // The text that was parsed, for other ranks.
  const std::string& text() const { return text_; }
  // kernels_hash() of the library that was measured; empty when the text does not say.
  const std::string& kernels() const { return kernels_; }

  // Microseconds; nothing where the model does not know. bytes: as in CallShape. An operation or a number of ranks that
  // was not measured takes the curve of one that was, at the same bytes on the busiest link. NCCL's curves are not
  // carried over. GPUs that reach each other over a link that was not measured take the curves of the other such link.
  std::optional<double> predict(Operation operation, size_t candidate, uint64_t bytes, int ranks, Link link,
                                Data data = Data::typical) const;

 private:
  using Curves = std::array<std::optional<Curve>, data_count>;
  struct Measured {
    int ranks;
    std::array<Curves, candidate_count> curves;
  };
  using Family = std::vector<Measured>;  // of an operation and a link

  // False when there is one already.
  bool add(const MeasuredCurve& measured);
  ncast_status check_complete(const char* name) const;
  const Family& family(Operation operation, Link link) const;
  Family& family_at(Operation operation, Link link) {
    return families_[static_cast<size_t>(link)][static_cast<size_t>(operation)];
  }

  std::string text_, kernels_;
  int version_ = 0;
  std::array<std::array<Family, operation::count>, link_count> families_;
};

// A hash of the sources that decide how long a call takes on a GPU: kernels, channels and codecs.
const char* kernels_hash();
// What is wrong with the model's measurements for this library, or an empty string.
std::string describe_mismatch(const CostModel& model);

}  // namespace narrowcast::select
