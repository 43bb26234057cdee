// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "machine/clock.hpp"
#include "machine/engines.hpp"
#include "machine/mbarrier.hpp"
#include "machine/operand.hpp"
#include "machine/tensor_memory.hpp"

namespace openvc::model {

inline constexpr int kBlockRows = 128;  // M: the only one that the model knows

/// What an instruction descriptor says, of what the model knows.
struct BlockShape {
  bool binary16;
  std::uint32_t columns;
};

/// Throws if there is anything else. `name` is the instruction's.
BlockShape decode_instruction(std::uint32_t descriptor, const std::string& name);

/// The tensor core of a block (tcgen05): products and commits that its threads issue, in order.
///
/// They are done at a moment of the schedule. What products read from shared memory may not change
/// until then, and is compared. Tensor memory needs no such look: whoever touches it before a
/// commit was waited for is seen at once (TensorOrder).
class BlockPipe {
 public:
  explicit BlockPipe(unsigned rank) : rank_(rank) {}

  /// Of the block and the thread that run.
  void issue(const BlockProduct& product);
  void commit(const char* instruction, const std::vector<BarrierPlace>& barriers);

  [[nodiscard]] bool empty() const { return queue_.empty(); }
  /// Does what comes next.
  void advance();
  /// Throws if the block, whose warps know of `before`, may not end like this.
  void end_of_block(const Clock& before) const;

 private:
  struct Pending {
    BlockProduct product;
    unsigned issuer;  // thread of the cluster
    bool binary16;    // sums
    ColumnRange d;
    ColumnRange a_columns;  // of A in tensor memory
    Matrix a;
    Matrix b;
    std::vector<std::byte> a_bytes;  // when it was issued
    std::vector<std::byte> b_bytes;
  };
  struct Commit {
    const char* instruction;
    unsigned issuer;
    Party party;
    Clock before;
    std::vector<BarrierPlace> barriers;
  };
  /// The thread of a warp that issues.
  struct Issuer {
    int lane = -1;
    std::uint64_t products = 0;
    std::uint64_t commits = 0;
    std::uint64_t own_commits = 0;  // the last that arrives at a barrier of this block
    Party party = 0;                // its commits
  };

  Issuer& issuer(const char* instruction, bool issues);
  void finish_issue();
  void complete(Pending& pending);
  void complete(const Commit& commit);

  unsigned rank_;
  std::deque<std::variant<Pending, Commit>> queue_;
  std::map<unsigned, Issuer> issuers_;  // by warp
};

}  // namespace openvc::model
