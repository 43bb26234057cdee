// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Programmatic dependent launch: a kernel may start while the one before it in the stream finishes.
// PTX ISA 9.0, 9.7.13.13, griddepcontrol (PTX 7.8, sm_90). Before sm_90 grids run one after the
// other, and there is nothing to do.
namespace openvc::cuda::ptx {

/// griddepcontrol.launch_dependents: once all blocks of this grid have called this or ended, blocks
/// of a dependent grid may start in the room that is left.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// griddepcontrol.wait: waits until the grid before has ended and all of its writes are visible.
/// Nothing that it writes may be touched earlier.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace openvc::cuda::ptx
