// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "study/emulation.hpp"
#include "study/error_study.hpp"
#include "study/prepared_head.hpp"
#include "study/progress.hpp"

namespace openvc::study {

/// The study of one head.
class HeadStudy {
 public:
  /// `rows` and `tracker` must outlive the study.
  HeadStudy(const HeadInputs& inputs, std::span<const std::int64_t> rows,
            const NumericOptions& numerics, cpu::ThreadPool& pool, ProgressTracker& tracker);

  /// Everything but the variants; batch and head are left to the caller.
  [[nodiscard]] HeadResult run(std::span<const double> budgets, bool run_backend);

  /// After run().
  [[nodiscard]] VariantErrors run_variant(const NumericOptions& numerics);

  /// Work of run() and of run_variant(), in units of the tracker.
  [[nodiscard]] static double work(std::int64_t queries, std::int64_t keys, std::int64_t rows,
                                   bool run_backend);
  [[nodiscard]] static double variant_work(std::int64_t keys, std::int64_t rows);

 private:
  struct RepairSet;
  struct TileResult;

  [[nodiscard]] std::vector<RepairSet> prepare_repairs(std::span<const double> budgets) const;
  [[nodiscard]] TileResult study_tile(std::int64_t first, std::int64_t count,
                                      std::span<const RepairSet> repairs);
  void measure_backend(HeadResult& result) const;
  [[nodiscard]] ErrorMeasure measure_reference() const;
  [[nodiscard]] ErrorMeasure measure_int8(const Int8Form& form) const;

  [[nodiscard]] std::int64_t row_count() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] std::int64_t tile_count() const;
  [[nodiscard]] std::span<const double> exact_tile(std::int64_t first, std::int64_t count) const;

  HeadInputs inputs_;
  std::span<const std::int64_t> rows_;
  NumericOptions numerics_;
  cpu::ThreadPool& pool_;
  ProgressTracker& tracker_;
  std::vector<float> queries_;  // [rows][kHeadDim]
  std::vector<float> keys_;     // [keys][kHeadDim]
  std::vector<float> values_;   // [keys][kHeadDim]
  PreparedHead prepared_;
  DecodedHead decoded_;
  std::vector<double> exact_;     // [rows][kHeadDim]
  std::vector<double> emulated_;  // [rows][kHeadDim]
};

}  // namespace openvc::study
