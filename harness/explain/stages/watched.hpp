// SPDX-License-Identifier: Apache-2.0
// A composed kernel whose places are watched: in each stands a kernel that hands on everything but its runs,
// which go to whoever watches (apart.hpp, replay_apart.hpp).
#pragma once

#include <functional>
#include <list>

#include "harness/device/handed_on.hpp"
#include "harness/explain/stages/apart.hpp"

namespace assay {

struct Watched;

// Stands in a place and hands calls on.
struct Post : HandedOn {
  Watched* of = nullptr;
};

// A kernel of posts. Lives as long as the process, as what with_stages() makes does.
struct Watched {
  std::list<Post> posts;
  const assay_kernel* made = nullptr;
  std::function<int(const Post&, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
                    char* error, size_t size)>
      on_run;
};

// One for a composed kernel, always the same. InfrastructureError where it does not hand out its stages.
Watched& watched(const assay_kernel&);
// The kernel as one post.
Watched& watched_whole(const assay_kernel&);
// All that a view spans, whichever way it runs.
Bytes copy_of(const Backend&, const assay_tensor&);
// Of every operand but the workspace.
void copy_operands(const Backend&, const assay_tensors&, Bytes (&to)[kOperandCount]);

}  // namespace assay
