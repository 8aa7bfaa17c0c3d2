// SPDX-License-Identifier: Apache-2.0
// See join_stages.hpp.
#include "kernels/common/join_stages.hpp"

#include <string>

#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

std::string heads_text(int32_t heads, int32_t as) {
  return heads == as ? std::to_string(heads) + " heads"
                     : std::to_string(heads) + " heads as " + std::to_string(as);
}

// Scales of each head of Q, of as many heads; others are for all.
assay_tensor more_scales(Calls& c, const assay_problem& p, const assay_tensors& t, int32_t heads) {
  const bool rows = p.q_scale_kind == ASSAY_SCALE_TOKEN_HEAD, dims = p.q_scale_kind == ASSAY_SCALE_CHANNEL;
  if (!rows && !dims && p.q_scale_kind != ASSAY_SCALE_HEAD) return t.q_scale;
  // [heads], [heads, dims] or [rows, heads] as [rows, heads, dims].
  assay_tensor from = read_only(t.q_scale);
  const int64_t row = rows ? from.stride[0] : 0, head = from.stride[rows ? 1 : 0], dim = from.stride[1];
  const int64_t count = rows ? p.total_q : 1, width = dims ? p.head_dim_qk : 1;
  from.format = ASSAY_FP32, from.rank = 3;
  from.shape[0] = count, from.shape[1] = p.heads_q, from.shape[2] = width;
  from.stride[0] = row, from.stride[1] = head, from.stride[2] = dims ? dim : 1;
  StageCall& call = c.add("q_heads", "scales of " + heads_text(p.heads_q, heads));
  call.tensors.source = from;
  if (rows) call.tensors.cu_q = t.cu_q;
  call.tensors.o = c.room(ASSAY_FP32, {count, heads, width});
  assay_tensor made = read_only(call.tensors.o);
  made.rank = rows || dims ? 2 : 1;
  if (!rows)
    for (int axis = 0; axis < 2; ++axis)
      made.shape[axis] = made.shape[axis + 1], made.stride[axis] = made.stride[axis + 1];
  return made;
}

void join_q(Calls& c, int32_t heads) {
  assay_problem p = c.problem();
  assay_tensors t = c.tensors();
  const bool parts = p.two_sources != 0, more = p.heads_q < heads;
  if (!parts && !more) return;
  StageCall& call = c.add("q_heads", heads_text(p.heads_q, heads) + (parts ? ", latent and rope part" : ""));
  call.tensors.source = slice(t.q, 0, p.total_q);
  if (parts) call.tensors.rope = slice(t.rope, 0, p.total_q);
  call.tensors.cu_q = t.cu_q;
  call.tensors.o = c.room(p.q_format, {p.total_q, heads, p.head_dim_qk});
  t.q = read_only(call.tensors.o), t.rope = assay_tensor{};
  if (more) t.q_scale = more_scales(c, p, t, heads);
  if (more) t.o = c.room(p.o_format, {p.total_q, heads, p.head_dim_v});
  p.heads_q = heads, p.two_sources = 0;
  c.goes_on_as(p, t);
}

void join_k(Calls& c) {
  assay_problem p = c.problem();
  assay_tensors t = c.tensors();
  if (p.two_sources == 0) return;
  StageCall& call = c.add("k_join", std::to_string(p.heads_kv) + " heads, one rope part for all");
  call.tensors.source = t.dense_k, call.tensors.rope = t.rope;
  call.tensors.cu_q = t.cu_q;
  call.tensors.o = c.room(p.source_format, {p.rows, p.heads_kv, p.head_dim_qk});
  t.dense_k = read_only(call.tensors.o), t.rope = assay_tensor{};
  p.two_sources = 0;
  c.goes_on_as(p, t);
}

}  // namespace

void join_sources(Calls& c, int32_t heads) {
  if (c.problem().total_q == 0) return;
  if (c.problem().layout == ASSAY_LAYOUT_MLA) return join_q(c, heads);
  join_k(c);
}

void take_heads(Calls& c, const assay_tensor& o, int32_t heads) {
  const assay_problem& p = c.problem();
  if (p.heads_q == heads) return;
  StageCall& call = c.add("o_heads", heads_text(p.heads_q, heads));
  call.tensors.source = read_only(c.tensors().o);
  call.tensors.cu_q = c.tensors().cu_q;
  call.tensors.o = slice(o, 0, p.total_q);
}

}  // namespace assay_kernels
