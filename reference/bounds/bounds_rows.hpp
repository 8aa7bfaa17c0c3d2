// SPDX-License-Identifier: Apache-2.0
// What bounds need to know about one row: its scores, and sum |q k| behind each score. The plain form here
// serves the element-wise bound and the page-permutation probe of the judge; bounds.cpp computes the same for
// blocks of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention/operands.hpp"
#include "reference/attention/visible_keys.hpp"

namespace assay {

// The bias of a key so far before its row (0 without ALiBi and for keys after it).
double position_bias(const Problem&, double slope, int64_t distance);

// How products add up: whether the partial sums of dot products are as large, and their fp32 errors as
// random, as those of products in a generic order, C_j = sqrt(s_j^2 + 2 r_j^2). Products that grow and
// cancel, or that are all alike, are not. And whether many keys share products (bounds_shared.hpp).
struct ProductOrder {
  double partial = 0, model = 0;  // sums over keys of the largest partial sum squared, and of C_j^2
  double error = 0, random = 0;   // of the squared error of fp32 sums, and of what it would be at random
  double together = 1;            // keys whose fp32 sums err as one
  void add(double largest, double c2, double off, double length);
  bool generic() const;
  bool shared() const;
};

// Final scores of one row and query head over the keys [begin, begin + x.size()), of what is stored: begin
// and x of row_scores(), bit for bit, in a fraction of the time.
struct RowLogits {
  int64_t begin = 0;
  std::vector<double> x;
};
RowLogits row_logits(const Problem&, const OperandReader&, RowId, int32_t head);

// One row and query head against the keys [begin, begin + x.size()).
struct RowScores {
  int64_t begin = 0;
  std::vector<double> x;     // final score, -inf where invisible
  std::vector<double> s;     // scaled dot product
  std::vector<double> a;     // softmax_scale * sum |q k|
  std::vector<double> bias;  // position bias inside x
  std::vector<double> r;     // softmax_scale * sqrt(sum (q k)^2)
  double query_sum = 0;      // softmax_scale * sum |q|
  double key_sum = 0;        // softmax_scale * the largest sum |k|
  double q_max = 0, k_max = 0;
  int64_t q_repeats = 1;
  int64_t keys = 0, span = 0;
  ProductOrder order;  // over all visible keys
};
// `declared`: Q and K as a kernel has them whose roundings the reference repeats (null: as stored).
RowScores row_scores(const Problem&, const OperandReader&, RowId, int32_t head,
                     const assay_arithmetic* declared = nullptr);

// The format that the reference rounds K and V to after dequantisation: that of a kernel which promises to do
// so in one rounding (assay_arithmetic::dequant_replayed), otherwise ASSAY_FORMAT_NONE.
int32_t replayed_dequant(const assay_arithmetic&);
void round_all(int32_t format, int64_t count, double* values);
// One query vector as a kernel has it that promises to round it again (assay_arithmetic::q_replayed_format),
// in units of what was stored.
void replay_query(const Problem&, const assay_arithmetic&, const OperandReader&, RowId, int32_t head,
                  double* q);
// Whether Q takes scales per channel before it is rounded (assay_arithmetic::q_replayed_scales).
bool folds_channels(const Problem&, const assay_arithmetic&);
// Of each dimension, what keys are multiplied by in Q instead of in themselves: K's scales per channel where
// Q takes them, else ones.
std::vector<double> channels_in_q(const Problem&, const assay_arithmetic&, const OperandReader&,
                                  int32_t kv_head);

// Scales that are applied outside the products (1 where the operands are multiplied as they are read): what
// is read divided by them are the codes that a matrix unit has.
double q_code_scale(const Problem&, const assay_arithmetic&, const OperandReader&, RowId, int32_t head);
// Of it, what a Q that is rounded again is read in (replay_query()): the unit has Q times the factor, and
// cuts at powers of two of that.
double replayed_unit(const Problem&, const assay_arithmetic&);
double k_code_scale(const Problem&, const assay_arithmetic&, const OperandReader&, int request, int32_t key,
                    int32_t kv_head);
double v_code_scale(const Problem&, const assay_arithmetic&, const OperandReader&, int request, int32_t key,
                    int32_t kv_head);
// One key without the scale that is applied outside.
void key_as_multiplied(const Problem&, const assay_arithmetic&, const OperandReader&, int request,
                       int64_t key, int32_t kv_head, double* k);
// The smallest factor that weights take before P is rounded, at most 1: V's scales, one for each token, of
// all keys of the requests of `rows`. Where P is an integer of its tile's largest, relative to the largest
// factor.
double smallest_factor_of_p(const Problem&, const assay_arithmetic&, const OperandReader&,
                            const std::vector<RowId>& rows);

// Lanes that products are dealt to: those of an fp32 dot product, sixteen where another unit adds them up.
size_t fp32_lanes(const assay_arithmetic*);
// What products may be divided by when they are summed: nothing, one of the scales that may be applied
// outside, both; softmax_scale (and log2(e)) in place of that where Q is rounded before. Where q and k take
// few values, errors of sums lean or do not with such a factor. Of those by a power of two there is one.
std::vector<double> product_units(const Problem&, const assay_arithmetic*, double q_scale, double k_scale);

// The most elements that share a mantissa: multiplied by one factor and rounded, they err alike.
int64_t equal_mantissas(const double* values, int64_t count);

// How large the numbers are that a bias of the form slope x column adds to the scores of a row; 0 for others.
double column_shift(const Problem&, const assay_arithmetic&, RowId, double slope);

}  // namespace assay
