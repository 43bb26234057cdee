// SPDX-License-Identifier: BSD-3-Clause
#include "tensor.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openvc/status.hpp"

namespace nb = nanobind;

namespace openvc::python {
namespace {

constexpr std::size_t kRank = 4;
constexpr std::uint8_t kBits16 = 16;
constexpr std::uint8_t kBits32 = 32;

nb::dlpack::dtype dlpack_type(ElementType type) {
  const auto code = type == ElementType::bfloat16 ? nb::dlpack::dtype_code::Bfloat
                                                  : nb::dlpack::dtype_code::Float;
  const std::uint8_t bits = type == ElementType::float32 ? kBits32 : kBits16;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

ElementType element_type(const std::string& name, const nb::dlpack::dtype& found) {
  for (const auto type : {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    if (dlpack_type(type) == found) return type;
  }
  throw Error(ErrorCode::invalid_type,
              name + " has DLPack type code " + std::to_string(found.code) + " with " +
                  std::to_string(found.bits) +
                  " bits; supported are bfloat16, float16 and float32: cast it first");
}

/// Prepends the batch axis that a tensor of `ndim` axes may lack; returns where its own ones start.
std::size_t add_missing_axes(MutableTensorView& view, const char* name, std::size_t ndim) {
  if (ndim != kRank && ndim != kRank - 1) {
    throw Error(ErrorCode::invalid_value, std::string(name) + " has " + std::to_string(ndim) +
                                              " dimensions; expected [S, H, D] or [B, S, H, D]");
  }
  view.shape.fill(1);
  view.strides.fill(0);
  return kRank - ndim;
}

Tensor tensor_from_pointer(std::uintptr_t pointer, ElementType type, DeviceType device,
                           int device_index, const nb::tuple& shape, const nb::tuple& strides) {
  Tensor tensor;
  tensor.view.data = reinterpret_cast<void*>(pointer);
  tensor.view.type = type;
  tensor.view.device = {device, device_index};
  const std::size_t first = add_missing_axes(tensor.view, "tensor", shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    tensor.view.shape[axis + first] = nb::cast<std::int64_t>(shape[axis]);
    tensor.view.strides[axis + first] = nb::cast<std::int64_t>(strides[axis]);
  }
  return tensor;
}

/// A [S, H, D] or [B, S, H, D] array in CPU memory; the rank is checked by the caller in Python.
Tensor tensor_from_dlpack(const std::string& name, nb::ndarray<nb::ro> array) {
  if (array.device_type() != nb::device::cpu::value) {
    throw Error(ErrorCode::unsupported, name + " is not in CPU memory");
  }
  Tensor tensor;
  const std::size_t first = add_missing_axes(tensor.view, name.c_str(), array.ndim());
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    tensor.view.shape[axis + first] = static_cast<std::int64_t>(array.shape(axis));
    tensor.view.strides[axis + first] = array.stride(axis);
  }
  // The library never writes through a view that it takes as const; results get memory from
  // allocate() below.
  tensor.view.data = const_cast<void*>(array.data());
  tensor.view.type = element_type(name, array.dtype());
  tensor.owner = std::move(array);
  return tensor;
}

/// Element types of results: those of the inputs, and float64 for exact attention.
nb::dlpack::dtype result_type(const std::string& name) {
  for (const auto type : {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    if (name == element_name(type)) return dlpack_type(type);
  }
  if (name == "float64") return nb::dtype<double>();
  throw Error(ErrorCode::invalid_type, "no results of type " + name);
}

/// Fresh CPU memory that speaks DLPack.
nb::ndarray<nb::array_api> allocate(const std::string& dtype,
                                    const std::vector<std::size_t>& shape) {
  constexpr std::size_t kBitsPerByte = 8;
  const nb::dlpack::dtype type = result_type(dtype);
  std::size_t bytes = type.bits / kBitsPerByte;
  for (const std::size_t length : shape) bytes *= length;
  auto memory = std::make_unique<std::byte[]>(bytes);
  std::byte* data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); });
  return {data, shape.size(), shape.data(), owner, nullptr, type, nb::device::cpu::value};
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::enum_<ElementType>(module, "ElementType", "Element types of attention inputs and outputs.")
      .value("bfloat16", ElementType::bfloat16)
      .value("float16", ElementType::float16)
      .value("float32", ElementType::float32);
  nb::enum_<DeviceType>(module, "DeviceType", "Kinds of devices that hold tensors.")
      .value("cpu", DeviceType::cpu)
      .value("cuda", DeviceType::cuda);
  nb::class_<Tensor>(module, "Tensor",
                     "A [B, S, H, D] tensor that somebody else owns. Strides count elements.")
      .def_prop_ro("shape", [](const Tensor& tensor) { return tensor.view.shape; })
      .def_prop_ro("strides", [](const Tensor& tensor) { return tensor.view.strides; })
      .def_prop_ro("type", [](const Tensor& tensor) { return tensor.view.type; })
      .def_prop_ro("pointer", [](const Tensor& tensor) {
        return reinterpret_cast<std::uintptr_t>(tensor.view.data);
      });
  module.def("tensor_from_pointer", &tensor_from_pointer, nb::arg("pointer"), nb::arg("type"),
             nb::arg("device"), nb::arg("device_index"), nb::arg("shape"), nb::arg("strides"),
             "A view of memory that the caller keeps alive while the view is in use.");
  module.def("tensor_from_dlpack", &tensor_from_dlpack, nb::arg("name"), nb::arg("array"),
             "A view of CPU memory that a DLPack producer owns; the view keeps it alive.");
  module.def("allocate", &allocate, nb::arg("dtype"), nb::arg("shape"),
             "Fresh, zeroed CPU memory that speaks DLPack.");
  module.def(
      "address",
      [](const nb::ndarray<nb::ro>& array) {
        return reinterpret_cast<std::uintptr_t>(array.data());
      },
      nb::arg("array"), "Address of the first element of a DLPack array.");
}

}  // namespace openvc::python
