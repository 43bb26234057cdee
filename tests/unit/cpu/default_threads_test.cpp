// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/default_threads.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "openvc/options.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace openvc::cpu {
namespace {

/// A root folder with the files that Linux shows a process.
class FakeRoot {
 public:
  FakeRoot()
      : path_(std::filesystem::temp_directory_path() /
              ("openvc-root-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  FakeRoot& write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = path_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return *this;
  }
  /// The process's group, and where a hierarchy is mounted.
  FakeRoot& unified(const std::string& group, const std::string& root = "/",
                    const std::string& point = "/sys/fs/cgroup") {
    write("proc/self/cgroup", "0::" + group + "\n");
    return write("proc/self/mountinfo",
                 "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                 "30 22 0:26 " +
                     root + " " + point + " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  FakeRoot& version1(const std::string& group, const std::string& root = "/") {
    write("proc/self/cgroup",
          "12:cpuset:/other\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/x\n0::/y\n");
    return write("proc/self/mountinfo",
                 "31 22 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                 "32 22 0:28 " +
                     root + " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
  FakeRoot& quota1(const std::string& group, const std::string& quota, const std::string& period) {
    write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_quota_us", quota + "\n");
    return write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_period_us", period + "\n");
  }

  [[nodiscard]] std::optional<double> quota() const {
    const auto found = control_group_quota(path_);
    return found ? std::optional(found->cpus) : std::nullopt;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(ControlGroupQuota, Version2) {
  FakeRoot root;
  EXPECT_EQ(root.quota(), std::nullopt) << "no files at all";
  root.unified("/a/b");
  EXPECT_EQ(root.quota(), std::nullopt) << "no cpu.max";
  root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(root.quota(), std::nullopt);
  root.write("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(root.quota(), 2.5);
  EXPECT_EQ(control_group_quota(root.path())->group, "/sys/fs/cgroup/a/b");
}

TEST(ControlGroupQuota, LowestOfTheGroupsAround) {
  FakeRoot root;
  root.unified("/a/b/c");
  root.write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/a/cpu.max", "300000 200000\n");
  EXPECT_EQ(root.quota(), 1.5);
  EXPECT_EQ(control_group_quota(root.path())->group, "/sys/fs/cgroup/a");
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(root.quota(), 0.5) << "the mount point of a container is its own group";
}

TEST(ControlGroupQuota, GroupsOfContainers) {
  FakeRoot root;
  // With a namespace the group is the mount point; without, the mount shows a part of the tree.
  root.unified("/").write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(root.quota(), 4.0);
  root.unified("/docker/1f", "/docker/1f");
  EXPECT_EQ(root.quota(), 4.0);
  root.unified("/docker/1f/task", "/docker/1f")
      .write("sys/fs/cgroup/task/cpu.max", "100000 100000\n");
  EXPECT_EQ(root.quota(), 1.0);
  for (const std::string outside : {"/../other", "/docker/2e"}) {
    root.unified(outside, outside[1] == '.' ? "/" : "/docker/1f");
    EXPECT_EQ(root.quota(), 4.0) << outside;
  }
  root.unified("/g h", "/", "/sys/control\\040groups")
      .write("sys/control groups/g h/cpu.max", "600000 100000\n");
  // mountinfo escapes blanks, cgroup does not.
  EXPECT_EQ(root.quota(), 6.0);
}

TEST(ControlGroupQuota, Version1) {
  FakeRoot root;
  root.version1("/user/job");
  EXPECT_EQ(root.quota(), std::nullopt);
  root.quota1("/user/job", "-1", "100000");
  EXPECT_EQ(root.quota(), std::nullopt);
  root.quota1("/user", "350000", "100000");
  EXPECT_EQ(root.quota(), 3.5);
  root.quota1("/user/job", "20000", "10000");
  EXPECT_EQ(root.quota(), 2.0);
  root.version1("/docker/1f", "/docker/1f").quota1("", "100000", "50000");
  EXPECT_EQ(root.quota(), 2.0);
}

TEST(ControlGroupQuota, FilesThatDoNotSay) {
  for (const std::string text : {"", "\n", "max", "100000", "a b\n", "0 100000", "100000 0",
                                 "-5 100000", "99999999999999999999 100000"}) {
    FakeRoot root;
    root.unified("/a").write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(root.quota(), std::nullopt) << text;
  }
  FakeRoot root;
  root.write("proc/self/cgroup", "0\n:\n0::\n\n4:cpu\n")
      .write("proc/self/mountinfo", "\n- - -\n1 2 3 4 5 6 - cgroup2\n1 2 - cgroup2 a b\n");
  EXPECT_EQ(root.quota(), std::nullopt);
}

TEST(OmpNumThreads, FirstOfAListOfPositiveWholeNumbers) {
  const auto parse = parse_omp_num_threads;
  EXPECT_EQ(parse("4"), 4);
  EXPECT_EQ(parse("4,2"), 4);
  EXPECT_EQ(parse(" 3 , 2,1 "), 3);
  EXPECT_EQ(parse("1"), 1);
  EXPECT_EQ(parse("4096"), kMaxThreads);
  for (const char* large : {"4097", "2147483648", "99999999999999999999999"}) {
    EXPECT_EQ(parse(large), kMaxThreads) << large;
  }
  for (const char* invalid : {"", " ", "0", "-1", "-99999999999999999999999", "4,", ",4", "4,0",
                              "4,x", "four", "4x", "4 2", "0x4", "4.5", "1e3", "+-4"}) {
    EXPECT_EQ(parse(invalid), std::nullopt) << invalid;
  }
}

TEST(ChooseThreads, OmpNumThreadsThenTheQuotaThenTheCpus) {
  const auto choose = [](int cpus, std::optional<double> quota, std::optional<std::string> omp) {
    ThreadLimits limits{.cpus = cpus, .quota = {}, .omp_num_threads = omp};
    if (quota) limits.quota = {*quota, "/g"};
    return choose_threads(limits);
  };
  EXPECT_EQ(choose(8, {}, {}).count, 8);
  EXPECT_EQ(choose(8, {}, {}).reason, "the process may run on 8 CPUs");
  EXPECT_EQ(choose(1, {}, {}).reason, "the process may run on 1 CPU");
  EXPECT_EQ(choose(8, 2.0, {}).count, 2);
  EXPECT_EQ(choose(8, 2.5, {}).count, 3) << "rounded up: tasks are handed out one by one";
  EXPECT_EQ(choose(8, 2.5, {}).reason, "the control group /g has a quota of 2.5 CPUs, of 8");
  EXPECT_EQ(choose(8, 0.2, {}).count, 1);
  EXPECT_EQ(choose(8, 8.0, {}).count, 8);
  EXPECT_EQ(choose(8, 1e18, {}).count, 8);
  EXPECT_EQ(choose(2, 2.0, "16").count, 16) << "as it is";
  EXPECT_EQ(choose(2, 2.0, "16").reason, "OMP_NUM_THREADS is 16");
  EXPECT_EQ(choose(8, 2.0, "many").count, 2);
  EXPECT_EQ(
      choose(8, {}, "many").reason,
      "the process may run on 8 CPUs; OMP_NUM_THREADS is 'many', which is no list of positive "
      "whole numbers, and is ignored");
}

#if defined(__linux__)
TEST(UsableCpus, AreThoseOfTheAffinityMask) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    EXPECT_EQ(usable_cpus(), CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cpus(), 1);
  }).join();
}
#endif

}  // namespace
}  // namespace openvc::cpu
