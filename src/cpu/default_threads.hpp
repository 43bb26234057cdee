// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// How many threads a call takes that does not say.
namespace openvc::cpu {

/// CPU time that the control groups of the process allow, in CPUs.
struct CpuQuota {
  double cpus = 0.0;
  std::string group;  ///< the folder of the group that sets the lowest quota
};

struct ThreadLimits {
  int cpus = 1;  ///< that the calling thread may be scheduled on: the CPU set included
  std::optional<CpuQuota> quota;
  std::optional<std::string> omp_num_threads;  ///< as it is in the environment
};

struct DefaultThreads {
  int count = 1;
  std::string reason;  ///< one sentence for info()
};

/// The first number of OMP_NUM_THREADS, a list of positive whole numbers of which the others are
/// for nested regions. Empty where the value is no such list: OpenMP leaves open what happens then,
/// and its runtimes ignore the variable.
std::optional<int> parse_omp_num_threads(std::string_view text);

/// OMP_NUM_THREADS as it is, whatever the machine has; otherwise the CPUs, or the quota rounded up
/// where that is less.
DefaultThreads choose_threads(const ThreadLimits& limits);

/// CPUs in the affinity mask of the calling thread.
int usable_cpus();

/// The lowest quota among the group of the process and those around it, in both versions of control
/// groups. `root` is where /proc is; mount points are looked up below it. Empty without a quota,
/// and where the files do not say.
std::optional<CpuQuota> control_group_quota(const std::filesystem::path& root = "/");

}  // namespace openvc::cpu
