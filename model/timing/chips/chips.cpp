// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>
#include <string>

#include "timing/machine_constants.hpp"

namespace openvc::timing {

const MachineConstants& machine_constants(std::string_view name) {
  std::string known;
  for (const auto* machine :
       {&h200(), &b200(), &b200_slow_loads(), &b300(), &rtx5090(), &rtx4090()}) {
    if (machine->name == name) return *machine;
    known += (known.empty() ? "" : ", ") + std::string(machine->name);
  }
  throw std::invalid_argument("machine: '" + std::string(name) + "'; expected one of " + known);
}

}  // namespace openvc::timing
