// SPDX-License-Identifier: BSD-3-Clause
#include "api/cuda_architecture.hpp"

#include <algorithm>
#include <charconv>

namespace openvc::api {
namespace {

/// "sm_103a" is 10.3.
ComputeCapability capability_of(std::string_view image) {
  constexpr int kMinors = 10;
  const std::size_t digits = std::min(image.find_first_of("0123456789"), image.size());
  int number = 0;
  std::from_chars(image.data() + digits, image.data() + image.size(), number);
  return {number / kMinors, number % kMinors};
}

}  // namespace

std::vector<std::string> CudaArchitecture::image_names() const {
  std::vector<std::string> names;
  for (const std::string_view image : images) {
    if (!image.empty()) names.emplace_back(image);
  }
  return names;
}

bool CudaArchitecture::runs_on(ComputeCapability device) const {
  return std::ranges::any_of(images, [device](std::string_view image) {
    return !image.empty() && capability_of(image) == device;
  });
}

std::string supported_capabilities(std::span<const CudaArchitecture> architectures) {
  std::string all;
  for (const CudaArchitecture& architecture : architectures) {
    for (const std::string& image : architecture.image_names()) {
      all +=
          (all.empty() ? "" : ", ") + capability_of(image).text() + " (" + architecture.name + ")";
    }
  }
  return all;
}

}  // namespace openvc::api
