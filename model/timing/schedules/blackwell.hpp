// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "timing/trace.hpp"

namespace openvc::timing {

/// A schedule of attention on tcgen05 that is described, not compiled: 128 rows for each query
/// stage, blocks of 128 keys, D = 128, probabilities in tensor memory.
struct BlackwellSchedule {
  std::string name;
  int query_stages = 2;       // of a thread block; a warpgroup turns the scores of each into codes
  int score_buffers = 1;      // of each stage; 0: one that all stages share
  bool scores_ahead = false;  // Q K (i + 1) is issued before P V (i), not behind it
  bool half_scores = false;   // binary16: HFMA2 makes codes; else FFMA2 and a conversion
  int value_columns = 136;    // N of P V
  int ring_slots = 4;         // of shared memory, K and V in turn
  bool pair = false;          // cta_group::2: two blocks share keys and one issues for both
};

/// `blocks` of keys of one work item. A mark "block" ends each.
Trace write_blackwell(const BlackwellSchedule& schedule, int blocks);

}  // namespace openvc::timing
