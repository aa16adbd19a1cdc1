// Findings of races: their messages and traces.
#include <string>
#include <utility>

#include "plan/steps.h"
#include "plan/verify/race_search.h"

namespace narrowcast::plan::verify {

std::pair<uint32_t, uint32_t> RaceSearch::step_of(const Access& access) const {
  const Actors::Actor& actor = actors_[access.actor];
  if (actor.kind == Actors::Kind::engine) return {engines_[access.actor].steps[(access.epoch - 1) / 2], none};
  const FlatGroup& group = flat_plan_.groups[actor.group];
  const uint32_t call = (access.epoch - 1) / epochs_of_call(group);
  return {group.begin + (access.epoch - 1) % epochs_of_call(group) / 2, call};
}

TraceStep RaceSearch::trace_of(const Access& access) const {
  const Actors::Actor& actor = actors_[access.actor];
  if (actor.kind == Actors::Kind::user) {
    TraceStep step;
    step.where.rank = actor.rank;
    step.text = "before call " + std::to_string(access.epoch - 1) + ", the user reads and writes input and output";
    return step;
  }
  const auto [flat, call] = step_of(access);
  std::string text = describe(flat_plan_, flat);
  if (actor.kind == Actors::Kind::engine) text += ", by the copy engine";
  if (call != none && call != call_) text += ", in call " + std::to_string(call);
  return {flat_plan_.where(flat), text};
}

std::string RaceSearch::name_of(const Access& access) const {
  const Actors::Actor& actor = actors_[access.actor];
  if (actor.kind == Actors::Kind::user) return "the user of rank " + std::to_string(actor.rank);
  const auto [flat, call] = step_of(access);
  std::string text = describe(flat_plan_.where(flat));
  if (call != none && call != call_) text += " of an earlier call";
  return text;
}

TraceStep RaceSearch::reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const {
  const Actors::Actor& actor = actors_[earlier.actor];
  TraceStep step;
  step.where = at;
  if (earlier.actor == viewer.actor) {
    step.text = "there is no sync between the two steps, so other threads can be behind";
    return step;
  }
  const Row& row = is_read && tracks_reads_ ? viewer.clock->reads : viewer.clock->accesses;
  const uint32_t known = row[actor.component];
  if (actor.kind == Actors::Kind::user) {
    step.text = "rank " + std::to_string(actor.rank) + " is not known to have entered the call";
    return step;
  }
  const std::string who = actor.kind == Actors::Kind::engine ? "the copy engine" : "that group";
  if (known == 0) {
    step.text = "no step of " + who + " is known to precede";
    return step;
  }
  const auto [flat, call] = step_of({earlier.actor, known, {}});
  const std::string of_call = call != none && call != call_ ? " of call " + std::to_string(call) : "";
  const bool is_end = actor.kind == Actors::Kind::group && flat == flat_plan_.groups[actor.group].end;
  step.text = "only the steps of " + who + " up to " + (is_end ? "the end" : describe(flat_plan_.where(flat))) +
              of_call + " are known to precede";
  return step;
}

void RaceSearch::report_race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier,
                             bool earlier_is_write, const Viewer& viewer) {
  const FlatStep& step = flat_plan_.steps[flat];
  finding_.property = Property::race;
  finding_.where = flat_plan_.where(flat);
  finding_.message = std::string(is_write ? "writes " : "reads ") +
                     describe(*flat_plan_.plan, flat_plan_.rank_of(step), operand, step.step->count) +
                     ", not ordered after " + name_of(earlier) + ", which " +
                     (earlier_is_write ? "writes it" : "reads it");
  std::string text = describe(flat_plan_, flat);
  if (actors_[viewer.actor].kind == Actors::Kind::engine) text += ", by the copy engine";
  if (call_ != 0) text += ", in call " + std::to_string(call_);
  finding_.trace = {
      trace_of(earlier), reason_of(earlier, !earlier_is_write, viewer, finding_.where), {finding_.where, text}};
}

void RaceSearch::report_second_packets(uint32_t flat, const Operand& operand, const Access& earlier) {
  const FlatStep& step = flat_plan_.steps[flat];
  finding_.property = Property::race;
  finding_.where = flat_plan_.where(flat);
  finding_.message = "writes packets to " +
                     describe(*flat_plan_.plan, flat_plan_.rank_of(step), operand, step.step->count) + " after " +
                     name_of(earlier) + " in the same call; a reader cannot tell which it sees";
  finding_.trace = {trace_of(earlier), {finding_.where, describe(flat_plan_, flat)}};
}

void RaceSearch::report_user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write) {
  const TraceStep step = trace_of(access);
  finding_.property = Property::race;
  finding_.where = step.where;
  finding_.message = std::string(is_write ? "writes " : "reads ") + buffer_names[static_cast<size_t>(buffer)] +
                     " chunk " + std::to_string(chunk) + " of rank " + std::to_string(rank) +
                     ", whose call may have completed before";
  TraceStep user;
  user.where.rank = rank;
  user.text = "the call completes on this rank, and its user reads and writes input and output";
  const Viewer viewer{actors_.user(rank), call_ + 2, &ranks_[static_cast<size_t>(rank)].end, 0};
  finding_.trace = {step, reason_of(access, !is_write, viewer, user.where), user};
}

}  // namespace narrowcast::plan::verify
