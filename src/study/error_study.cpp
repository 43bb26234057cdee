// SPDX-License-Identifier: BSD-3-Clause
#include "study/error_study.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "openvc/attention.hpp"
#include "openvc/status.hpp"
#include "study/head_study.hpp"
#include "study/progress.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

void validate(const TensorView& q, const TensorView& k, const TensorView& v,
              const StudyOptions& options) {
  if (const Support support = is_supported(q, k, v, options.attention); !support) {
    throw Error(ErrorCode::unsupported, support.reason);
  }
  if (q.device.type != DeviceType::cpu) {
    throw Error(ErrorCode::unsupported,
                "q: found a tensor on a CUDA device; expected one in host memory, where the error "
                "study runs. Copy q, k and v there.");
  }
  if (q.shape[kChannel] != numerics::kHeadDim || k.shape[kHead] != q.shape[kHead]) {
    throw Error(ErrorCode::unsupported,
                "q, k: found D = " + std::to_string(q.shape[kChannel]) + " and " +
                    std::to_string(q.shape[kHead]) + " heads of q for " +
                    std::to_string(k.shape[kHead]) +
                    " of k; expected D = " + std::to_string(numerics::kHeadDim) +
                    " and as many heads of k, which the error study is made for. Compare the "
                    "output of the call with exact attention instead.");
  }
  if (options.rows < 1) {
    throw Error(ErrorCode::invalid_value,
                "rows: found " + std::to_string(options.rows) +
                    "; expected at least 1. Give the number of queries per head to measure.");
  }
  for (const double budget : options.budgets) {
    if (!(budget >= 0.0 && budget < 1.0)) {
      throw Error(ErrorCode::invalid_value,
                  "budgets: found " + std::to_string(budget) +
                      "; expected shares of the tokens, 0 <= x < 1. Give 0.01 for 1 %.");
    }
    if (budget > 0.0 && options.attention.mask != Mask::none) {
      throw Error(ErrorCode::unsupported,
                  "budgets: found " + std::to_string(budget) +
                      " with a causal mask; expected 0, since V repair needs a call without mask. "
                      "Leave the budgets out, or the mask.");
    }
  }
}

}  // namespace

std::vector<std::int64_t> sample_rows(std::int64_t queries, std::int64_t count) {
  const std::int64_t taken = std::min(queries, count);
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(taken));
  // The middle of each of `taken` equal parts.
  for (std::int64_t i = 0; i < taken; ++i) rows.push_back((2 * i + 1) * queries / (2 * taken));
  return rows;
}

StudyResult run_error_study(const TensorView& q, const TensorView& k, const TensorView& v,
                            const StudyOptions& options) {
  validate(q, k, v, options);
  StudyResult study;
  study.batch = q.shape[kBatch];
  study.queries = q.shape[kSequence];
  study.keys = k.shape[kSequence];
  study.heads = q.shape[kHead];
  study.element_type = q.type;
  study.mask = options.attention.mask;
  study.numerics = options.attention.numerics;
  study.backend_ran = options.run_backend;
  study.rows = sample_rows(study.queries, options.rows);
  if (options.sweep_options) study.variants = option_variants(study.numerics);
  const float softmax_scale = options.attention.softmax_scale.value_or(
      1.0f / std::sqrt(static_cast<float>(numerics::kHeadDim)));
  study.softmax_scale = softmax_scale;

  const auto sampled = static_cast<std::int64_t>(study.rows.size());
  const double head_work =
      HeadStudy::work(study.queries, study.keys, sampled, options.run_backend) +
      static_cast<double>(study.variants.size()) * HeadStudy::variant_work(study.keys, sampled);
  ProgressTracker tracker(head_work * static_cast<double>(study.batch * study.heads),
                          options.progress);
  const auto pool = cpu::shared_pool(options.threads);
  for (std::int64_t b = 0; b < study.batch; ++b) {
    for (std::int64_t h = 0; h < study.heads; ++h) {
      HeadStudy head({.q = select_head(q, b, h),
                      .k = select_head(k, b, h),
                      .v = select_head(v, b, h),
                      .mask = options.attention.mask,
                      .key_order = options.attention.key_order,
                      .softmax_scale = softmax_scale},
                     study.rows, study.numerics, *pool, tracker);
      HeadResult result = head.run(options.budgets, options.run_backend);
      result.batch = b;
      result.head = h;
      for (const Variant& variant : study.variants) {
        result.variants.push_back(head.run_variant(variant.numerics));
      }
      study.results.push_back(std::move(result));
    }
  }
  study.seconds = tracker.seconds();
  return study;
}

}  // namespace openvc::study
