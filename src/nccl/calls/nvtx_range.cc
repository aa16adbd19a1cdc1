#include "nccl/calls/nvtx_range.h"

#include "nccl/settings/settings.h"
#include "nccl/settings/text.h"

// Where it is missing there are no ranges, which CMake has warned of.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace narrowcast::nccl {
namespace {

// NULL: no profiler listens, or is to.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t the = settings().nvtx ? nvtxDomainCreateA("narrowcast") : nullptr;
  return the;
}

// The payload is `bytes`, too, for tools that add up.
nvtxEventAttributes_t event_of(const std::string& text, uint64_t bytes) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text.c_str();
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = bytes;
  return event;
}

std::string text_of(const Call& call, const char* rest) {
  return std::string(name_of(call.operation)) + " " + std::to_string(piece_bytes(call)) + " B " + rest;
}

std::string text_of(const TakenCall& taken) { return text_of(taken.call, codec_text(taken.codec).c_str()); }

void push(const std::string& text, uint64_t bytes) {
  const nvtxEventAttributes_t event = event_of(text, bytes);
  nvtxDomainRangePushEx(domain(), &event);
}

}  // namespace

Range::Range(const std::vector<TakenCalls>& taken) {
  if (domain() == nullptr) return;
  size_t calls = 0;
  uint64_t bytes = 0;
  for (const TakenCalls& group : taken) {
    calls += group.calls.size();
    for (const TakenCall& one : group.calls) bytes += piece_bytes(one.call);
  }
  push(calls == 1 ? text_of(taken[0].calls[0]) : "group of " + std::to_string(calls) + " taken calls", bytes);
  if (calls == 1) return;
  for (const TakenCalls& group : taken) {
    for (const TakenCall& one : group.calls) {
      const std::string text = text_of(one);
      const nvtxEventAttributes_t event = event_of(text, piece_bytes(one.call));
      nvtxDomainMarkEx(domain(), &event);
    }
  }
}

Range::Range(const Call& forwarded, const char* why) {
  if (domain() != nullptr) push(text_of(forwarded, (std::string("to NCCL: ") + why).c_str()), piece_bytes(forwarded));
}

Range::~Range() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace narrowcast::nccl

#else

namespace narrowcast::nccl {

Range::Range(const std::vector<TakenCalls>&) {}
Range::Range(const Call&, const char*) {}
Range::~Range() {}

}  // namespace narrowcast::nccl

#endif
