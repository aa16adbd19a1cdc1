// Verifies arbitrary plans: those that their JSON form can express, most of them wrong. The verifier reaches a verdict
// about each, and explains it.
#include <span>

#include "check.h"
#include "plan/steps.h"
#include "plan/verify/verify.h"

namespace {

using namespace narrowcast::plan;

// A plan from bytes, mostly with small numbers so that some of them fit together.
class Source {
 public:
  explicit Source(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Plan plan() {
    Plan plan;
    plan.operation = static_cast<Operation>(byte() % narrowcast::operation::count);
    plan.ranks.resize(below(4));
    plan.root = static_cast<int>(below(3));
    plan.chunks = number(4);
    plan.scratch_copies = 1 + below(2);
    plan.in_place = static_cast<InPlace>(below(3));
    plan.threads = static_cast<Threads>(below(2));
    for (uint32_t i = below(8); i > 0; --i) plan.channels.push_back(channel());
    for (Rank& rank : plan.ranks) {
      rank.scratch_chunks = number(5);
      rank.groups.resize(below(4));
      for (uint32_t i = below(3); i > 0; --i) rank.barriers.push_back({below(3), below(3)});
      for (Group& group : rank.groups)
        for (uint32_t i = below(7); i > 0; --i) group.steps.push_back(step(true));
    }
    return plan;
  }

 private:
  uint8_t byte() {
    if (next_ == bytes_.size()) return 0;
    return bytes_[next_++];
  }
  uint32_t below(uint32_t limit) { return byte() % limit; }
  // Rarely a large one.
  uint32_t number(uint32_t limit) {
    const uint32_t value = byte();
    return value == 255 ? UINT32_MAX - below(3) : value % limit;
  }

  Channel channel() {
    Channel channel;
    channel.kind = static_cast<ChannelKind>(below(4));
    channel.from = static_cast<int>(below(4)) - (byte() == 255 ? 1 : 0);
    channel.to = static_cast<int>(below(4));
    channel.depth = number(4);
    channel.packets = below(3) == 0;
    channel.initial = below(4) == 0 ? number(3) : 0;
    for (uint32_t i = below(4); i > 0; --i) channel.ranks.push_back(static_cast<int>(channel.ranks.size()));
    return channel;
  }

  Operand operand() {
    Operand operand;
    operand.place = static_cast<Place>(below(4));
    operand.buffer = static_cast<Buffer>(below(3));
    operand.chunk = number(4);
    operand.channel = number(8);
    operand.packets = below(4) == 0;
    if (below(5) == 0) operand.codec = byte();
    return operand;
  }

  Step step(bool may_be_loop) {
    Step step;
    step.kind = static_cast<StepKind>(below(std::size(step_rows)));
    const StepRow& row = row_of(step.kind);
    if (row.sources != Sources::NONE) {
      step.count = below(3) == 0 ? number(4) : 1;
      for (uint32_t i = row.sources == Sources::ONE ? 1 : 2 + below(2); i > 0; --i) step.from.push_back(operand());
      for (uint32_t i = 1 + below(2); i > 0; --i) step.to.push_back(operand());
    }
    if (row.argument == Argument::CHANNELS)
      for (uint32_t i = 1 + below(2); i > 0; --i) step.channels.push_back(number(8));
    step.barrier = below(3);
    step.relaxed = row.argument == Argument::CHANNELS && below(3) == 0;
    if (below(4) == 0) step.after.push_back({number(3), number(5)});
    if (row.argument == Argument::LOOP && may_be_loop) {
      step.unit_bytes = byte();
      for (uint32_t i = 1 + below(3); i > 0; --i) step.body.push_back(this->step(byte() == 255));
    }
    return step;
  }

  std::span<const uint8_t> bytes_;
  size_t next_ = 0;
};

void check(const verify::Report& report) {
  FUZZ_CHECK((report.verdict == verify::Verdict::refuted) == report.finding.found());
  FUZZ_CHECK((report.verdict == verify::Verdict::proved) == report.finding.message.empty());
  FUZZ_CHECK(report.split_ok || report.verdict != verify::Verdict::proved || report.split_finding.found());
  FUZZ_CHECK(!verify::to_json(report).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  check(verify::verify(Source({data, bytes}).plan()));
  return 0;
}
