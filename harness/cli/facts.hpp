// SPDX-License-Identifier: Apache-2.0
// What a kernel really does, found out by trying: small cases at the plainest shape it takes, judged with one
// contract or another assumed in place of what it declares (enum assay_contract), each in the kernel's
// worker. For `assay facts`. To add a fact: a function in facts.cpp and its line in gather_facts().
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cli/kernel_shapes.hpp"

namespace assay {

// One case as it was tried.
struct FactTrial {
  std::string line;
  Assumed assumed;
  bool graphs = false;
  std::string outcome, check, reason, repeatable, batch_invariant;  // of its row
  bool passed() const { return outcome == "passed"; }
  bool refused() const { return outcome == "unsupported"; }
};

struct Fact {
  std::string name, value;
  std::vector<FactTrial> trials;  // that show it
};

struct FactSheet {
  std::string kernel, op, shape;
  std::string declared;    // contracts, as the rows of results say them; empty: none
  bool right = false;      // under some contract; otherwise the facts say how it fails
  uint32_t contracts = 0;  // those it needs
  std::vector<Fact> facts;
};

// A kernel of prefill, paged or step; `fields` are added to every line (`--set`), its shape among them.
// InputError when the fields cannot be read or leave no case.
FactSheet gather_facts(Dispatcher&, const KernelInfo&, const std::string& fields,
                       const std::atomic<bool>& stop);

// One of another op: what its op has of these facts.
FactSheet gather_data_op_facts(Dispatcher&, const KernelInfo&, const std::string& fields,
                               const std::atomic<bool>& stop);

FactTrial try_case(Dispatcher&, const KernelInfo&, const std::string& line, const Assumed&, bool graphs,
                   const std::atomic<bool>& stop);

// ---- what facts say of a trial, alike of every op
std::string word_of(const FactTrial&);         // right, refused, or how it fails
std::string word_of_graphs(const FactTrial&);  // of a trial that replays
std::string word_of_alignment(Dispatcher&, const std::string& line, const std::string& kernel);

nlohmann::json facts_json(const FactSheet&);

}  // namespace assay
