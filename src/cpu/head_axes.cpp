// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/head_axes.hpp"

#include <cstddef>
#include <memory>

#include "cpu/axes_kernels.hpp"
#include "cpu/load_row.hpp"
#include "numerics/moments.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/principal_axes.hpp"
#include "numerics/token_sample.hpp"
#include "numerics/v_quantize.hpp"

namespace openvc::cpu {
namespace {

using numerics::kHeadDim;

/// Working memory of one thread.
struct AxesScratch {
  numerics::AxesStorage storage;
  numerics::Moments query;
  numerics::Moments key;
  std::vector<float> rows;

  /// Moments of a head of a tensor; returns the size of the sample.
  int collect(const TensorView& tensor, std::int64_t b, std::int64_t h, bool centred,
              numerics::Moments& moments) {
    const std::int64_t tokens = tensor.shape[kSequence];
    const int count = numerics::sample_size(tokens);
    rows.resize(static_cast<std::size_t>(count) * kHeadDim);
    for (int i = 0; i < count; ++i) {
      load_padded_row(tensor, b, numerics::sampled_token(i, tokens), h,
                      rows.data() + static_cast<std::ptrdiff_t>(i) * kHeadDim);
    }
    sample_moments(rows.data(), count, centred, moments);
    return count;
  }
};

std::vector<float> find_axes(const schedule::PrepareRequest& request, std::int64_t bh, int columns,
                             AxesScratch& scratch, numerics::AxisShares& shares) {
  const std::int64_t b = bh / request.problem.heads;
  const std::int64_t h = bh % request.problem.heads;
  const int queries = scratch.collect(request.q, b, h, false, scratch.query);
  const int keys = scratch.collect(request.k, b, request.problem.key_head(h), true, scratch.key);
  principal_axes({scratch.query, queries, false}, {scratch.key, keys, true}, columns,
                 scratch.storage, shares);
  if (shares.steps == 0) return {};
  return {scratch.storage.axes, scratch.storage.axes + kHeadDim * columns};
}

std::vector<float> find_value_axes(const schedule::PrepareRequest& request, std::int64_t bh,
                                   AxesScratch& scratch, numerics::ValueAxes& axes) {
  const schedule::Problem& problem = request.problem;
  const bool centred = request.numerics.smooth_values;
  const int tokens = scratch.collect(request.v, bh / problem.heads,
                                     problem.key_head(bh % problem.heads), centred, scratch.key);
  value_axes({scratch.key, tokens, centred}, scratch.storage, axes);
  if (axes.known == 0) return {};
  return {scratch.storage.axes, scratch.storage.axes + kHeadDim * numerics::kValueAxes};
}

HeadBasis make_basis(const numerics::AxesView& axes) {
  HeadBasis basis(std::size_t{kHeadDim} * kHeadDim);
  const auto storage = std::make_unique_for_overwrite<numerics::BasisStorage>();
  orthogonal_basis(axes, *storage, basis.data());
  return basis;
}

}  // namespace

HeadAxes::HeadAxes(const schedule::PrepareRequest& request,
                   std::span<numerics::HeadStatistics> statistics, ThreadPool& pool)
    : columns_(request.numerics.max_extra_steps * numerics::kResidualChannelsPerStep),
      axes_(statistics.size()) {
  const schedule::Problem& problem = request.problem;
  const bool of_scores = numerics::wants_axes(request.numerics, problem.queries, problem.keys);
  const bool of_values = schedule::with_value_axes(request);
  if (!of_scores && !of_values) return;
  std::vector<std::unique_ptr<AxesScratch>> scratches(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(problem.batch_heads(), [&](std::int64_t bh, int worker) {
    numerics::HeadStatistics& head = statistics[static_cast<std::size_t>(bh)];
    Axes& axes = axes_[static_cast<std::size_t>(bh)];
    auto& scratch = scratches[static_cast<std::size_t>(worker)];
    if (!scratch) scratch = std::make_unique_for_overwrite<AxesScratch>();
    if (of_scores && numerics::can_rotate(head.scores.query, head.scores.key)) {
      axes.scores = find_axes(request, bh, columns_, *scratch, head.scores.axes);
    }
    if (of_values && head.values_finite) {
      axes.values = find_value_axes(request, bh, *scratch, head.value_axes);
    }
  });
}

std::vector<HeadBases> HeadAxes::bases(std::span<const numerics::HeadPlan> plans,
                                       ThreadPool& pool) const {
  std::vector<HeadBases> bases(plans.size());
  const auto heads = static_cast<std::int64_t>(plans.size());
  pool.parallel_for(heads, [&](std::int64_t bh, int) {
    const auto head = static_cast<std::size_t>(bh);
    const numerics::HeadPlan& plan = plans[head];
    const Axes& axes = axes_[head];
    if (plan.scores.axes != 0) {
      const int columns = plan.scores.extra_steps * numerics::kResidualChannelsPerStep;
      bases[head].scores = make_basis({axes.scores.data(), columns_, columns});
    }
    if (plan.values_on_axes != 0) {
      constexpr int kColumns = numerics::kValueAxes;
      bases[head].values = make_basis({axes.values.data(), kColumns, kColumns});
    }
  });
  return bases;
}

}  // namespace openvc::cpu
