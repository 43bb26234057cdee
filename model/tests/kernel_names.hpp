// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace openvc::test {

/// Gives the attention kernels, their roles and their barriers names in the messages of the model.
void name_attention_kernels();

}  // namespace openvc::test
