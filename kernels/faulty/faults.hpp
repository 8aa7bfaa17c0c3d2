// SPDX-License-Identifier: Apache-2.0
// The tables of planted faults, a file per stage; faults.cpp strings them together.
#pragma once

#include <span>

#include "kernels/faulty/bases.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {

// Plants a fault of one stage into one arithmetic: a table row is one call.
struct Planter {
  const char* stage;
  Arithmetic arithmetic;
  constexpr Row operator()(const char* name, const char* summary, const char* museum, const char* cause,
                           const Switches& switches, int (*reached)(const assay_problem*)) const {
    return {name, summary, stage, museum, cause, arithmetic, switches, reached};
  }
};
constexpr Row paged_only(Row row) { return row.ops = 2, row; }
// Where it is reached nothing is wrong: no check of O or LSE may reject it.
constexpr Row control(Row row) { return row.equivalent = true, row; }

std::span<const Row> metadata_faults();
std::span<const Row> mask_faults();
std::span<const Row> addressing_faults();
std::span<const Row> scale_faults();
std::span<const Row> score_faults();
std::span<const Row> softmax_faults();
std::span<const Row> merge_faults();
std::span<const Row> output_faults();
std::span<const Row> state_faults();
// Shown by single recipes of the inputs alone (codes, steep): the catalogue, in which every fault walks line
// by line until it is found, is no place for them.
std::span<const Row> rare_faults();
// Of an arithmetic that only large scores and fp32 results show; not of the catalogue either.
std::span<const Row> lse_faults();
std::span<const Row> boundary_faults();  // of several stages
std::span<const Row> path_faults();      // of several stages

}  // namespace assay_faulty
