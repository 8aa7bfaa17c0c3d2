// SPDX-License-Identifier: Apache-2.0
// A step whose captured calls are taken apart: every stage becomes a graph of its own, so that what a stage
// was given and what it left can be looked at in each replay. For check_graph() and check_walk() it is a
// backend and a kernel like any other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/explain/stages/apart.hpp"

namespace assay {

class ReplayApart {
 public:
  // InputError, InfrastructureError as Backend::load and
  // StepApart have it. One at a time in a process.
  ReplayApart(const std::string& library, const std::string& kernel);
  ~ReplayApart();
  ReplayApart(const ReplayApart&) = delete;
  ReplayApart& operator=(const ReplayApart&) = delete;

  const Backend& backend() const;
  const assay_kernel& kernel() const;
  // Changes what stages get in calls that are captured from now on; {} ends it.
  void edit(StageEdit);
  // Whether every replay from now on is one of the same batch before: what a stage keeps of the replay before
  // is then that batch's own.
  void twice(bool);
  const assay_tensors& capturing() const;  // within an edit: of the step that is captured
  // Of the last replay, in order; none of a kernel without stages. They are copies: the memory may be gone.
  const std::vector<StageRun>& runs() const;
  const StageRun& step() const;  // the whole in that replay
  bool follows_another() const;  // whether a replay came before it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
