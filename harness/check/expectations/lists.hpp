// SPDX-License-Identifier: Apache-2.0
// What the ops on lists share: the facts they answer from, read from where a kernel reads them, and an
// expectation whose message names the first entry that is not what it must be.
#pragma once

#include <string>
#include <vector>

#include "harness/check/expectations/data_ops.hpp"
#include "reference/data_ops/metadata.hpp"

namespace assay {

using List = std::vector<int32_t>;

// What the op reads, from where a kernel reads it. Lengths are those of the problem, which the inputs hold.
struct ListFacts {
  const Problem& p;
  const assay_tensors& t;
  List q_len, kv_len;
  Pages pages;
  std::vector<uint8_t> tree;
};
ListFacts read_facts(const Inputs&);

// One list or table that a metadata op writes, as its tensor is large: row after row, what each element must
// be.
struct Wanted {
  static constexpr int64_t kAnything = int64_t{1} << 40;
  Operand operand;
  int64_t rows, columns;
  std::vector<int64_t> values;

  // Everything is `rest` until it is said what it is.
  Wanted(const ListFacts&, Operand, int64_t rest);
  Wanted& row(int64_t r, const List& list);  // as far as there is room
};
// Of the ops whose every entry follows: all but ps_metadata, which has several right answers. Empty for
// others.
std::vector<Wanted> wanted_lists(const Inputs&);

class ListExpectation : public BlockExpectation {
 public:
  using BlockExpectation::BlockExpectation;
  const char* value_name() const final { return name_.c_str(); }
  int64_t rows_total() const final { return static_cast<int64_t>(inputs_.problem.requests.size()); }

 protected:
  virtual void check_lists(RunOutputs&) = 0;
  bool blameless() const { return name_ == kEntry; }
  std::string name_ = kEntry;  // grows the first wrong entry, as it is to be printed

 private:
  static constexpr const char* kEntry = "entry";
  void check(RunOutputs& out) final {
    name_ = kEntry;
    gate_ = 0;
    out.in_slices(1, [&](RunOutputs& slice, int64_t) { check_lists(slice); });
  }
};

}  // namespace assay
