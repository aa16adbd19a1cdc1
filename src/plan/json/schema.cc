#include "nlohmann/json.hpp"
#include "plan/json/json.h"
#include "plan/steps.h"

namespace narrowcast::plan::json {
namespace {

using Schema = nlohmann::ordered_json;

Schema whole_number(uint64_t least = 0) { return {{"type", "integer"}, {"minimum", least}}; }
Schema array_of(Schema items, size_t least = 0) {
  Schema array = {{"type", "array"}, {"items", std::move(items)}};
  if (least != 0) array["minItems"] = least;
  return array;
}
Schema reference(const char* name) { return {{"$ref", std::string("#/$defs/") + name}}; }
template <size_t count>
Schema one_of(const char* const (&names)[count]) {
  return {{"enum", Schema(names)}};
}
Schema object(const char* description, Schema properties, const std::vector<std::string>& required) {
  Schema result = {{"type", "object"}, {"additionalProperties", false}};
  if (*description != 0) result["description"] = description;
  result["properties"] = std::move(properties);
  result["required"] = required;
  return result;
}

Schema place_schema(const PlaceRow& row) {
  const bool located = row.keys != PlaceKeys::CHANNEL;
  Schema properties = Schema::object();
  std::vector<std::string> required;
  const auto add = [&](const char* key, Schema schema) {
    properties[key] = std::move(schema);
    required.emplace_back(key);
  };
  if (located) {
    add("buffer", one_of(buffer_names));
    add("chunk", whole_number());
    properties["packets"] = {{"type", "boolean"}};
  }
  if (row.keys == PlaceKeys::CHANNEL || row.keys == PlaceKeys::LOCATION_CHANNEL) add("channel", whole_number());
  if (row.keys == PlaceKeys::LOCATION_SWITCH) add("switch", whole_number());
  properties["codec"] = {{"type", "string"}};
  return object(row.text, std::move(properties), required);
}

Schema step_schema(const StepRow& row) {
  Schema properties = {{"step", {{"const", row.name}}}};
  std::vector<std::string> required = {"step"};
  const auto add = [&](const char* key, Schema schema) {
    properties[key] = std::move(schema);
    required.emplace_back(key);
  };
  properties["count"] = whole_number();
  properties["origin"] = whole_number();
  properties["after"] = array_of({{"type", "array"}, {"items", whole_number()}, {"minItems", 2}, {"maxItems", 2}});
  if (row.sources != Sources::NONE) {
    Schema from = array_of(reference("operand"), row.sources == Sources::MANY ? 2 : 1);
    if (row.sources == Sources::ONE) from["maxItems"] = 1;
    add("from", std::move(from));
  }
  if (row.destinations != Destinations::NONE) add("to", array_of(reference("operand"), 1));
  switch (row.argument) {
    case Argument::NOTHING: break;
    case Argument::CHANNELS:
      add("channels", array_of(whole_number(), 1));
      properties["relaxed"] = {{"type", "boolean"}};
      break;
    case Argument::BARRIER: add("barrier", whole_number()); break;
    case Argument::LOOP:
      add("unit_bytes", whole_number());
      add("steps", array_of(reference("step")));
      break;
  }
  return object(row.text, std::move(properties), required);
}

Schema channel_schema(ChannelKind kind) {
  Schema properties = {{"kind", {{"const", channel_kind_names[static_cast<size_t>(kind)]}}}};
  if (kind == ChannelKind::multicast) {
    properties["ranks"] = array_of(whole_number());
    return object("", std::move(properties), {"kind", "ranks"});
  }
  properties["from"] = properties["to"] = whole_number();
  if (kind != ChannelKind::ring) {
    properties["initial"] = whole_number();
    return object("", std::move(properties), {"kind", "from", "to"});
  }
  properties["depth"] = whole_number();
  properties["packets"] = {{"type", "boolean"}};
  return object("", std::move(properties), {"kind", "from", "to", "depth"});
}

Schema operation_names() {
  Schema names = Schema::array();
  for (const operation::Description& row : operation::descriptions)
    if (has_plans(row.operation)) names.push_back(row.name);
  return names;
}

}  // namespace

std::string schema() {
  Schema operands = Schema::array(), steps = Schema::array(), channels = Schema::array();
  for (const PlaceRow& row : place_rows) operands.push_back(place_schema(row));
  for (const StepRow& row : step_rows) steps.push_back(step_schema(row));
  for (size_t kind = 0; kind < std::size(channel_kind_names); ++kind)
    channels.push_back(channel_schema(static_cast<ChannelKind>(kind)));
  const Schema group = object("", {{"steps", array_of(reference("step"))}}, {"steps"});
  const Schema rank = object("",
                             {{"scratch_chunks", whole_number()},
                              {"groups", array_of(group)},
                              {"barriers", array_of(array_of(whole_number()))}},
                             {"groups"});
  Schema plan = object("A collective as steps of ranks: docs/design/plans.md.",
                       {{"narrowcast_plan", {{"const", form_version}}},
                        {"name", {{"type", "string"}}},
                        {"operation", {{"enum", operation_names()}}},
                        {"root", whole_number()},
                        {"chunks", whole_number()},
                        {"instances", whole_number()},
                        {"scratch_copies", whole_number()},
                        {"in_place", one_of(in_place_names)},
                        {"threads", one_of(threads_names)},
                        {"min_bytes", whole_number()},
                        {"max_bytes", whole_number()},
                        {"channels", array_of({{"oneOf", channels}})},
                        {"ranks", array_of(rank)}},
                       {"narrowcast_plan", "operation", "ranks"});
  Schema result = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "Narrowcast plan"}};
  result.update(plan);
  result["$defs"] = {{"operand", {{"oneOf", operands}}}, {"step", {{"oneOf", steps}}}};
  return result.dump(1) + "\n";
}

}  // namespace narrowcast::plan::json
