// SPDX-License-Identifier: Apache-2.0
// The judgement of one kernel on one case. There is no tolerance to set and no share of elements that
// may be wrong: an element passes when it lies between the rounded ends of the interval that all tiers of
// the bounds leave (reference/bounds/bounds.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/series.hpp"
#include "harness/input/inputs.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {

enum class Outcome {
  kPassed,
  kWrong,  // any element out of bounds, LSE wrong, guard touched, input changed, poison seen, not repeatable
  kUnsupported,  // the kernel declined, with its reason
  kUntrusted,    // the bound would accept zeros or permuted pages: a pass would prove nothing
  kCrashed,      // the worker died (signal) or the kernel threw or failed
  kTimedOut,     // the watchdog ended it
  kInvalid,      // the case itself cannot be built
  // Of timed rows alone.
  kImplausible,  // right, and faster than the device can be, or than the host's clock allows
  kNoisy,        // right, and its time means little: too wide an interval, or too busy a machine
};
// passed wrong unsupported untrusted crashed timed_out invalid implausible noisy
std::string_view outcome_name(Outcome);

struct ErrorStats {
  double max_error = 0;  // |kernel - reference|, absolute, over checked elements
  // |kernel - middle| / (half the interval + half ulp of the output): the largest, <= 1 when all pass, and
  // the median over the checked elements.
  double max_ratio = 0, median_ratio = 0;
  // The same without the output's own rounding, which is most of the above in 16 bits: the least error before
  // it that explains what was written, over half the interval.
  double max_unrounded = 0, median_unrounded = 0;
  int64_t checked = 0, bad = 0;
  // Bad elements by the tier that rejects them, indexed by Tier; the most rigorous one where several do.
  std::array<int64_t, 3> bad_by_tier{};
  // Elements where the tiers exclude each other, a defect of the bounds; tier D alone judges them.
  int64_t contradictions = 0;
  // Elements of which the bounds say nothing (from -inf to inf): anything is accepted, NaN too.
  int64_t unbounded = 0;
  // Where max_ratio sits; dim = -1 for the LSE. `tier` rejects it, when anything is bad.
  int32_t request = -1, row = -1, head = -1, dim = -1;
  int32_t operand = -1;  // of enum Operand, where elements of several are counted as one
  double got = 0, expected = 0;
  double low = 0, high = 0;  // the accepted interval, before rounding but for 8-bit codes
  Tier tier = Tier::kD;
};
std::string_view tier_name(Tier);  // D P R

struct Verdict {
  Outcome outcome = Outcome::kInvalid;
  std::string reason;  // one line; empty for passed
  // The check that decided, one word or two; empty for passed. A fixed vocabulary (README.md), so that scores
  // can count by it: "tier D", "lse P", "guards", "repeatable", "aggregate slope", ...
  std::string check;
  std::string declaration;  // the arithmetic it was judged by (declaration_text); empty: it was not asked
  ErrorStats o, lse;
  int64_t rows_checked = 0, rows_total = 0;
  int64_t rows_surveyed = 0;  // of the others, those looked at in one KV head each
  double reference_seconds = 0;
  // Rows x heads where tier P declined and where tier R applied.
  int64_t p_declined = 0, r_applied = 0;
  // What the bounds of O and of the LSE mostly consist of (BoundPart in words); empty without any.
  std::string o_mostly, lse_mostly;
  // Below: NaN or empty where not measured.
  // Largest statistic over its threshold (aggregates.hpp), and which one where.
  double aggregate_ratio = std::numeric_limits<double>::quiet_NaN();
  std::string aggregate_where;
  // The furthest from the exact value that is accepted over the rms of its row and head, and whether that is
  // past what is useful: correct, but of an arithmetic too coarse for this case. Never a failure.
  double class_gate = std::numeric_limits<double>::quiet_NaN();
  bool useless = false;
  // |o(stored K, V) - o(unquantised K, V)| over the rms of o: what quantising the cache costs. No part of any
  // bound.
  double quantization_rms = std::numeric_limits<double>::quiet_NaN();
  double quantization_max = std::numeric_limits<double>::quiet_NaN();
  std::optional<bool> repeats;  // two runs on the same memory gave the same bits
  std::optional<bool> batch_invariant;
};

// rnd(low) <= got <= rnd(high) in `format`, where an end past the range is stored as the largest value or as
// an infinity, whichever a kernel does. NaN never fits, nor an infinity elsewhere, except -inf where exactly
// that is expected (low = high = -inf).
bool within(double got, double low, double high, int32_t format);

// Half the distance of neighbours of `format` around |x|; infinity past its range.
double half_ulp(int32_t format, double x);

// "request 3 row 0 head 5 dim 17"; without dim for the LSE.
std::string place_of(const ErrorStats&);

class Disturber;    // harness/device/disturber.hpp
struct RaceSearch;  // harness/check/session/races.hpp

// Inputs of a case and what may come out (expectations/), reused for every kernel: a reference is computed
// once for each arithmetic. The budget samples rows of attention; data ops are judged whole.
class Judge {
 public:
  explicit Judge(const Problem&, double row_key_budget);
  ~Judge();
  // Runs the kernel under all three poisons and judges. Never throws for what the kernel does
  // (statuses become verdicts); a crash takes the process down, which is why workers exist.
  // InfrastructureError when the device cannot hold the case.
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&);
  const Inputs& inputs() const;
  // After judge() found values or marks wrong: "; within its bounds if ..." where they are what another
  // declaration would have made of them (declarations/redeclared.hpp), else "". Runs nothing.
  std::string otherwise_declared();

  // The buffers of the kernel judged last, for timing: inputs as judged (NaN poison), outputs and workspace
  // poisoned. CheckError when nothing was run yet.
  DeviceCase& device_case();
  // Judges what the last call on device_case() left in the outputs: guards and inputs again, and the same
  // bits as when the kernel was judged (where it promises that), otherwise the bounds. Poisons the outputs
  // afterwards, so that each timed series must write them anew.
  Verdict recheck();
  // Other values in its inputs, while its outputs still are those of the last call (opposite.hpp). After
  // turn() every sign is turned, and after another one none; the outputs of the values as built are kept
  // first. False, and nothing done, where there are none to turn. After the next call turned() says why its
  // results are not the ones those values give, "" when they are.
  bool turn();
  std::string turned() const;
  // A fresh draw of signs, in place of the last draw: of all operands but Q, of a few rows of Q that cost
  // next to nothing to bring to the device, or of a few keys and values (of rows of Q where there are none).
  // settle() undoes it. After a call judge_drawn() says why its results are wrong, by a reference of its own
  // within `row_key_budget`.
  enum class Draw { kEverything, kFewRows, kFewKeys };
  void draw(std::mt19937_64&, Draw);
  // The same of a few rows, on the host alone: what the device has to get before the next call.
  Changes draw_later(std::mt19937_64&);
  void settle();
  std::string judge_drawn(double row_key_budget);
  void clear_outputs();  // poison in what the next call must write
  // Calls the kernel judged last again and again beside disturbances (session/races.hpp). Passed, or wrong
  // with check "race"; the buffers are as after judge().
  Verdict races(const Disturber&, const RaceSearch&);
  // Reads the outputs twice, `seconds` apart: what somebody still wrote after the call had ended, or "". By
  // how much the first time took longer, in seconds, goes to `longer`.
  std::string written_late(double seconds, double* longer);
  // Frees plan and buffers of the kernel judged last: what that may do is still its own doing.
  void forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
