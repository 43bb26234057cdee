// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "api/backend.hpp"
#include "api/prepared.hpp"
#include "cpu/attention.hpp"
#include "cpu/load_row.hpp"
#include "cpu/prepare.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/bits.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::api {
namespace {

constexpr std::align_val_t kAlignment{schedule::kSectionAlignment};

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  return {memory, [](std::byte* block) { ::operator delete(block, kAlignment); }};
}

std::string detail() { return std::string("SIMD target ") + cpu::simd_target(); }

MaybeRefusal refusal(const schedule::PrepareRequest&) { return {}; }

std::size_t prepared_bytes(const schedule::PrepareRequest& request) {
  return schedule::prepared_layout(request).bytes;
}

void prepare(const schedule::PrepareRequest& request, const Execution& execution,
             Prepared::Impl& prepared) {
  prepared.memory_bytes = prepared_bytes(request);
  prepared.memory = allocate(prepared.memory_bytes);
  prepared.view = schedule::prepared_view(request, prepared.memory.get());
  prepared.plans = numerics::summaries(
      cpu::prepare(request, prepared.memory.get(), *cpu::shared_pool(execution.threads)));
}

void run(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
         const Execution& execution) {
  cpu::attention_prepared(prepared.view, out, log_sum_exp, *cpu::shared_pool(execution.threads));
}

std::int64_t find_non_finite(const TensorView& tensor, const Execution&) {
  const std::int64_t channels = tensor.shape[kChannel];
  std::vector<float> row(static_cast<std::size_t>(channels));
  std::int64_t index = 0;
  for (std::int64_t b = 0; b < tensor.shape[kBatch]; ++b) {
    for (std::int64_t s = 0; s < tensor.shape[kSequence]; ++s) {
      cpu::check_interrupt();
      for (std::int64_t h = 0; h < tensor.shape[kHead]; ++h) {
        cpu::load_row(tensor, b, s, h, row.data());
        for (const float x : row) {
          if (!numerics::is_finite(x)) return index;
          ++index;
        }
      }
    }
  }
  return -1;
}

}  // namespace

const Backend kCpuBackend{
    .name = "cpu",
    .device = DeviceType::cpu,
    .run_on_hardware = true,
    .format = cpu::kPackedFormat,
    .detail = detail,
    .refusal = refusal,
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .run = run,
    .read_plans = nullptr,
    .find_non_finite = find_non_finite,
    .access = nullptr,
};

}  // namespace openvc::api
