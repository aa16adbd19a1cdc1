#include "executor/cuda/generated/compile.h"

#include <time.h>

#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL

#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/kernel_sources.h"
#include "executor/cuda/generated/nvrtc.h"
#include "executor/cuda/generated/shared_values.h"
#include "plan/json/json.h"
#include "status/error.h"
#include "xxhash/xxhash.h"

namespace narrowcast::executor::cuda::generated {

ncast_status generate(const plan::Plan& plan, const Target& target, CompiledPlan* generated) {
  const bool is_float8 = target.dtype == NCAST_FLOAT8_E4M3 || target.dtype == NCAST_FLOAT8_E5M2;
  if (ncast_status status = make_program(plan, target.dtype, target.op, target.max_slots, &generated->program))
    return status;
  if (is_float8 && generated->program.reduces && target.architecture < 89)
    return fail(NCAST_UNSUPPORTED,
                "generated kernels reduce %s on GPUs of compute capability 8.9 or newer, but this is for %d.%d",
                ncast_dtype_name(target.dtype), target.architecture / 10, target.architecture % 10);
  if (std::optional<PieceProgram> pieces = find_pieces(generated->program); pieces && !target.by_steps) {
    generate_pieces(generated->program, *std::move(pieces), target.shared_bytes, &generated->blocks);
  } else if (ncast_status status = generate_blocks(generated->program, target.shared_bytes, &generated->blocks)) {
    return status;
  }
  generate_packets(generated->program, &generated->packets);
  const std::string sources =
      generated->blocks.text + generated->packets.straight.text + generated->packets.in_phases.text;
  generated->hash = XXH3_64bits(sources.data(), sources.size()) + (generated->program.asks_for_packets ? 1 : 0);
  return NCAST_OK;
}

namespace {

const codec::Kernel* find_built_in(const Program& program, const BlockSource& blocks) {
  if (!blocks.pieces) return nullptr;
  if (!blocks.pieces->reduces) return codec::find_kernel(codec::KernelKind::move, program.codec, program.dtype);
  if (program.op != NCAST_SUM) return nullptr;
  return codec::find_kernel(codec::KernelKind::reduce_sum, program.codec, program.dtype);
}

// The sources of the kernels, by CompiledKernel. Empty: there is no such kernel.
std::array<std::string, compiled_kernels> sources_of(const CompiledPlan& plan, const Target& target) {
  std::array<std::string, compiled_kernels> sources;
  const auto add = [&](CompiledKernel number, const char* only, const std::string& source) {
    sources[static_cast<size_t>(number)] = std::string("#define ") + only + "\n" + source;
  };
  if (plan.built_in == nullptr) sources[static_cast<size_t>(CompiledKernel::blocks)] = plan.blocks.text;
  if (!target.packets) return sources;
  const auto add_form = [&](CompiledKernel packets, CompiledKernel lines, const std::string& source) {
    if (source.empty()) return;
    add(packets, only_packets, source);
    if (target.lines) add(lines, only_lines, source);
  };
  add_form(CompiledKernel::packets, CompiledKernel::lines, plan.packets.straight.text);
  add_form(CompiledKernel::packets_in_phases, CompiledKernel::lines_in_phases, plan.packets.in_phases.text);
  return sources;
}

// CPU time of this thread.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

// The key contains a hash of all headers instead of the text of those that are included, which takes longer to put
// together than to find a cubin in the cache.
CubinKey key_of(const std::string& source, int architecture, const std::string& compiler) {
  const std::string headers = std::to_string(kernel_sources_hash());
  return {source + "\nheaders " + headers + "\nsm_" + std::to_string(architecture), compiler};
}

ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled) {
  if (ncast_status status = generate(plan, target, compiled)) return status;
  compiled->built_in = find_built_in(compiled->program, compiled->blocks);
  const std::array<std::string, compiled_kernels> sources = sources_of(*compiled, target);
  const CubinCache cache(folder);
  const std::string compiler = find_nvrtc().identity;
  struct Job {
    const std::string& source;
    CubinKey key;
    std::string* cubin;
    double* cpu_seconds;
    bool is_kept;
    ncast_status status;
    std::string message;
  };
  std::vector<Job> jobs;  // kernels that are not in the cache
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) continue;
    CubinKey key = key_of(sources[i], target.architecture, compiler);
    if (!cache.find(key, &compiled->cubins[i]))
      jobs.push_back({sources[i], std::move(key), &compiled->cubins[i], &compiled->cpu_seconds[i], true, NCAST_OK, ""});
  }
  const auto run = [&](Job& job) {
    job.status = guarded("compiling a plan", [&] {
      const auto make = [&](std::string* made) {
        const double begin = thread_seconds();
        const ncast_status status = compile_by_nvrtc(with_included_sources(job.source), target.architecture, made);
        *job.cpu_seconds = thread_seconds() - begin;
        return status;
      };
      return cache.find_or_compile(job.key, make, job.cubin, &job.is_kept);
    });
    if (job.status != NCAST_OK) job.message = ncast_last_error();
  };
  {
    std::vector<std::jthread> others;  // the kernels are compiled at the same time
    for (size_t i = 1; i < jobs.size(); ++i) {
      try {
        others.emplace_back([&, i] { run(jobs[i]); });
      } catch (const std::system_error&) {
        run(jobs[i]);  // the system has no more threads
      }
    }
    if (!jobs.empty()) run(jobs[0]);
  }
  for (const Job& job : jobs) {
    if (job.status != NCAST_OK) return fail(job.status, "%s", job.message.c_str());
    compiled->is_kept &= job.is_kept;
  }
  return NCAST_OK;
}

ncast_status compile_shared(const plan::Plan& plan, const Target& target, const std::string& folder,
                            std::shared_ptr<const CompiledPlan>* compiled) {
  static auto* const all = new SharedValues<const CompiledPlan>;  // never destroyed, as the kernels
  std::string key = plan::json::write(plan) + "\n" + folder + "\n";
  for (const uint32_t number :
       {uint32_t{target.dtype}, uint32_t{target.op}, static_cast<uint32_t>(target.architecture), target.max_slots,
        target.shared_bytes, uint32_t{target.by_steps}, uint32_t{target.packets}, uint32_t{target.lines}})
    key += std::to_string(number) + " ";
  return all->find_or_make(key, compiled, [&](std::shared_ptr<const CompiledPlan>* made) {
    auto own = std::make_shared<CompiledPlan>();
    const ncast_status status = compile(plan, target, folder, own.get());
    if (status == NCAST_OK) *made = std::move(own);
    return status;
  });
}

}  // namespace narrowcast::executor::cuda::generated
