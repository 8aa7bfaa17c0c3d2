// SPDX-License-Identifier: Apache-2.0
// The data ops: every op but attention. What each must have written follows from the stored operands
// alone: slots, tables and scales are read where a kernel reads them. A block that goes row by row needs one
// function, handed to expect_rows().
#pragma once

#include <memory>

#include "harness/check/expectations/expectation.hpp"
#include "harness/ops/packed_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

// Blocks have no bounds that are dear: a survey is everything.
class BlockExpectation : public Expectation {
 public:
  using Expectation::Expectation;
  std::string impossible(const assay_arithmetic&) const override;
  void prepare(const assay_arithmetic&) override;
  void ask(RunOutputs&) final;
  void describe(Verdict&) const final;

 protected:
  virtual void check(RunOutputs&) = 0;  // all but finish()
  double gate_ = 0;                     // Verdict::class_gate, set by check()

 private:
  double seconds_ = 0;
};

struct RowSpan {
  int64_t begin, end;
};
// Asks about the rows of one span; `gate` is raised to the class gate of a row where that means something.
using CheckRows = void (*)(const Inputs&, const assay_arithmetic&, RunOutputs&, RowSpan, double* gate);
struct RowsOf {
  CheckRows check;
  const char* mark;  // "LSE", or "scale", which explains wrong values
  bool gated;
};
std::unique_ptr<Expectation> expect_rows(const Inputs&, RowsOf);

// The number at an offset of an operand.
inline double real_at(const assay_tensor& t, int64_t at) { return load(t.format, t.data, at); }
// Of parts: bounds are kept of so many elements, about 100 bytes each; of more they are made again each time.
inline constexpr int64_t kMostKept = 4 << 20;
inline constexpr int64_t kRowsOfSlice = 8;

inline ElementPlace place_of_row(PackedRow row, int32_t head, int32_t dim) {
  return {{row.request, row.row}, head, dim};
}

}  // namespace assay
