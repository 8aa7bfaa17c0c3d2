// SPDX-License-Identifier: Apache-2.0
// Cases that are checked side by side: who must have the machine to himself, and how their rows come out in
// the order of the cases. What is done beside what is the sweep's (sweep_cases.cpp).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "harness/measure/measure.hpp"
#include "harness/report/row.hpp"

namespace assay {

// A gate: any number at a time, or one alone. Who wants to be alone waits for those inside and lets nobody in
// before him.
class Gate {
 public:
  class Pass {
   public:
    Pass(Gate& gate, bool alone);  // waits
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
    const bool alone_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0, want_alone_ = 0;
  bool alone_ = false;
};

// Rows of several cases at a time, written in the order in which the cases were opened: those of the first
// that is not closed at once, those behind it when its turn comes. Not locked.
class OrderedRows {
 public:
  using Write = std::function<void(const Row&, const Samples&)>;
  explicit OrderedRows(Write write) : write_(std::move(write)) {}

  int64_t open() { return opened_++; }
  void add(int64_t number, const Row&, const Samples& = {});  // of a case that is open
  void close(int64_t number);
  // Everything there is, of cases that were not closed, too: when the run ends early.
  void flush();
  int64_t held() const;  // rows that wait

 private:
  struct Case {
    std::vector<std::pair<Row, Samples>> rows;
    bool closed = false;
  };
  void write(Case&);
  Write write_;
  std::map<int64_t, Case> waiting_;  // behind the first open one
  int64_t opened_ = 0, first_ = 0;
};

}  // namespace assay
