// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/load_row.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "numerics/contract.hpp"
#include "numerics/half.hpp"

namespace openvc::cpu {

void load_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h,
              float* out) {
  const std::int64_t offset = tensor.offset(b, s, h);
  const std::int64_t channels = tensor.shape[kChannel];
  switch (tensor.type) {
    case ElementType::float32: {
      const float* row = static_cast<const float*>(tensor.data) + offset;
      std::copy_n(row, channels, out);
      return;
    }
    case ElementType::bfloat16: {
      const std::uint16_t* row = static_cast<const std::uint16_t*>(tensor.data) + offset;
      std::transform(row, row + channels, out, numerics::bfloat16_to_float);
      return;
    }
    case ElementType::float16: {
      const std::uint16_t* row = static_cast<const std::uint16_t*>(tensor.data) + offset;
      std::transform(row, row + channels, out, numerics::half_to_float);
      return;
    }
  }
}

void load_padded_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h,
                     float* out) {
  load_row(tensor, b, s, h, out);
  const std::int64_t channels = tensor.shape[kChannel];
  std::fill(out + channels, out + numerics::kHeadDim, 0.0f);
}

}  // namespace openvc::cpu
