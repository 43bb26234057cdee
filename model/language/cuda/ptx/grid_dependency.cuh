// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Grids run one after the other.
namespace openvc::cuda::ptx {

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

}  // namespace openvc::cuda::ptx
