// SPDX-License-Identifier: Apache-2.0
// libassay_join_faults.so: latent steps of the CPU (step_aiter_mla, step_mla_prefill) with one thing wrong in
// the stages that make one tensor of two and 16 heads of fewer, which nobody outside can replace
// (kernels/common/join_stages.hpp). "joined_right" and "unfolded_right" are the steps themselves;
// latent_step_test.cpp says on which line each fault shows.
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "harness/check/testing/fault_library.hpp"
#include "kernels/common/join_heads.hpp"
#include "kernels/common/pipelines.hpp"
#include "kernels/cpu/kernels.hpp"

namespace {

using namespace assay_kernels;

// Changes what the right kernel gets.
using Spoil = void (*)(assay_tensors&);
struct Entry {
  const char *name, *stage;
  Spoil spoil;
};

void heads_in_turn(assay_tensors& t) {  // head i of 16 is head i modulo those there are
  static std::list<std::vector<char>> copies;
  const assay_tensor from = t.source;
  const int64_t bytes = element_bytes(from.format), dims = from.shape[2], heads = t.o.shape[1];
  std::vector<char>& copy = copies.emplace_back(from.shape[0] * heads * dims * bytes);
  for (int64_t row = 0; row < from.shape[0]; ++row)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t d = 0; d < dims; ++d)
        std::memcpy(
            copy.data() + ((row * heads + head) * dims + d) * bytes,
            static_cast<const char*>(from.data) +
                (row * from.stride[0] + head % from.shape[1] * from.stride[1] + d * from.stride[2]) * bytes,
            bytes);
  t.source.data = copy.data(), t.source.shape[1] = heads;
  t.source.stride[2] = 1, t.source.stride[1] = dims, t.source.stride[0] = heads * dims;
}
void first_heads(assay_tensors& t) { t.source.shape[1] = t.o.shape[1]; }  // 0, 1, 2, ... of 16
void rope_dropped(assay_tensors& t) {                                     // zeros in its place
  static char zero[4] = {};
  t.rope.data = zero;
  t.rope.stride[0] = t.rope.stride[1] = t.rope.stride[2] = 0;
}
void rope_of_first_head(assay_tensors& t) { t.rope.shape[1] = 1; }
void rope_of_first_row(assay_tensors& t) { t.rope.stride[0] = 0; }
void rope_first(assay_tensors& t) { std::swap(t.source, t.rope); }
void as_if_packed(assay_tensors& t) { t.source.stride[1] = t.source.shape[2]; }  // no V between heads

constexpr Entry kFaults[] = {
    {"joined_right", "q_heads", nullptr},
    {"heads_in_turn", "q_heads", heads_in_turn},
    {"first_heads_taken", "o_heads", first_heads},
    {"rope_dropped", "q_heads", rope_dropped},
    {"rope_of_first_head", "q_heads", rope_of_first_head},
    {"rope_first", "q_heads", rope_first},
    {"unfolded_right", "k_join", nullptr},
    {"shared_rope_dropped", "k_join", rope_dropped},
    {"rope_of_first_row", "k_join", rope_of_first_row},
    {"heads_as_if_packed", "k_join", as_if_packed},
};

struct Spoilt {
  assay_kernel kernel;
  const assay_kernel* right;
  Spoil spoil;
};

const assay_kernel* made(const Entry& fault) {
  static std::list<Spoilt> all;
  Spoilt& join = all.emplace_back(Spoilt{assay_cpu::kJoinHeads, &assay_cpu::kJoinHeads, fault.spoil});
  join.kernel.context = &join;
  join.kernel.run = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                       assay_plan* plan, void* stream, char* error, size_t size) {
    const Spoilt& own = *static_cast<const Spoilt*>(self->context);
    assay_tensors tensors = *t;
    if (own.spoil != nullptr) own.spoil(tensors);
    return own.right->run(own.right, p, &tensors, plan, stream, error, size);
  };
  const Pipeline& pipeline = std::strcmp(fault.stage, "k_join") == 0 ? kMlaPrefill : kAiterMla;
  std::vector<assay_stage> stages = stages_of(pipeline, assay_cpu::step_kit());
  for (assay_stage& stage : stages)
    if (std::strcmp(stage.name, fault.stage) == 0) stage.kernel = &join.kernel;
  return make_composed(&pipeline, fault.name, "x86-64", std::move(stages), nullptr);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return fault_library::opened<kFaults>(version, "join_faults",
                                        [](assay_kernel& k, const Entry& fault) { k = *made(fault); });
}
