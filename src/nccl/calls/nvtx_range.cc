#include "nccl/calls/nvtx_range.h"

#include "nccl/settings/settings.h"
#include "nccl/settings/text.h"

// Without the header there are no ranges. CMake warns about that.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace narrowcast::nccl {
namespace {

// NULL: no profiler is attached, or ranges are switched off.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t the = settings().nvtx ? nvtxDomainCreateA("narrowcast") : nullptr;
  return the;
}

// The payload holds `bytes`, for tools that aggregate it.
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

std::string text_of(const EngineCall& one) { return text_of(one.call, codec_text(one.codec).c_str()); }

void push(const std::string& text, uint64_t bytes) {
  const nvtxEventAttributes_t event = event_of(text, bytes);
  nvtxDomainRangePushEx(domain(), &event);
}

}  // namespace

NvtxRange::NvtxRange(const std::vector<EngineCalls>& groups) {
  if (domain() == nullptr) return;
  size_t calls = 0;
  uint64_t bytes = 0;
  for (const EngineCalls& group : groups) {
    calls += group.calls.size();
    for (const EngineCall& one : group.calls) bytes += piece_bytes(one.call);
  }
  push(calls == 1 ? text_of(groups[0].calls[0]) : "group of " + std::to_string(calls) + " calls", bytes);
  if (calls == 1) return;
  for (const EngineCalls& group : groups) {
    for (const EngineCall& one : group.calls) {
      const std::string text = text_of(one);
      const nvtxEventAttributes_t event = event_of(text, piece_bytes(one.call));
      nvtxDomainMarkEx(domain(), &event);
    }
  }
}

NvtxRange::NvtxRange(const Call& forwarded, const char* why) {
  if (domain() != nullptr) push(text_of(forwarded, (std::string("to NCCL: ") + why).c_str()), piece_bytes(forwarded));
}

NvtxRange::~NvtxRange() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace narrowcast::nccl

#else

namespace narrowcast::nccl {

NvtxRange::NvtxRange(const std::vector<EngineCalls>&) {}
NvtxRange::NvtxRange(const Call&, const char*) {}
NvtxRange::~NvtxRange() {}

}  // namespace narrowcast::nccl

#endif
