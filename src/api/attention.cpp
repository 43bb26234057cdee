// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/attention.hpp"

#include <cmath>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "api/backend.hpp"
#include "api/describe.hpp"
#include "api/dispatch_record.hpp"
#include "api/finite_check.hpp"
#include "api/first_use.hpp"
#include "api/prepared.hpp"
#include "api/sequence_calls.hpp"
#include "api/validate.hpp"
#include "cpu/exact_attention.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "numerics/repair.hpp"
#include "schedule/sequence_bounds.hpp"

namespace openvc {
namespace {

using namespace std::string_literals;
using api::NamedTensor;
using api::require;

double default_softmax_scale(const TensorView& q) {
  return 1.0 / std::sqrt(static_cast<double>(q.shape[kChannel]));
}

/// Everything about a call that can be wrong before its tensors are touched.
api::MaybeRefusal validate_call(const TensorView& q, const TensorView& k, const TensorView& v,
                                const AttentionOptions& options) {
  if (api::MaybeRefusal refusal = api::validate_inputs(q, k, v)) return refusal;
  if (api::MaybeRefusal refusal = api::validate_options(options)) return refusal;
  return api::validate_sequences(options.sequences, q, k);
}

schedule::PrepareRequest make_request(const TensorView& q, const TensorView& k, const TensorView& v,
                                      double budget, const AttentionOptions& options,
                                      bool with_log_sum_exp) {
  const PackedSequences& packed = options.sequences;
  const std::int64_t queries = q.shape[kSequence];
  const std::int64_t keys = k.shape[kSequence];
  return {
      .q = q,
      .k = k,
      .v = v,
      .problem = {.batch = packed.any() ? packed.count : q.shape[kBatch],
                  .heads = q.shape[kHead],
                  .heads_per_group = q.shape[kHead] / k.shape[kHead],
                  .queries =
                      packed.any() ? schedule::packed_room(packed.max_seqlen_q, queries) : queries,
                  .keys = packed.any() ? schedule::packed_room(packed.max_seqlen_k, keys) : keys,
                  .head_dim = static_cast<int>(q.shape[kChannel]),
                  .repair_rows = numerics::repair_row_count(budget, keys),
                  .mask = options.mask,
                  .key_order = options.key_order},
      .softmax_scale = options.softmax_scale.value_or(static_cast<float>(default_softmax_scale(q))),
      .numerics = options.numerics,
      .with_log_sum_exp = with_log_sum_exp,
      .selection = options.keys,
      .sequences = packed};
}

/// Turns a failed allocation into the library's own exception. `needed` says in words for what.
template <class Work, class Needed>
auto translating_bad_alloc(const Work& work, const Needed& needed) {
  const auto give_up = [&](const std::string& found) {
    throw Error(ErrorCode::out_of_memory, "memory: " + found + "; expected " + needed() +
                                              ". Free memory, or split the call by heads.");
  };
  try {
    return work();
  } catch (const std::bad_alloc&) {
    give_up("an allocation failed");
    throw;
  } catch (const std::length_error&) {  // more elements than a container can ever have
    give_up("an allocation failed");
    throw;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) give_up(error.what());
    throw;
  }
}

/// Who looks for elements that are not finite, if anybody wants to know.
enum class FiniteCheck { here, by_caller };

/// The inputs of attention_prepared(), `outlives_call` if the caller gets them.
Prepared prepare_validated(schedule::PrepareRequest request, const Execution& execution,
                           bool outlives_call, FiniteCheck check = FiniteCheck::here) {
  const api::BackendChoice choice = api::choose_backend(request, api::backends());
  if (choice.backend == nullptr) api::require(choice.refusal);
  api::first_use().require(*choice.backend, request.q.device, execution);
  request.format = choice.backend->format;
  const auto needed = [&] {
    return api::describe_bytes(choice.backend->prepared_bytes(request)) +
           " for the quantised inputs";
  };
  const cpu::InterruptScope interrupts(execution.check_interrupt);
  const auto work = [&] {
    if (check == FiniteCheck::here && api::finite_check_enabled()) {
      const NamedTensor inputs[] = {{"q", request.q}, {"k", request.k}, {"v", request.v}};
      // Keys that do not take part may hold anything; which they are, only the device knows.
      const std::size_t checked = request.selection.any() ? 1 : std::size(inputs);
      api::check_finite(*choice.backend, std::span(inputs).first(checked), execution);
    }
    auto impl = std::make_shared<Prepared::Impl>();
    impl->backend = choice.backend;
    impl->type = request.q.type;
    impl->device = request.q.device;
    impl->outlives_call = outlives_call;
    choice.backend->prepare(request, execution, *impl);
    return Prepared(std::move(impl));
  };
  return translating_bad_alloc(work, needed);
}

std::int64_t log_sum_exp_values(const schedule::Problem& problem) {
  return problem.batch_heads() * problem.queries;
}

void run_validated(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
                   const Execution& execution, FiniteCheck check = FiniteCheck::here) {
  api::record_dispatch(prepared);
  const cpu::InterruptScope interrupts(execution.check_interrupt);
  const auto work = [&] {
    prepared.backend->run(prepared, out, log_sum_exp, execution);
    if (check != FiniteCheck::here || !api::finite_check_enabled()) return;
    const TensorView written = out.view();
    const NamedTensor outputs[] = {{"out", written}};
    api::check_finite(*prepared.backend, outputs, execution);
  };
  translating_bad_alloc(work, [] { return "working memory besides the quantised inputs"s; });
}

/// prepare() and attention_prepared() of a validated call.
void attend_validated(const schedule::PrepareRequest& request, const MutableTensorView& out,
                      float* log_sum_exp, const Execution& execution,
                      FiniteCheck check = FiniteCheck::here) {
  const Prepared prepared = prepare_validated(request, execution, false, check);
  run_validated(prepared.impl(), out, log_sum_exp, execution, check);
}

/// A call on the CPU whose sequences have unlike tokens.
void attend_sequences(const api::SequenceCall& call, const AttentionOptions& options,
                      const Execution& execution) {
  AttentionOptions of_one = options;
  of_one.keys = {};
  of_one.sequences = {};
  const auto attend = [&](const api::SequenceCall& one) {
    attend_validated(make_request(one.q, one.k, one.v, 0.0, of_one, one.log_sum_exp != nullptr),
                     one.out, one.log_sum_exp, execution, FiniteCheck::by_caller);
  };
  const auto check = [&](std::span<const NamedTensor> tensors, const api::TensorPart& part) {
    if (api::finite_check_enabled()) {
      api::check_finite(api::kCpuBackend, tensors, execution, part);
    }
  };
  const auto work = [&] {
    if (options.sequences.any()) {
      const NamedTensor inputs[] = {{"q", call.q}, {"k", call.k}, {"v", call.v}};
      check(inputs, {});
      return api::attend_packed(call, options.sequences, attend);
    }
    const auto check_one = [&](const api::SequenceCall& one, std::int64_t batch,
                               const std::vector<std::int64_t>& tokens) {
      // Those of the keys are copies.
      const NamedTensor queries[] = {{"q", one.q}};
      const NamedTensor keys[] = {{"k", one.k}, {"v", one.v}};
      check(queries, {.batch = batch});
      check(keys, {.batch = batch, .tokens = tokens});
    };
    api::attend_selected(call, options.keys, check_one, attend);
  };
  translating_bad_alloc(work, [] { return "copies of what belongs to a sequence"s; });
  const TensorView written = call.out.view();
  const NamedTensor outputs[] = {{"out", written}};
  check(outputs, {});
}

}  // namespace

