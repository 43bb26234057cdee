// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "cuda/low_work_variants.cuh"
#include "timing/trace.hpp"

namespace openvc::timing {

/// The trace of one cluster of the Hopper kernel, or of a variant of it, over so many blocks of
/// keys: the kernel runs on the model of the machine.
Trace record_hopper(const low_work::Variant& variant, int key_blocks);

/// The same of the Blackwell kernel without extra steps: two query tiles of 128 rows in a block.
Trace record_blackwell(int key_blocks);
inline constexpr const char* kBlackwellBlockMark = "score_full[0]";

/// Gives their warps and barriers names.
void name_variants();

/// What ends a block of keys in such a trace: the products P V.
inline constexpr const char* kHopperBlockMark = "wgmma.m64n136k32.f32";

}  // namespace openvc::timing
