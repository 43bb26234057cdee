// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace openvc::api {

/// Whether an environment variable is on: 1, true, on or yes, or 0, false, off or no. Unset or
/// empty it is `otherwise`. Whoever sets it means something: another value is an Error. `purpose`
/// says what it is for, "to look for elements that are not finite".
bool environment_switch(const char* name, bool otherwise, const char* purpose);

}  // namespace openvc::api
