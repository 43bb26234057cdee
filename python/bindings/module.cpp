// SPDX-License-Identifier: BSD-3-Clause
//
// The extension _openvc: the public C++ interface with pointers, strides and streams as integers.
// No framework's headers are used, so one binary serves every version of all of them. Checks that
// need a framework live in the Python package above it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interpreter.hpp"
#include "openvc/attention.hpp"
#include "openvc/info.hpp"
#include "openvc/inspect.hpp"
#include "openvc/version.hpp"
#include "options.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace openvc::python {
namespace {

/// Lets go of a tensor whose memory the library has used.
struct ReleaseTensor {
  PyObject* tensor;

  void operator()(std::byte*) const {
    if (!Py_IsInitialized()) return;
    const Locked lock;
    Py_DECREF(tensor);
  }
};

/// Device memory as a tensor of the caller's framework, which goes with the last owner.
std::shared_ptr<std::byte> allocate_tensor(nb::handle allocate, std::size_t bytes) {
  const Locked lock;
  nb::object tensor = allocate(bytes);
  auto* memory = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  return {memory, ReleaseTensor{tensor.release().ptr()}};
}

unsigned long main_thread = 0;

/// Runs the handlers of signals that have arrived, which is how Ctrl-C ends a call. Only Python's
/// main thread does that; the others need not wait for the interpreter lock.
void run_signal_handlers() {
  if (PyThread_get_thread_ident() != main_thread) return;
  const Locked lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void watch_main_thread() {
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  // In a child process the thread that forked is the main thread.
  nb::module_::import_("os").attr("register_at_fork")(
      "after_in_child"_a = nb::cpp_function([] { main_thread = PyThread_get_thread_ident(); }));
}

Execution execution(int threads, std::uintptr_t stream) {
  Execution result;
  result.threads = threads;
  result.stream = reinterpret_cast<void*>(stream);
  result.check_interrupt = run_signal_handlers;
  return result;
}

/// `allocate` is None or a function from bytes to a tensor with data_ptr(); it is called only
/// during the call that it belongs to. Runs without the interpreter lock, so it takes no reference.
Execution execution(int threads, std::uintptr_t stream, nb::handle allocate) {
  Execution result = execution(threads, stream);
  if (!allocate.is_none()) {
    result.allocate = [allocate](std::size_t bytes) { return allocate_tensor(allocate, bytes); };
  }
  return result;
}

void run_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                   std::uintptr_t log_sum_exp, const AttentionOptions& options, int threads,
                   std::uintptr_t stream, nb::handle allocate) {
  attention(q.view.view(), k.view.view(), v.view.view(), out.view,
            reinterpret_cast<float*>(log_sum_exp), options, execution(threads, stream, allocate));
}

Prepared run_prepare(const Tensor& q, const Tensor& k, const Tensor& v,
                     std::optional<double> repair_budget, const AttentionOptions& options,
                     bool with_log_sum_exp, int threads, std::uintptr_t stream,
                     nb::handle allocate) {
  if (repair_budget.has_value()) {
    return prepare_repair(q.view.view(), k.view.view(), v.view.view(), *repair_budget, options,
                          with_log_sum_exp, execution(threads, stream, allocate));
  }
  return prepare(q.view.view(), k.view.view(), v.view.view(), options, with_log_sum_exp,
                 execution(threads, stream, allocate));
}

/// `record_use` is a function of the tensor that `allocate` has given to run_prepare(). It is
/// called if that was on another stream.
void run_attention_prepared(const Prepared& prepared, const Tensor& out, std::uintptr_t log_sum_exp,
                            int threads, std::uintptr_t stream, nb::handle record_use) {
  Execution how = execution(threads, stream);
  how.record_use = [record_use](const std::shared_ptr<std::byte>& memory) {
    const Locked lock;
    if (const auto* owner = std::get_deleter<ReleaseTensor>(memory))
      record_use(nb::handle(owner->tensor));
  };
  attention_prepared(prepared, out.view, reinterpret_cast<float*>(log_sum_exp), how);
}

void run_exact_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const std::vector<std::int64_t>& rows, std::uintptr_t out,
                         std::uintptr_t log_sum_exp, const AttentionOptions& options, int threads) {
  exact_attention(q.view.view(), k.view.view(), v.view.view(), rows, reinterpret_cast<double*>(out),
                  reinterpret_cast<double*>(log_sum_exp), options.mask, options.softmax_scale,
                  execution(threads, 0));
}

std::pair<bool, std::string> run_is_supported(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const AttentionOptions& options) {
  Support support = is_supported(q.view.view(), k.view.view(), v.view.view(), options);
  return {support.supported, std::move(support.reason)};
}

/// Throws what run_attention() would throw whatever its output is.
void require_supported(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options) {
  const Support support = is_supported(q.view.view(), k.view.view(), v.view.view(), options);
  if (!support) throw Error(support.code, support.reason);
}

