// SPDX-License-Identifier: BSD-3-Clause
#include "tensor.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openvc/status.hpp"

namespace nb = nanobind;

namespace openvc::python {
namespace {

constexpr std::size_t kRank = 4;
constexpr std::uint8_t kBits8 = 8;
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
std::size_t add_missing_axes(Tensor& tensor, const char* name, std::size_t ndim) {
  if (ndim != kRank && ndim != kRank - 1) {
    throw Error(ErrorCode::invalid_value, std::string(name) + " has " + std::to_string(ndim) +
                                              " dimensions; expected [S, H, D] or [B, S, H, D]");
  }
  tensor.rank = ndim;
  tensor.view.shape.fill(1);
  tensor.view.strides.fill(0);
  return kRank - ndim;
}

Tensor tensor_from_pointer(std::uintptr_t pointer, ElementType type, DeviceType device,
                           int device_index, const nb::tuple& shape, const nb::tuple& strides) {
  Tensor tensor;
  tensor.view.data = reinterpret_cast<void*>(pointer);
  tensor.view.type = type;
  tensor.view.device = {device, device_index};
  const std::size_t first = add_missing_axes(tensor, "tensor", shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    tensor.view.shape[axis + first] = nb::cast<std::int64_t>(shape[axis]);
    tensor.view.strides[axis + first] = nb::cast<std::int64_t>(strides[axis]);
  }
  return tensor;
}

/// What a capsule points to, as DLPack defined it before version 1 and since.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
};
struct VersionedTensor {
  std::uint32_t major;
  std::uint32_t minor;
  void* manager;
  void* deleter;
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
constexpr std::uint32_t kDlpackMajor = 1;

/// The tensor of a capsule that nobody has taken yet.
const nb::dlpack::dltensor& tensor_of(const std::string& name, nb::handle capsule) {
  constexpr const char* kPlain = "dltensor";
  constexpr const char* kVersioned = "dltensor_versioned";
  PyObject* object = capsule.ptr();
  if (PyCapsule_IsValid(object, kPlain) != 0) {
    return static_cast<ManagedTensor*>(PyCapsule_GetPointer(object, kPlain))->tensor;
  }
  if (PyCapsule_IsValid(object, kVersioned) != 0) {
    auto* versioned = static_cast<VersionedTensor*>(PyCapsule_GetPointer(object, kVersioned));
    if (versioned->major == kDlpackMajor) return versioned->tensor;
    throw Error(ErrorCode::unsupported,
                name + ": DLPack version " + std::to_string(versioned->major) + "." +
                    std::to_string(versioned->minor) + "; expected version 1. Use " + name +
                    " of a framework that offers it.");
  }
  if (PyCapsule_CheckExact(object)) {
    throw Error(ErrorCode::invalid_value,
                name +
                    ": __dlpack__() gave a capsule that was used before; expected a new one from "
                    "every call. Make a new array of the data for each call.");
  }
  throw Error(ErrorCode::invalid_type,
              name + ": __dlpack__() gave " +
                  nb::cast<std::string>(capsule.type().attr("__name__")) +
                  "; expected a DLPack capsule. Pass an array that speaks DLPack.");
}

/// A view of a [S, H, D] or [B, S, H, D] array in CPU memory from a DLPack capsule. With `take` the
/// view owns the memory and the capsule is used up; without, it only answers questions.
Tensor tensor_from_dlpack(const std::string& name, nb::handle capsule, bool take) {
  const nb::dlpack::dltensor& found = tensor_of(name, capsule);
  if (found.device.device_type != nb::device::cpu::value) {
    throw Error(ErrorCode::unsupported,
                name + ": device " + std::to_string(found.device.device_type) +
                    " of DLPack; expected CPU memory. Copy the array to the CPU.");
  }
  Tensor tensor;
  const std::size_t rank = found.ndim > 0 ? static_cast<std::size_t>(found.ndim) : 0;
  const std::size_t first = add_missing_axes(tensor, name.c_str(), rank);
  std::int64_t contiguous = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    tensor.view.shape[axis + first] = found.shape[axis];
    tensor.view.strides[axis + first] = found.strides != nullptr ? found.strides[axis] : contiguous;
    if (__builtin_mul_overflow(contiguous, found.shape[axis], &contiguous)) contiguous = 0;
  }
  // The library never writes through a view that it takes as const; results get memory from
  // allocate() below.
  if (found.data != nullptr) {
    tensor.view.data = static_cast<std::byte*>(found.data) + found.byte_offset;
  }
  tensor.view.type = element_type(name, found.dtype);
  if (take) tensor.owner = nb::cast<nb::ndarray<nb::ro>>(capsule);
  return tensor;
}

/// Name of an element type as frameworks spell it.
std::string type_name(const nb::dlpack::dtype& type) {
  const std::string bits = std::to_string(type.bits);
  if (type.lanes != 1) return "of several lanes";
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Bool:
      return type.bits == kBits8 ? "bool" : "bool of " + bits + " bits";
    case nb::dlpack::dtype_code::Int:
      return "int" + bits;
    case nb::dlpack::dtype_code::UInt:
      return "uint" + bits;
    case nb::dlpack::dtype_code::Float:
      return "float" + bits;
    case nb::dlpack::dtype_code::Bfloat:
      return "bfloat" + bits;
    case nb::dlpack::dtype_code::Complex:
      return "complex" + bits;
    default:
      return "DLPack type code " + std::to_string(type.code) + " with " + bits + " bits";
  }
}

