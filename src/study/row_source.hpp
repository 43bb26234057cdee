// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "numerics/contract.hpp"
#include "openvc/tensor_view.hpp"
#include "study/families.hpp"

namespace openvc::study {

enum class Role : std::uint8_t { query, key, value };

using ChannelRow = std::span<float, numerics::kHeadDim>;

/// What one family puts into a row of Q, K or V. Thread-safe: rows are asked for in any order.
class RowSource {
 public:
  RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;
  virtual ~RowSource() = default;

  /// `head` counts batch entries and heads together; `row` is zero on entry.
  virtual void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const = 0;
};

struct SourceRequest {
  FamilyShape shape;
  ElementType type;
  std::uint64_t seed;
};

[[nodiscard]] std::unique_ptr<RowSource> make_video_field(const SourceRequest& request);

}  // namespace openvc::study
