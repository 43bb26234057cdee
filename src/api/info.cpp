// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/info.hpp"

#include <cstdio>
#include <string>

#include "api/backend.hpp"
#include "api/dispatch_record.hpp"
#include "cpu/row_kernels.hpp"
#include "numerics/contract.hpp"
#include "openvc/version.hpp"

namespace openvc {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Info info() {
  Info result;
  result.version = kVersion;
  result.contract_version = numerics::kContractVersion;
  for (const api::Backend* backend : api::backends()) {
    result.backends.push_back({backend->name, backend->device == DeviceType::cpu ? "cpu" : "cuda",
                               backend->detail(), backend->run_on_hardware});
  }
  result.cpu_simd_target = cpu::simd_target();
  result.last_dispatch = api::last_dispatch();
  return result;
}

std::string info_json() {
  const Info all = info();
  std::string backends;
  for (const BackendInfo& backend : all.backends) {
    backends += (backends.empty() ? "" : ", ") + ("{\"name\": " + quoted(backend.name)) +
                ", \"device\": " + quoted(backend.device) +
                ", \"detail\": " + quoted(backend.detail) + ", \"status\": " +
                (backend.run_on_hardware ? "\"run on hardware\"" : "\"not yet run on hardware\"") +
                "}";
  }
  return "{\"version\": " + quoted(all.version) +
         ", \"contract_version\": " + std::to_string(all.contract_version) + ", \"backends\": [" +
         backends + "]" + ", \"cpu_simd_target\": " + quoted(all.cpu_simd_target) +
         ", \"last_dispatch\": " + quoted(all.last_dispatch) + "}";
}

}  // namespace openvc
