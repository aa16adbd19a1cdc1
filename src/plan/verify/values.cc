#include "plan/verify/values.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "plan/steps.h"
#include "plan/verify/contributions.h"
#include "plan/verify/value_history.h"

namespace narrowcast::plan::verify {

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
  hash ^= hash >> 33;
  return hash * 0xc4ceb9fe1a85ec53u;
}

struct Value {
  Contributions::Set set = none;  // none: undefined
  uint32_t doubled = none;        // index in doubles_: a contribution that was added twice
  uint32_t history = none;        // index in ValueHistory, if there is one
  uint32_t roundings = 0, inexact_encodings = 0;
  bool is_ordered = true;  // its ranks were combined in ascending order
  bool has_packets = false;
  bool is_partial = false;              // not rounded
  ncast_codec codec = NCAST_CODEC_RAW;  // of packets
  uint64_t expression = 0;              // a hash of how it was computed
};

class Execution {
 public:
  Execution(const FlatPlan& flat_plan, const MemoryMap& map, ValueHistory* history)
      : flat_plan_(flat_plan),
        plan_(*flat_plan.plan),
        map_(map),
        history_(history),
        contributions_(plan_.rank_count()),
        memory_(map.cells()),
        rings_(flat_plan.channels.size()) {
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < plan_.input_chunks(rank); ++chunk)
        for (uint32_t part = 0; part < flat_plan.parts; ++part) {
          Value& value = memory_[map.base(rank, Buffer::input) + chunk * flat_plan.parts + part];
          value.set = contributions_.single(chunk, rank);
          value.expression = mix(chunk, static_cast<uint64_t>(rank));
        }
  }

  Values run(std::span<const uint32_t> order) {
    for (const uint32_t flat : order)
      if (!execute(flat)) return std::move(result_);
    check_outputs();
    return std::move(result_);
  }

 private:
  struct Ring {
    std::vector<Value> values;
    size_t head = 0;
    size_t most = 0;  // values whose memory is counted
  };
  struct Double {
    uint32_t flat;            // the step that adds a contribution for the second time
    Contributions::Set a, b;  // both contain it
  };

  // --- execution

  // Returns whether no fault was found.
  bool execute(uint32_t flat) {
    const FlatStep& step = flat_plan_.steps[flat];
    if (step.step->from.empty()) return true;
    spend(50 + uint64_t{10} * step.cells * (step.step->from.size() + step.step->to.size()));
    hold(step.cells, &most_results_);
    // All cells are read before any is written.
    results_.clear();
    gather_sources(step);
    for (uint32_t cell = 0; cell < step.cells; ++cell)
      if (!combine_cell(flat, step, cell)) return false;
    for (const Operand& from : step.step->from)
      if (from.place == Place::message) drop(rings_[from.channel], step.cells);
    for (const Operand& to : step.step->to) store(step, to);
    return true;
  }

  struct Source {
    const Operand* operand;
    const Value* values;           // of a message
    std::vector<uint32_t> firsts;  // cells; of locations, one for each rank
  };

  void gather_sources(const FlatStep& step) {
    const std::vector<Operand>& from = step.step->from;
    sources_.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      Source& source = sources_[i];
      source.operand = &from[i];
      source.firsts.clear();
      if (from[i].place != Place::message) {
        each_range(flat_plan_, map_, step, from[i], [&](int, uint32_t first) { source.firsts.push_back(first); });
        continue;
      }
      size_t skip = 0;
      spend(i);
      for (size_t j = 0; j < i; ++j)
        skip += from[j].place == Place::message && from[j].channel == from[i].channel ? step.cells : 0;
      const Ring& ring = rings_[from[i].channel];
      source.values = &ring.values[ring.head + skip];
    }
  }

  bool combine_cell(uint32_t flat, const FlatStep& step, uint32_t cell) {
    operands_.clear();
    for (const Source& source : sources_) {
      if (source.operand->place == Place::message) {
        operands_.push_back(source.values[cell]);
        continue;
      }
      const size_t begin = operands_.size();
      for (const uint32_t first : source.firsts) {
        const Value& value = memory_[first + cell];
        if (!check_read(flat, *source.operand, value, first + cell)) return false;
        operands_.push_back(value);
      }
      if (operands_.size() - begin > 1) {
        const Value sum = combined(flat, begin);
        operands_.resize(begin);
        operands_.push_back(sum);
      }
    }
    Value result = operands_.size() == 1 ? operands_.front() : combined(flat, 0);
    if (step.step->from.size() == 1) note(flat, result);
    results_.push_back(result);
    note_completeness(flat, result);
    return true;
  }

  // Steps that do not reduce leave the completeness of values unchanged.
  void note_completeness(uint32_t flat, const Value& result) {
    const Step& step = *flat_plan_.steps[flat].step;
    if (step.kind != StepKind::reduce && step.from[0].place != Place::everywhere) return;
    const int ranks = plan_.rank_count();
    const bool is_complete = contributions_.entries(result.set) == 1 && contributions_.is_of_all(result.set, ranks);
    const auto [first, is_first] = completeness_.emplace(&step, is_complete);
    if (first->second != is_complete) result_.can_average = false;
    if (is_first && is_complete) result_.completing.push_back(flat);
  }

  bool check_read(uint32_t flat, const Operand& operand, const Value& value, uint32_t cell) {
    if (value.set == none) {
      report_undefined(flat, operand, cell);
      return false;
    }
    if (value.is_partial != operand.partial) {
      result_.finding.property = Property::structure;
      result_.finding.where = flat_plan_.where(flat);
      result_.finding.message =
          "reads " + describe(plan_, result_.finding.where.rank, operand, flat_plan_.steps[flat].step->count) +
          (value.is_partial ? ", which contains partial sums, as values" : " as partial sums, but it contains values");
      return false;
    }
    const bool codecs_differ = operand.packets && codec::canonical(operand.codec) != value.codec;
    if (value.has_packets == operand.packets && !codecs_differ) return true;
    result_.finding.property = value.has_packets == operand.packets ? Property::structure : Property::undefined;
    result_.finding.where = flat_plan_.where(flat);
    const std::string place = describe(plan_, result_.finding.where.rank, operand, flat_plan_.steps[flat].step->count);
    result_.finding.message =
        codecs_differ && value.has_packets
            ? "reads " + place + " as " + codec::describe(operand.codec) + ", but it contains packets of " +
                  codec::describe(value.codec)
            : "reads " + place + ", which contains " + (value.has_packets ? "packets" : "values without flags");
    return false;
  }

  // The sum of operands_[begin...].
  Value combined(uint32_t flat, size_t begin) {
    Value sum = operands_[begin];
    uint64_t first = sum.expression, second = operands_[begin + 1].expression;
    if (first > second) std::swap(first, second);  // addition is commutative
    sum.expression = mix(first, second);
    for (size_t i = begin + 1; i < operands_.size(); ++i) {
      const Value& value = operands_[i];
      sum.is_ordered &=
          value.is_ordered && contributions_.highest_rank(sum.set) < contributions_.lowest_rank(value.set);
      const Contributions::Union united = contributions_.unite(sum.set, value.set);
      if (sum.doubled == none) sum.doubled = united.overlaps ? note_double({flat, sum.set, value.set}) : value.doubled;
      sum.set = united.set;
      sum.roundings = std::max(sum.roundings, value.roundings);
      sum.inexact_encodings = std::max(sum.inexact_encodings, value.inexact_encodings);
      if (i > begin + 1) sum.expression = mix(sum.expression, value.expression);
    }
    ++sum.roundings;
    sum.is_partial = false;
    sum.expression = mix(sum.expression, operands_.size() - begin);
    if (history_ != nullptr) {
      std::vector<uint32_t> sources;
      for (size_t i = begin; i < operands_.size(); ++i) sources.push_back(operands_[i].history);
      sum.history = history_->add(flat, sum.set, sources);
    }
    return sum;
  }

  uint32_t note_double(const Double& found) {
    doubles_.push_back(found);
    return static_cast<uint32_t>(doubles_.size() - 1);
  }

  void note(uint32_t flat, Value& value) {
    if (history_ != nullptr) value.history = history_->add(flat, value.set, {&value.history, 1});
  }

  void store(const FlatStep& step, const Operand& to) {
    // A message with the same codec is passed on as it is.
    const Operand& source = step.step->from[0];
    const bool is_passed_on = step.step->kind == StepKind::copy && source.place == Place::message &&
                              to.place == Place::message &&
                              codec::canonical(source.codec) == codec::canonical(to.codec);
    const auto encoded = [&](Value value) {
      value.has_packets = to.packets;
      if (to.partial && !value.is_partial) --value.roundings;  // by the reduction that made it
      value.is_partial = to.partial;
      value.codec = codec::canonical(to.codec);
      if (!is_passed_on && !codec::is_exact(value.codec)) {
        ++value.inexact_encodings;
        value.expression = mix(value.expression, value.codec);
      }
      return value;
    };
    if (to.place == Place::message) {
      Ring& ring = rings_[to.channel];
      hold(ring.values.size() + results_.size(), &ring.most);
      for (const Value& value : results_) ring.values.push_back(encoded(value));
      return;
    }
    each_range(flat_plan_, map_, step, to, [&](int, uint32_t first) {
      for (uint32_t cell = 0; cell < step.cells; ++cell) memory_[first + cell] = encoded(results_[cell]);
    });
  }

  // Counts the memory of a list that grows to so many values.
  void hold(size_t values, size_t* most) {
    if (values <= *most) return;
    memory_of_lists_.grow((values - *most) * sizeof(Value));
    *most = values;
  }

  static void drop(Ring& ring, uint32_t cells) {
    ring.head += cells;
    if (ring.head == ring.values.size()) {
      ring.values.clear();
      ring.head = 0;
    }
  }

  // --- results

  // The input chunk that an output chunk of a rank is made of, and the rank that it comes from; -1: all ranks.
  std::pair<uint32_t, int> expected(int rank, uint32_t chunk) const {
    switch (plan_.operation) {
      case Operation::all_reduce:
      case Operation::reduce: return {chunk, -1};
      case Operation::reduce_scatter: return {static_cast<uint32_t>(rank) * plan_.chunks + chunk, -1};
      case Operation::all_gather:
      case Operation::gather: return {chunk % plan_.chunks, static_cast<int>(chunk / plan_.chunks)};
      case Operation::all_to_all:
        return {static_cast<uint32_t>(rank) * plan_.chunks + chunk % plan_.chunks,
                static_cast<int>(chunk / plan_.chunks)};
      case Operation::scatter: return {static_cast<uint32_t>(rank) * plan_.chunks + chunk, plan_.root};
      default: return {chunk, plan_.root};  // broadcast
    }
  }

  void check_outputs() {
    std::vector<uint64_t> expressions(plan_.chunks * plan_.ranks.size(), 0);
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < plan_.output_chunks(rank); ++chunk)
        for (uint32_t part = 0; part < flat_plan_.parts; ++part) {
          const Value& value = memory_[map_.base(rank, Buffer::output) + chunk * flat_plan_.parts + part];
          if (!check_output(rank, chunk, value)) return;
          result_.roundings = std::max(result_.roundings, value.roundings);
          result_.inexact_encodings = std::max(result_.inexact_encodings, value.inexact_encodings);
          result_.rank_order &= value.is_ordered;
          if (part != 0 || plan_.output_chunks(rank) > expressions.size()) continue;
          // In these operations, all ranks receive the same chunks and must receive the same bits.
          if (plan_.operation != Operation::all_reduce && plan_.operation != Operation::all_gather &&
              plan_.operation != Operation::broadcast)
            continue;
          if (rank == 0) expressions[chunk] = value.expression;
          result_.same_everywhere &= expressions[chunk] == value.expression;
        }
  }

  bool check_output(int rank, uint32_t chunk, const Value& value) {
    const auto [input_chunk, source] = expected(rank, chunk);
    const Contributions::Set wanted =
        source < 0 ? contributions_.all(input_chunk, plan_.rank_count()) : contributions_.single(input_chunk, source);
    if (value.set == wanted && value.doubled == none && !value.has_packets) return true;
    Finding& finding = result_.finding;
    finding.property = Property::result;
    finding.where = {};
    finding.where.rank = rank;
    const std::string place = "output chunk " + std::to_string(chunk);
    if (value.set == none) {
      finding.message = place + " is not written";
      return false;
    }
    uint32_t history = value.history;
    if (value.set == wanted || contributions_.is_subset(wanted, value.set)) {
      if (value.doubled != none) {
        const Double& twice = doubles_[value.doubled];
        finding.message = place + " contains " +
                          Contributions::describe(contributions_.first_common(twice.a, twice.b)) +
                          " twice: " + describe(flat_plan_.where(twice.flat)) + " adds it again";
        history = none;
        explain_double(value);
      }
    }
    if (finding.message.empty()) finding.message = place + " " + contributions_.difference(value.set, wanted);
    explain(history, value.set, wanted);
    if (!finding.trace.empty()) {
      const Where last = finding.trace.back().where;
      if (last.rank == rank) finding.where = last;
    }
    return false;
  }

  void add_trace(uint32_t flat) {
    result_.finding.trace.push_back({flat_plan_.where(flat), describe(flat_plan_, flat)});
  }

  // Adds the steps that the value went through to the trace.
  void explain(uint32_t history, Contributions::Set found, Contributions::Set wanted) {
    if (history_ == nullptr || history == none) return;
    for (const uint32_t flat : history_->path_to(history, contributions_, contributions_.first_missing(found, wanted)))
      add_trace(flat);
  }

  // Adds the origins of the two overlapping summands and the step that combines them to the trace.
  void explain_double(const Value& value) {
    if (history_ == nullptr) return;
    for (const uint32_t flat : history_->sum_of(doubles_[value.doubled].flat)) add_trace(flat);
  }

  void report_undefined(uint32_t flat, const Operand& operand, uint32_t cell) {
    Finding& finding = result_.finding;
    finding.property = Property::undefined;
    finding.where = flat_plan_.where(flat);
    Operand chunk = operand;
    chunk.chunk += chunk_in(flat, operand, cell);
    const std::string text = "reads " + describe(plan_, finding.where.rank, chunk, 1);
    const auto writer = std::find_if(flat_plan_.steps.begin(), flat_plan_.steps.end(), [&](const FlatStep& step) {
      bool writes = false;
      for (const Operand& to : step.step->to)
        each_range(flat_plan_, map_, step, to,
                   [&](int, uint32_t first) { writes |= cell >= first && cell < first + step.cells; });
      return writes;
    });
    add_trace(flat);
    if (writer == flat_plan_.steps.end()) {
      finding.message = text + ", which no step writes in this call";
      return;
    }
    const auto index = static_cast<uint32_t>(writer - flat_plan_.steps.begin());
    finding.message = text + " before " + describe(flat_plan_.where(index)) + " writes it";
    add_trace(index);
  }

  // The index of the cell's chunk among those of the operand.
  uint32_t chunk_in(uint32_t flat, const Operand& operand, uint32_t cell) const {
    const FlatStep& step = flat_plan_.steps[flat];
    uint32_t chunk = 0;
    each_range(flat_plan_, map_, step, operand, [&](int, uint32_t first) {
      if (cell >= first && cell < first + step.cells) chunk = (step.first + cell - first) / flat_plan_.parts;
    });
    return chunk;
  }

  const FlatPlan& flat_plan_;
  const Plan& plan_;
  const MemoryMap& map_;
  ValueHistory* history_;
  Contributions contributions_;
  std::vector<Value> memory_;
  std::vector<Ring> rings_;
  std::vector<Source> sources_;
  std::vector<Value> operands_, results_;
  size_t most_results_ = 0;
  HeldMemory memory_of_lists_;
  std::vector<Double> doubles_;
  std::unordered_map<const Step*, bool> completeness_;  // of the first value that each step computed
  Values result_;
};

}  // namespace

Values compute_values(const FlatPlan& flat_plan, std::span<const uint32_t> order, const MemoryMap& map) {
  Values values = Execution(flat_plan, map, nullptr).run(order);
  if (!values.finding.found()) return values;
  try {
    ValueHistory history;
    return Execution(flat_plan, map, &history).run(order);
  } catch (const TooLarge&) {
    return values;  // without a trace
  }
}

}  // namespace narrowcast::plan::verify
