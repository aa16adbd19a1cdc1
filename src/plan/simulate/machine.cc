#include "plan/simulate/machine.h"

#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "nlohmann/json.hpp"
#include "plan/json/json.h"
#include "status/error.h"

namespace narrowcast::plan::simulate {
namespace {

using Json = nlohmann::json;

struct Member {
  const char* key;
  double Machine::* value;
  bool can_be_zero;
  bool is_optional = false;
};

constexpr Member members[] = {
    {"link_gbps", &Machine::link_gbps, false},
    {"link_packets_gbps", &Machine::link_packets_gbps, false},
    {"link_latency_us", &Machine::link_latency_us, true},
    {"link_packets_latency_us", &Machine::link_packets_latency_us, true, true},
    {"link_response_share", &Machine::link_response_share, true, true},
    {"link_packets_response_share", &Machine::link_packets_response_share, true, true},
    {"cta_move_gbps", &Machine::cta_move_gbps, false},
    {"cta_reduce_gbps", &Machine::cta_reduce_gbps, false},
    {"cta_encode_gbps", &Machine::cta_encode_gbps, false},
    {"cta_decode_gbps", &Machine::cta_decode_gbps, false},
    {"reducing_codec_share", &Machine::reducing_codec_share, false, true},
    {"generated_codec_share", &Machine::generated_codec_share, false, true},
    {"slow_sm_share", &Machine::slow_sm_share, false, true},
    {"slow_sm_raw_share", &Machine::slow_sm_raw_share, false, true},
    {"slot_latency_us", &Machine::slot_latency_us, true},
    {"coded_latency_us", &Machine::coded_latency_us, true},
    {"reduce_latency_us", &Machine::reduce_latency_us, true, true},
    {"step_us", &Machine::step_us, true},
    {"launch_us", &Machine::launch_us, true},
    {"slots_launch_us", &Machine::slots_launch_us, true, true},
};
constexpr Member network_members[] = {
    {"network_gbps", &Machine::network_gbps, false},
    {"network_latency_us", &Machine::network_latency_us, true},
};

ncast_status invalid(const std::string& message) {
  return fail(NCAST_INVALID_ARGUMENT, "machine: %s", message.c_str());
}

class Reader {
 public:
  Reader(const Json& json, Machine* machine) : json_(json), machine_(*machine) {}

  ncast_status read() {
    if (!json_.is_object() || json_.value("narrowcast_machine", Json()) != 1)
      return invalid("expected an object with \"narrowcast_machine\": 1");
    for (const auto& [key, text] : {std::pair("name", &machine_.name), std::pair("source", &machine_.source)}) {
      const auto found = find(key);
      if (found == json_.end()) continue;
      if (!found->is_string()) return invalid(std::string(key) + " is not a string");
      *text = found->get<std::string>();
    }
    machine_.hosts = static_cast<int>(whole("hosts", 1 << 16, 1));
    machine_.gpus_per_host = static_cast<int>(whole("gpus_per_host", 1 << 10, std::nullopt));
    machine_.ctas = static_cast<uint32_t>(whole("ctas", 1 << 10, std::nullopt));
    for (const Member& member : members) read_number(member);
    if (!json_.contains("link_packets_latency_us")) machine_.link_packets_latency_us = machine_.link_latency_us;
    if (!json_.contains("slow_sm_raw_share")) machine_.slow_sm_raw_share = machine_.slow_sm_share;
    if (json_.contains("clustered_ctas"))
      machine_.clustered_ctas = static_cast<uint32_t>(whole("clustered_ctas", 1 << 10, std::nullopt));
    if (machine_.hosts > 1 || json_.contains("network_gbps"))
      for (const Member& member : network_members) read_number(member);
    if (!error_.empty()) return invalid(error_);
    for (const auto& [key, ignored] : json_.items())
      if (!known_.contains(key)) return invalid("unknown key '" + key + "'");
    return NCAST_OK;
  }

 private:
  void set_error(const std::string& message) {
    if (error_.empty()) error_ = message;
  }
  Json::const_iterator find(const char* key) {
    known_.insert(key);
    return json_.find(key);
  }
  uint64_t whole(const char* key, uint64_t most, std::optional<uint64_t> otherwise) {
    const auto found = find(key);
    if (found == json_.end() && otherwise) return *otherwise;
    if (found != json_.end() && found->is_number_unsigned()) {
      const auto value = found->get<uint64_t>();
      if (value >= 1 && value <= most) return value;
    }
    set_error(std::string(key) + " must be a whole number from 1 to " + std::to_string(most));
    return 1;
  }
  void read_number(const Member& member) {
    const auto found = find(member.key);
    if (found == json_.end() && member.is_optional) return;
    const double value = found != json_.end() && found->is_number() ? found->get<double>() : -1;
    if (!std::isfinite(value) || value < 0 || (value == 0 && !member.can_be_zero))
      return set_error(std::string(member.key) +
                       (member.can_be_zero ? " must be a number, 0 or more" : " must be a number greater than 0"));
    machine_.*member.value = value;
  }

  const Json& json_;
  Machine& machine_;
  std::set<std::string> known_ = {"narrowcast_machine"};  // all keys that were read
  std::string error_;
};

}  // namespace

ncast_status read_machine(std::string_view text, Machine* machine) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return invalid("not JSON: " + json::message_of(error));
  }
  *machine = {};
  return Reader(json, machine).read();
}

}  // namespace narrowcast::plan::simulate
