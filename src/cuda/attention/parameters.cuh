// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "schedule/prepared_layout.hpp"
#include "schedule/problem.hpp"

namespace openvc::cuda {

enum class OutputType : std::uint8_t { bfloat16, float16 };

/// Parameters of attention kernels; passed by value in constant memory, where TMA finds its maps.
/// Kernels without TMA take addresses from the layout, and have no maps.
struct Parameters {
  CUtensorMap query_map;  // [bh][query_rows][kHeadDim] bytes, box of TileShape::query_rows
  CUtensorMap key_map;    // [bh][padded_keys][kHeadDim] bytes, box of kKeyBlock rows
  CUtensorMap value_map;  // [bh][block * value_rows][kKeyBlock] bytes, box of TileShape::value_rows
  CUtensorMap query_columns_map;  // [step * bh][query_rows][kColumnsPerStep]
  CUtensorMap key_columns_map;    // [step * bh][padded_keys][kColumnsPerStep]
  schedule::Problem problem;
  const schedule::SequenceBounds* bounds;  // [batch], or null where all tokens take part
  const numerics::HeadRule* head_rules;    // [bh]
  const float* value_scales;               // [bh][kHeadDim]
  const float* value_means;                // [bh][kHeadDim]
  const float* smoothing_shifts;           // [bh][queries] or null
  float* log_sum_exp;                      // [B, H, Sq] or null
  std::int64_t log_sum_exp_batch_stride;   // elements; that of heads is output_rows
  void* output;                            // [B, Sq, H, kHeadDim]
  std::int64_t output_rows;                // Sq: of all sequences, where they are packed
  std::int64_t output_batch_stride;        // elements
  std::int64_t output_row_stride;
  std::int64_t output_head_stride;
  OutputType output_type;
  bool output_vectorised;  // every row starts at a multiple of 16 bytes
  const std::byte* prepared;
  schedule::PreparedLayout layout;  // of `prepared`

  [[nodiscard]] OPENVC_HD schedule::Problem problem_of(std::int64_t batch_head) const {
    return schedule::problem_of_head(problem, bounds, batch_head);
  }
  [[nodiscard]] OPENVC_HD schedule::SequenceBounds bounds_of(std::int64_t batch_head) const {
    return schedule::bounds_of_head(problem, bounds, batch_head);
  }
};

}  // namespace openvc::cuda
