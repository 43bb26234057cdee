// SPDX-License-Identifier: BSD-3-Clause
#include "study/families.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "openvc/status.hpp"
#include "study/counter_random.hpp"
#include "study/row_source.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

constexpr std::array<Family, 10> kFamilies = {{
    {"gaussian", "independent normal numbers: a flat softmax over unrelated keys"},
    {"video_field", "a smooth field on a frame x line x column grid with rotary positions"},
    {"channel_outliers",
     "two channels of Q and two of K 20 times the rest, all keys share an offset"},
    {"v_outlier_tokens", "one token in 200 has values 30 times the rest"},
    {"sink_token", "the first token takes most of every query's attention"},
    {"near_one_hot", "logits that spread over about 30 nats: nearly one key per query"},
    {"constant_rows", "all tokens equal: the output must be that value"},
    {"large_logits", "logits from about -300 to +300 nats", true},
    {"tiny_values", "magnitudes near the smallest that the element type holds", true},
    {"huge_values", "magnitudes near the largest that the element type holds", true},
}};

std::uint64_t row_id(std::int64_t head, std::int64_t token) {
  constexpr int kTokenBits = 40;
  return (static_cast<std::uint64_t>(head) << kTokenBits) + static_cast<std::uint64_t>(token);
}

/// Streams 0 to 2 belong to the roles.
constexpr std::uint32_t kHeadStream = 16;
constexpr std::uint32_t kTokenStream = 17;

using Vector = std::array<float, kHeadDim>;

/// Families that are independent normal numbers with something done to them.
class GaussianRows : public RowSource {
 public:
  explicit GaussianRows(const SourceRequest& request, float query_key_scale = 1.0f,
                        float value_scale = 1.0f)
      : request_(request), query_key_scale_(query_key_scale), value_scale_(value_scale) {}

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    CounterRandom(request_.seed, static_cast<std::uint32_t>(role))
        .fill_normal(row_id(head, token), row);
    const float scale = role == Role::value ? value_scale_ : query_key_scale_;
    for (float& x : row) x *= scale;
  }

 protected:
  /// A normal vector that all tokens of a head share.
  [[nodiscard]] Vector head_vector(std::int64_t head, int index) const {
    Vector vector;
    CounterRandom(request_.seed, kHeadStream).fill_normal(row_id(head, index), vector);
    return vector;
  }

  [[nodiscard]] double token_uniform(std::int64_t head, std::int64_t token) const {
    return CounterRandom(request_.seed, kTokenStream).uniform(row_id(head, token));
  }

  [[nodiscard]] const SourceRequest& request() const { return request_; }

 private:
  SourceRequest request_;
  float query_key_scale_;
  float value_scale_;
};

class ChannelOutliers final : public GaussianRows {
 public:
  using GaussianRows::GaussianRows;

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    constexpr float kOutlier = 20.0f;
    constexpr float kKeyOffset = 6.0f;
    GaussianRows::fill(role, head, token, row);
    if (role == Role::query) {
      for (const std::size_t channel : {17u, 80u}) row[channel] *= kOutlier;
    }
    if (role == Role::key) {
      for (const std::size_t channel : {45u, 99u}) row[channel] *= kOutlier;
      const Vector offset = head_vector(head, 0);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] += kKeyOffset * offset[c];
    }
  }
};

class ValueOutliers final : public GaussianRows {
 public:
  using GaussianRows::GaussianRows;

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    constexpr double kShare = 1.0 / 200.0;
    constexpr float kOutlier = 30.0f;
    GaussianRows::fill(role, head, token, row);
    if (role != Role::value || token_uniform(head, token) >= kShare) return;
    for (float& x : row) x *= kOutlier;
  }
};

class SinkToken final : public GaussianRows {
 public:
  using GaussianRows::GaussianRows;

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    // All queries share a direction; only the first key lies along it. With N keys of unit spread
    // its logit must exceed ln N + 1/2 to hold half of the attention; two nats more give 88 %.
    constexpr float kQueryShare = 2.0f;
    constexpr double kNatsAboveTheRest = 2.0;
    constexpr float kSinkValue = 0.1f;
    GaussianRows::fill(role, head, token, row);
    if (role == Role::value) {
      if (token == 0) {
        for (float& x : row) x *= kSinkValue;
      }
      return;
    }
    const Vector direction = head_vector(head, 0);
    if (role == Role::query) {
      for (std::size_t c = 0; c < row.size(); ++c) row[c] += kQueryShare * direction[c];
    } else if (token == 0) {
      double norm_squared = 0.0;
      for (const float x : direction) norm_squared += static_cast<double>(x) * x;
      // The spread of the other logits grows with the norm of the queries.
      const double logit = portable_log(static_cast<double>(request().shape.keys)) +
                           0.5 * (1.0 + kQueryShare * kQueryShare) + kNatsAboveTheRest;
      const auto gain =
          static_cast<float>(logit * std::sqrt(double{kHeadDim}) / (kQueryShare * norm_squared));
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = gain * direction[c];
    }
  }
};

class ConstantRows final : public GaussianRows {
 public:
  using GaussianRows::GaussianRows;

  void fill(Role role, std::int64_t head, std::int64_t /*token*/, ChannelRow row) const override {
    GaussianRows::fill(role, head, 0, row);
  }
};

