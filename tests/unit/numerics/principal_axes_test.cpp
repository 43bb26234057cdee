// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/principal_axes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "numerics/half.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "unit/numerics/axes_cases.hpp"

// Axes and bases against float64.
namespace openvc::numerics {
namespace {

using Matrix = std::vector<double>;
constexpr std::size_t kD = kHeadDim;

struct Axes {
  std::unique_ptr<AxesStorage> storage = std::make_unique<AxesStorage>();
  AxisShares shares;
  int columns = 0;

  [[nodiscard]] double at(std::size_t row, std::size_t j) const {
    return storage->axes[row * static_cast<std::size_t>(columns) + j];
  }
};

template <class Team = SerialTeam>
Axes find_axes(const testing::AxesCase& c, int columns) {
  const auto query = testing::moments_of(c.query, false);
  const auto key = testing::moments_of(c.key, true);
  Axes axes;
  axes.columns = columns;
  principal_axes<kHeadDim>(Team{}, AxesTensor{*query, static_cast<int>(c.query.size()), false},
                           AxesTensor{*key, static_cast<int>(c.key.size()), true}, columns,
                           *axes.storage, axes.shares);
  return axes;
}

/// U as the contract stores it, [channel][column], or before it is rounded.
template <class Team = SerialTeam>
Matrix basis_of(const Axes& axes, int columns, bool rounded = true) {
  const auto storage = std::make_unique<BasisStorage>();
  orthogonal_basis(Team{}, AxesView{axes.storage->axes, axes.columns, columns}, 0, *storage);
  Matrix basis(kD * kD);
  const auto width = static_cast<std::size_t>(columns) + kD;
  for (std::size_t c = 0; c < kD; ++c) {
    for (std::size_t j = 0; j < kD; ++j) {
      const float x = storage->rows[j * width + static_cast<std::size_t>(columns) + c];
      basis[c * kD + j] = rounded ? round_basis(x, j < static_cast<std::size_t>(columns)) : x;
    }
  }
  return basis;
}

/// Eigenvalues of a symmetric matrix by Jacobi rotations, descending.
std::vector<double> eigenvalues(Matrix a) {
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::size_t p = 0; p < kD; ++p) {
      for (std::size_t q = p + 1; q < kD; ++q) {
        if (a[p * kD + q] == 0.0) continue;
        const double theta = (a[q * kD + q] - a[p * kD + p]) / (2 * a[p * kD + q]);
        const double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::hypot(1.0, theta));
        const double cosine = 1 / std::hypot(1.0, t);
        const double sine = t * cosine;
        for (std::size_t k = 0; k < kD; ++k) {
          const double x = a[k * kD + p];
          const double y = a[k * kD + q];
          a[k * kD + p] = cosine * x - sine * y;
          a[k * kD + q] = sine * x + cosine * y;
        }
        for (std::size_t k = 0; k < kD; ++k) {
          const double x = a[p * kD + k];
          const double y = a[q * kD + k];
          a[p * kD + k] = cosine * x - sine * y;
          a[q * kD + k] = sine * x + cosine * y;
        }
      }
    }
  }
  std::vector<double> values(kD);
  for (std::size_t c = 0; c < kD; ++c) values[c] = a[c * kD + c];
  std::sort(values.rbegin(), values.rend());
  return values;
}

/// x . C x of column j of a matrix [channel][column].
double energy(const Matrix& moments, const Matrix& basis, std::size_t j) {
  double sum = 0.0;
  for (std::size_t a = 0; a < kD; ++a) {
    for (std::size_t b = 0; b < kD; ++b) {
      sum += basis[a * kD + j] * moments[a * kD + b] * basis[b * kD + j];
    }
  }
  return sum;
}

TEST(PrincipalAxes, HoldAsMuchAsTheBestSubspaceDoes) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Matrix query = testing::exact_moments(c.query, false);
    const Matrix key = testing::exact_moments(c.key, true);
    Matrix both(kD * kD);
    for (std::size_t i = 0; i < both.size(); ++i) both[i] = query[i] + key[i];
    const std::vector<double> values = eigenvalues(both);
    const Axes axes = find_axes(c, kMaxAxes);
    EXPECT_EQ(axes.shares.steps, kMaxExtraSteps);
    double held = 0.0;
    double best = 0.0;
    for (std::size_t j = 0; j < kMaxAxes; ++j) {
      best += values[j];
      for (std::size_t a = 0; a < kD; ++a) {
        for (std::size_t b = 0; b < kD; ++b) {
          held += axes.at(a, j) * both[a * kD + b] * axes.at(b, j);
        }
      }
      for (int i = 1; i < kExtraStepChoices; ++i) {
        if (j + 1 != static_cast<std::size_t>(extra_step_choice(i) * kResidualChannelsPerStep)) {
          continue;
        }
        // Of what the best axes leave, these leave at most a fifth more.
        EXPECT_LT(2.0 - held, 1.2 * (2.0 - best) + 1e-3) << c.name << " " << j;
        EXPECT_NEAR(2.0 - held, axes.shares.query[i] + axes.shares.key[i], 2e-2) << c.name;
      }
    }
  }
}

