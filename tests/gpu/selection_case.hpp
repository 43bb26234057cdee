// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gpu/prepare_case.hpp"

// A selection of the keys of a case, and the same case without the other keys.
namespace openvc::test {

/// In host memory.
struct SelectionCase {
  std::vector<std::int32_t> lengths{};  // [batch] or empty
  std::vector<std::uint8_t> mask{};     // [batch][keys] or empty

  [[nodiscard]] std::vector<std::int64_t> keys(const PrepareCase& c, std::int64_t b) const {
    std::vector<std::int64_t> selected;
    for (std::int64_t key = 0; key < c.keys; ++key) {
      if (!lengths.empty() && key >= lengths[static_cast<std::size_t>(b)]) break;
      if (!mask.empty() && mask[static_cast<std::size_t>(b * c.keys + key)] == 0) continue;
      selected.push_back(key);
    }
    return selected;
  }
};

/// A mask in which a share of the keys takes part.
inline std::vector<std::uint8_t> random_mask(const PrepareCase& c, double share) {
  Random random(7);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(c.batch * c.keys));
  for (std::uint8_t& byte : mask) {
    byte = static_cast<double>(random.next() >> 11) * 0x1p-53 < share ? 1 : 0;
  }
  return mask;
}

/// Makes keys and values that do not take part NaN and infinite: nobody may read them.
inline void spoil_other_keys(const PrepareCase& c, const SelectionCase& selection,
                             CaseTensors& tensors) {
  for (std::int64_t b = 0; b < c.batch; ++b) {
    std::vector<bool> takes_part(static_cast<std::size_t>(c.keys));
    for (const std::int64_t key : selection.keys(c, b)) {
      takes_part[static_cast<std::size_t>(key)] = true;
    }
    for (std::int64_t s = 0; s < c.keys; ++s) {
      if (takes_part[static_cast<std::size_t>(s)]) continue;
      for (std::int64_t h = 0; h < tensors.k.view().shape[kHead]; ++h) {
        for (std::int64_t channel = 0; channel < c.head_dim; ++channel) {
          tensors.k.set(b, s, h, channel, std::numeric_limits<float>::quiet_NaN());
          tensors.v.set(b, s, h, channel, std::numeric_limits<float>::infinity());
        }
      }
    }
  }
  tensors.device_k.upload(tensors.k);
  tensors.device_v.upload(tensors.v);
}

/// One sequence with its selected keys, as tensors of their own.
struct SequenceAlone {
  PrepareCase inputs;
  CaseTensors tensors;

  SequenceAlone(const PrepareCase& c, const CaseTensors& of, std::int64_t b,
                const std::vector<std::int64_t>& keys)
      : inputs(case_of(c, static_cast<std::int64_t>(keys.size()))), tensors(inputs) {
    const auto key = [&](std::int64_t s) { return keys[static_cast<std::size_t>(s)]; };
    tensors.q.fill([&](auto, auto s, auto h, auto ch) { return of.q.get(b, s, h, ch); });
    tensors.k.fill([&](auto, auto s, auto h, auto ch) { return of.k.get(b, key(s), h, ch); });
    tensors.v.fill([&](auto, auto s, auto h, auto ch) { return of.v.get(b, key(s), h, ch); });
    tensors.device_q.upload(tensors.q);
    tensors.device_k.upload(tensors.k);
    tensors.device_v.upload(tensors.v);
  }

 private:
  static PrepareCase case_of(PrepareCase c, std::int64_t keys) {
    c.batch = 1;
    c.keys = keys;
    return c;
  }
};

}  // namespace openvc::test
