// SPDX-License-Identifier: Apache-2.0
// From a Problem to bytes: values by recipe, scales and codes, page tables, poison wherever nothing
// may be read, guard zones round every buffer. Everything is a function of the Problem alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/buffers/buffer_set.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

// What stands where a correct kernel has no business: unused cache slots and blocks, padding of
// strided operands, tails of tables, outputs and workspace before the run. Formats without NaN (int8)
// get -128 for kNaN. Table tails: kNaN an absurd block id, kLow an unused (poisoned) block, kHigh a block of
// another request.
enum class Poison : int32_t { kNaN, kLow, kHigh };

struct Inputs {
  Problem problem;
  Bindings buffers;         // V lies in K's buffer when PagedCache::shared_allocation()
  assay_tensors tensors{};  // host views into the buffers
  float q_scale_host = 1, k_scale_host = 1, v_scale_host = 1;
  std::unique_ptr<ProblemView> view;  // the C problem that goes with `tensors`
  Poison poison = Poison::kNaN;       // what repoison() laid last
  uint32_t contracts = 0;             // of the kernel they are for (contracts.hpp)
  // Recipes with a known answer only (answer_is_known()): [T, heads_q, head_dim_v] and [T, heads_q]. O must
  // match bit for bit after rounding to the output format where answer_binds(), LSE within its bound.
  std::vector<double> exact_o, exact_lse;
};

// Where the operands of a call lie: by themselves, or in a set that calls share.
struct Placement {
  BufferSet set;
  std::string prefix;  // of the buffers' names: "decode."
  // Operands that lie in a buffer of another call: what is there stays, values and poison, and nothing is
  // drawn for them. CheckError unless the operand would have a buffer of the same size.
  std::vector<std::pair<Operand, GuardedBuffer>> shared;
};

// Builds everything except the workspace (its size is the kernel's). `exact` throws InputError when the
// recipe cannot be realised for the problem (says why). Data ops: see data_op_inputs.hpp.
Inputs build_inputs(const Problem&, Poison poison = Poison::kNaN);
Inputs build_inputs(const Problem&, const Placement&);

// Where the values of a request come from when its problem is derived from another: row i is row
// first_row + i, key j is key first_key + j of `request` there.
struct RequestOrigin {
  int request = 0;
  int32_t first_row = 0, first_key = 0;
};
struct Derivation {
  std::vector<RequestOrigin> requests;  // one per request of the derived problem
  std::optional<float> sink_logit;      // of every head, instead of the drawn ones
};

// The values of a problem: everything that is drawn or calibrated, apart from where it is put. Problems
// derived from it (other batches, other pages, parts of the context) hold the same codes and scales for the
// same tokens.
class InputValues {
 public:
  // InputError as build_inputs().
  explicit InputValues(const Problem&);
  ~InputValues();
  InputValues(const InputValues&) = delete;
  InputValues& operator=(const InputValues&) = delete;
  const Problem& problem() const;

  // CheckError when `derived` differs from problem() in heads, dimensions or formats, or asks for tokens that
  // do not exist. The answer of a known recipe is not carried over.
  Inputs build(const Problem& derived, const Derivation&, Poison poison = Poison::kNaN,
               const Placement& = {}) const;
  // The problem itself, with its known answer where the recipe has one.
  Inputs build(Poison, const Placement&) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Rewrites only the poisoned places of existing inputs; all real values stay bit-identical.
void repoison(Inputs&, Poison);

// Whether a kernel of this arithmetic must reproduce exact_o to the bit. Not so in fp32, where an ulp of the
// exponential or the reciprocal shows, nor for roundings that hit even a known answer: partial results in 16
// bits, P truncated (a weight an ulp below a power of two loses a whole step), an exponential as coarse as P
// or O, units too narrow for the sums; of dyadic weights also P in int8, rounded Q. The bounds hold then.
bool answer_binds(const Problem&, const assay_arithmetic&);

// Values before quantisation, for reporting quantisation error: element (token position of request,
// head, dim). Uses the same recipe and counters as build_inputs.
double unquantized_k(const Problem&, int request, int32_t position, int32_t head, int32_t dim);
double unquantized_v(const Problem&, int request, int32_t position, int32_t head, int32_t dim);

}  // namespace assay
