// SPDX-License-Identifier: Apache-2.0
// What is known about a kernel on a case before anybody guesses: the verdict, and its outputs from a few
// calls that differ in one thing each (what unused memory, scratch memory and table tails hold; what was
// called before). All calls happen in child processes, so that crashes are evidence too.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"
#include "harness/device/backend.hpp"
#include "harness/explain/rules.hpp"
#include "harness/input/inputs.hpp"

namespace assay {

enum class Call : int {
  kFirst,       // first call of a process; NaN in unused memory, scratch and outputs
  kAgain,       // the same once more
  kThird,       // and once more
  kLow,         // low finite poison everywhere
  kHigh,        // high finite poison everywhere
  kScratch,     // as kFirst, but scratch and outputs hold the low poison
  kTails,       // as kFirst, but the tails of page tables hold an unused block
  kAfterOther,  // in a process of its own, after a call with other lengths and another scale
};
inline constexpr int kCallCount = 8;
std::string_view call_name(Call);

struct CallResultCopy {
  bool made = false;      // it returned ASSAY_OK
  std::string failure;    // else: how it ended
  bool crashed = false;   // ... by taking the process down
  std::string damage;     // guards
  std::string changed;    // inputs
  std::vector<double> o;  // [total_q, heads_q, head_dim_v], decoded
  std::vector<double> lse;
};

struct Evidence {
  std::string line, kernel_name;
  Problem problem;
  Inputs nan, low;  // the operands under two poisons
  assay_arithmetic declared{};
  bool declares = false;
  uint32_t promises = 0;
  uint32_t contracts = 0;  // enum assay_contract
  Verdict verdict;
  CallResultCopy calls[kCallCount];
  BoundedAttention bounded;     // of the judged rows
  std::vector<int64_t> row_of;  // index into bounded.value.rows by packed row; -1: not judged

  const CallResultCopy& call(Call c) const { return calls[static_cast<int>(c)]; }
  HostOperands operands(bool of_low) const;
  int64_t packed_row(const Cell&) const;
  double got(Call, const Cell&, int32_t dim) const;  // dim -1: LSE
  std::vector<int32_t> first_rows;                   // cu_q

  std::shared_ptr<const struct OrderSeen> order;  // of keys, as calls showed it (order_calls.hpp)

  struct Raw;  // outputs of the calls as they came, until complete()
  std::shared_ptr<Raw> raw;
};

// The cell of a row of the batch, as `first_rows` (cu_q) numbers them; where several requests begin, the last
// of them, which owns rows.
Cell cell_of_row(const std::vector<int32_t>& first_rows, int64_t packed, int32_t head);

struct CaptureOptions {
  double rows_budget = 3e7;  // as in `assay check`
  double timeout_s = 60;     // of one child
  int threads = 0;           // OpenMP threads of the children; 0: the default
};

// Cases with as many requests and rows but other lengths, another scale and, in the first, another cap, mask
// and stride: what a server may have run just before. Those that contradict themselves are left out.
std::vector<Problem> previous_problems(const Problem&);

// Throws InfrastructureError when no process can be started, InputError when the case cannot be built.
Evidence capture(const std::string& line, const Problem&, const std::string& backend,
                 const std::string& kernel, const CaptureOptions&);

// The same in two steps: all that needs children, which must come before this process uses OpenMP, and the
// operands, reference and bounds, which take most of the time and may not be wanted. Of a line beside the
// one that is asked about only the first call is made, and what cannot be had leaves it not made.
Evidence capture_beside(const std::string& line, const Problem&, const std::string& backend,
                        const std::string& kernel, const CaptureOptions&);
void complete(Evidence&, const CaptureOptions&);

}  // namespace assay
