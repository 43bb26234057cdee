// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include "study/prepared_head.hpp"
#include "study/tensors.hpp"

namespace openvc::study {

/// The first head of generated tensors, with the default softmax scale.
inline HeadInputs head_inputs(const Tensors& in, Mask mask = Mask::none) {
  return {.q = select_head(in.q.view(), 0, 0),
          .k = select_head(in.k.view(), 0, 0),
          .v = select_head(in.v.view(), 0, 0),
          .mask = mask,
          .key_order = KeyOrder::mid_window,
          .softmax_scale = 1.0f / std::sqrt(128.0f)};
}

}  // namespace openvc::study