class LargeLogits final : public GaussianRows {
 public:
  using GaussianRows::GaussianRows;

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    constexpr double kNats = 300.0;
    constexpr float kNoise = 0.1f;
    GaussianRows::fill(role, head, token, row);
    if (role == Role::value) return;
    const Vector direction = head_vector(head, 0);
    double norm_squared = 0.0;
    for (const float x : direction) norm_squared += static_cast<double>(x) * x;
    // q.k of two rows `gain * direction` is kNats at the default softmax scale.
    double gain = std::sqrt(kNats * std::sqrt(double{kHeadDim}) / norm_squared);
    if (role == Role::key) gain *= 2.0 * token_uniform(head, token) - 1.0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = kNoise * row[c] + static_cast<float>(gain) * direction[c];
    }
  }
};

template <class Source>
std::unique_ptr<RowSource> make(const SourceRequest& request) {
  return std::make_unique<Source>(request);
}

std::unique_ptr<RowSource> make_near_one_hot(const SourceRequest& request) {
  // Logits of standard deviation 8 nats: the largest of some thousand lies 30 above the mean.
  constexpr float kRootOfDeviation = 2.8284271f;
  return std::make_unique<GaussianRows>(request, kRootOfDeviation);
}

std::unique_ptr<RowSource> make_tiny_values(const SourceRequest& request) {
  const float scale = request.type == ElementType::float16 ? 0x1p-20f : 0x1p-110f;
  return std::make_unique<GaussianRows>(request, scale, scale);
}

std::unique_ptr<RowSource> make_huge_values(const SourceRequest& request) {
  const bool half = request.type == ElementType::float16;
  return std::make_unique<GaussianRows>(request, half ? 0x1p12f : 0x1p100f,
                                        half ? 0x1p13f : 0x1p122f);
}

using MakeSource = std::unique_ptr<RowSource> (*)(const SourceRequest&);

/// In the order of kFamilies.
constexpr std::array<MakeSource, kFamilies.size()> kMakers = {
    make<GaussianRows>, make_video_field,  make<ChannelOutliers>, make<ValueOutliers>,
    make<SinkToken>,    make_near_one_hot, make<ConstantRows>,    make<LargeLogits>,
    make_tiny_values,   make_huge_values,
};

MakeSource find_maker(std::string_view name) {
  const auto family = std::ranges::find(kFamilies, name, &Family::name);
  if (family != kFamilies.end()) {
    return kMakers[static_cast<std::size_t>(family - kFamilies.begin())];
  }
  std::string names;
  for (const Family& known : kFamilies) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw Error(ErrorCode::invalid_value, "family: found '" + std::string(name) +
                                            "'; expected one of " + names +
                                            ". Give one of these names.");
}

void fill_tensor(const RowSource& source, Role role, OwnedTensor& tensor, cpu::ThreadPool& pool) {
  constexpr std::int64_t kTokensPerTask = 128;
  const auto [batch, tokens, heads, channels] = tensor.shape;
  const std::int64_t tasks = (tokens + kTokensPerTask - 1) / kTokensPerTask;
  // Structured bindings cannot be captured by clang 14.
  const std::int64_t token_count = tokens;
  const std::int64_t head_count = heads;
  pool.parallel_for(batch * tasks, [&, token_count, head_count, tasks](std::int64_t index, int) {
    const std::int64_t b = index / tasks;
    const std::int64_t first = index % tasks * kTokensPerTask;
    const std::int64_t last = std::min(first + kTokensPerTask, token_count);
    for (std::int64_t token = first; token < last; ++token) {
      for (std::int64_t h = 0; h < head_count; ++h) {
        Vector row{};
        source.fill(role, b * head_count + h, token, row);
        const std::int64_t start = ((b * token_count + token) * head_count + h) * kHeadDim;
        for (std::size_t c = 0; c < row.size(); ++c) {
          store_element(tensor.bytes.data(), tensor.type, start + static_cast<std::int64_t>(c),
                        row[c]);
        }
      }
    }
  });
}

}  // namespace

std::span<const Family> families() noexcept { return kFamilies; }

Tensors generate(std::string_view name, const FamilyShape& shape, ElementType type,
                 std::uint64_t seed, int threads) {
  const MakeSource make_source = find_maker(name);
  for (const std::int64_t extent : {shape.batch, shape.queries, shape.keys, shape.heads}) {
    if (extent < 1) {
      throw Error(ErrorCode::invalid_value,
                  "shape: found " + std::to_string(extent) +
                      "; expected at least one batch entry, query, key and head. Give numbers "
                      "from 1 on.");
    }
  }
  const auto source = make_source({shape, type, seed});
  Tensors tensors{OwnedTensor(type, {shape.batch, shape.queries, shape.heads, kHeadDim}),
                  OwnedTensor(type, {shape.batch, shape.keys, shape.heads, kHeadDim}),
                  OwnedTensor(type, {shape.batch, shape.keys, shape.heads, kHeadDim})};
  const auto pool = cpu::shared_pool(threads);
  fill_tensor(*source, Role::query, tensors.q, *pool);
  fill_tensor(*source, Role::key, tensors.k, *pool);
  fill_tensor(*source, Role::value, tensors.v, *pool);
  return tensors;
}

}  // namespace openvc::study
