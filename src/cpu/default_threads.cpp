// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/default_threads.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "openvc/options.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace openvc::cpu {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::string& comma_list, std::string_view word) {
  const auto parts = split(comma_list, ',');
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// mountinfo writes blanks and backslashes as three octal digits.
std::string unescaped(const std::string& text) {
  constexpr std::size_t kDigits = 3;
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + kDigits < text.size()) {
      const char* const digits = text.data() + i + 1;
      if (std::from_chars(digits, digits + kDigits, code, 8).ptr == digits + kDigits) {
        result += static_cast<char>(code);
        i += kDigits;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

/// A hierarchy of control groups in the file system: the folder of group `root`.
struct Mount {
  bool unified = false;  // version 2
  std::string root;
  std::string point;
};

/// Lines are: id, parent, device, root, mount point, options, optional fields, "-", type, source,
/// options of the file system.
std::vector<Mount> control_group_mounts(const std::filesystem::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    constexpr std::ptrdiff_t kRoot = 3;
    constexpr std::ptrdiff_t kPoint = 4;
    if (fields.end() - dash < 4 || dash - fields.begin() <= kPoint) continue;
    const bool unified = dash[1] == "cgroup2";
    if (!unified && !(dash[1] == "cgroup" && contains(dash[3], "cpu"))) continue;
    mounts.push_back({unified, unescaped(fields[kRoot]), unescaped(fields[kPoint])});
  }
  return mounts;
}

/// The path of the process's group in a hierarchy. Lines are: number, controllers, path.
std::optional<std::string> group_of_process(const std::filesystem::path& root, bool unified) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool matches = unified ? line.substr(0, first) == "0" && controllers.empty()
                                 : contains(controllers, "cpu");
    if (matches) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// CPUs that one group allows.
std::optional<double> quota_of(const std::filesystem::path& folder, bool unified) {
  std::optional<std::int64_t> quota;
  std::optional<std::int64_t> period;
  if (unified) {
    // "max 100000" or "150000 100000", in microseconds.
    const auto words = split(first_line(folder / "cpu.max"), ' ');
    if (words.size() == 2) {
      quota = whole_number(words[0]);
      period = whole_number(words[1]);
    }
  } else {
    quota = whole_number(trimmed(first_line(folder / "cpu.cfs_quota_us")));  // -1: none
    period = whole_number(trimmed(first_line(folder / "cpu.cfs_period_us")));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// From the process's group up to the mount point, which is the top that the process can see.
void visit_groups(const std::filesystem::path& root, const Mount& mount, const std::string& group,
                  std::optional<CpuQuota>& lowest) {
  std::string below;  // path of the group below the mount point
  if (mount.root == "/") {
    below = group == "/" ? "" : group;
  } else if (group.starts_with(mount.root + "/")) {
    below = group.substr(mount.root.size());
  }
  // A group outside of what is mounted: the mount point is all that can be read.
  if (below.find("/..") != std::string::npos) below.clear();
  const std::filesystem::path top = root / std::filesystem::path(mount.point).relative_path();
  for (;;) {
    const std::optional<double> quota = quota_of(top.string() + below, mount.unified);
    if (quota && (!lowest || *quota < lowest->cpus)) lowest = {*quota, mount.point + below};
    if (below.empty()) return;
    below.resize(below.rfind('/'));
  }
}

std::string described(double cpus) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", cpus);
  return text;
}

}  // namespace

std::optional<int> parse_omp_num_threads(std::string_view text) {
  std::optional<int> first;
  for (;;) {
    const auto comma = text.find(',');
    const std::string_view item = trimmed(text.substr(0, comma));
    std::int64_t value = 0;
    const char* const end = item.data() + item.size();
    const auto [rest, error] = std::from_chars(item.data(), end, value);
    // A number beyond the range is a number: as many threads as there may be.
    if (error == std::errc::result_out_of_range && item.front() != '-') {
      value = kMaxThreads;
    } else if (error != std::errc() || value <= 0) {
      return std::nullopt;
    }
    if (rest != end) return std::nullopt;
    if (!first) first = static_cast<int>(std::min<std::int64_t>(value, kMaxThreads));
    if (comma == std::string_view::npos) return first;
    text.remove_prefix(comma + 1);
  }
}

DefaultThreads choose_threads(const ThreadLimits& limits) {
  std::string ignored;
  if (limits.omp_num_threads) {
    if (const auto threads = parse_omp_num_threads(*limits.omp_num_threads)) {
      return {*threads, "OMP_NUM_THREADS is " + *limits.omp_num_threads};
    }
    ignored = "; OMP_NUM_THREADS is '" + *limits.omp_num_threads +
              "', which is no list of positive whole numbers, and is ignored";
  }
  const std::string cpus = std::to_string(limits.cpus);
  if (limits.quota) {
    const double rounded = std::max(1.0, std::ceil(limits.quota->cpus));
    if (rounded < limits.cpus) {
      return {static_cast<int>(rounded), "the control group " + limits.quota->group +
                                             " has a quota of " + described(limits.quota->cpus) +
                                             " CPUs, of " + cpus + ignored};
    }
  }
  return {limits.cpus,
          "the process may run on " + cpus + (limits.cpus == 1 ? " CPU" : " CPUs") + ignored};
}

int usable_cpus() {
  int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#if defined(__linux__)
  // A mask that is too small for the kernel's is refused. No kernel has more bits than this.
  for (int bits = CPU_SETSIZE; bits <= (1 << 17); bits *= 2) {
    cpu_set_t* const allowed = CPU_ALLOC(static_cast<std::size_t>(bits));
    if (allowed == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(bits));
    const bool known = sched_getaffinity(0, bytes, allowed) == 0;
    if (known) cpus = std::max(1, CPU_COUNT_S(bytes, allowed));
    CPU_FREE(allowed);
    if (known) break;
  }
#endif
  return std::min(cpus, kMaxThreads);
}

std::optional<CpuQuota> control_group_quota(const std::filesystem::path& root) {
  std::optional<CpuQuota> lowest;
  for (const Mount& mount : control_group_mounts(root)) {
    const auto group = group_of_process(root, mount.unified);
    if (group) visit_groups(root, mount, *group, lowest);
  }
  return lowest;
}

}  // namespace openvc::cpu
