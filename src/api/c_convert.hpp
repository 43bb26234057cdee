// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "openvc/openvc.h"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"

// What C passes, as the types of the C++ interface. Every function throws openvc::Error for what
// has no meaning.
namespace openvc::api {

[[noreturn]] void refuse(const std::string& message);

bool to_bool(const char* name, std::int32_t value);

MutableTensorView to_view(const std::string& name, const openvc_tensor* tensor);
inline TensorView to_input(const std::string& name, const openvc_tensor* tensor) {
  return to_view(name, tensor).view();
}

struct CallOptions {
  AttentionOptions attention;
  Execution execution;
};

/// Valid options: every field is checked, whether or not the call uses it.
CallOptions to_options(const openvc_options* options);

/// The defaults as a caller sees them who knows the first `size` bytes of the structure.
openvc_options default_options(std::size_t size);

/// Writes the numeric options of an openvc_budget.
void set_budget(openvc_options* options, std::int32_t budget);

}  // namespace openvc::api
