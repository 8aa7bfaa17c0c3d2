// SPDX-License-Identifier: Apache-2.0
// Forward error bounds for a declared arithmetic: reference values and, per element, the interval in which
// the result of a correct kernel of that arithmetic lies before its output rounding. Three tiers, all valid
// at once, so a result is accepted only in their intersection:
//   D  deterministic: never rejects a correct kernel, on any input; about the exact value.
//   P  probabilistic (lambda sigma): grows like sqrt(n); per row off where its self-check finds that the
//      rounding of P is not random; about the exact value.
//   R  replay: the declared order lets the reference repeat the rounding of P; about the replayed value.
// Derivation: reference/bounds/BOUNDS.md.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "reference/attention/attention.hpp"

namespace assay {

enum class Tier : uint8_t { kD, kP, kR };

// Model failures of tier P per element are below 2 exp(-lambda^2 / 2); 5 suits a run, 6 a campaign of 1e10
// elements.
inline constexpr double kLambda = 5.0;

// What makes up a half-width: of an LSE in tier P, of O in P or R. kWorstCase stands for tier D where
// neither applies, or both are much wider: there everything adds up at its largest.
enum class BoundPart : uint8_t {
  kScores,        // dot products: what units cut off one way, and five times the spread of their roundings;
                  // of replayed P the maxima that it stands against
  kExponential,   // of each weight, and once more for each rise of the running maximum
  kMerge,         // of partial results: their format, and the LSEs they are stored with
  kRowSum,        // additions of weights; of O the quotient, too
  kRoundedP,      // P's rounding (LSE: where the row sum takes rounded weights)
  kLogarithm,     // of the row sum, and storing the result in fp32
  kAccumulation,  // of P V
  kValues,        // V's own rounding
  kTurned,        // replayed P: weights that their errors may take to another place of its grid
  kWorstCase,
};
inline constexpr size_t kBoundParts = 10;

struct BoundedAttention {
  AttentionResult value;
  // Shape of value.o. The accepted interval before rounding is o_low .. o_high (empty, low > high, only when
  // tiers contradict each other: a defect of the bounds). o_bound, o_bound_p, o_bound_r: half-widths of the
  // tiers; infinity where a tier does not apply.
  std::vector<double> o_low, o_high;
  std::vector<double> o_bound, o_bound_p, o_bound_r;
  std::vector<double> o_replayed;  // centre of tier R; the exact value where R does not apply
  // What the rounding of P, repeated as declared (undeclared: against the row's maximum), adds to O: says
  // where it leans one way in many rows at once. Empty where not known.
  std::vector<float> o_rounding;
  std::vector<double> o_sigma;  // standard deviation of the legal error before the output rounding
  // Bound on the mean of the legal error: the systematic part of tier P (truncations, exponentials that err
  // one way, declared rounding of P toward zero). Empty where not known; readers then take o_bound_p -
  // kLambda * o_sigma, which is more.
  std::vector<double> o_bias;
  // Shape of value.lse; 0 where the LSE is exactly -inf. lse_low .. lse_high as above.
  std::vector<double> lse_low, lse_high;
  std::vector<double> lse_bound, lse_bound_p;
  std::vector<double> lse_sigma;
  std::vector<double> lse_bias;  // as o_bias
  // The largest part of each half-width, of O in all channels of a row and head together (shape of
  // value.lse). Empty where not known.
  std::vector<BoundPart> o_mostly, lse_mostly;
  // exp(growth) entered the accumulation bound; > 1 means the declared arithmetic guarantees nothing.
  double growth = 0;
  // How large a partial sum of a legal kernel may get, of Q K^T (scaled or not) or P V: beyond the range of
  // fp32 it may be infinite, and nothing is guaranteed either.
  double largest = 0;
  // Rows x heads where the self-check switched tier P off, and where tier R applies.
  int64_t p_declined = 0, r_applied = 0;
};

// What an undeclared kernel is judged by.
inline assay_arithmetic default_arithmetic() { return assay_default_arithmetic(); }

BoundedAttention bounded_attention(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                   const assay_arithmetic&);

// The same, element by element with the declared order in slow motion: sharper accumulation terms, about 50
// times slower. For sampled rows and narrow accumulators.
BoundedAttention bounded_attention_elementwise(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                               const assay_arithmetic&);

}  // namespace assay
