// SPDX-License-Identifier: Apache-2.0
// See checked.hpp. The C table gives a run no place for data of its own, so every kernel gets an entry
// function that knows its number.
#include "kernels/emulator/checked.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "kernels/common/operands.hpp"

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
};
#undef ASSAY_OPERAND

check::Role role_of(const assay_problem& p, assay_tensor assay_tensors::*t) {
  using check::Role;
  const auto output = [&](std::initializer_list<assay_tensor assay_tensors::*> list) {
    return std::find(list.begin(), list.end(), t) != list.end() ? Role::kOutput : Role::kInput;
  };
  using T = assay_tensors;
  if (t == &T::workspace) return Role::kOutput;
  switch (p.op) {
    case ASSAY_OP_CACHE_WRITE: {
      const bool k_scales = p.k_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
      const bool v_scales = p.v_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
      // The tokens that were there before stay, and neighbours in a 16-byte word may be read.
      return t == &T::k || t == &T::v || (t == &T::k_scale && k_scales) || (t == &T::v_scale && v_scales)
                 ? Role::kUpdated
                 : Role::kInput;
    }
    case ASSAY_OP_CACHE_GATHER:
      return output({&T::dense_k, &T::dense_v});
    case ASSAY_OP_DECODE_SPLITKV:
      return output({&T::partial_o, &T::partial_lse});
    case ASSAY_OP_QUANTIZE_INT8:
      return p.q_scale_kind == ASSAY_SCALE_TOKEN_HEAD ? output({&T::q, &T::q_scale}) : output({&T::q});
    default:
      return output({&T::o, &T::lse});
  }
}

std::vector<const assay_kernel*>& originals() {
  static std::vector<const assay_kernel*> list;
  return list;
}

template <size_t kIndex>
int run(const assay_problem* p, const assay_tensors* t, assay_plan* plan, void* stream, char* error,
        size_t size) {
  if (p == nullptr || t == nullptr) return originals()[kIndex]->run(p, t, plan, stream, error, size);
  check::begin_call(regions_of(*p, *t));
  const int status = originals()[kIndex]->run(p, t, plan, stream, error, size);
  check::end_call();
  return status;
}

constexpr size_t kMostKernels = 256;
template <size_t... kIndex>
constexpr auto make_entries(std::index_sequence<kIndex...>) {
  return std::array{&run<kIndex>...};
}

}  // namespace

std::vector<check::Region> regions_of(const assay_problem& p, const assay_tensors& t) {
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
                       static_cast<size_t>((last - first + 1) * scalar), role_of(p, operand.tensor),
                       static_cast<size_t>(scalar), operand.name});
  }
  return regions;
}

std::vector<const assay_kernel*> checked(std::vector<const assay_kernel*> kernels) {
  if constexpr (!kChecked) return kernels;
  static constexpr auto kEntries = make_entries(std::make_index_sequence<kMostKernels>());
  static std::vector<assay_kernel> wrapped;
  if (kernels.size() > kMostKernels) throw std::length_error("more kernels than the checker has entries for");
  originals() = kernels;
  wrapped.clear();
  for (size_t i = 0; i < kernels.size(); ++i) {
    wrapped.push_back(*kernels[i]);
    wrapped.back().run = kEntries[i];
  }
  std::vector<const assay_kernel*> list;
  for (const assay_kernel& k : wrapped) list.push_back(&k);
  return list;
}

}  // namespace gpu::emulator
