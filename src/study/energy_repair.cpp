// SPDX-License-Identifier: BSD-3-Clause
#include "study/energy_repair.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "numerics/e4m3.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

/// What rounding left of one element of V, in units of V.
double residual(const DecodedHead& head, std::span<const float> values, std::int64_t token,
                std::int64_t channel) {
  const auto i = static_cast<std::size_t>(token * kHeadDim + channel);
  const auto c = static_cast<std::size_t>(channel);
  const double rounded =
      static_cast<double>(head.values[i]) * head.value_scales[c] + head.value_means[c];
  return values[i] - rounded;
}

}  // namespace

RepairRows repair_by_energy(const DecodedHead& head, std::span<const float> values,
                            std::int64_t count) {
  const auto tokens = static_cast<std::int64_t>(values.size()) / kHeadDim;
  std::vector<double> energies(static_cast<std::size_t>(tokens));
  for (std::int64_t token = 0; token < tokens; ++token) {
    double energy = 0.0;
    for (std::int64_t c = 0; c < kHeadDim; ++c) {
      const double r = residual(head, values, token, c);
      energy += r * r;
    }
    energies[static_cast<std::size_t>(token)] = energy;
  }
  std::vector<std::int64_t> order(energies.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    return energies[static_cast<std::size_t>(a)] > energies[static_cast<std::size_t>(b)];
  });

  RepairRows repair;
  repair.count = count;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = order[static_cast<std::size_t>(i)];
    const auto key = head.keys.begin() + token * head.columns;
    repair.keys.insert(repair.keys.end(), key, key + head.columns);
    for (std::int64_t c = 0; c < kHeadDim; ++c) {
      const float scale = head.value_scales[static_cast<std::size_t>(c)];
      const auto coordinate =
          scale > 0.0f ? static_cast<float>(residual(head, values, token, c) / scale) : 0.0f;
      repair.values.push_back(numerics::e4m3_decode(numerics::e4m3_encode(coordinate)));
    }
  }
  return repair;
}

}  // namespace openvc::study