/// Throws what run_exact_attention() would throw whatever its rows and output are.
void require_exact_supported(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
  double unused = 0;  // no rows, no results
  exact_attention(q.view.view(), k.view.view(), v.view.view(), {}, &unused, nullptr, options.mask,
                  options.softmax_scale, execution(0, 0));
}

/// Copies of all sections of inputs in CPU memory.
nb::list prepared_sections(const Prepared& prepared) {
  if (prepared.device().type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported, "only sections in CPU memory can be read");
  }
  nb::list copies;
  for (const PreparedSection& section : sections(prepared)) {
    copies.append(nb::make_tuple(section.name, section.type, section.shape,
                                 nb::bytes(section.data, section.bytes)));
  }
  return copies;
}

nb::dict build_info() {
  // The keys are those of the C and C++ interfaces and of the program.
  return nb::cast<nb::dict>(nb::module_::import_("json").attr("loads")(info_json()));
}

PyObject* exception_type(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_value:
      return PyExc_ValueError;
    case ErrorCode::invalid_type:
      return PyExc_TypeError;
    case ErrorCode::unsupported:
      return PyExc_NotImplementedError;
    case ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    case ErrorCode::device_failure:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyErr_SetString(exception_type(error.code()), error.what());
    }
  });
}

void bind_prepared(nb::module_& module) {
  nb::class_<HeadPlan>(module, "HeadPlan", "What the preparation decided for one head.")
      .def_ro("extra_steps", &HeadPlan::extra_steps)
      .def_ro("rotated", &HeadPlan::rotated)
      .def_ro("score_exponent", &HeadPlan::score_exponent)
      .def_ro("predicted_score_error", &HeadPlan::predicted_score_error);
  nb::class_<Prepared>(module, "Prepared", "Quantised Q, K and V.")
      .def_prop_ro("query_shape", &Prepared::query_shape)
      .def_prop_ro("key_shape", &Prepared::key_shape)
      .def_prop_ro("plans", &Prepared::plans)
      .def_prop_ro("repair_rows", &Prepared::repair_rows)
      .def_prop_ro("has_log_sum_exp", &Prepared::has_log_sum_exp)
      .def_prop_ro("bytes", &Prepared::bytes)
      .def("sections", &prepared_sections, "Name, type, shape and bytes of every section.");
}

}  // namespace
}  // namespace openvc::python

NB_MODULE(_openvc, module) {
  using namespace openvc;
  using namespace openvc::python;
  if (take_earlier_import(module)) return;
  module.doc() = "C++ core of open_vc_attn. Private: use the package.";
  module.attr("MAX_THREADS") = kMaxThreads;
  module.attr("version") = kVersion;

  // Options that Python caches outlive the module at exit, and a library does not print.
  nb::set_leak_warnings(false);

  watch_main_thread();
  bind_errors();
  bind_tensor(module);
  bind_options(module);
  bind_prepared(module);

  // Work runs without the interpreter lock: other Python threads go on, and may call in here too.
  using WithoutLock = nb::call_guard<Unlocked>;
  module.def(
      "attention", &run_attention, "q"_a, "k"_a, "v"_a, "out"_a, "log_sum_exp"_a, "options"_a,
      "threads"_a, "stream"_a, "allocate"_a.none(), WithoutLock(),
      "Writes attention to `out`, and its LSE to the address `log_sum_exp` unless that is 0.");
  module.def("prepare", &run_prepare, "q"_a, "k"_a, "v"_a, "repair_budget"_a.none(), "options"_a,
             "with_log_sum_exp"_a, "threads"_a, "stream"_a, "allocate"_a.none(), WithoutLock(),
             "Quantises Q, K and V.");
  module.def("attention_prepared", &run_attention_prepared, "prepared"_a, "out"_a, "log_sum_exp"_a,
             "threads"_a, "stream"_a, "record_use"_a, WithoutLock(),
             "Attention on quantised inputs.");
  module.def("exact_attention", &run_exact_attention, "q"_a, "k"_a, "v"_a, "rows"_a, "out"_a,
             "log_sum_exp"_a, "options"_a, "threads"_a, WithoutLock(),
             "Exact attention in float64 for the queries `rows`.");
  module.def("info", &build_info, "Version, backends and last dispatch of this build.");
  module.def("is_supported", &run_is_supported, "q"_a, "k"_a, "v"_a, "options"_a, WithoutLock(),
             "Whether attention() would run, and if not, why.");
  module.def("require_supported", &require_supported, "q"_a, "k"_a, "v"_a, "options"_a,
             WithoutLock(), "Raises what attention() would raise before it needs an output.");
  module.def("require_exact_supported", &require_exact_supported, "q"_a, "k"_a, "v"_a, "options"_a,
             WithoutLock(), "Raises what exact_attention() would raise before it needs an output.");

  keep_import(module);
}
