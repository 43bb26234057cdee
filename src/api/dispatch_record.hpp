// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "api/prepared.hpp"

namespace openvc::api {

/// Remembers what attention_prepared() started last, for info(). Cheap: text is made on demand.
void record_dispatch(const Prepared::Impl& prepared);

/// The last record in words, empty before the first.
std::string last_dispatch();

}  // namespace openvc::api
