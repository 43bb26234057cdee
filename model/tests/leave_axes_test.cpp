// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/output/leave_axes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "gpu/device_tensor.hpp"
#include "gpu/prepare_case.hpp"
#include "machine/machine.hpp"
#include "numerics/half.hpp"
#include "schedule/mask.hpp"

// The product behind attention on the model, against binary64.
namespace openvc::test {
namespace {

struct Case {
  ElementType type = ElementType::bfloat16;
  Layout layout = Layout::contiguous;
  std::int64_t queries = 300;
  Mask mask = Mask::none;
  std::uint64_t seed = 1;
};

constexpr std::int64_t kKeys = 4100;
constexpr std::int64_t kHeads = 2;
constexpr int kDim = numerics::kHeadDim;

/// A unit in the last place of the output, and the rounding of binary32 sums of terms up to
/// `scale`.
double tolerance(ElementType type, double expected, double scale) {
  return std::fabs(expected) * (type == ElementType::float16 ? 0x1p-10 : 0x1p-7) + scale * 0x1p-18;
}

void expect_channels(const Case& c) {
  model::set_seed(c.seed);
  PrepareCase inputs;
  inputs.type = c.type;
  inputs.heads = kHeads;
  inputs.queries = c.queries;
  inputs.keys = kKeys;
  inputs.family = Family::outliers;
  inputs.numerics.value_axes = Choice::always;
  const CaseTensors tensors(inputs);
  const Prepared prepared = prepare_on_host(inputs, tensors);
  schedule::PreparedView view;
  view.data = prepared.block.data();
  view.problem = make_request(inputs, tensors.q.view(), tensors.k.view(), tensors.v.view()).problem;
  view.problem.mask = c.mask;
  view.layout = prepared.layout;
  view.with_value_axes = true;

  const Shape shape{1, c.queries, kHeads, kDim};
  TestTensor axes(c.type, shape, make_strides(c.layout, shape));
  Random random(7);
  axes.fill([&](auto, std::int64_t, std::int64_t, std::int64_t) { return random.normal(); });
  const DeviceTensor device(axes, c.layout == Layout::odd_pitch ? 2 : 0);
  TensorView target = device.view();
  cuda::output::leave_axes(
      view,
      {const_cast<void*>(target.data), target.type, target.device, target.shape, target.strides},
      nullptr);

  const auto read = [&](const void* data, std::int64_t offset) -> double {
    const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[offset];
    return c.type == ElementType::float16 ? numerics::half_to_float(bits)
                                          : numerics::bfloat16_to_float(bits);
  };
  const auto stride = [&](Axis axis) { return shape[axis] > 1 ? target.strides[axis] : 0; };
  for (std::int64_t h = 0; h < kHeads; ++h) {
    ASSERT_NE(prepared.plans[static_cast<std::size_t>(h)].values_on_axes, 0);
    const auto* basis = reinterpret_cast<const std::uint16_t*>(prepared.block.data() +
                                                               prepared.layout.value_basis_at(h));
    const auto* means =
        reinterpret_cast<const float*>(prepared.block.data() + prepared.layout.value_means_at(h));
    for (std::int64_t s = 0; s < c.queries; ++s) {
      const std::int64_t row = s * stride(kSequence) + h * stride(kHead);
      const bool sees_keys = schedule::visible_keys(view.problem, s) > 0;
      for (int channel = 0; channel < kDim; ++channel) {
        double expected = sees_keys ? means[channel] : read(axes.view().data, row + channel);
        double scale = std::fabs(expected);
        for (int axis = 0; sees_keys && axis < kDim; ++axis) {
          const std::uint16_t* elements = basis + channel * prepared.layout.basis_columns();
          double element = numerics::bfloat16_to_float(elements[axis]);
          if (axis < numerics::kValueAxes) {
            element += numerics::bfloat16_to_float(elements[kDim + axis]);
          }
          const double term = read(axes.view().data, row + axis) * element;
          expected += term;
          scale = std::fmax(scale, std::fabs(term));
        }
        const double bound = sees_keys ? tolerance(c.type, expected, scale) : 0.0;
        ASSERT_NEAR(read(target.data, row + channel), expected, bound)
            << "head " << h << " row " << s << " channel " << channel;
      }
    }
  }
}

TEST(ModelLeaveAxes, TypesAndLayouts) {
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    for (const Layout layout : {Layout::contiguous, Layout::odd_pitch, Layout::reversed}) {
      SCOPED_TRACE(static_cast<int>(layout));
      expect_channels({.type = type, .layout = layout});
    }
  }
}

TEST(ModelLeaveAxes, ManyTilesPerBlockInAnyOrder) {
  for (const std::uint64_t seed : {0, 1, 2}) expect_channels({.queries = 1700, .seed = seed});
}

TEST(ModelLeaveAxes, RowsWithoutKeysStay) {
  expect_channels({.queries = kKeys + 150, .mask = Mask::causal});
}

}  // namespace
}  // namespace openvc::test
