// SPDX-License-Identifier: BSD-3-Clause
#include "api/first_use.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "api/first_use_check.hpp"
#include "api/prepared.hpp"
#include "numerics/head_rule.hpp"

namespace openvc::api {
namespace {

using testing::HasSubstr;

constexpr Device kDevice{DeviceType::cuda, 1};

/// A device whose memory is the host's, and what is wrong with it.
struct FakeDevice {
  std::atomic<int> calls = 0;
  bool capturing = false;
  bool broken = false;               // CUDA refuses everything
  bool allocated_by_caller = false;  // somebody has used Execution::allocate
  void (*damage)(const MutableTensorView& out) = nullptr;
};
FakeDevice fake;

bool is_capturing(int /*device*/, void* /*stream*/) { return fake.capturing; }

void on_own_stream(int device, const std::function<void(void*)>& work) {
  EXPECT_EQ(device, kDevice.index);
  if (fake.broken) throw Error(ErrorCode::device_failure, "CUDA: copying failed");
  int stream = 0;
  work(&stream);
}

std::shared_ptr<std::byte> upload(std::span<const std::byte> bytes, int /*device*/,
                                  void* /*stream*/) {
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {copy, copy->data()};
}

std::vector<std::byte> download(const std::byte* bytes, std::size_t size, int /*device*/,
                                void* /*stream*/) {
  return {bytes, bytes + size};
}

constexpr DeviceAccess kAccess{is_capturing, on_own_stream, upload, download};

void prepare(const schedule::PrepareRequest& request, const Execution& execution,
             Prepared::Impl& prepared) {
  EXPECT_EQ(request.q.device.index, kDevice.index);
  EXPECT_NE(execution.stream, nullptr);
  fake.allocated_by_caller |= static_cast<bool>(execution.allocate);
  ++fake.calls;
  kCpuBackend.prepare(request, execution, prepared);
}

void run(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
         const Execution& execution) {
  kCpuBackend.run(prepared, out, log_sum_exp, execution);
  if (fake.damage != nullptr) fake.damage(out);
}

Backend backend(bool run_on_hardware = false) {
  Backend result = kCpuBackend;
  result.name = "sm100";
  result.device = DeviceType::cuda;
  result.run_on_hardware = run_on_hardware;
  result.prepare = prepare;
  result.run = run;
  result.access = &kAccess;
  return result;
}

/// Rows of the last head, more than its bound lets pass.
void lose_rows(const MutableTensorView& out) {
  constexpr std::int64_t kRows = 40;
  const std::int64_t head = out.shape[kHead] - 1;
  for (std::int64_t row = 0; row < kRows; ++row) {
    auto* at = static_cast<std::uint16_t*>(out.data) + out.view().offset(0, row, head);
    std::memset(at, 0, sizeof(std::uint16_t) * static_cast<std::size_t>(out.shape[kChannel]));
  }
}

void lose_one_row(const MutableTensorView& out) {
  std::memset(out.data, 0, sizeof(std::uint16_t) * static_cast<std::size_t>(out.shape[kChannel]));
}

/// What axes are for: a call whose output stays on them.
void negate_long_calls(const MutableTensorView& out) {
  if (out.shape[kHead] != 1) return;
  auto* const elements = static_cast<std::uint16_t*>(out.data);
  for (std::int64_t i = 0; i < out.shape[kSequence] * out.shape[kChannel]; ++i) {
    elements[i] ^= 0x8000u;
  }
}

std::string refusal_of(FirstUse& uses, const Backend& backend, ErrorCode code) {
  try {
    uses.require(backend, kDevice, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return {};
}

class FirstUseTest : public testing::Test {
 protected:
  void SetUp() override {
    fake.calls = 0;
    fake.capturing = fake.broken = fake.allocated_by_caller = false;
    fake.damage = nullptr;
    cases_ = static_cast<int>(first_use_cases().size());
  }

  int cases_ = 0;
  FirstUse uses_;
};

TEST_F(FirstUseTest, ADeviceThatComputesWhatTheCpuComputesPassesOnce) {
  const Backend sm100 = backend();
  Execution execution;
  execution.allocate = [](std::size_t) -> std::shared_ptr<std::byte> { std::abort(); };
  uses_.require(sm100, kDevice, execution);
  EXPECT_EQ(fake.calls, cases_);
  EXPECT_FALSE(fake.allocated_by_caller);
  fake.damage = lose_rows;  // later faults are not its business
  uses_.require(sm100, kDevice, execution);
  EXPECT_EQ(fake.calls, cases_);
  EXPECT_FALSE(uses_.known_refusal(sm100, kDevice));
}

TEST_F(FirstUseTest, BackendsThatHaveRunOnHardwareAreNotChecked) {
  fake.damage = lose_rows;
  uses_.require(backend(true), kDevice, {});
  EXPECT_EQ(fake.calls, 0);
}

TEST_F(FirstUseTest, EveryDeviceHasACheckOfItsOwn) {
  const Backend sm100 = backend();
  const Backend sm103 = backend();
  uses_.require(sm100, kDevice, {});
  uses_.require(sm103, kDevice, {});
  EXPECT_EQ(fake.calls, 2 * cases_);
}

TEST_F(FirstUseTest, AFailureIsReportedByEveryLaterCall) {
  const Backend sm100 = backend();
  for (const auto damage : {lose_rows, lose_one_row, negate_long_calls}) {
    FirstUse uses;
    fake.damage = damage;
    const std::string first = refusal_of(uses, sm100, ErrorCode::unsupported);
    EXPECT_THAT(first, HasSubstr("device cuda:1: backend sm100, not yet run on hardware, has "
                                 "failed the self-check"));
    EXPECT_THAT(first, testing::ContainsRegex("relative L2 [0-9.]+, bound [0-9.]+"));
    EXPECT_THAT(first, HasSubstr("tools/hardware_report.sh"));
    EXPECT_THAT(first, HasSubstr("OPEN_VC_ATTN_SELF_CHECK=0"));
    const int calls = fake.calls;
    fake.damage = nullptr;
    EXPECT_EQ(refusal_of(uses, sm100, ErrorCode::unsupported), first);
    EXPECT_EQ(fake.calls, calls);
    ASSERT_TRUE(uses.known_refusal(sm100, kDevice));
    EXPECT_EQ(uses.known_refusal(sm100, kDevice)->message, first);
  }
}

TEST_F(FirstUseTest, NothingIsKnownBeforeTheFirstUse) {
  fake.damage = lose_rows;
  EXPECT_FALSE(uses_.known_refusal(backend(), kDevice));
  EXPECT_EQ(fake.calls, 0);
}

TEST_F(FirstUseTest, AnErrorOfCudaIsReportedAsSuchAndTheCheckIsMadeAgain) {
  const Backend sm100 = backend();
  fake.broken = true;
  const std::string found = refusal_of(uses_, sm100, ErrorCode::device_failure);
  EXPECT_THAT(found, HasSubstr("could not make the self-check of its first use: CUDA: copying"));
  EXPECT_FALSE(uses_.known_refusal(sm100, kDevice));
  fake.broken = false;
  uses_.require(sm100, kDevice, {});
  EXPECT_EQ(fake.calls, cases_);
}

TEST_F(FirstUseTest, ACaptureNeedsADeviceThatHasBeenChecked) {
  const Backend sm100 = backend();
  fake.capturing = true;
  EXPECT_THAT(refusal_of(uses_, sm100, ErrorCode::unsupported),
              HasSubstr("Run one call before capturing, or set OPEN_VC_ATTN_SELF_CHECK=0"));
  EXPECT_EQ(fake.calls, 0);
  fake.capturing = false;
  uses_.require(sm100, kDevice, {});
  fake.capturing = true;
  uses_.require(sm100, kDevice, {});
  EXPECT_EQ(fake.calls, cases_);
}

TEST_F(FirstUseTest, OfManyThreadsOneMakesTheCheckAndAllWaitForIt) {
  const Backend sm100 = backend();
  constexpr int kThreads = 8;
  fake.damage = lose_rows;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      try {
        uses_.require(sm100, kDevice, {});
      } catch (const Error&) {
        ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, kThreads);
  EXPECT_EQ(fake.calls, 1) << "the first case has failed";
}

/// The cases reach what the kernels do differently.
TEST_F(FirstUseTest, TheCasesHaveResidualColumnsAWideHeadAndAxes) {
  bool narrow_with_steps = false;
  bool wide = false;
  bool axes = false;
  for (const FirstUseCase& c : first_use_cases()) {
    Prepared::Impl prepared;
    schedule::PrepareRequest request = c.request();
    request.format = kCpuBackend.format;
    kCpuBackend.prepare(request, {}, prepared);
    ASSERT_EQ(static_cast<std::int64_t>(c.bounds.size()), c.problem.heads);
    for (std::int64_t head = 0; head < c.problem.heads; ++head) {
      numerics::HeadRule rule;
      std::memcpy(&rule,
                  prepared.view.data + prepared.view.layout.head_rules +
                      static_cast<std::size_t>(head) * sizeof(rule),
                  sizeof(rule));
      narrow_with_steps |= !rule.wide() && rule.extra_steps == 2;
      wide |= rule.wide();
      axes |= rule.values_on_axes();
    }
  }
  EXPECT_TRUE(narrow_with_steps);
  EXPECT_TRUE(wide);
  EXPECT_TRUE(axes);
}

/// The variable is read once, so each value needs a process of its own.
[[noreturn]] void require_and_exit(const char* value) {
  setenv("OPEN_VC_ATTN_SELF_CHECK", value, 1);
  fake.damage = lose_rows;
  FirstUse uses;
  try {
    uses.require(backend(), kDevice, {});
    std::fputs("no error", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

TEST(FirstUseDeathTest, TheSwitchSkipsTheCheckAndRefusesOtherValues) {
  EXPECT_EXIT(require_and_exit("0"), testing::ExitedWithCode(0), "^no error$");
  EXPECT_EXIT(require_and_exit("1"), testing::ExitedWithCode(0), "has failed the self-check");
  EXPECT_EXIT(require_and_exit("2"), testing::ExitedWithCode(0),
              "OPEN_VC_ATTN_SELF_CHECK: '2' in the environment; expected 1, true, on or yes to "
              "check backends");
}

}  // namespace
}  // namespace openvc::api
