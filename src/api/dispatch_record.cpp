// SPDX-License-Identifier: BSD-3-Clause
#include "api/dispatch_record.hpp"

#include <pthread.h>

#include <mutex>
#include <string>

#include "api/describe.hpp"
#include "schedule/problem.hpp"

namespace openvc::api {
namespace {

struct Record {
  const Backend* backend = nullptr;
  Device device{};
  ElementType type = ElementType::bfloat16;
  schedule::Problem problem{};
  int max_extra_steps = 0;
  bool with_log_sum_exp = false;
};

std::mutex record_mutex;
Record record;

/// A child process must not find the mutex held by a thread that fork() did not copy.
[[maybe_unused]] const int kForkHandlers = pthread_atfork(
    [] { record_mutex.lock(); }, [] { record_mutex.unlock(); }, [] { record_mutex.unlock(); });

}  // namespace

void record_dispatch(const Prepared::Impl& prepared) {
  const std::lock_guard lock(record_mutex);
  const schedule::PreparedView& view = prepared.view;
  record = {prepared.backend, prepared.device,      prepared.type,
            view.problem,     view.max_extra_steps, view.with_log_sum_exp};
}

std::string last_dispatch() {
  Record last;
  {
    const std::lock_guard lock(record_mutex);
    last = record;
  }
  if (last.backend == nullptr) return {};
  const schedule::Problem& problem = last.problem;
  return std::string(last.backend->name) + " on " + describe(last.device) + ": " +
         element_name(last.type) + ", B " + std::to_string(problem.batch) + ", H " +
         std::to_string(problem.heads) + ", Sq " + std::to_string(problem.queries) + ", Skv " +
         std::to_string(problem.keys) + (problem.mask == Mask::causal ? ", causal" : "") +
         (problem.key_order == KeyOrder::descending ? ", descending" : "") +
         (problem.repair_rows > 0 ? ", repair rows " + std::to_string(problem.repair_rows) : "") +
         ", at most " + std::to_string(last.max_extra_steps) + " extra steps" +
         (last.with_log_sum_exp ? ", log-sum-exp" : "") + "; " + last.backend->detail();
}

}  // namespace openvc::api
