// SPDX-License-Identifier: Apache-2.0
// The judgement of one kernel on one case. There is no tolerance to set and no share of elements that
// may be wrong: an element passes when it lies in rnd(o - B) .. rnd(o + B).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/input/inputs.hpp"
#include "reference/bounds.hpp"

namespace assay {

enum class Outcome {
  kPassed,
  kWrong,  // any element out of bounds, LSE wrong, guard touched, input changed, poison seen, not repeatable
  kUnsupported,  // the kernel declined, with its reason
  kUntrusted,    // the bound would accept zeros or permuted pages: a pass would prove nothing
  kCrashed,      // the worker died (signal) or the kernel threw or failed
  kTimedOut,     // the watchdog ended it
  kInvalid,      // the case itself cannot be built
};
std::string_view outcome_name(Outcome);  // passed wrong unsupported untrusted crashed timed_out invalid

struct ErrorStats {
  double max_error = 0;  // |kernel - reference|, absolute, over checked elements
  double max_ratio = 0;  // max of |error| / (B + half ulp of the output); <= 1 when all pass
  int64_t checked = 0, bad = 0;
  // Where max_ratio sits; dim = -1 for the LSE.
  int32_t request = -1, row = -1, head = -1, dim = -1;
  double got = 0, expected = 0, bound = 0;
};

struct Verdict {
  Outcome outcome = Outcome::kInvalid;
  std::string reason;  // one line; empty for passed
  ErrorStats o, lse;
  int64_t rows_checked = 0, rows_total = 0;
  double reference_seconds = 0;
};

// Compares outputs (host copies laid out as `tensors`) with the bounded reference.
struct OutputView {
  const assay_tensor* o = nullptr;
  const assay_tensor* lse = nullptr;
};
void compare_outputs(const BoundedAttention&, const Problem&, const OutputView&, ErrorStats& o,
                     ErrorStats& lse);

// rnd(expected - bound) <= got <= rnd(expected + bound) in `format`; NaN and infinities never fit, except
// -inf where exactly that is expected.
bool fits(double got, double expected, double bound, int32_t format);

// "request 3 row 0 head 5 dim 17"; without dim for the LSE.
std::string place_of(const ErrorStats&);

// Reference and bounds of a case, reused for every kernel with the same arithmetic.
class Judge {
 public:
  explicit Judge(const Problem&, double row_key_budget);
  ~Judge();
  // Runs the kernel under all three poisons and judges. Never throws for what the kernel does
  // (statuses become verdicts); a crash takes the process down, which is why workers exist.
  // InfrastructureError when the device cannot hold the case.
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&);
  const Inputs& inputs() const;

  // The buffers of the kernel judged last, for timing: inputs as judged (NaN poison), outputs and workspace
  // poisoned. CheckError when nothing was run yet.
  DeviceCase& device_case();
  // Judges what the last call on device_case() left in the outputs: guards and inputs again, and the same
  // bits as when the kernel was judged (where it promises that), otherwise the bounds. Poisons the outputs
  // afterwards, so that each timed series must write them anew.
  Verdict recheck();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