TEST(PrincipalAxes, AreOrthonormalOrZero) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Axes axes = find_axes(c, kMaxAxes);
    for (std::size_t i = 0; i < kMaxAxes; ++i) {
      for (std::size_t j = i; j < kMaxAxes; ++j) {
        double dot = 0.0;
        for (std::size_t k = 0; k < kD; ++k) dot += axes.at(k, i) * axes.at(k, j);
        if (i == j && dot == 0.0) continue;
        EXPECT_NEAR(dot, i == j ? 1.0 : 0.0, 0.03) << c.name << " " << i << " " << j;
      }
    }
  }
}

TEST(PrincipalAxes, OfFewStepsAreTheFirstOfThoseOfMore) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Axes most = find_axes(c, kMaxAxes);
    for (const int columns : {16, 32}) {
      const Axes few = find_axes(c, columns);
      for (std::size_t j = 0; j < static_cast<std::size_t>(columns); ++j) {
        for (std::size_t row = 0; row < kD; ++row) ASSERT_EQ(few.at(row, j), most.at(row, j));
      }
    }
  }
}

TEST(PrincipalAxes, DoNotDependOnTheTeam) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Axes a = find_axes(c, 32);
    const Axes b = find_axes<testing::ReverseTeam>(c, 32);
    EXPECT_EQ(std::memcmp(a.storage->axes, b.storage->axes, sizeof(float) * kD * 32), 0) << c.name;
    EXPECT_EQ(std::memcmp(&a.shares, &b.shares, sizeof(AxisShares)), 0) << c.name;
    EXPECT_EQ(basis_of(a, 16), basis_of<testing::ReverseTeam>(b, 16)) << c.name;
  }
}

TEST(PrincipalAxes, NeedTensorsThatVary) {
  testing::Rows rows(20);
  for (auto& row : rows) row.fill(2.0f);
  testing::Rows zeros(20);
  for (auto& row : zeros) row.fill(0.0f);
  testing::Random random(1);
  const testing::Rows white = testing::mixed_rows(
      random, 20, [](int) { return 1.0; }, false);
  const auto known = [](const testing::Rows& q, const testing::Rows& k) {
    return find_axes({"", q, k}, 16).shares.steps > 0;
  };
  EXPECT_TRUE(known(white, white));
  EXPECT_TRUE(known(rows, white));
  EXPECT_FALSE(known(white, rows)) << "constant K";
  EXPECT_FALSE(known(zeros, white)) << "Q of zeros";
}

template <class Team>
ValueAxes find_value_axes(const testing::Rows& rows, bool centred, AxesStorage& storage) {
  const auto moments = testing::moments_of(rows, centred);
  ValueAxes axes;
  value_axes<kHeadDim>(Team{}, AxesTensor{*moments, static_cast<int>(rows.size()), centred},
                       storage, axes);
  return axes;
}

TEST(ValueAxes, HoldAsMuchAsTheBestSevenDo) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const auto storage = std::make_unique<AxesStorage>();
    const auto other = std::make_unique<AxesStorage>();
    const ValueAxes axes = find_value_axes<SerialTeamOf<8>>(c.key, true, *storage);
    ASSERT_EQ(axes.known, 1) << c.name;
    const std::vector<double> values = eigenvalues(testing::exact_moments(c.key, true));
    double best = 0.0;
    for (std::size_t i = 0; i < kValueColumns; ++i) best += values[i];
    EXPECT_LE(axes.inside, best + 1e-2) << c.name;
    EXPECT_LT(1.0 - axes.inside, 1.2 * (1.0 - best) + 1e-2) << c.name;
    // One source for teams of any size.
    const ValueAxes same = find_value_axes<testing::ReverseTeam>(c.key, true, *other);
    EXPECT_EQ(std::memcmp(&axes, &same, sizeof(axes)), 0) << c.name;
    EXPECT_EQ(std::memcmp(storage->axes, other->axes, sizeof(float) * kD * kValueAxes), 0)
        << c.name;
  }
}

