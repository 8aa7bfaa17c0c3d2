// SPDX-License-Identifier: Apache-2.0
// What one run left in the outputs, and the one question all of them are asked: is each element that the op
// writes what it may be, and has every other bit stayed? An element that was asked about is put back to what
// it was before the run; whatever still differs afterwards nobody was allowed to write.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/check/expectations/comparison.hpp"
#include "harness/check/session/session.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {

// What one run gave, in the order in which it was asked about: other runs of the same inputs are held against
// it element by element.
struct RunRecord {
  struct Part {  // of one slice
    std::vector<std::byte> codes;
    std::vector<bool> held;  // wrong, and what was there before the run; in every run so far
  };
  std::vector<Part> parts;
  int64_t wrong[2] = {};  // values and marks that were wrong in the first run followed
};

class RunOutputs {
 public:
  // `first`: the run that this one is compared with. `before`: the last run, whose unwritten elements are
  // followed. Both may be null, and outlive this.
  RunOutputs(const Inputs&, Snapshot, const RunRecord* first = nullptr, const RunRecord* before = nullptr);

  // Calls check(slice, n) for n of 0 .. count - 1 on the threads there are, and takes the slices in in order,
  // so that figures do not depend on the number of threads. Elements are asked about in slices only.
  void in_slices(int64_t count, const std::function<void(RunOutputs&, int64_t)>& check);
  static constexpr int64_t kSlices = 64;  // where nothing else suggests a number

  // `values` are what the op is about (codes, rows, O), `marks` what comes once per row and head beside them
  // (LSE, dynamic scales).
  enum class Kind { kValue, kMark };
  // Element `at` of the operand's view must lie in the interval after rounding; `exact` is the centre for
  // messages. Fine elements and wrong ones count alike; call once per element.
  void expect(Kind, Operand, int64_t at, Interval, double exact, const ElementPlace&);
  // With the widths of several tiers, as attention has them.
  void expect(Kind, Operand, int64_t at, Interval, const Widths&, const ElementPlace&);
  // `count` elements `stride` apart, of dimensions 0 .. count - 1 of a row and head, each as above.
  struct Bounds {
    const double *low, *high, *exact, *replayed, *d, *p, *r;
  };
  void expect(Kind, Operand, int64_t at, int64_t count, int64_t stride, const Bounds&, ElementPlace);
  // For a copy: these bits and no others (-0 is not 0).
  void expect_bits(Operand, int64_t at, uint32_t code, const ElementPlace&);
  // `count` elements `stride` apart, of dimensions 0 .. count - 1: each must be written and be a number,
  // whichever. A mark may also be -inf.
  void numbers(Kind, Operand, int64_t at, int64_t count, int64_t stride, ElementPlace);
  // The kernel may have written the element or not, and whatever it liked.
  void allow(Operand, int64_t at);
  // What the kernel wrote, for results that others depend on (a dynamic scale).
  double value(Operand, int64_t at) const;

  void finish();  // medians; then everything below holds

  ErrorStats values, marks;
  const ErrorStats& stats(Kind kind) const { return kind == Kind::kValue ? values : marks; }
  bool zeros_pass = true, all_zero = true;  // zeros for all values would pass; zeros are right

  // Elements of one sort: how many, and the first.
  struct Sighting {
    int64_t count = 0;
    Operand operand{};
    ElementPlace place;
  };
  // "O not written in 3 of 64 elements, first request 0 row 0 head 0 dim 5"; empty when there are none.
  // Wrong in the first run, and as it was before every run since. Few among many wrong ones are nothing: a
  // kernel can write what it read in unused memory.
  std::string unwritten() const;
  // "; 128 elements beside these changed, first of k block 2 slot 5 ..." of operands that are read and
  // written: what was not written there may be written elsewhere. Empty when none did.
  std::string changed_beside() const;
  // " (k 12 of 64, v 0 of 64; the worst one of k)" where marks are elements of several operands; else empty.
  std::string wrong_marks() const;
  std::string not_finite() const;  // NaN or infinite and not expected to be; a mark may be -inf
  // The first difference from the `first` run: in bits; in values, where the sign of a zero counts for copies
  // only. "LSE at request 0 row 0 head 0 is 1.5, then 1.25".
  std::string differs_in_bits() const { return text_of(bits_); }
  std::string differs() const { return text_of(changes_); }
  // The first byte that nobody was asked about and that changed, with what lies there (input/where.hpp);
  // empty when none did.
  std::string touched() const;
  RunRecord& record() { return record_; }

 private:
  struct Difference {
    bool found = false;
    Operand operand{};
    ElementPlace place;
    double first = 0, now = 0;
  };
  struct Count {
    int64_t checked = 0, bad = 0;
  };
  struct Element {
    std::byte* now;
    const std::byte* before;
    int32_t format;
    int bytes;
    uint32_t code() const;
  };
  struct Slice {};
  RunOutputs(const RunOutputs& whole, Slice);
  void add(const RunOutputs& slice);
  Element element(Operand, int64_t at) const;
  // What a kernel may do to O and LSE behind the last row, where its contract says so.
  void forgive_rows_behind();
  // Notes an element that was judged, and puts it back.
  void settle(Kind, Operand, const ElementPlace&, const Element&, bool bad, bool not_finite, bool copied);
  std::string text_of(const Difference (&)[2]) const;
  std::string text_of(const Sighting (&)[2], const char* value_is, const char* mark_is) const;

  const Inputs& inputs_;
  std::shared_ptr<Snapshot> left_;  // of all slices: no element belongs to two
  std::vector<int> copy_of_;        // of each operand in *left_, -1 for none
  const RunRecord *first_, *before_;
  RunRecord record_;
  Comparison value_check_, mark_check_;
  int64_t asked_[2] = {};
  std::array<Count, kOperandCount> marks_of_{};
  Sighting unwritten_[2], not_finite_[2];
  Difference bits_[2], changes_[2];
  // Of a slice: where it is in the records.
  RunRecord::Part* part_ = nullptr;
  const RunRecord::Part *first_part_ = nullptr, *before_part_ = nullptr;
  size_t element_ = 0, byte_ = 0;
};

}  // namespace assay
