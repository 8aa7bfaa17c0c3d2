// SPDX-License-Identifier: Apache-2.0
// A stage judged on what it was given, by the reference of its op: also as if it had read something else
// there (a misreading), which is how a cause is tested.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "harness/check/expectations/lists.hpp"
#include "harness/explain/evidence.hpp"
#include "harness/explain/stages/apart.hpp"

namespace assay {

// What a stage is taken to have read: scalars and host views. Views of what it writes lie in its buffers.
struct Reading {
  assay_problem problem{};
  assay_tensors tensors{};
  // Lists that it does not share with what the stage was given; alive as long as any copy.
  std::shared_ptr<std::list<std::vector<std::byte>>> lists =
      std::make_shared<std::list<std::vector<std::byte>>>();
  std::vector<KeyRange> only_keys;  // as Problem has it; empty: all
  std::vector<uint8_t> dense;       // requests whose new keys are read as they came; empty: none
  std::vector<uint8_t> nowhere;     // requests whose table leads out of the cache; empty: none

  bool has(Operand o) const { return tensor_of(tensors, o).data != nullptr; }
  // Other bytes where an operand lies, of the same view.
  void put_bytes(Operand, const Bytes&);
  // An int32 list or table as numbers, and put back as a dense list of its own.
  std::vector<int32_t> ints(Operand) const;
  void put(Operand, const std::vector<int32_t>&);
  int32_t rows_of(int32_t request) const;  // new tokens, from cu_q where there is one
};

struct StageVerdict {
  bool judged = false;  // else `reason` says why nothing can be said
  // Not judged only because elements depend on memory that holds no numbers, and none of these is one.
  bool numberless = false;
  bool right = false;
  std::string reason;  // what is wrong, as assay check words it
  int64_t bad = 0, checked = 0;
  bool uncounted = false;  // wrong, and nobody says in how many elements
  // Where they are judged by rows: bit per row (packed), whether anything of it is wrong.
  std::vector<uint8_t> bad_rows;
  std::vector<uint8_t> open_rows;  // of which nothing can be said, as bad_rows; empty: none
  // ... where what is accepted is as wide as results are large: no reading is shown by these. As bad_rows.
  std::vector<uint8_t> vague_rows;
  std::vector<uint8_t> zero_rows;  // of which zeros alone are accepted, as bad_rows
};

class StageCase {
 public:
  // `declared`: arithmetic in place of what the kernel says. The run outlives it.
  StageCase(const Backend&, const StageRun&, const assay_arithmetic* declared = nullptr);
  ~StageCase();
  StageCase(const StageCase&) = delete;
  StageCase& operator=(const StageCase&) = delete;

  const Reading& given() const { return given_; }
  const assay_kernel& kernel() const { return *kernel_; }
  const std::string& place() const { return place_; }
  const StageRun& run() const { return run_; }
  bool attends() const;  // prefill or paged
  // Verdicts say which rows are wrong: of attention, under replay of merges and partial results too.
  bool by_rows() const;
  void read_new_keys(std::vector<uint8_t> dense) { given_.dense = std::move(dense); }
  StageVerdict judge(const Reading&) const;

  // Of metadata ops: what was written and what is right, of the entries that differ.
  struct Entry {
    Operand operand;
    int64_t row, column;  // row -1: a list
    int64_t got, wanted;
  };
  std::vector<Entry> wrong_entries() const;
  // Evidence for the families of attention; only where attends().
  Evidence evidence(const std::string& line) const;
  // What the stage wrote.
  double written(Operand, int64_t at) const;
  const assay_arithmetic& arithmetic() const { return arithmetic_; }
  // The problem of a reading. CheckError where lists contradict each other.
  Problem problem_of(Reading&) const;

 private:
  StageVerdict judge_attention(Reading&, const Problem&) const;
  StageVerdict judge_others(Reading&, const Problem&) const;
  StageVerdict judge_replayed_rows(const Reading&, const Problem&) const;
  Inputs inputs_of(const Reading&, const Problem&) const;

  // Lengths of a captured call are what memory holds; the host's say for which ones it was captured.
  void take_replay();

  const Backend& backend_;
  const StageRun& run_;
  const assay_kernel* kernel_;
  std::string place_;
  Reading given_;
  assay_arithmetic arithmetic_{};
  struct Left;
  std::unique_ptr<Left> left_;
};

}  // namespace assay
