#include "codec/codec.h"
#include "nlohmann/json.hpp"
#include "plan/json/json.h"
#include "plan/steps.h"

namespace narrowcast::plan::json {
namespace {

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// The members of an object in one line. Members that have their default are omitted.
class Members {
 public:
  explicit Members(std::string* out) : out_(*out) { out_ += '{'; }

  // Begins a member, whose value the caller appends.
  std::string& key(const char* name) {
    if (!empty_) out_ += ", ";
    empty_ = false;
    return out_.append("\"").append(name).append("\": ");
  }
  void number(const char* name, uint64_t value) { key(name) += std::to_string(value); }
  void number(const char* name, uint64_t value, uint64_t default_value) {
    if (value != default_value) number(name, value);
  }
  void flag(const char* name, bool value) {
    if (value) key(name) += "true";
  }
  void string(const char* name, const std::string& value) { key(name) += json_string(value); }
  // Appends each element with write(element).
  template <typename Range, typename Write>
  void list(const char* name, const Range& range, Write write) {
    key(name) += '[';
    bool first = true;
    for (const auto& element : range) {
      if (!first) out_ += ", ";
      first = false;
      write(element);
    }
    out_ += ']';
  }
  template <typename Range>
  void numbers(const char* name, const Range& range) {
    list(name, range, [&](auto value) { out_ += std::to_string(value); });
  }
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool empty_ = true;
};

void write_operand(const Operand& operand, std::string* out) {
  Members members(out);
  if (operand.has_location()) {
    members.string("buffer", buffer_names[static_cast<size_t>(operand.buffer)]);
    members.number("chunk", operand.chunk);
  }
  if (operand.place == Place::everywhere)
    members.number("switch", operand.channel);
  else if (operand.has_channel())
    members.number("channel", operand.channel);
  members.flag("packets", operand.packets);
  members.flag("partial", operand.partial);
  if (operand.codec != NCAST_CODEC_RAW) members.string("codec", codec::describe(operand.codec));
  members.end();
}

// A list with one element per line.
template <typename Range, typename Write>
void write_lines(const Range& range, const std::string& indent, std::string* out, Write write) {
  *out += '[';
  bool first = true;
  for (const auto& element : range) {
    *out += first ? "\n" : ",\n";
    first = false;
    *out += indent;
    write(element);
  }
  *out += ']';
}

void write_step(const Step& step, const std::string& indent, std::string* out) {
  Members members(out);
  members.string("step", row_of(step.kind).name);
  members.number("count", step.count, 1);
  const auto operand = [&](const Operand& one) { write_operand(one, out); };
  if (!step.from.empty()) members.list("from", step.from, operand);
  if (!step.to.empty()) members.list("to", step.to, operand);
  switch (row_of(step.kind).argument) {
    case Argument::NOTHING: break;
    case Argument::CHANNELS:
      members.numbers("channels", step.channels);
      members.flag("relaxed", step.relaxed);
      break;
    case Argument::BARRIER: members.number("barrier", step.barrier); break;
    case Argument::LOOP: {
      members.number("unit_bytes", step.unit_bytes);
      const std::string inner = indent + " ";
      members.key("steps");
      write_lines(step.body, inner, out, [&](const Step& one) { write_step(one, inner, out); });
      break;
    }
  }
  if (!step.after.empty())
    members.list("after", step.after, [&](const StepId& id) {
      *out += "[" + std::to_string(id.group) + ", " + std::to_string(id.step) + "]";
    });
  members.number("origin", step.origin, 0);
  members.end();
}

void write_channel(const Channel& channel, std::string* out) {
  Members members(out);
  members.string("kind", channel_kind_names[static_cast<size_t>(channel.kind)]);
  if (channel.kind == ChannelKind::multicast) {
    members.numbers("ranks", channel.ranks);
  } else {
    members.number("from", static_cast<uint64_t>(channel.from));
    members.number("to", static_cast<uint64_t>(channel.to));
  }
  if (channel.kind == ChannelKind::ring) members.number("depth", channel.depth);
  members.flag("packets", channel.packets);
  members.number("initial", channel.initial, 0);
  members.end();
}

void write_rank(const Rank& rank, std::string* out) {
  Members members(out);
  members.number("scratch_chunks", rank.scratch_chunks, 0);
  if (!rank.barriers.empty())
    members.list("barriers", rank.barriers, [&](const std::vector<uint32_t>& groups) {
      *out += '[';
      for (size_t i = 0; i < groups.size(); ++i) *out += (i == 0 ? "" : ", ") + std::to_string(groups[i]);
      *out += ']';
    });
  members.key("groups");
  write_lines(rank.groups, "  ", out, [&](const Group& group) {
    Members steps(out);
    steps.key("steps");
    write_lines(group.steps, "   ", out, [&](const Step& step) { write_step(step, "   ", out); });
    steps.end();
  });
  members.end();
}

}  // namespace

std::string write(const Plan& plan) {
  std::string out;
  Members members(&out);
  members.number("narrowcast_plan", form_version);
  if (!plan.name.empty()) members.string("name", plan.name);
  members.string("operation", operation::name_of(plan.operation));
  members.number("root", static_cast<uint64_t>(plan.root), 0);
  members.number("chunks", plan.chunks, 1);
  members.number("instances", plan.instances, 1);
  members.number("scratch_copies", plan.scratch_copies, 1);
  if (plan.in_place != InPlace::either) members.string("in_place", in_place_names[static_cast<size_t>(plan.in_place)]);
  if (plan.threads != Threads::synchronized)
    members.string("threads", threads_names[static_cast<size_t>(plan.threads)]);
  members.number("min_bytes", plan.min_bytes, 0);
  members.number("max_bytes", plan.max_bytes, 0);
  members.key("channels");
  write_lines(plan.channels, " ", &out, [&](const Channel& channel) { write_channel(channel, &out); });
  members.key("ranks");
  write_lines(plan.ranks, " ", &out, [&](const Rank& rank) { write_rank(rank, &out); });
  members.end();
  return out + "\n";
}

}  // namespace narrowcast::plan::json