/// An array of any shape and element type that somebody else owns.
struct Array {
  std::uintptr_t pointer = 0;
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // bytes
  nb::ndarray<nb::ro> owner;
};

/// The same as tensor_from_dlpack() for arrays that are no operands of attention.
Array array_from_dlpack(const std::string& name, nb::handle capsule, bool take) {
  const nb::dlpack::dltensor& found = tensor_of(name, capsule);
  const std::int64_t bytes = (found.dtype.bits + kBits8 - 1) / kBits8;
  Array array;
  array.type = type_name(found.dtype);
  const std::size_t rank = found.ndim > 0 ? static_cast<std::size_t>(found.ndim) : 0;
  array.shape.assign(found.shape, found.shape + rank);
  array.strides.resize(rank);
  std::int64_t contiguous = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    array.strides[axis] = bytes * (found.strides != nullptr ? found.strides[axis] : contiguous);
    if (__builtin_mul_overflow(contiguous, found.shape[axis], &contiguous)) contiguous = 0;
  }
  if (found.data != nullptr) {
    array.pointer = reinterpret_cast<std::uintptr_t>(found.data) + found.byte_offset;
  }
  if (take) array.owner = nb::cast<nb::ndarray<nb::ro>>(capsule);
  return array;
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
      .def_prop_ro("array_shape",
                   [](const Tensor& tensor) {
                     const auto& shape = tensor.view.shape;
                     nb::list sizes;
                     for (std::size_t axis = kRank - tensor.rank; axis < kRank; ++axis)
                       sizes.append(shape[axis]);
                     return nb::tuple(sizes);
                   })
      .def_prop_ro("strides", [](const Tensor& tensor) { return tensor.view.strides; })
      .def_prop_ro("type", [](const Tensor& tensor) { return tensor.view.type; })
      .def_prop_ro("pointer", [](const Tensor& tensor) {
        return reinterpret_cast<std::uintptr_t>(tensor.view.data);
      });
  module.def("tensor_from_pointer", &tensor_from_pointer, nb::arg("pointer"), nb::arg("type"),
             nb::arg("device"), nb::arg("device_index"), nb::arg("shape"), nb::arg("strides"),
             "A view of memory that the caller keeps alive while the view is in use.");
  module.def(
      "tensor_from_dlpack", &tensor_from_dlpack, nb::arg("name"), nb::arg("capsule").none(),
      nb::arg("take"),
      "A view of the CPU memory of a capsule from __dlpack__(). `take`: the view owns it, and "
      "the capsule is used up.");
  nb::class_<Array>(module, "Array", "An array that somebody else owns. Strides count bytes.")
      .def_ro("pointer", &Array::pointer)
      .def_ro("type", &Array::type)
      .def_ro("shape", &Array::shape)
      .def_ro("strides", &Array::strides);
  module.def("array_from_dlpack", &array_from_dlpack, nb::arg("name"), nb::arg("capsule").none(),
             nb::arg("take"), "The same for arrays that are no operands of attention.");
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
