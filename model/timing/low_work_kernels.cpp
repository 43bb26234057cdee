// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/low_work_kernels.cuh"

#include "hopper_names.hpp"
#include "kernel_names.hpp"
#include "timing/record_kernels.hpp"

namespace openvc::timing {

void name_variants() {
  using namespace low_work;
  test::name_attention_kernels();
  test::name_kernel<test::Hopper<SingleBlock>>("SingleBlock");
  test::name_kernel<test::Hopper<SingleBlockTwoStages>>("SingleBlockTwoStages");
  test::name_kernel<test::Hopper<TwoStages>>("TwoStages");
  test::name_kernel<test::Hopper<ThreeStages>>("ThreeStages");
  test::name_kernel<test::Hopper<FourStages>>("FourStages");
  test::name_kernel<test::Hopper<cuda::sm90::OneScoreBuffer>>("OneScoreBuffer");
}

}  // namespace openvc::timing
