// SPDX-License-Identifier: BSD-3-Clause
#include "machine/tensor_core.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "machine/canonical_nan.hpp"
#include "machine/cluster.hpp"
#include "machine/hopper_product.hpp"
#include "machine/matrix_product.hpp"
#include "machine/mutation.hpp"
#include "machine/recorder.hpp"
#include "numerics/half.hpp"

namespace openvc::model {
namespace {

constexpr std::size_t kRegisterBytes = sizeof(std::uint32_t);
constexpr int kGroupRows = 8;  // of a fragment

/// A from the registers of the lanes: rows l / 4 and l / 4 + 8, bytes 4 (l % 4) and 16 further.
std::vector<std::byte> read(const std::array<const std::uint32_t*, kWarpLanes>& registers) {
  std::vector<std::byte> bytes(kProductRows * kProductDepth);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = lane / 4 + 8 * (i % 2);
      const std::size_t k = 4 * (lane % 4) + 16 * (i / 2);
      std::memcpy(bytes.data() + row * kProductDepth + k, &registers[lane][i], 4);
    }
  }
  return bytes;
}

const Product& product_of(const Operands& lanes, std::size_t lane) {
  return *static_cast<const Product*>(lanes[lane]);
}

bool is_same(const Product& a, const Product& b) {
  return std::strcmp(a.instruction, b.instruction) == 0 && a.a_descriptor == b.a_descriptor &&
         a.b_descriptor == b.b_descriptor && a.accumulate == b.accumulate;
}

}  // namespace

std::string ProductLog::add(unsigned warp, const Product& product) {
  const std::uint64_t number = issued_.at(warp)++ - first_;
  if (number == products_.size()) {
    products_.push_back(product);
  } else if (!is_same(products_[number], product)) {
    return std::string(product.instruction) + ": another warp of the warpgroup issued " +
           products_[number].instruction + ", or with other operands, in its place";
  }
  if (*std::ranges::min_element(issued_) > first_) {
    products_.pop_front();
    ++first_;
  }
  return {};
}

bool ProductLog::is_even() const { return products_.empty(); }

TensorCore::Sums& TensorCore::sums_of(const Operands& lanes, const Product& product) {
  std::unique_ptr<Sums>& found = sums_[product_of(lanes, 0).d];
  if (found != nullptr) return *found;
  found = std::make_unique<Sums>();
  found->count = product.columns / (product.sum == Product::Sum::binary16 ? 4 : 2);
  const auto count = static_cast<std::size_t>(found->count);
  found->values.resize(kWarpLanes * count);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::byte* registers = product_of(lanes, lane).d;
    found->registers[lane] = registers;
    std::memcpy(found->values.data() + lane * count, registers, count * kRegisterBytes);
    std::memset(registers, kPoison, count * kRegisterBytes);
  }
  return *found;
}

void TensorCore::issue(const Operands& lanes) {
  const Product& product = product_of(lanes, 0);
  constexpr unsigned kWarpgroupWarps = 4;
  for (std::size_t lane = 1; lane < kWarpLanes; ++lane) {
    if (!is_same(product, product_of(lanes, lane))) {
      fail(std::string(product.instruction) + ": lanes of the warp have unlike operands");
    }
  }
  const std::string unlike =
      cluster().block().product_logs[warp_ / kWarpgroupWarps].add(warp_ % kWarpgroupWarps, product);
  if (!unlike.empty()) fail(unlike);
  if (!fenced_) {
    fail(std::string(product.instruction) +
         ": no wgmma.fence since the warp last had access to the registers of a product");
  }
  Pending pending{.product = product,
                  .sums = nullptr,
                  .a_registers = {},
                  .a = {},
                  .b = {},
                  .a_bytes = {},
                  .b_bytes = {},
                  .number = 0};
  ++issued_;
  if (product.a == nullptr) {
    pending.a = decode_descriptor(product.a_descriptor, "A", product.instruction);
    pending.a.first_row = static_cast<int>(warp_ % kWarpgroupWarps) * kProductRows;
    pending.a.rows = kProductRows;
    begin_reading(pending.a, {product.instruction, warp_, issued_});
    pending.a_bytes = read(pending.a);
  } else {
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
      pending.a_registers[lane] = product_of(lanes, lane).a;
    }
    pending.a_bytes = read(pending.a_registers);
  }
  pending.b = decode_descriptor(product.b_descriptor, "B", product.instruction);
  pending.b.rows = product.columns;
  begin_reading(pending.b, {product.instruction, warp_, issued_});
  pending.b_bytes = read(pending.b);
  pending.number = issued_;
  pending.sums = &sums_of(lanes, product);
  ++pending.sums->products;
  open_.push_back(std::move(pending));
}