TEST(ValueAxes, KnowTheMeanSquareOfARow) {
  testing::Random random(4);
  const testing::Rows rows = testing::mixed_rows(
      random, 400, [](int c) { return c < 9 ? 3.0 : 0.5; }, false, 7.0);
  const auto storage = std::make_unique<AxesStorage>();
  const ValueAxes centred = find_value_axes<SerialTeamOf<8>>(rows, true, *storage);
  EXPECT_NEAR(centred.mean_square, 9 * 9.0 + 119 * 0.25, 6.0);
  const ValueAxes raw = find_value_axes<SerialTeamOf<8>>(rows, false, *storage);
  EXPECT_NEAR(raw.mean_square, 9 * 9.0 + 119 * 0.25 + 128 * 49.0, 100.0);
}

TEST(OrthogonalBasis, IsOrthogonalAndStartsWithTheAxes) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Axes axes = find_axes(c, kMaxAxes);
    for (const int columns : {16, 32, 64}) {
      const Matrix u = basis_of(axes, columns, false);
      const Matrix rounded = basis_of(axes, columns);
      for (std::size_t i = 0; i < kD; ++i) {
        for (std::size_t j = i; j < kD; ++j) {
          double dot = 0.0;
          double rounded_dot = 0.0;
          for (std::size_t k = 0; k < kD; ++k) {
            dot += u[k * kD + i] * u[k * kD + j];
            rounded_dot += rounded[k * kD + i] * rounded[k * kD + j];
          }
          const double exact = i == j ? 1.0 : 0.0;
          ASSERT_NEAR(dot, exact, 0x1p-14) << c.name << " " << columns;
          ASSERT_NEAR(rounded_dot, exact, 0x1p-7) << c.name << " " << columns;
        }
      }
      for (std::size_t j = 0; j < static_cast<std::size_t>(columns); ++j) {
        double dot = 0.0;
        double square = 0.0;
        for (std::size_t k = 0; k < kD; ++k) {
          dot += u[k * kD + j] * axes.at(k, j);
          square += axes.at(k, j) * axes.at(k, j);
        }
        if (square > 0.0) {
          EXPECT_NEAR(std::fabs(dot), 1.0, 0.03) << c.name << " " << j;
        }
      }
    }
  }
}

TEST(OrthogonalBasis, MixesTheRestEvenly) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    const Matrix query = testing::exact_moments(c.query, false);
    const Matrix key = testing::exact_moments(c.key, true);
    const Axes axes = find_axes(c, kMaxAxes);
    for (const int columns : {16, 32, 64}) {
      const Matrix u = basis_of(axes, columns);
      double query_sum = 0.0;
      double key_sum = 0.0;
      double products = 0.0;
      for (auto j = static_cast<std::size_t>(columns); j < kD; ++j) {
        const double q = energy(query, u, j);
        const double k = energy(key, u, j);
        query_sum += q;
        key_sum += k;
        products += q * k;
      }
      const double even = query_sum * key_sum / (kHeadDim - columns);
      if (query_sum < 1e-5 || key_sum < 1e-5) continue;  // the axes hold everything
      EXPECT_LT(products, 1.6 * even) << c.name << " " << columns;
    }
  }
}

TEST(OrthogonalBasis, ElementsAreExactInBothFormats) {
  constexpr int kFinerBits = kBasisFractionBits + 3;  // ties, and what lies beside them
  for (int i = -(1 << kFinerBits); i <= 1 << kFinerBits; ++i) {
    const float x = std::ldexp(static_cast<float>(i), -kFinerBits);
    const float mixed = round_basis(x, false);
    ASSERT_EQ(bfloat16_to_float(float_to_bfloat16(mixed)), mixed) << x;
    ASSERT_EQ(half_to_float(float_to_half(mixed)), mixed) << x;
    // Half a unit of bfloat16 and half a unit of the grid.
    const float unit = std::ldexp(1.0f, -kBasisFractionBits - 1);
    ASSERT_LE(std::fabs(mixed - x), std::ldexp(std::fabs(x), -8) + unit) << x;
    // Elements of an axis are two numbers of either type.
    const float axis = round_basis(x, true);
    ASSERT_LE(std::fabs(axis - x), unit) << x;
    const BasisTerms terms = basis_terms(axis);
    ASSERT_EQ(bfloat16_to_float(terms.high) + bfloat16_to_float(terms.low), axis) << x;
    const float high = half_to_float(float_to_half(axis));
    ASSERT_EQ(half_to_float(float_to_half(axis - high)), axis - high) << x;
    ASSERT_EQ(basis_terms(mixed).low & 0x7FFFu, 0u) << x;
  }
}

}  // namespace
}  // namespace openvc::numerics
