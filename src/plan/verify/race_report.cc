#include "plan/verify/race_report.h"

#include "plan/steps.h"

namespace narrowcast::plan::verify {

Where RaceReport::where(uint32_t plan, uint32_t flat) const {
  Where where = knowledge_.program(plan).where(flat);
  where.plan = static_cast<int>(plan);
  return where;
}

TraceStep RaceReport::trace_of(const Access& access) const {
  const Actors::Actor& actor = knowledge_.actors()[access.actor];
  if (actor.kind == Actors::Kind::user) {
    TraceStep step;
    step.where.plan = static_cast<int>(knowledge_.plan());
    step.where.rank = actor.rank;
    step.text = "before call " + std::to_string(access.epoch - 1) + ", the user reads and writes input and output";
    return step;
  }
  const auto [flat, call] = knowledge_.step_of(access);
  std::string text = describe(knowledge_.program(actor.plan), flat);
  if (actor.kind == Actors::Kind::engine) text += ", by the copy engine";
  if (call != none && call != knowledge_.call_of_plan()) text += ", in call " + std::to_string(call) + " of the plan";
  return {where(actor.plan, flat), text};
}

std::string RaceReport::name_of(const Access& access) const {
  const Actors::Actor& actor = knowledge_.actors()[access.actor];
  if (actor.kind == Actors::Kind::user) return "the user of rank " + std::to_string(actor.rank);
  const auto [flat, call] = knowledge_.step_of(access);
  std::string text = describe(where(actor.plan, flat));
  if (actor.plan != knowledge_.plan()) return text + " of plan " + std::to_string(actor.plan);
  if (call != none && call != knowledge_.call_of_plan()) text += " of an earlier call";
  return text;
}

// How much of the earlier actor's work is known to precede.
TraceStep RaceReport::reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const {
  const Actors::Actor& actor = knowledge_.actors()[earlier.actor];
  TraceStep step;
  step.where = at;
  if (earlier.actor == viewer.actor) {
    step.text = "no sync is between the two steps, so that other threads can be behind";
    return step;
  }
  const uint32_t known = knowledge_.known(earlier.actor, is_read, viewer);
  if (actor.kind == Actors::Kind::user) {
    step.text = "nothing says here that rank " + std::to_string(actor.rank) + " has entered the call";
    return step;
  }
  const std::string who = actor.kind == Actors::Kind::engine ? "the copy engine" : "that group";
  if (known == 0) {
    step.text = "no step of " + who + " is known to precede";
    return step;
  }
  const auto [flat, call] = knowledge_.step_of({earlier.actor, known, {}});
  const std::string of_call =
      call != none && call != knowledge_.call_of_plan() ? " of call " + std::to_string(call) : "";
  const bool is_end =
      actor.kind == Actors::Kind::group && flat == knowledge_.program(actor.plan).groups[actor.index].end;
  step.text = "of " + who + ", only the steps up to " + (is_end ? "the end" : describe(where(actor.plan, flat))) +
              of_call + " are known to precede";
  return step;
}

Finding RaceReport::race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier,
                         bool earlier_is_write, const Viewer& viewer) const {
  const FlatStep& step = knowledge_.program().steps[flat];
  Finding finding;
  finding.property = Property::race;
  finding.where = where(knowledge_.plan(), flat);
  finding.message =
      std::string(is_write ? "writes " : "reads ") +
      describe(*knowledge_.program().plan, knowledge_.program().rank_of(step), operand, step.step->count) +
      ", not ordered after " + name_of(earlier) + ", which " + (earlier_is_write ? "writes it" : "reads it");
  std::string text = describe(knowledge_.program(), flat);
  if (knowledge_.actors()[viewer.actor].kind == Actors::Kind::engine) text += ", by the copy engine";
  if (knowledge_.call_of_plan() != 0) text += ", in call " + std::to_string(knowledge_.call_of_plan()) + " of the plan";
  finding.trace = {
      trace_of(earlier), reason_of(earlier, !earlier_is_write, viewer, finding.where), {finding.where, text}};
  return finding;
}

Finding RaceReport::second_packets(uint32_t flat, const Operand& operand, const Access& earlier) const {
  const FlatStep& step = knowledge_.program().steps[flat];
  Finding finding;
  finding.property = Property::race;
  finding.where = where(knowledge_.plan(), flat);
  finding.message =
      "writes packets to " +
      describe(*knowledge_.program().plan, knowledge_.program().rank_of(step), operand, step.step->count) + " after " +
      name_of(earlier) + " in the same call; a reader cannot tell which it sees";
  finding.trace = {trace_of(earlier), {finding.where, describe(knowledge_.program(), flat)}};
  return finding;
}

Finding RaceReport::user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write) const {
  const TraceStep step = trace_of(access);
  Finding finding;
  finding.property = Property::race;
  finding.where = step.where;
  finding.message = std::string(is_write ? "writes " : "reads ") + buffer_names[static_cast<size_t>(buffer)] +
                    " chunk " + std::to_string(chunk) + " of rank " + std::to_string(rank) +
                    ", whose call may have completed before";
  TraceStep user;
  user.where.plan = static_cast<int>(knowledge_.plan());
  user.where.rank = rank;
  user.text = "the call completes on this rank, and its user reads and writes input and output";
  finding.trace = {step, reason_of(access, !is_write, knowledge_.user(rank), user.where), user};
  return finding;
}

}  // namespace narrowcast::plan::verify
