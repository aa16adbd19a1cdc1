// The functions of plan.h that know what generated kernels can run: they compile and schedule plans.
#include "plan/schedule/api.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>

#include "executor/cuda/generated/compile.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/schedule.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "status/error.h"

using namespace narrowcast;
using namespace narrowcast::executor::cuda::generated;

namespace {

std::string report_of(const CompiledPlan& compiled, double seconds, bool is_kept) {
  const auto size = [&](size_t kernel) {
    return ", \"bytes\": " + std::to_string(compiled.cubins[kernel].size()) +
           ", \"cpu_seconds\": " + std::to_string(compiled.cpu_seconds[kernel]);
  };
  std::string text = "{\"kernels\": [{\"kernel\": \"blocks\"" + size(0) +
                     ", \"built_in\": " + (compiled.built_in != nullptr ? "true" : "false") +
                     ", \"groups\": " + std::to_string(compiled.program.groups()) +
                     ", \"warps_per_cta\": " + std::to_string(compiled.blocks.warps) +
                     ", \"stages\": " + std::to_string(compiled.program.stages) + "}";
  constexpr const char* names[] = {"packets", "lines", "packets in phases", "lines in phases"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (!compiled.cubins[i + 1].empty()) text += std::string(", {\"kernel\": \"") + names[i] + "\"" + size(i + 1) + "}";
  return text + "], \"kept\": " + (is_kept ? "true" : "false") + ", \"seconds\": " + std::to_string(seconds) + "}";
}

// Other value types have blocks as large as those of one of these, and rings with as many slots.
constexpr ncast_dtype representative_dtypes[] = {NCAST_BFLOAT16, NCAST_FLOAT64};

bool can_generate(const plan::Plan& lowered) {
  return std::ranges::all_of(representative_dtypes, [&](ncast_dtype dtype) {
    CompiledPlan generated;
    return generate(lowered, {.dtype = dtype, .architecture = 90}, &generated) == NCAST_OK;
  });
}

// Shared memory of a CTA, at most ("Technical Specifications per Compute Capability", CUDA C++ Programming Guide).
uint32_t shared_bytes_of(int architecture) {
  if (architecture == 80 || architecture == 87) return 163 << 10;
  return architecture < 90 || architecture / 10 == 12 ? 99 << 10 : select::most_shared_bytes;
}

ncast_status cannot_write(const char* function, const std::string& folder) {
  const std::string why = CubinCache(folder).why_unusable();
  return fail(NCAST_SYSTEM_ERROR, "%s: cannot write kernels to the folder %s%s%s", function, folder.c_str(),
              why.empty() ? "" : ": ", why.c_str());
}

}  // namespace

extern "C" ncast_status ncast_plan_schedule(const ncast_plan* lowered, const char* machine_json,
                                            const ncast_plan_simulation* simulation, ncast_plan** scheduled,
                                            ncast_text** report) {
  return plan::schedule::schedule_plan(lowered, machine_json, simulation, {can_generate, max_rings}, scheduled, report);
}

extern "C" ncast_status ncast_plan_compile(const ncast_plan* plan, ncast_dtype dtype, ncast_redop op, int architecture,
                                           const char* folder, ncast_text** report) {
  constexpr const char* function = "ncast_plan_compile";
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  if (ncast_dtype_bytes(dtype) == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d", function, int{dtype});
  if (op < NCAST_SUM || op > NCAST_AVG) return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d", function, int{op});
  if (architecture < 80 || architecture > 999)
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: architecture is %d, but GPUs of compute capability 8.0 (80) or newer are "
                "supported",
                function, architecture);
  return guarded(function, [&] {
    const auto begin = std::chrono::steady_clock::now();
    const plan::Proof& proof = plan->proof();
    if (proof.status != NCAST_OK) return fail(proof.status, "%s: %s", function, proof.message.c_str());
    const std::string used = folder != nullptr ? folder : CubinCache::default_folder();
    CompiledPlan compiled;
    const Target target{
        .dtype = dtype, .op = op, .architecture = architecture, .shared_bytes = shared_bytes_of(architecture)};
    if (ncast_status status = compile(proof.lowered, target, used, &compiled)) {
      const std::string message = ncast_last_error();
      return fail(status, "%s: %s", function, message.c_str());
    }
    if (!compiled.is_kept && !used.empty()) return cannot_write(function, used);
    if (report == nullptr) return NCAST_OK;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return make_text(function, report, [&] { return report_of(compiled, seconds.count(), !used.empty()); });
  });
}
