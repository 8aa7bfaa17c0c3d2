// SPDX-License-Identifier: Apache-2.0
// What the lists of planted metadata faults share; metadata_faults.cpp makes kernels of all of them. To plant
// one: a row of a list and its line in metadata_judge_test.cpp.
#pragma once

#include <span>

#include "kernels/common/metadata.hpp"

// The right op over operands it got wrong, or what it does to the result.
struct MetadataFault {
  const char* name;
  int32_t op;
  void (*run)(assay_kernels::MetadataOperands);
};

std::span<const MetadataFault> tree_faults();
std::span<const MetadataFault> schedule_faults();

inline int32_t rows_of(const assay_kernels::MetadataOperands& m, int64_t r) {
  return assay_kernels::metadata::rows_of(m, r);
}
inline void right(const assay_kernels::MetadataOperands& m) {
  using namespace assay_kernels;
  for (int64_t unit = 0; unit < metadata::units_of(m); ++unit) metadata::do_unit(m.op, m, unit, OneThread{});
  if (metadata::sums_follow(m)) metadata::sum_lengths(m, OneThread{});
}
