// SPDX-License-Identifier: Apache-2.0
// See step_stages.hpp.
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {

Part everything(const Calls& c) {
  const assay_problem& p = c.problem();
  return {0, p.requests, 0, p.total_q, c.tensors().cu_q};
}

std::string requests_text(const assay_problem& p, int32_t first, int32_t count, const char* what) {
  int64_t rows = 0;
  for (int32_t r = first; r < first + count; ++r) rows += p.q_len[r];
  return std::string(what) + ", " + std::to_string(count) + " of " + std::to_string(p.requests) +
         " requests, " + std::to_string(rows) + " rows";
}

void only_causal(const assay_problem& p, bool caps) {
  if (p.mask != ASSAY_MASK_CAUSAL) refuse("drafts of a tree", "a causal mask");
  if (p.chunk > 0) refuse("local attention in chunks", "none");
  if (p.window_left >= 0 || p.window_right >= 0) refuse("a window", "none");
  if (p.alibi != ASSAY_ALIBI_NONE) refuse("a bias", "none");
  if (p.softcap > 0 && !caps) refuse("a soft cap", "none");
  if (p.has_sinks != 0) refuse("sinks", "none");
}

void add_write(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  if (p.no_write != 0) return;
  const bool cross = p.mask == ASSAY_MASK_CROSS;
  const int64_t keys = cross ? p.total_kv : p.total_q;
  if (keys == 0) return;
  StageCall& write = c.add("write", std::to_string(keys) + (cross ? " keys of encoders" : " new keys"));
  if (cross) {
    const std::vector<int32_t> lengths(p.kv_len, p.kv_len + p.requests);
    write.set_lengths(lengths, lengths);
    write.problem.mask = ASSAY_MASK_CAUSAL;  // an op without a mask
  }
  write.problem.rows = keys + p.rows - p.total_q;  // with those behind the last request: their slots say so
  write.tensors.dense_k = t.dense_k, write.tensors.dense_v = t.dense_v;
  write.tensors.dense_k_scale = t.dense_k_scale, write.tensors.dense_v_scale = t.dense_v_scale;
  write.tensors.slot_mapping = t.slot_mapping;
  write.tensors.k = t.k, write.tensors.v = t.v;
  write.tensors.k_scale = t.k_scale, write.tensors.v_scale = t.v_scale;
}

void take_lengths(const Calls& c, StageCall& call, int32_t first, int32_t count) {
  const assay_problem& p = c.problem();
  call.set_lengths({p.q_len + first, p.q_len + first + count}, {p.kv_len + first, p.kv_len + first + count});
}

void take_cache(const Calls& c, StageCall& call, int32_t first, int32_t count) {
  const assay_tensors& t = c.tensors();
  take_lengths(c, call, first, count);
  call.tensors.k = read_only(t.k), call.tensors.v = read_only(t.v);
  call.tensors.k_scale = read_only(t.k_scale), call.tensors.v_scale = read_only(t.v_scale);
  call.tensors.kv_len = slice(t.kv_len, first, count);
  call.tensors.block_table = slice(t.block_table, first, count);
  call.tensors.indptr = slice(t.indptr, first, count + 1), call.tensors.indices = t.indices;
  call.tensors.last_page_len = slice(t.last_page_len, first, count);
}

void read_tables(const Calls& c, StageCall& call) {
  const assay_tensors& t = c.tensors();
  call.tensors.cu_q = t.cu_q, call.tensors.kv_len = t.kv_len;
  call.tensors.block_table = t.block_table, call.tensors.indptr = t.indptr, call.tensors.indices = t.indices;
}

void take_made(const Calls& c, StageCall& call, int64_t count, int32_t rows, int32_t keys, int32_t kind,
               const assay_tensor& starts, const assay_tensor& lengths, const assay_tensor& table) {
  const assay_problem& p = c.problem();
  take_cache(c, call, 0, p.requests);
  call.tensors.indptr = call.tensors.indices = call.tensors.last_page_len = assay_tensor{};
  call.set_lengths(std::vector<int32_t>(static_cast<size_t>(count), rows),
                   std::vector<int32_t>(static_cast<size_t>(count), keys));
  call.problem.total_q = call.problem.rows = p.total_q;
  call.problem.table = kind, call.problem.positions = nullptr;
  call.tensors.cu_q = read_only(starts), call.tensors.kv_len = read_only(lengths);
  call.tensors.block_table = read_only(table);
}

void ask_no_lse(Calls& c, StageCall& call) {
  call.tensors.lse = assay_tensor{};
  if ((call.kernel->promises & ASSAY_PROMISE_LSE_OPTIONAL) == 0)
    call.tensors.lse = c.room(ASSAY_FP32, {call.problem.total_q, call.problem.heads_q});
}

void take_rows(const Calls& c, StageCall& call, const Part& part) {
  const assay_tensors& t = c.tensors();
  const int32_t kind = c.problem().q_scale_kind;
  call.tensors.q = slice(t.q, part.row, part.rows);
  call.tensors.q_scale = t.q_scale;
  if (kind == ASSAY_SCALE_TOKEN_HEAD) call.tensors.q_scale = slice(t.q_scale, part.row, part.rows);
  if (kind == ASSAY_SCALE_REQUEST_HEAD) call.tensors.q_scale = slice(t.q_scale, part.first, part.count);
  call.tensors.alibi_slopes = t.alibi_slopes, call.tensors.sinks = t.sinks;
}

}  // namespace assay_kernels
