// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "machine/engines.hpp"

// The driver's type of a tensor map; what it holds is the model's.
using CUtensorMap = openvc::model::TensorMap;
