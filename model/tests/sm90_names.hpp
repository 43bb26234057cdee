// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the messages of the model call the parts of the Hopper kernel.
namespace openvc::test {

void name_sm90_kernels();

}  // namespace openvc::test
