// SPDX-License-Identifier: BSD-3-Clause
#include "machine/block_product.hpp"

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "machine/cluster.hpp"
#include "machine/matrix_product.hpp"
#include "machine/mutation.hpp"
#include "machine/recorder.hpp"
#include "machine/rounding.hpp"

namespace openvc::model {
namespace {

constexpr std::uint32_t kOperandColumns = kProductDepth / 4;  // of A in tensor memory
constexpr std::uint32_t kUpperHalfPoison = 0xFFFF'0000;       // beside a sum of binary16

/// Columns of all lanes from an address on.
ColumnRange all_lanes(std::uint64_t address, std::uint32_t columns, const std::string& operand) {
  constexpr std::uint32_t kColumnMask = 0xFFFF;
  if (address >> 16 != 0) {
    fail(operand + " starts at lane " + std::to_string(address >> 16) +
         " of tensor memory; expected 0 for M = 128");
  }
  return {.first = static_cast<std::uint32_t>(address) & kColumnMask, .count = columns};
}

}  // namespace

BlockPipe::Issuer& BlockPipe::issuer(const char* instruction, bool issues) {
  Issuer& mine = issuers_[cluster().warp()];
  if (mine.party == 0) mine.party = cluster().new_party();
  if (issues && mine.lane < 0) mine.lane = lane();
  if (mine.lane >= 0 && mine.lane != lane()) {
    fail(std::string(instruction) + ": lane " + std::to_string(mine.lane) +
         " of the warp issues its products, and a commit covers those of its own thread alone; "
         "issue all of a warp from one lane");
  }
  return mine;
}

void BlockPipe::finish_issue() {
  if (cluster().schedule().engines != Engines::eager) return;
  while (!empty()) advance();
}

void BlockPipe::issue(const BlockProduct& product) {
  const std::string name = product.instruction;
  Issuer& mine = issuer(product.instruction, true);
  const BlockShape shape = decode_instruction(product.descriptor, name);
  Pending pending{.product = product,
                  .issuer = cluster().running(),
                  .binary16 = shape.binary16,
                  .d = all_lanes(product.d, shape.columns, name + ": D"),
                  .a_columns = {},
                  .a = {},
                  .b = {},
                  .a_bytes = {},
                  .b_bytes = {}};
  const std::uint64_t number = ++mine.products;
  const TensorDeed deed{.kind = TensorDeed::Kind::product,
                        .warp = cluster().warp(),
                        .thread = cluster().thread_in_block(),
                        .count = number,
                        .instruction = product.instruction,
                        .binary16 = shape.binary16};
  TensorMemory& memory = tensor_memory();
  const Reader reader{product.instruction, cluster().warp(), number};
  if (product.a_in_tensor_memory) {
    pending.a_columns = all_lanes(product.a, kOperandColumns, name + ": A");
    if (pending.a_columns.first < pending.d.first + pending.d.count &&
        pending.d.first < pending.a_columns.first + kOperandColumns) {
      fail(name + ": A and D share columns of tensor memory");
    }
    memory.use(pending.a_columns, deed, TensorMemory::Use::read_written);
  } else {
    pending.a = decode_tcgen05_descriptor(product.a, "A", product.instruction);
    pending.a.rows = kBlockRows;
    begin_reading(pending.a, reader);
    pending.a_bytes = read(pending.a);
  }
  pending.b = decode_tcgen05_descriptor(product.b, "B", product.instruction);
  pending.b.rows = static_cast<int>(shape.columns);
  begin_reading(pending.b, reader);
  pending.b_bytes = read(pending.b);
  if (product.accumulate) memory.expect_type(pending.d, deed, shape.binary16);
  memory.use(pending.d, deed,
             product.accumulate ? TensorMemory::Use::write_written : TensorMemory::Use::write);
  queue_.emplace_back(std::move(pending));
  finish_issue();
}

void BlockPipe::commit(const char* instruction, const std::vector<BarrierPlace>& barriers) {
  Issuer& mine = issuer(instruction, false);
  tensor_memory().order().fence_before();
  ++mine.commits;
  Commit commit{.instruction = instruction,
                .issuer = cluster().running(),
                .party = mine.party,
                .before = cluster().clock(),
                .barriers = barriers};
  // What the thread has waited for comes before its products, and they before the arrival. Its own
  // loads and stores do not.
  commit.before.forget(cluster().warp_party());
  commit.before.raise(cluster().product_party(rank_, cluster().warp()), mine.products);
  commit.before.raise(mine.party, mine.commits);
  for (const BarrierPlace& place : barriers) {
    check_initialised(place, Scope::cluster, instruction);
    if (place.rank == rank_) mine.own_commits = mine.commits;
  }
  queue_.emplace_back(std::move(commit));
  finish_issue();
}

void BlockPipe::advance() {
  auto next = std::move(queue_.front());
  queue_.pop_front();
  std::visit([this](auto& work) { complete(work); }, next);
}

void BlockPipe::complete(const Commit& commit) {
  for (const BarrierPlace& place : commit.barriers) {
    arrive_by_engine(place, {commit.instruction, commit.issuer, commit.before, commit.party});
  }
}

void BlockPipe::complete(Pending& pending) {
  const BlockProduct& product = pending.product;
  TensorMemory& memory = *cluster().block(rank_).tensor_memory;
  const auto expect_unchanged = [&](const Matrix& matrix, const std::vector<std::byte>& bytes) {
    if (bytes == read(matrix)) return;
    fail_engine(product.instruction, pending.issuer,
                std::string(matrix.name) + " has changed before the product was done");
  };
  if (product.a_in_tensor_memory) {
    for (std::size_t row = 0; row < kBlockRows; ++row) {
      const auto* bytes =
          reinterpret_cast<const std::byte*>(&memory.at(row, pending.a_columns.first));
      pending.a_bytes.insert(pending.a_bytes.end(), bytes, bytes + kProductDepth);
    }
  } else {
    expect_unchanged(pending.a, pending.a_bytes);
  }
  expect_unchanged(pending.b, pending.b_bytes);

  constexpr std::size_t kPartBytes = std::size_t{kProductRows} * kProductDepth;
  for (std::size_t part = 0; part < kBlockRows / kProductRows; ++part) {
    const auto a =
        std::span<const std::byte>(pending.a_bytes).subspan(part * kPartBytes, kPartBytes);
    const std::vector<double> products = exact_products(a, pending.b_bytes);
    const double* exact = products.data();
    for (std::size_t row = part * kProductRows; row < (part + 1) * kProductRows; ++row) {
      std::uint32_t* sums = &memory.at(row, pending.d.first);
      for (std::uint32_t column = 0; column < pending.d.count; ++column) {
        std::uint32_t& bits = sums[column];
        double sum = *exact++;
        if (pending.binary16) {
          if (product.accumulate) {
            sum += double{numerics::half_to_float(static_cast<std::uint16_t>(bits))};
          }
          bits = kUpperHalfPoison | double_to_half(sum);
        } else {
          if (product.accumulate) sum += double{numerics::float_from_bits(bits)};
          bits = numerics::float_bits(static_cast<float>(sum));
        }
      }
    }
  }
}

void BlockPipe::end_of_block(const Clock& before) const {
  if (!queue_.empty()) {
    const auto describe = [](const auto& work) -> std::pair<std::string, unsigned> {
      if constexpr (requires { work.product; }) {
        return {work.product.instruction, work.issuer};
      } else {
        return {work.instruction, work.issuer};
      }
    };
    const auto [what, thread] = std::visit(describe, queue_.front());
    fail("the block ends while a " + what + " of " + cluster().describe_warp(thread) +
         " is in flight");
  }
  for (const auto& [warp, mine] : issuers_) {
    if (before.at(mine.party) >= mine.own_commits) continue;
    fail("the block ends, and nothing orders the arrival of a tcgen05.commit of " +
         cluster().describe_warp(rank_ * cluster().grid().threads + warp * kWarpLanes) +
         " before that");
  }
}

void multiply(const BlockProduct& product) {
  cluster().perhaps_yield();
  if (is_mutated(Mutation::Kind::skip, product.instruction)) return;
  BlockProduct mine = product;
  mine.b += static_cast<std::uint64_t>(mutation_amount(product.instruction));
  const auto amount = [&](const char* operand) {
    return mutation_amount((std::string(product.instruction) + operand).c_str());
  };
  mine.a += static_cast<std::uint64_t>(amount(" A"));
  mine.d += static_cast<std::uint32_t>(amount(" D"));
  mine.descriptor += static_cast<std::uint32_t>(amount(" descriptor"));
  mine.accumulate ^= amount(" accumulate") != 0;
  if (Recorder* watcher = recorder()) {
    watcher->block_product(cluster().warp_party(),
                           decode_instruction(mine.descriptor, mine.instruction).columns);
  }
  cluster().block().pipe.issue(mine);
}

void commit_block_products(const char* instruction, std::uint32_t barrier, std::uint16_t blocks) {
  cluster().perhaps_yield();
  BarrierPlace place = barrier_place(barrier, Scope::cluster, instruction);
  if (is_mutated(Mutation::Kind::skip, instruction, place.rank, place.offset)) return;
  place.offset +=
      static_cast<std::uint32_t>(mutation_amount(instruction, place.rank, place.offset));
  if (blocks >> cluster().size() != 0) {
    fail(std::string(instruction) + ": a mask of blocks " + hexadecimal(blocks) +
         " in a cluster of " + std::to_string(cluster().size()));
  }
  std::vector<BarrierPlace> places;
  if (blocks == 0) places.push_back(place);
  for (unsigned rank = 0; rank < cluster().size(); ++rank) {
    if ((blocks >> rank & 1u) == 0) continue;
    if (cluster().block(rank).alive == 0) {
      fail(std::string(instruction) + ": " + cluster().describe_barrier(rank, place.offset) +
           " is of a block that has ended");
    }
    places.push_back({rank, place.offset});
  }
  if (Recorder* watcher = recorder()) {
    std::vector<RecordedBarrier> receivers;
    for (const BarrierPlace& receiver : places) receivers.push_back(recorded(receiver));
    watcher->commit_block_products(cluster().warp_party(), receivers);
  }
  cluster().block().pipe.commit(instruction, places);
}

}  // namespace openvc::model
