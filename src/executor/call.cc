#include "executor/call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "codec/codec.h"
#include "executor/communicator.h"
#include "executor/launch_apart.h"
#include "operation/scaled_sum.h"
#include "plan/builders/builders.h"

namespace narrowcast::executor {
namespace {

// Tags are read from shared memory, so any number is possible.
template <typename Name, size_t count>
std::string name_or_number(const Name (&names)[count], unsigned value) {
  return value < count ? names[value] : "number " + std::to_string(value);
}

// Sends and receives have the same tag, so its name covers both.
std::string operation_name(Operation operation) {
  const auto number = static_cast<unsigned>(operation);
  if (number >= operation::count) return "number " + std::to_string(number);
  return is_point_to_point(operation) ? "send/recv" : name_of(operation);
}

std::string redop_name(unsigned redop) {
  return redop == operation::scaled_sum ? "sum with a factor" : name_or_number(operation::redop_names, redop);
}

// Numbers of builders, by their place in the table.
constexpr uint32_t builder_plans = 1u << 31;

std::string plan_name(uint32_t plan) {
  const char* const builder = builder_of(plan);
  return "plan " + (builder != nullptr ? builder : std::to_string(plan));
}

// The table of CRC-12, x^12 + x^11 + x^3 + x^2 + x + 1.
constexpr std::array<uint16_t, 256> crc12_table = [] {
  std::array<uint16_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte << 4;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1 ^ ((crc & 0x800) != 0 ? 0x80f : 0)) & 0xfff;
    table[byte] = static_cast<uint16_t>(crc);
  }
  return table;
}();

}  // namespace

std::vector<ncast_comm*> communicators_of(const std::vector<Call>& calls) {
  std::vector<ncast_comm*> comms;
  for (const Call& call : calls)
    if (std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
  return comms;
}

const char* function_of(const Call& call) {
  const bool runs_loaded_plan = call.plan != 0 && builder_of(call.plan) == nullptr;
  return runs_loaded_plan && call.chosen == nullptr ? "ncast_loaded_plan_run" : function_name(call.operation);
}

uint32_t plan_of_builder(std::string_view name) {
  const std::span<const plan::builders::Row> rows = plan::builders::rows();
  const auto found = std::ranges::find_if(rows, [&](const plan::builders::Row& row) { return row.name == name; });
  return builder_plans | static_cast<uint32_t>(found - rows.begin());
}

const char* builder_of(uint32_t plan) {
  const std::span<const plan::builders::Row> rows = plan::builders::rows();
  const uint32_t row = plan & ~builder_plans;
  return (plan & builder_plans) != 0 && row < rows.size() ? rows[row].name : nullptr;
}

bool is_to_self(const Call& call) { return is_point_to_point(call.operation) && call.peer == call.comm->rank(); }

ncast_redop redop_of_tag(const Call& call) { return call.factor ? operation::scaled_sum : call.redop; }

CallTag make_tag(const Call& call, uint64_t sequence) {
  CallTag tag = {};
  tag.sequence = sequence;
  tag.count = call.operation == Operation::all_to_all_v ? counts_by_pair : call.count;
  // A receive expects the tag of its send.
  tag.operation = call.operation == Operation::recv ? Operation::send : call.operation;
  tag.dtype = static_cast<uint8_t>(call.dtype);
  tag.codec = codec::canonical(call.codec);
  tag.redop = reduces(call.operation) ? static_cast<uint8_t>(redop_of_tag(call)) : 0;
  tag.root = has_root(call.operation) ? call.peer : 0;
  tag.plan = call.plan;
  if (call.result_codec) {
    const ncast_codec result = codec::canonical(*call.result_codec);
    tag.result_codec = static_cast<uint32_t>(result ^ result >> 32) + 1;
  }
  return tag;
}

uint32_t call_mark(const CallTag& tag) {
  uint32_t crc = 0xfff;
  const auto add = [&crc](uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) crc = (crc << 8 & 0xfff) ^ crc12_table[(crc >> 4 ^ value >> 8 * i) & 0xff];
  };
  add(static_cast<uint8_t>(tag.operation), 1);
  add(tag.dtype, 1);
  add(tag.codec, sizeof tag.codec);
  add(tag.redop, 1);
  add(static_cast<uint8_t>(tag.root), 1);
  add(tag.count, 8);
  add(tag.result_codec, sizeof tag.result_codec);
  return 1u << 12 | crc;
}

channel::Tag pack(const CallTag& tag) {
  channel::Tag words;
  std::memcpy(words.bytes, &tag, sizeof tag);
  return words;
}

CallTag unpack(const channel::Tag& words) {
  CallTag tag;
  std::memcpy(&tag, words.bytes, sizeof tag);
  return tag;
}

bool same_call(const CallTag& a, const CallTag& b) { return differences(a, b).empty(); }

std::string describe(const CallTag& tag) {
  std::string text = operation_name(tag.operation);
  if (tag.plan != 0) text = plan_name(tag.plan) + ", " + text;
  if (tag.sequence != 0) text += " number " + std::to_string(tag.sequence);
  const char* dtype = ncast_dtype_name(static_cast<ncast_dtype>(tag.dtype));
  text += " of " + (tag.count == counts_by_pair ? "" : std::to_string(tag.count) + " ") +
          (dtype != nullptr ? dtype : "values") + " (";
  const bool is_known = static_cast<size_t>(tag.operation) < operation::count;
  if (is_known && reduces(tag.operation)) text += redop_name(tag.redop) + ", ";
  if (is_known && has_root(tag.operation)) text += "root " + std::to_string(tag.root) + ", ";
  return text + "codec " + codec::describe(tag.codec) + ")";
}

std::string differences(const CallTag& a, const CallTag& b) {
  std::string list;
  const auto compare = [&list](bool same, const char* name) {
    if (!same) list += (list.empty() ? "" : ", ") + std::string(name);
  };
  compare(a.operation == b.operation, "operation");
  compare(a.sequence == b.sequence, "order of calls");
  compare(a.count == b.count, "count");
  compare(a.dtype == b.dtype, "dtype");
  compare(a.redop == b.redop, "op");
  compare(a.root == b.root, "root");
  compare(a.codec == b.codec, "codec");
  compare(a.result_codec == b.result_codec, "result_codec");
  compare(a.plan == b.plan, "plan");
  compare(a.phase == b.phase, "phase");
  return list;
}

}  // namespace narrowcast::executor
