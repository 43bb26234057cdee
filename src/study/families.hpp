// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "openvc/tensor_view.hpp"
#include "study/tensors.hpp"

namespace openvc::study {

/// A named kind of synthetic attention input.
struct Family {
  std::string_view name;
  std::string_view description;
  /// Whether the kind lies at the edge of what the element types hold: a test of survival, whose
  /// error figures say nothing about real models.
  bool extreme = false;
};

[[nodiscard]] std::span<const Family> families() noexcept;

struct FamilyShape {
  std::int64_t batch = 1;
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  std::int64_t heads = 1;
};

/// Q, K and V of a family with kHeadDim channels. Depends on its arguments alone: every element has
/// its own random number, so neither the number of threads nor the machine matters, and a head does
/// not change when others are added.
///
/// Throws Error(invalid_value) for a name that families() does not list.
[[nodiscard]] Tensors generate(std::string_view name, const FamilyShape& shape,
                               ElementType type = ElementType::bfloat16, std::uint64_t seed = 0,
                               int threads = 0);

}  // namespace openvc::study