void TensorCore::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void TensorCore::wait(int pending_groups) {
  while (static_cast<int>(groups_.size()) > pending_groups) {
    for (Pending& pending : groups_.front()) complete(pending);
    groups_.pop_front();
  }
}

void TensorCore::complete(Pending& pending) {
  const Product& product = pending.product;
  const bool in_registers = product.a != nullptr;
  if (pending.a_bytes != (in_registers ? read(pending.a_registers) : read(pending.a))) {
    fail(std::string(product.instruction) + ": A has changed before the product was waited for");
  }
  if (pending.b_bytes != read(pending.b)) {
    fail(std::string(product.instruction) + ": B has changed before the product was waited for");
  }
  cluster().clock().raise(cluster().product_party(rank_, warp_), pending.number);

  Sums& sums = *pending.sums;
  const auto columns = static_cast<std::size_t>(product.columns);
  const bool binary16 = product.sum == Product::Sum::binary16;
  // Of every eight columns a lane has two neighbours, in the rows l / 4 and l / 4 + 8.
  const auto for_each_pair = [&](const auto& visit) {
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
      std::uint32_t* values = sums.values.data() + lane * static_cast<std::size_t>(sums.count);
      for (std::size_t pair = 0; pair < columns / kGroupRows * 2; ++pair) {
        const std::size_t row = lane / 4 + 8 * (pair % 2);
        visit(values + (binary16 ? pair : 2 * pair),
              row * columns + pair / 2 * kGroupRows + 2 * (lane % 4));
      }
    }
  };
  std::vector<float> d(kProductRows * columns);
  if (product.accumulate) {
    for_each_pair([&](const std::uint32_t* registers, std::size_t place) {
      for (std::size_t i = 0; i < 2; ++i) {
        d[place + i] =
            binary16 ? numerics::half_to_float(static_cast<std::uint16_t>(*registers >> (16 * i)))
                     : numerics::float_from_bits(registers[i]);
      }
    });
  }
  add_hopper_products(pending.a_bytes, pending.b_bytes, product.sum, d);
  for_each_pair([&](std::uint32_t* registers, std::size_t place) {
    if (binary16) {
      *registers = half_bits(d[place]) | static_cast<std::uint32_t>(half_bits(d[place + 1])) << 16;
    } else {
      for (std::size_t i = 0; i < 2; ++i) registers[i] = numerics::float_bits(d[place + i]);
    }
  });
  if (--sums.products == 0) publish(sums, product.instruction);
}

void TensorCore::publish(Sums& sums, const char* instruction) {
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::byte* registers = sums.registers[lane];
    const auto count = static_cast<std::size_t>(sums.count);
    if (!std::all_of(registers, registers + count * kRegisterBytes,
                     [](std::byte byte) { return byte == std::byte{kPoison}; })) {
      fail(std::string(instruction) +
           ": registers of D were written before the product was waited for");
    }
    std::memcpy(registers, sums.values.data() + lane * count, count * kRegisterBytes);
  }
  fenced_ = false;
  sums_.erase(sums.registers[0]);
}

void multiply(const Product& product) {
  cluster().perhaps_yield();
  Product mine = product;
  mine.b_descriptor += static_cast<std::uint64_t>(mutation_amount(product.instruction));
  execute_together(~0u, product.instruction, &mine, [](const Operands& lanes) {
    if (Recorder* watcher = recorder()) {
      watcher->product(cluster().warp_party(), static_cast<Product*>(lanes[0])->instruction);
    }
    cluster().block().tensor_cores[cluster().warp()].issue(lanes);
  });
}

void fence_products() {
  const char* instruction = "wgmma.fence";
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  char unused = 0;
  execute_together(~0u, instruction, &unused, [](const Operands&) {
    cluster().block().tensor_cores[cluster().warp()].fence();
  });
}

void commit_products() {
  const char* instruction = "wgmma.commit_group";
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  char unused = 0;
  execute_together(~0u, instruction, &unused, [](const Operands&) {
    if (Recorder* watcher = recorder()) watcher->commit(cluster().warp_party());
    cluster().block().tensor_cores[cluster().warp()].commit();
  });
}

void wait_for_products(int pending_groups) {
  const char* instruction = "wgmma.wait_group";
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  int pending = pending_groups + static_cast<int>(mutation_amount(instruction));
  execute_together(~0u, instruction, &pending, [](const Operands& lanes) {
    const int most = *static_cast<int*>(lanes[0]);
    if (Recorder* watcher = recorder()) {
      watcher->wait_for_products(cluster().warp_party(), most);
    }
    cluster().block().tensor_cores[cluster().warp()].wait(most);
  });
}

}  // namespace openvc::model
