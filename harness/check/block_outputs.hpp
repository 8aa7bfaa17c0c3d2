// SPDX-License-Identifier: Apache-2.0
// What a building block left in its output buffers, and the one question all of them are asked: does each
// element that the op writes lie in its interval, and has every other bit stayed? An element that was
// asked about is put back to what it was before the run; whatever still differs afterwards nobody was
// allowed to write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/check/comparison.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {

// One run, compared. `values` are what the op is about (codes, rows, O), `marks` what comes once per row and
// head beside them (LSE, dynamic scales).
class BlockOutputs {
 public:
  // Copies every output from the device; the host buffers of the inputs hold what was there before the run.
  BlockOutputs(const Inputs&, const DeviceCase&);

  // The same outputs with figures of their own, for one thread; add() takes them in. In the order of the
  // slices the whole does not depend on the number of threads.
  struct Slice {};
  BlockOutputs(const BlockOutputs& whole, Slice);
  void add(const BlockOutputs& slice);

  enum class Kind { kValue, kMark };
  // Element `at` of the operand's view must lie in the interval after rounding; `exact` is the centre for
  // messages. Fine elements and wrong ones count alike; call once per element.
  void expect(Kind, Operand, int64_t at, Interval, double exact, const ElementPlace&);
  // With the widths of several tiers, as attention has them.
  void expect(Kind, Operand, int64_t at, Interval, const Widths&, const ElementPlace&);
  // The kernel may have written the element or not, and whatever it liked.
  void allow(Operand, int64_t at);
  // The same for a copy: these bits and no others (-0 is not 0).
  void expect_bits(Operand, int64_t at, uint32_t code, const ElementPlace&);
  // What the kernel wrote, for results that others depend on (a dynamic scale).
  double value(Operand, int64_t at) const;

  void finish();  // medians; then the members below hold

  ErrorStats values, marks;
  int64_t unwritten_values = 0, unwritten_marks = 0;  // wrong elements that still hold what they held
  int64_t not_finite = 0;
  bool zeros_pass = true, all_zero = true;  // zeros for all values would pass; zeros are right
  uint64_t fingerprint = 0;                 // of every element asked about, in order
  // The first byte that nobody was asked about and that changed, with the operand; empty when none did.
  std::string touched() const;

 private:
  struct Copy {
    Operand owner;
    const GuardedBuffer* before;
    std::vector<std::byte> raw;
  };
  struct Copies {
    std::vector<Copy> list;
    Copy* of[kOperandCount] = {};
  };
  std::byte* element(Operand, int64_t at, const std::byte** before) const;

  const Inputs& inputs_;
  std::shared_ptr<Copies> copies_;  // of all slices: no element belongs to two
  Comparison value_check_, mark_check_;
};

}  // namespace assay
