// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <vector>

#include "study/counter_random.hpp"
#include "study/row_source.hpp"

// A field that varies slowly over a (frame, line, column) grid, as the activations of a video model
// do, with rotary positions: nearby tokens resemble each other and attend to each other.
namespace openvc::study {
namespace {

using numerics::kHeadDim;

constexpr std::size_t kWaves = 24;
constexpr std::size_t kAxes = 3;

/// Cycles over the whole grid that a wave makes along (frame, line, column), one sigma.
constexpr std::array<double, kAxes> kCycles = {0.7, 1.5, 1.5};

// Shares of the parts of Q and K, whose squares sum to about 1.
constexpr float kBaseShare = 0.7f;  // equal for all tokens: makes the positions matter
constexpr float kContentShare = 0.6f;
constexpr float kNoiseShare = 0.3f;
constexpr float kValueMeanShare = 0.5f;
constexpr float kValueNoiseShare = 0.1f;

/// Channel pairs per axis, and the ratio of successive angular frequencies: 10000^(-1/pairs).
struct RotaryAxis {
  int pairs;
  double ratio;
};
constexpr std::array<RotaryAxis, kAxes> kRotary = {
    {{22, 0.657933224657568}, {21, 0.644946677103762}, {21, 0.644946677103762}}};
static_assert(2 * (kRotary[0].pairs + kRotary[1].pairs + kRotary[2].pairs) == kHeadDim);

constexpr double kTurnsPerRadian = 0.159154943091895;

using Position = std::array<std::int64_t, kAxes>;

struct Grid {
  Position extent;  // frames, lines, columns

  explicit Grid(std::int64_t tokens) {
    // About the proportions of a short 16:9 clip: 10,080 tokens become 9 x 28 x 40.
    constexpr std::int64_t kTokensPerCubedFrame = 14;
    std::int64_t frames = 1;
    while (kTokensPerCubedFrame * (frames + 1) * (frames + 1) * (frames + 1) <= tokens) ++frames;
    const std::int64_t plane = (tokens + frames - 1) / frames;
    std::int64_t lines = 1;
    while (10 * (lines + 1) * (lines + 1) <= 7 * plane) ++lines;
    extent = {frames, lines, (plane + lines - 1) / lines};
  }

  [[nodiscard]] Position position(std::int64_t token) const {
    const std::int64_t plane = extent[1] * extent[2];
    return {token / plane, token % plane / extent[2], token % extent[2]};
  }
};

using Vector = std::array<float, kHeadDim>;

struct Head {
  std::array<std::array<double, kAxes>, kWaves> cycles;
  std::array<double, kWaves> phase;  // turns
  std::array<Vector, kWaves> content;
  std::array<Vector, kWaves> values;
  Vector base;
  Vector value_mean;
};

void rotate(const Position& position, ChannelRow row) {
  std::size_t channel = 0;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    double turns = static_cast<double>(position[axis]) * kTurnsPerRadian;
    for (int pair = 0; pair < kRotary[axis].pairs; ++pair, channel += 2) {
      const auto [cosine, sine] = portable_cosine_sine(turns);
      const double x = row[channel];
      const double y = row[channel + 1];
      row[channel] = static_cast<float>(x * cosine - y * sine);
      row[channel + 1] = static_cast<float>(x * sine + y * cosine);
      turns *= kRotary[axis].ratio;
    }
  }
}

class VideoField final : public RowSource {
 public:
  explicit VideoField(const SourceRequest& request)
      : seed_(request.seed), queries_(request.shape.queries), keys_(request.shape.keys) {
    const std::int64_t heads = request.shape.batch * request.shape.heads;
    for (std::int64_t head = 0; head < heads; ++head) heads_.push_back(make_head(head));
  }

  void fill(Role role, std::int64_t head, std::int64_t token, ChannelRow row) const override {
    const Head& h = heads_[static_cast<std::size_t>(head)];
    const Grid& grid = role == Role::query ? queries_ : keys_;
    const Position position = grid.position(token);
    const bool is_value = role == Role::value;
    add_field(h, grid, position, is_value ? h.values : h.content, row);

    Vector noise;
    CounterRandom(seed_, static_cast<std::uint32_t>(role)).fill_normal(row_id(head, token), noise);
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = is_value ? row[c] + kValueMeanShare * h.value_mean[c] + kValueNoiseShare * noise[c]
                        : kContentShare * row[c] + kBaseShare * h.base[c] + kNoiseShare * noise[c];
    }
    if (!is_value) rotate(position, row);
  }

 private:
  static std::uint64_t row_id(std::int64_t head, std::int64_t token) {
    constexpr int kTokenBits = 40;
    return (static_cast<std::uint64_t>(head) << kTokenBits) + static_cast<std::uint64_t>(token);
  }

  static void add_field(const Head& head, const Grid& grid, const Position& position,
                        const std::array<Vector, kWaves>& directions, ChannelRow row) {
    for (std::size_t wave = 0; wave < kWaves; ++wave) {
      double turns = head.phase[wave];
      for (std::size_t axis = 0; axis < kAxes; ++axis) {
        turns += head.cycles[wave][axis] * static_cast<double>(position[axis]) /
                 static_cast<double>(grid.extent[axis]);
      }
      const auto height = static_cast<float>(portable_cosine_sine(turns).cosine);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] += height * directions[wave][c];
    }
  }

  [[nodiscard]] Head make_head(std::int64_t head) const {
    constexpr std::uint32_t kHeadStream = 16;
    // A cosine has mean square 1/2: this gives every channel of the field unit variance.
    constexpr float kWaveShare = 0.288675134594813f;  // sqrt(2 / kWaves)
    static_assert(kWaves == 24);
    const CounterRandom random(seed_, kHeadStream);
    const std::uint64_t first = row_id(head, 0);
    Head h;
    random.fill_normal(first, h.base);
    random.fill_normal(first + 1, h.value_mean);
    for (std::size_t wave = 0; wave < kWaves; ++wave) {
      for (std::size_t axis = 0; axis < kAxes; ++axis) {
        h.cycles[wave][axis] = kCycles[axis] * random.normal(first + wave * kAxes + axis);
      }
      h.phase[wave] = random.uniform(first + wave);
      random.fill_normal(first + 2 + 2 * wave, h.content[wave]);
      random.fill_normal(first + 3 + 2 * wave, h.values[wave]);
      for (float& x : h.content[wave]) x *= kWaveShare;
      for (float& x : h.values[wave]) x *= kWaveShare;
    }
    return h;
  }

  std::uint64_t seed_;
  Grid queries_;
  Grid keys_;
  std::vector<Head> heads_;
};

}  // namespace

std::unique_ptr<RowSource> make_video_field(const SourceRequest& request) {
  return std::make_unique<VideoField>(request);
}

}  // namespace openvc::study
