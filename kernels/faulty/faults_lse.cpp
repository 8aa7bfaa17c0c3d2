// SPDX-License-Identifier: Apache-2.0
// Weights relative to a log-sum-exp, which nothing is divided by: done without a word, or with an LSE coarser
// than declared. The first pair is right arithmetic of another declaration, and shows where scores are large
// and O is in fp32.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int sees_keys(const assay_problem* p) { return any_visible(*p); }
int merges(const assay_problem* p) { return several_parts(*p); }

constexpr Arithmetic kTwoPasses{.weights_lse_format = ASSAY_FP32},
    kMergedByLse{.splits = kParts, .merge_lse_format = ASSAY_FP32};

const Row kRows[] = {
    Planter{"softmax", kWhole}("lse_weights_unsaid", "P is exp(x - LSE) and nothing is divided, undeclared",
                               "T20", "none", {.weighing_lse_format = ASSAY_FP32}, sees_keys),
    Planter{"softmax", kTwoPasses}("lse_weights_in_bf16", "P is relative to an LSE in bf16, declared in fp32",
                                   "T20", "none", {.weighing_lse_format = ASSAY_BF16}, sees_keys),
    Planter{"merge", kSplit}("lse_merge_unsaid",
                             "parts weigh exp(lse_s - LSE) and nothing is divided, undeclared", "T20", "none",
                             {.merging_lse_format = ASSAY_FP32}, merges),
    Planter{"merge", kMergedByLse}("lse_merge_in_bf16",
                                   "parts weigh exp(lse_s - LSE), the LSE in bf16, declared in fp32", "T20",
                                   "none", {.merging_lse_format = ASSAY_BF16}, merges),
};

}  // namespace

std::span<const Row> lse_faults() { return kRows; }

}  // namespace assay_faulty
