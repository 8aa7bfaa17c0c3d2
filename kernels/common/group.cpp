// SPDX-License-Identifier: Apache-2.0
// See group.hpp. One process is one rank, so the group belongs to the process and not to a kernel.
#include "kernels/common/group.hpp"

#include "kernels/common/operands.hpp"
#include "kernels/common/stage_list.hpp"

namespace assay_kernels {
namespace {

const assay_group* group = nullptr;
const WideExchanges* wide = nullptr;

int64_t elements(const assay_tensor& t) {
  int64_t count = 1;
  for (int axis = 0; axis < t.rank; ++axis) count *= t.shape[axis];
  return count;
}

bool is_dense(const assay_tensor& t) {
  int64_t packed = 1;
  for (int axis = t.rank - 1; axis >= 0; packed *= t.shape[axis--])
    if (t.shape[axis] != 1 && t.stride[axis] != packed) return false;
  return true;
}

HeadRows head_rows(const assay_tensor& t) {
  const int64_t width = element_bytes(t.format);
  return {t.data, t.shape[0], t.shape[1], t.shape[2] * width, t.stride[0] * width, t.stride[1] * width};
}

RankParts rank_parts(const assay_tensor& part) {
  return {part.shape[1] * part.shape[2], static_cast<int32_t>(part.shape[3]),
          static_cast<const float*>(part.data)};
}

// A step that is called outside of a group has served nobody yet, and may refuse.
int alone(char* error, size_t size) {
  return say(ASSAY_UNSUPPORTED,
             "required ranks, supported in processes that joined a group, missing the group", error, size);
}

int all_gather(const assay_kernel*, const assay_problem*, const assay_tensors* t, assay_plan*, void* stream,
               char* error, size_t size) {
  if (group == nullptr) return alone(error, size);
  if (!is_dense(t->source)) return wide->gather_rows(head_rows(t->source), t->o.data, stream, error, size);
  return group->all_gather(group, t->source.data, t->o.data,
                           elements(t->source) * element_bytes(t->source.format), stream, error, size);
}

int reduce_scatter(const assay_kernel*, const assay_problem*, const assay_tensors* t, assay_plan*,
                   void* stream, char* error, size_t size) {
  if (group == nullptr) return alone(error, size);
  if (t->partial_lse.data != nullptr) {
    RankParts parts = rank_parts(t->partial_o);
    parts.lse = static_cast<const float*>(t->partial_lse.data);
    parts.out = static_cast<float*>(t->o.data), parts.total = static_cast<float*>(t->lse.data);
    return wide->sum_parts(parts, stream, error, size);
  }
  return group->reduce_scatter(group, static_cast<const float*>(t->partial_o.data),
                               static_cast<float*>(t->o.data), elements(t->o), stream, error, size);
}

constexpr assay_kernel exchange(const char* name, const char* what, decltype(assay_kernel::run) run) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = what, k.arch = "", k.op = 0;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  k.supports = supports_all, k.run = run;
  return k;
}

}  // namespace

int join_group(const assay_group* joined, char* error, size_t size, const WideExchanges* exchanges) {
  if (joined == nullptr || joined->struct_size < sizeof(assay_group) || joined->ranks < 1 ||
      joined->rank < 0 || joined->rank >= joined->ranks || joined->all_gather == nullptr ||
      joined->reduce_scatter == nullptr)
    return say(ASSAY_INVALID_ARGUMENT, "a group without ranks or without its exchanges", error, size);
  group = joined, wide = exchanges;
  return ASSAY_OK;
}

const assay_group* joined_group() { return group; }

bool gathers_rows(const assay_tensor& source) {
  return wide != nullptr && source.stride[2] == 1 && wide->takes_rows(head_rows(source));
}
bool sums_parts(const assay_tensor& partial_o) {
  return wide != nullptr && wide->takes_parts(rank_parts(partial_o));
}

constinit const assay_kernel kAllGather = exchange("all_gather", "what every rank has, to all", all_gather);
constinit const assay_kernel kReduceScatter =
    exchange("reduce_scatter", "sums over ranks, to each its part", reduce_scatter);

}  // namespace assay_kernels
