// The rows of steps.def.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/ir.h"

namespace narrowcast::plan {

enum class Sources : uint8_t { NONE, ONE, MANY };
enum class Destinations : uint8_t { NONE, SOME };
enum class Argument : uint8_t { NOTHING, CHANNELS, BARRIER, LOOP };
enum class PlaceKeys : uint8_t { LOCATION, CHANNEL, LOCATION_CHANNEL, LOCATION_SWITCH };

struct StepRow {
  StepKind kind;
  const char* name;
  Sources sources;
  Destinations destinations;
  Argument argument;
  const char* text;
};

struct PlaceRow {
  Place place;
  const char* name;
  PlaceKeys keys;
  const char* text;
};

inline constexpr StepRow step_rows[] = {
#define PLAN_STEP(name, sources, destinations, argument, text) \
  {StepKind::name, #name, Sources::sources, Destinations::destinations, Argument::argument, text},
#include "plan/steps.def"
};

inline constexpr PlaceRow place_rows[] = {
#define PLAN_PLACE(name, keys, text) {Place::name, #name, PlaceKeys::keys, text},
#include "plan/steps.def"
};

constexpr const StepRow& row_of(StepKind kind) { return step_rows[static_cast<size_t>(kind)]; }
constexpr const PlaceRow& row_of(Place place) { return place_rows[static_cast<size_t>(place)]; }

// Names in JSON, in the order of the enumerators.
inline constexpr const char* step_names[] = {
#define PLAN_STEP(name, ...) #name,
#include "plan/steps.def"
};
inline constexpr const char* buffer_names[] = {"input", "output", "scratch"};
inline constexpr const char* in_place_names[] = {"no", "yes", "either"};
inline constexpr const char* channel_kind_names[] = {"ring", "memory", "port", "switch"};
inline constexpr const char* threads_names[] = {"synchronized", "independent"};

// Whether a plan can describe the operation: a collective in which all pieces have the same size.
constexpr bool has_plans(Operation operation) {
  return !operation::is_point_to_point(operation) && operation != Operation::all_to_all_v;
}

}  // namespace narrowcast::plan
