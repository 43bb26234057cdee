// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda {

/// What a launch is given on the host.
struct Arguments {
  const schedule::PreparedView& inputs;
  const MutableTensorView& out;
  float* log_sum_exp;  // [B, H, Sq] of the output, or null
};

/// The same as the kernel takes it: pointers of the sections, strides, and no tensor maps.
Parameters make_parameters(const Arguments& arguments);
/// With the tensor maps of the tiles.
Parameters make_parameters(const Arguments& arguments, const TileShape& shape);

}  // namespace openvc::cuda