std::array<std::int64_t, 4> Prepared::query_shape() const {
  const schedule::Problem& problem = impl_->view.problem;
  return {problem.batch, problem.queries, problem.heads, problem.head_dim};
}

std::array<std::int64_t, 4> Prepared::key_shape() const {
  const schedule::Problem& problem = impl_->view.problem;
  return {problem.batch, problem.keys, problem.key_heads(), problem.head_dim};
}

ElementType Prepared::element_type() const { return impl_->type; }

Device Prepared::device() const { return impl_->device; }

std::vector<HeadPlan> Prepared::plans() const {
  const auto read = impl_->backend->read_plans;
  return read != nullptr ? read(*impl_) : impl_->plans;
}

std::int64_t Prepared::repair_rows() const { return impl_->view.problem.repair_rows; }

bool Prepared::has_log_sum_exp() const { return impl_->view.with_log_sum_exp; }

std::size_t Prepared::bytes() const { return impl_->memory_bytes; }

Prepared prepare(const TensorView& q, const TensorView& k, const TensorView& v,
                 const AttentionOptions& options, bool with_log_sum_exp,
                 const Execution& execution) {
  return prepare_repair(q, k, v, 0.0, options, with_log_sum_exp, execution);
}

Prepared prepare_repair(const TensorView& q, const TensorView& k, const TensorView& v,
                        double budget, const AttentionOptions& options, bool with_log_sum_exp,
                        const Execution& execution) {
  require(validate_call(q, k, v, options));
  require(api::validate_pointers(q, k, v));
  require(api::validate_repair(budget, options));
  require(api::validate_no_selection(options));
  require(api::validate_execution(execution));
  return prepare_validated(make_request(q, k, v, budget, options, with_log_sum_exp), execution,
                           true);
}

