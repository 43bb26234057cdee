// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine/engines.hpp"
#include "machine/machine.hpp"
#include "machine/operand.hpp"

namespace openvc::model {

/// What the warps of a warpgroup have issued: all of them must issue the same products.
class ProductLog {
 public:
  /// Empty, or how a warp's next product differs from that of the warps before it.
  std::string add(unsigned warp, const Product& product);
  /// Whether all warps have issued the same number.
  [[nodiscard]] bool is_even() const;

 private:
  static constexpr unsigned kWarps = 4;
  std::deque<Product> products_;  // that some warp has not issued yet
  std::uint64_t first_ = 0;       // number of the first of them
  std::array<std::uint64_t, kWarps> issued_{};
};

/// The part of the tensor core that computes the 16 rows of a warp: products that are asynchronous.
///
/// What they read may not change between issue and wait, and is compared, so that it does not
/// matter when they read it. Registers of sums are poisoned from the issue to the wait.
class TensorCore {
 public:
  TensorCore(unsigned rank, unsigned warp) : rank_(rank), warp_(warp) {}

  void issue(const Operands& lanes);
  void fence() { fenced_ = true; }
  void commit();
  void wait(int pending_groups);
  [[nodiscard]] bool is_idle() const { return groups_.empty() && open_.empty(); }

 private:
  /// Registers of D of the lanes while products write them.
  struct Sums {
    std::array<std::byte*, kWarpLanes> registers{};
    int count = 0;                      // of a lane
    std::vector<std::uint32_t> values;  // of all lanes
    int products = 0;                   // in flight
  };
  struct Pending {
    Product product;
    Sums* sums;
    std::array<const std::uint32_t*, kWarpLanes> a_registers;
    Matrix a;
    Matrix b;
    std::vector<std::byte> a_bytes;  // when it was issued
    std::vector<std::byte> b_bytes;
    std::uint64_t number;
  };

  Sums& sums_of(const Operands& lanes, const Product& product);
  void complete(Pending& pending);
  void publish(Sums& sums, const char* instruction);

  unsigned rank_;  // of the block
  unsigned warp_;
  std::uint64_t issued_ = 0;  // products
  std::vector<Pending> open_;
  std::deque<std::vector<Pending>> groups_;
  std::map<std::byte*, std::unique_ptr<Sums>> sums_;  // by the registers of lane 0
  bool fenced_ = false;
};

}  // namespace openvc::model
