// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "openvc/tensor_view.hpp"

namespace openvc::python {

/// A [B, S, H, D] tensor of the caller.
///
/// Frameworks with pointers and strides at hand (torch, NumPy) pass integers, and Python keeps the
/// memory alive for the time of the call. Others pass through DLPack, and `owner` keeps it alive.
struct Tensor {
  MutableTensorView view;
  std::size_t rank = 0;  ///< axes of the caller's tensor: 3 without the batch axis
  nanobind::ndarray<nanobind::ro> owner;
};

/// Adds the classes Tensor, ElementType and DeviceType and the DLPack functions to the module.
void bind_tensor(nanobind::module_& module);

}  // namespace openvc::python
