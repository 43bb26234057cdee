// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "numerics/online_softmax.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::study {

/// One head of an attention call: tensors of shape [1, S, 1, kHeadDim].
struct HeadInputs {
  TensorView q;
  TensorView k;
  TensorView v;
  Mask mask = Mask::none;
  KeyOrder key_order = KeyOrder::mid_window;
  float softmax_scale = 1.0f;
};

/// Extra key/value rows that return the rounding error of some tokens of V.
struct RepairRows {
  std::int64_t count = 0;
  std::vector<float> keys;    // [count][columns]
  std::vector<float> values;  // [count][kHeadDim], on the grid of V
};

/// The numbers behind the bytes of a prepared head; Q only for the rows that were asked for.
struct DecodedHead {
  numerics::HeadRule rule{};
  std::int64_t columns = 0;    // kHeadDim and the residual columns
  std::vector<float> queries;  // [rows][columns]
  std::vector<float> keys;     // [keys][columns]
  std::vector<float> values;   // [keys][kHeadDim], in the order of the keys; columns included
  std::array<float, numerics::kHeadDim> value_scales{};
  std::array<float, numerics::kHeadDim> value_means{};
  std::vector<float> value_basis;  // [axis][channel]; empty if V is as it comes
  RepairRows repair{};
};

/// A head quantised by the CPU backend.
class PreparedHead {
 public:
  PreparedHead(const HeadInputs& inputs, const NumericOptions& numerics, std::int64_t repair_rows,
               cpu::ThreadPool& pool);

  [[nodiscard]] const HeadPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const schedule::Problem& problem() const noexcept { return view_.problem; }

  [[nodiscard]] DecodedHead decode(std::span<const std::int64_t> rows) const;
  [[nodiscard]] RepairRows decode_repair() const;

  /// The CPU backend's output for all queries, [queries][kHeadDim].
  [[nodiscard]] std::vector<float> run_backend(cpu::ThreadPool& pool) const;

 private:
  struct AlignedDelete {
    void operator()(std::byte* block) const noexcept;
  };

  [[nodiscard]] numerics::HeadRule rule() const noexcept;
  [[nodiscard]] std::int64_t columns() const noexcept;
  [[nodiscard]] std::vector<float> decode_basis() const;
  void decode_key_rows(std::int64_t first, std::int64_t count, std::vector<float>& keys,
                       std::vector<float>& values) const;

  std::unique_ptr<std::byte, AlignedDelete> block_;
  schedule::PreparedView view_{};
  HeadPlan plan_{};
};

}  // namespace openvc::study