void attention_prepared(const Prepared& prepared, const MutableTensorView& out, float* log_sum_exp,
                        const Execution& execution) {
  const Prepared::Impl& impl = prepared.impl();
  require(api::validate_output(out, prepared.query_shape(), impl.type, impl.device));
  require(api::validate_no_overlap(out, log_sum_exp, log_sum_exp_values(impl.view.problem), {}));
  require(api::validate_execution(execution));
  if (log_sum_exp != nullptr && !prepared.has_log_sum_exp()) {
    throw Error(ErrorCode::invalid_value,
                "log_sum_exp: asked for, but the inputs were prepared without it; expected null. "
                "Pass with_log_sum_exp = true to prepare().");
  }
  run_validated(impl, out, log_sum_exp, execution);
}

void attention(const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& out, float* log_sum_exp, const AttentionOptions& options,
               const Execution& execution) {
  require(validate_call(q, k, v, options));
  require(api::validate_pointers(q, k, v));
  require(api::validate_output(out, q.shape, q.type, q.device));
  const NamedTensor inputs[] = {{"q", q}, {"k", k}, {"v", v}};
  const std::int64_t values = q.shape[kBatch] * q.shape[kHead] * q.shape[kSequence];
  require(api::validate_no_overlap(out, log_sum_exp, values, inputs));
  require(api::validate_boundary_pointers(options.sequences));
  require(api::validate_selection_memory(options, k, out, log_sum_exp, values));
  require(api::validate_execution(execution));
  if (q.device.type == DeviceType::cpu && (options.keys.any() || options.sequences.any())) {
    check_sequences(options.sequences, q.shape[kSequence], k.shape[kSequence]);
    return attend_sequences({q, k, v, out, log_sum_exp}, options, execution);
  }
  attend_validated(make_request(q, k, v, 0.0, options, log_sum_exp != nullptr), out, log_sum_exp,
                   execution);
}

void check_sequences(const PackedSequences& sequences, std::int64_t queries, std::int64_t keys) {
  require(api::validate_sequence_options(sequences, {}));
  if (sequences.any()) require(api::validate_boundaries(sequences, queries, keys));
}

void exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     std::span<const std::int64_t> rows, double* out, double* log_sum_exp,
                     Mask mask, std::optional<float> softmax_scale, const Execution& execution) {
  require(api::validate_inputs(q, k, v, true));
  require(api::validate_pointers(q, k, v));
  require(api::validate_mask(mask));
  require(api::validate_softmax_scale(softmax_scale));
  require(api::validate_execution(execution));
  require(api::validate_rows(rows, q.shape[kSequence]));
  if (q.device.type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported, "q, k, v: device " + api::describe(q.device) +
                                            "; expected cpu, where exact attention is computed. "
                                            "Copy the tensors to the CPU.");
  }
  if (out == nullptr) {
    throw Error(ErrorCode::invalid_value,
                "out: pointer is null; expected B * rows * H * D doubles.");
  }
  const double scale =
      softmax_scale ? static_cast<double>(*softmax_scale) : default_softmax_scale(q);
  const cpu::InterruptScope interrupts(execution.check_interrupt);
  const auto work = [&] {
    cpu::exact_attention(q, k, v, rows, out, log_sum_exp, mask, scale,
                         *cpu::shared_pool(execution.threads));
  };
  translating_bad_alloc(work, [] { return "working memory for float64 copies of the inputs"s; });
}

Support is_supported(const TensorView& q, const TensorView& k, const TensorView& v,
                     const AttentionOptions& options) {
  const auto refused = [](const api::Refusal& refusal) -> Support {
    return {false, refusal.message, refusal.code};
  };
  if (const api::MaybeRefusal refusal = validate_call(q, k, v, options)) return refused(*refusal);
  const NamedTensor arguments[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const NamedTensor& argument : arguments) {
    if (argument.tensor.data == nullptr) continue;  // a question about a tensor without memory
    if (const api::MaybeRefusal refusal = api::validate_pointer(argument)) return refused(*refusal);
  }
  const api::BackendChoice choice =
      api::choose_backend(make_request(q, k, v, 0.0, options, false), api::backends());
  if (choice.backend == nullptr) return refused(choice.refusal);
  if (const api::MaybeRefusal failed = api::first_use().known_refusal(*choice.backend, q.device)) {
    return refused(*failed);
  }
  return {.supported = true};
}

}  // namespace openvc
