// SPDX-License-Identifier: Apache-2.0
// See checked.hpp.
#include "kernels/emulator/checked.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <list>
#include <stdexcept>
#include <utility>

#include "kernels/common/operands.hpp"
#include "kernels/device/library.hpp"

namespace gpu::emulator {
namespace {

struct Operand {
  const char* name;
  assay_tensor assay_tensors::*tensor;
};
#define ASSAY_OPERAND(name) \
  { #name, &assay_tensors::name }
constexpr Operand kOperands[] = {
    ASSAY_OPERAND(q),
    ASSAY_OPERAND(k),
    ASSAY_OPERAND(v),
    ASSAY_OPERAND(o),
    ASSAY_OPERAND(lse),
    ASSAY_OPERAND(q_scale),
    ASSAY_OPERAND(k_scale),
    ASSAY_OPERAND(v_scale),
    ASSAY_OPERAND(cu_q),
    ASSAY_OPERAND(cu_kv),
    ASSAY_OPERAND(kv_len),
    ASSAY_OPERAND(block_table),
    ASSAY_OPERAND(indptr),
    ASSAY_OPERAND(indices),
    ASSAY_OPERAND(last_page_len),
    ASSAY_OPERAND(alibi_slopes),
    ASSAY_OPERAND(sinks),
    ASSAY_OPERAND(tree_mask),
    ASSAY_OPERAND(tree_indptr),
    ASSAY_OPERAND(workspace),
    ASSAY_OPERAND(partial_o),
    ASSAY_OPERAND(partial_lse),
    ASSAY_OPERAND(dense_k),
    ASSAY_OPERAND(dense_v),
    ASSAY_OPERAND(slot_mapping),
    ASSAY_OPERAND(seq_starts),
    ASSAY_OPERAND(token_to_batch),
    ASSAY_OPERAND(source),
    ASSAY_OPERAND(first_key),
    ASSAY_OPERAND(positions),
    ASSAY_OPERAND(context_len),
    ASSAY_OPERAND(out_len),
    ASSAY_OPERAND(out_cu_q),
    ASSAY_OPERAND(out_cu_kv),
    ASSAY_OPERAND(out_starts),
    ASSAY_OPERAND(out_table),
    ASSAY_OPERAND(out_indices),
    ASSAY_OPERAND(out_request),
    ASSAY_OPERAND(out_counts),
    ASSAY_OPERAND(work_indptr),
    ASSAY_OPERAND(work_info),
    ASSAY_OPERAND(reduce_indptr),
    ASSAY_OPERAND(reduce_final_map),
    ASSAY_OPERAND(reduce_partial_map),
    ASSAY_OPERAND(dense_k_scale),
    ASSAY_OPERAND(dense_v_scale),
    ASSAY_OPERAND(encoder_len),
    ASSAY_OPERAND(slot_map),
    ASSAY_OPERAND(rope),
};
#undef ASSAY_OPERAND
static_assert(std::size(kOperands) * sizeof(assay_tensor) ==
                  sizeof(assay_tensors) - offsetof(assay_tensors, q),
              "what has no region here is out of bounds");

check::Role role_of(const assay_tensor& t) {
  switch (t.role) {
    case ASSAY_ROLE_OUT:
      return check::Role::kOutput;
    case ASSAY_ROLE_IN_OUT:  // neighbours of what is written, in a 16-byte word, may be read
      return check::Role::kUpdated;
    default:
      return check::Role::kInput;
  }
}

// A kernel under the checker. Its other functions are the original's, and so is its context.
struct Checked : assay_kernel {
  const assay_kernel* original;
};

// While a call is captured its launches are kept, and what the checker must know about them with them.
template <class Work>
int with_regions(const assay_kernel& k, const assay_problem* p, const assay_tensors* t, void* stream,
                 const Work& work) {
  if (p == nullptr || t == nullptr) return work();
  const int64_t zeroed = k.workspace_zeroed_bytes != nullptr ? k.workspace_zeroed_bytes(&k, p) : 0;
  const auto begin = [regions = regions_of(*t, zeroed)] {
    return check::begin_call(regions), emulatorSuccess;
  };
  const auto end = [] { return check::end_call(), emulatorSuccess; };
  if (Recording* const list = recording(stream)) {
    list->push_back({begin});
    const int status = work();
    return list->push_back({end}), status;
  }
  begin();
  const int status = work();
  end();
  return status;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const assay_kernel& k = *static_cast<const Checked*>(self)->original;
  return with_regions(k, p, t, stream, [&] { return k.run(&k, p, t, plan, stream, error, size); });
}

int refresh(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
            void* stream, char* error, size_t size) {
  const assay_kernel& k = *static_cast<const Checked*>(self)->original;
  return with_regions(k, p, t, stream, [&] { return k.refresh(&k, p, t, plan, stream, error, size); });
}

}  // namespace

std::vector<check::Region> regions_of(const assay_tensors& t, int64_t zeroed_bytes) {
  std::vector<check::Region> regions;
  for (const Operand& operand : kOperands) {
    const assay_tensor& view = t.*operand.tensor;
    // A program built against an older header has a shorter table.
    if (reinterpret_cast<const char*>(&view + 1) - reinterpret_cast<const char*>(&t) > t.struct_size)
      continue;
    if (view.data == nullptr) continue;
    int64_t first = 0, last = 0;  // elements
    bool empty = false;
    for (int i = 0; i < view.rank; ++i) {
      empty = empty || view.shape[i] == 0;
      (view.stride[i] < 0 ? first : last) += (view.shape[i] - 1) * view.stride[i];
    }
    if (empty) continue;
    const int64_t scalar = assay_kernels::element_bytes(view.format);
    regions.push_back({static_cast<const unsigned char*>(view.data) + first * scalar,
                       static_cast<size_t>((last - first + 1) * scalar), role_of(view),
                       static_cast<size_t>(scalar), operand.name});
    if (operand.tensor != &assay_tensors::workspace || zeroed_bytes <= 0) continue;
    const check::Region whole = regions.back();
    const size_t zeroed = std::min(whole.bytes, static_cast<size_t>(zeroed_bytes));
    regions.back().bytes = zeroed, regions.back().role = check::Role::kUpdated;
    regions.push_back({whole.begin + zeroed, whole.bytes - zeroed, whole.role, whole.scalar, whole.name});
  }
  return regions;
}

std::vector<const assay_kernel*> checked(std::vector<const assay_kernel*> kernels) {
  if constexpr (!kChecked) return kernels;
  static std::vector<Checked> wrapped;
  wrapped.clear();
  wrapped.reserve(kernels.size());  // addresses stay
  std::vector<const assay_kernel*> list;
  for (const assay_kernel* kernel : kernels) {
    if (kernel->stage_count > 0) continue;
    Checked& checked = wrapped.emplace_back(Checked{*kernel, kernel});
    checked.run = run;
    if (kernel->refresh != nullptr) checked.refresh = refresh;
    list.push_back(&checked);
  }
  // Kernels made of kernels launch nothing themselves: their stages are watched, each with its own operands.
  for (const assay_kernel* kernel : kernels) {
    if (kernel->stage_count == 0) continue;
    std::vector<assay_stage> stages(kernel->stages, kernel->stages + kernel->stage_count);
    for (assay_stage& stage : stages)
      for (const Checked& k : wrapped)
        if (k.original == stage.kernel) stage.kernel = &k;
    const assay_kernel* made = nullptr;
    char why[200] = "";
    if (kernel->with_stages(kernel, kernel->name, stages.data(), kernel->stage_count, &made, why,
                            sizeof why) != ASSAY_OK)
      throw std::logic_error(why);
    list.push_back(made);
  }
  return list;
}

}  // namespace gpu::emulator

const assay_kernel* assay_gpu::watched(const assay_kernel* kernel) {
  using namespace gpu::emulator;
  if constexpr (!kChecked) return kernel;
  static std::list<Checked> all;  // addresses stay
  Checked& checked = all.emplace_back(Checked{*kernel, kernel});
  checked.run = run;
  return &checked;
}
