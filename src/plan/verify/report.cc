#include "plan/verify/report.h"

#include "nlohmann/json.hpp"

namespace narrowcast::plan::verify {

namespace {

using Json = nlohmann::ordered_json;

Json optional(int value) { return value < 0 ? Json(nullptr) : Json(value); }

void put(Json& json, const Where& where) {
  json["rank"] = optional(where.rank);
  json["group"] = optional(where.group);
  json["step"] = optional(where.step);
  json["body"] = optional(where.body);
  json["origin"] = where.origin;
}

void put(Json& json, const Finding& finding) {
  json["property"] = finding.found() ? Json(name_of(finding.property)) : Json(nullptr);
  put(json, finding.where);
  json["message"] = finding.message;
  json["trace"] = Json::array();
  for (const TraceStep& step : finding.trace) {
    Json entry;
    put(entry, step.where);
    entry["text"] = step.text;
    json["trace"].push_back(std::move(entry));
  }
}

}  // namespace

std::string describe(const Where& where) {
  std::string text;
  const auto add = [&](const char* name, int index) {
    if (index >= 0) text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(index);
  };
  add("rank", where.rank);
  add("group", where.group);
  add("step", where.step);
  add("step of the loop", where.body);
  return text;
}

std::string to_json(const Report& report) {
  Json json;
  json["verdict"] = name_of(report.verdict);
  put(json, report.finding);
  json["least_depth"] = report.least_depth;
  json["depth_needed_when_split"] = report.depth_needed_when_split;
  json["split_ok"] = report.split_ok;
  if (report.split_finding.found()) put(json["split"], report.split_finding);
  json["roundings"] = report.roundings;
  json["inexact_encodings"] = report.inexact_encodings;
  json["rank_order"] = report.rank_order;
  json["same_everywhere"] = report.same_everywhere;
  json["steps"] = report.steps;
  json["seconds"] = report.seconds;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace narrowcast::plan::verify
