// SPDX-License-Identifier: BSD-3-Clause
#include "api/sequence_calls.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "api/selected_keys.hpp"
#include "schedule/sequence_bounds.hpp"

namespace openvc::api {

void attend_selected(const SequenceCall& call, const KeySelection& keys, const CheckSequence& check,
                     const AttendSequence& attend) {
  const std::int64_t values = call.q.shape[kHead] * call.q.shape[kSequence];
  for (std::int64_t b = 0; b < call.q.shape[kBatch]; ++b) {
    SequenceCall one{.q = sequence(call.q, b),
                     .k = sequence(call.k, b),
                     .v = sequence(call.v, b),
                     .out = sequence(call.out, b),
                     .log_sum_exp = call.log_sum_exp};
    if (one.log_sum_exp != nullptr) one.log_sum_exp += b * values;
    const auto selected = selected_keys(keys, b, call.k.shape[kSequence]);
    if (selected.empty()) {
      write_no_keys(one.out, one.log_sum_exp, values);
      continue;
    }
    const SelectedTokens selected_k(one.k, selected);
    const SelectedTokens selected_v(one.v, selected);
    one.k = selected_k.view();
    one.v = selected_v.view();
    check(one, b, selected);
    attend(one);
  }
}

void attend_packed(const SequenceCall& call, const PackedSequences& sequences,
                   const AttendSequence& attend) {
  const std::int64_t heads = call.q.shape[kHead];
  const std::int64_t queries = call.q.shape[kSequence];
  std::vector<float> logs;
  for (std::int64_t b = 0; b < sequences.count; ++b) {
    const schedule::SequenceBounds bounds =
        schedule::packed_bounds(sequences, b, queries, call.k.shape[kSequence]);
    if (bounds.queries == 0) continue;
    if (call.log_sum_exp != nullptr) {
      logs.resize(static_cast<std::size_t>(heads * bounds.queries));
    }
    const SequenceCall one{.q = tokens(call.q, bounds.first_query, bounds.queries),
                           .k = tokens(call.k, bounds.first_key, bounds.keys),
                           .v = tokens(call.v, bounds.first_key, bounds.keys),
                           .out = tokens(call.out, bounds.first_query, bounds.queries),
                           .log_sum_exp = call.log_sum_exp == nullptr ? nullptr : logs.data()};
    if (bounds.keys == 0) {
      write_no_keys(one.out, one.log_sum_exp, heads * bounds.queries);
    } else {
      attend(one);
    }
    if (call.log_sum_exp == nullptr) continue;
    for (std::int64_t h = 0; h < heads; ++h) {
      std::copy_n(logs.data() + h * bounds.queries, bounds.queries,
                  call.log_sum_exp + h * queries + bounds.first_query);
    }
  }
}

}  // namespace openvc::api
