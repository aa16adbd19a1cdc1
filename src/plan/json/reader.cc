#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "codec/codec.h"
#include "codec/text.h"
#include "nlohmann/json.hpp"
#include "plan/json/json.h"
#include "plan/limits.h"
#include "plan/steps.h"
#include "status/error.h"

namespace narrowcast::plan::json {
namespace {

using Json = nlohmann::json;

// What is wrong, and where.
struct Fault : std::exception {
  Fault(std::string place, std::string text) : path(std::move(place)), message(std::move(text)) {}
  std::string path, message;
};
struct Unsupported : std::exception {
  explicit Unsupported(std::string text) : message(std::move(text)) {}
  std::string message;
};

// The path of a value as a linked list, which is only formatted if there is a fault.
struct Path {
  const Path* parent = nullptr;
  const char* key = nullptr;
  size_t index = 0;  // if key is NULL

  std::string text() const {
    if (parent == nullptr) return "";
    const std::string before = parent->text();
    if (key == nullptr) return before + "[" + std::to_string(index) + "]";
    return before.empty() ? key : before + "." + key;
  }
};

[[noreturn]] void fault(const Path& path, const std::string& message) { throw Fault{path.text(), message}; }

std::string quoted(const std::string& text) {
  constexpr size_t longest = 40;
  return "'" + (text.size() <= longest ? text : text.substr(0, longest) + "...") + "'";
}

// A value for an error message.
std::string shown(const Json& value) {
  if (value.is_object() || value.is_array()) return std::string("an ") + value.type_name();
  return quoted(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

// Reads the members of an object. Members that have not been read at the end are an error.
class Object {
 public:
  Object(const Json& value, const Path& path) : value_(value), path_(path) {
    if (!value.is_object()) fault(path, "expected an object, not " + shown(value));
  }

  Path path_of(const char* key) const { return {&path_, key}; }

  const Json* find(const char* key) {
    const auto found = value_.find(key);
    if (found == value_.end()) return nullptr;
    ++read_;
    return &*found;
  }
  const Json& require(const char* key) {
    const Json* const found = find(key);
    if (found == nullptr) fault(path_, std::string("has no '") + key + "'");
    return *found;
  }

  // `expected`: the keys that can occur, for the message.
  void finish(std::initializer_list<const char*> expected) const {
    if (read_ == value_.size()) return;
    for (const auto& [key, ignored] : value_.items()) {
      if (std::ranges::find(expected, key) == expected.end()) fault(path_, "unknown key " + quoted(key));
    }
    fault(path_, "has keys that do not belong together");
  }

  uint64_t number(const char* key, uint64_t most, std::optional<uint64_t> otherwise) {
    if (otherwise && !value_.contains(key)) return *otherwise;
    return number_of(require(key), path_of(key), most);
  }
  uint32_t number32(const char* key, std::optional<uint32_t> otherwise) {
    return static_cast<uint32_t>(number(key, std::numeric_limits<uint32_t>::max(), otherwise));
  }
  bool boolean(const char* key) {
    const Json* const found = find(key);
    if (found == nullptr) return false;
    if (!found->is_boolean()) fault(path_of(key), "expected true or false, not " + shown(*found));
    return found->get<bool>();
  }
  std::string string(const char* key) {
    const Json& found = require(key);
    if (!found.is_string()) fault(path_of(key), "expected a string, not " + shown(found));
    return found.get<std::string>();
  }
  // The index of the member among `names`.
  size_t choice(const char* key, std::span<const char* const> names, std::optional<size_t> otherwise) {
    if (otherwise && !value_.contains(key)) return *otherwise;
    const std::string name = string(key);
    std::string known;
    for (size_t i = 0; i < names.size(); ++i) {
      if (name == names[i]) return i;
      known += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    fault(path_of(key), quoted(name) + " is not one of " + known);
  }
  // Calls read(element, path) for every element of an array.
  template <typename Read>
  void each(const char* key, bool required, Read read) {
    const Json* const found = required ? &require(key) : find(key);
    if (found == nullptr) return;
    const Path path = path_of(key);
    if (!found->is_array()) fault(path, "expected an array, not " + shown(*found));
    for (size_t i = 0; i < found->size(); ++i) read((*found)[i], Path{&path, nullptr, i});
  }
  std::vector<uint32_t> numbers(const char* key) {
    std::vector<uint32_t> all;
    each(key, true, [&](const Json& value, const Path& path) { all.push_back(number32_of(value, path)); });
    return all;
  }

  static uint64_t number_of(const Json& value, const Path& path, uint64_t most) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > most)
      fault(path, "expected a whole number from 0 to " + std::to_string(most) + ", not " + shown(value));
    return value.get<uint64_t>();
  }
  static uint32_t number32_of(const Json& value, const Path& path) {
    return static_cast<uint32_t>(number_of(value, path, std::numeric_limits<uint32_t>::max()));
  }

 private:
  const Json& value_;
  const Path& path_;
  size_t read_ = 0;
};

int rank_of(const Json& value, const Path& path) {
  return static_cast<int>(Object::number_of(value, path, max_ranks - 1));
}

Operand read_operand(const Json& value, const Path& path, bool is_source) {
  Object object(value, path);
  Operand operand;
  const Json* const channel = object.find("channel");
  const Json* const switched = object.find("switch");
  const bool located = value.contains("buffer") || value.contains("chunk");
  if (channel != nullptr) operand.channel = Object::number32_of(*channel, object.path_of("channel"));
  if (switched != nullptr) operand.channel = Object::number32_of(*switched, object.path_of("switch"));
  if (switched != nullptr)
    operand.place = Place::everywhere;
  else if (channel != nullptr)
    operand.place = located ? Place::remote : Place::message;
  if (operand.has_location()) {
    operand.buffer = static_cast<Buffer>(object.choice("buffer", buffer_names, std::nullopt));
    operand.chunk = object.number32("chunk", std::nullopt);
    operand.packets = object.boolean("packets");
  }
  operand.partial = object.boolean("partial");
  if (value.contains("codec")) {
    const codec::ParsedCodec parsed = codec::parse(codec::rows(), object.string("codec"));
    if (!parsed.codec) fault(object.path_of("codec"), parsed.error);
    if (*parsed.codec == NCAST_CODEC_AUTO || codec::is_within(*parsed.codec))
      fault(object.path_of("codec"), "a plan must name the codec, not auto or within");
    if (is_source && operand.place == Place::local && !operand.packets)
      fault(object.path_of("codec"), "values in a buffer of the rank are not encoded");
    if (codec::is_forced(*parsed.codec)) fault(object.path_of("codec"), "a plan's codec is always used: omit the '!'");
    operand.codec = *parsed.codec;
  }
  object.finish({"buffer", "chunk", "channel", "switch", "packets", "partial", "codec"});
  return operand;
}

std::vector<Operand> read_operands(Object& object, const char* key) {
  std::vector<Operand> operands;
  const bool is_source = std::string_view(key) == "from";
  object.each(key, false,
              [&](const Json& value, const Path& path) { operands.push_back(read_operand(value, path, is_source)); });
  return operands;
}

void check_operands(const Step& step, const Path& path) {
  const StepRow& row = row_of(step.kind);
  const size_t sources = step.from.size(), destinations = step.to.size();
  const std::string name = row.name;
  if (row.sources == Sources::NONE && sources != 0) fault(path, "step " + name + " has no 'from'");
  if (row.sources == Sources::ONE && sources != 1)
    fault(path, "step " + name + " has " + std::to_string(sources) + " sources instead of 1");
  if (row.sources == Sources::MANY && sources < 2)
    fault(path, "step " + name + " has " + std::to_string(sources) + " sources, but needs at least 2");
  if (row.destinations == Destinations::NONE && destinations != 0) fault(path, "step " + name + " has no 'to'");
  if (row.destinations == Destinations::SOME && destinations == 0) fault(path, "step " + name + " has no destination");
}

class Reader {
 public:
  Plan read(const Json& value) {
    const Path path;
    Object object(value, path);
    const uint64_t version = object.number("narrowcast_plan", std::numeric_limits<uint32_t>::max(), std::nullopt);
    if (version != form_version)
      throw Unsupported{"the plan has version " + std::to_string(version) +
                        " of the form, and this library reads version " + std::to_string(form_version)};
    Plan plan;
    if (value.contains("name")) plan.name = object.string("name");
    plan.operation = read_operation(object);
    plan.root = static_cast<int>(object.number("root", max_ranks - 1, 0));
    plan.chunks = object.number32("chunks", 1);
    plan.instances = object.number32("instances", 1);
    plan.scratch_copies = object.number32("scratch_copies", 1);
    plan.in_place = static_cast<InPlace>(object.choice("in_place", in_place_names, size_t{2}));
    plan.threads = static_cast<Threads>(object.choice("threads", threads_names, size_t{0}));
    plan.min_bytes = object.number("min_bytes", std::numeric_limits<uint64_t>::max(), 0);
    plan.max_bytes = object.number("max_bytes", std::numeric_limits<uint64_t>::max(), 0);
    object.each("channels", false,
                [&](const Json& one, const Path& place) { plan.channels.push_back(read_channel(one, place)); });
    object.each("ranks", true, [&](const Json& one, const Path& place) {
      if (plan.ranks.size() == max_ranks) fault(place, "more than " + std::to_string(max_ranks) + " ranks");
      plan.ranks.push_back(read_rank(one, place));
    });
    object.finish({"narrowcast_plan", "name", "operation", "root", "chunks", "instances", "scratch_copies", "in_place",
                   "threads", "min_bytes", "max_bytes", "channels", "ranks"});
    return plan;
  }

 private:
  static Operation read_operation(Object& object) {
    const std::string name = object.string("operation");
    const auto operation = operation::find(name);
    if (!operation) fault(object.path_of("operation"), quoted(name) + " is not an operation");
    if (!has_plans(*operation)) fault(object.path_of("operation"), "there are no plans for " + name);
    return *operation;
  }

  static Channel read_channel(const Json& value, const Path& path) {
    Object object(value, path);
    Channel channel;
    channel.kind = static_cast<ChannelKind>(object.choice("kind", channel_kind_names, std::nullopt));
    if (channel.kind == ChannelKind::multicast) {
      object.each("ranks", true,
                  [&](const Json& one, const Path& place) { channel.ranks.push_back(rank_of(one, place)); });
    } else {
      channel.from = rank_of(object.require("from"), object.path_of("from"));
      channel.to = rank_of(object.require("to"), object.path_of("to"));
    }
    if (channel.kind == ChannelKind::ring) {
      channel.depth = object.number32("depth", std::nullopt);
      channel.packets = object.boolean("packets");
    } else if (channel.kind != ChannelKind::multicast) {
      channel.initial = object.number32("initial", 0);
    }
    object.finish({"kind", "from", "to", "depth", "packets", "initial", "ranks"});
    return channel;
  }

  Rank read_rank(const Json& value, const Path& path) {
    Object object(value, path);
    Rank rank;
    rank.scratch_chunks = object.number32("scratch_chunks", 0);
    object.each("groups", true, [&](const Json& one, const Path& place) {
      Object group(one, place);
      rank.groups.push_back({read_steps(group)});
      group.finish({"steps"});
    });
    object.each("barriers", false, [&](const Json& one, const Path& place) {
      if (!one.is_array()) fault(place, "expected an array, not " + shown(one));
      std::vector<uint32_t>& groups = rank.barriers.emplace_back();
      for (size_t i = 0; i < one.size(); ++i) groups.push_back(Object::number32_of(one[i], Path{&place, nullptr, i}));
    });
    object.finish({"scratch_chunks", "groups", "barriers"});
    return rank;
  }

  std::vector<Step> read_steps(Object& object) {
    std::vector<Step> steps;
    object.each("steps", true, [&](const Json& one, const Path& path) { steps.push_back(read_step(one, path)); });
    return steps;
  }

  Step read_step(const Json& value, const Path& path) {
    Object object(value, path);
    Step step;
    step.kind = static_cast<StepKind>(object.choice("step", step_names, std::nullopt));
    step.count = object.number32("count", 1);
    step.origin = object.number32("origin", 0);
    step.from = read_operands(object, "from");
    step.to = read_operands(object, "to");
    check_operands(step, path);
    object.each("after", false, [&](const Json& one, const Path& place) { step.after.push_back(read_id(one, place)); });
    switch (row_of(step.kind).argument) {
      case Argument::NOTHING: break;
      case Argument::CHANNELS:
        step.channels = object.numbers("channels");
        if (step.channels.empty()) fault(object.path_of("channels"), "is empty");
        step.relaxed = object.boolean("relaxed");
        break;
      case Argument::BARRIER: step.barrier = object.number32("barrier", std::nullopt); break;
      case Argument::LOOP:
        if (in_loop_) fault(path, "loops cannot be nested");
        in_loop_ = true;
        step.unit_bytes = object.number("unit_bytes", std::numeric_limits<uint64_t>::max(), std::nullopt);
        step.body = read_steps(object);
        in_loop_ = false;
        break;
    }
    object.finish(
        {"step", "count", "origin", "from", "to", "after", "channels", "relaxed", "barrier", "unit_bytes", "steps"});
    return step;
  }

  static StepId read_id(const Json& value, const Path& path) {
    if (!value.is_array() || value.size() != 2) fault(path, "expected [group, step], not " + shown(value));
    return {Object::number32_of(value[0], Path{&path, nullptr, 0}),
            Object::number32_of(value[1], Path{&path, nullptr, 1})};
  }

  bool in_loop_ = false;
};

// Rejects duplicate keys, of which the parser would keep the last. Also rejects objects with many more keys than any
// object of a plan, so that the search takes constant time.
class UniqueKeys {
 public:
  static constexpr size_t most_keys = 32;

  bool operator()(int /*depth*/, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start: open_.emplace_back(); break;
      case Json::parse_event_t::object_end: open_.pop_back(); break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (std::ranges::find(open_.back(), key) != open_.back().end())
          throw Fault{"", "an object has " + quoted(key) + " twice"};
        if (open_.back().size() == most_keys)
          throw Fault{"", "an object has more than " + std::to_string(most_keys) + " keys"};
        open_.back().push_back(key);
        break;
      }
      default: break;
    }
    return true;
  }

 private:
  std::vector<std::vector<std::string>> open_;
};

}  // namespace

std::string message_of(const std::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  const std::string what = error.what();
  const size_t after_id = what.find("] ");
  return after_id == what.npos ? what : what.substr(after_id + 2);
}

ncast_status read(std::string_view text, Plan* plan) {
  try {
    UniqueKeys unique_keys;
    *plan = Reader().read(Json::parse(text, std::ref(unique_keys)));
    return NCAST_OK;
  } catch (const Fault& fault) {
    return fail(NCAST_INVALID_ARGUMENT, "plan: %s%s%s", fault.path.c_str(), fault.path.empty() ? "" : ": ",
                fault.message.c_str());
  } catch (const Unsupported& error) {
    return fail(NCAST_UNSUPPORTED, "plan: %s", error.message.c_str());
  } catch (const Json::exception& error) {
    return fail(NCAST_INVALID_ARGUMENT, "plan: %s", message_of(error).c_str());
  }
}

}  // namespace narrowcast::plan::json
