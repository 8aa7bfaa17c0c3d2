// SPDX-License-Identifier: Apache-2.0
// The prefill of vLLM's AITER latent attention, its heads unfolded (scenarios/SEED_COVERAGE.md, 004): with an
// fp8 cache and without context, rows by a schedule for workers that stay; otherwise as kMlaPrefill does it.
//
//   k_join                   new keys with the rope part that all heads share behind them
//   q_cast, k_cast, v_cast   to the codes of the cache; Q, where it has none, by a scale of 1
//   schedule                 tiles of 256 rows, cut at every 128 keys, over all workers
//   tiles, reduce            whole tiles straight into O, the others from parts
//
// Not as there: partial results are as many as the schedule can leave, two a worker, and not counted in a
// buffer that is sized for another batch; K and V have the scales of the cache, so that what is attended is
// what later steps read.
#include "kernels/common/chunked_context.hpp"
#include "kernels/common/join_stages.hpp"
#include "kernels/common/scheduled_stages.hpp"

namespace assay_kernels {
namespace {

constexpr TileShape kTile = {256, 128};

bool is_fp8(int32_t format) { return format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ; }
// Scales that casts find given, in the same shape for the cache and for rows.
bool is_given(int32_t kind) {
  return kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST || kind == ASSAY_SCALE_HEAD ||
         kind == ASSAY_SCALE_CHANNEL;
}

// Why rows do not go by a schedule; null: they do.
const char* falls_back(const assay_problem& p) {
  for (int32_t r = 0; r < p.requests; ++r)
    if (p.kv_len[r] > p.q_len[r]) return "context";
  if (p.no_write != 0) return "keys of another layer";
  if (!is_fp8(p.k_format) || p.k_format != p.v_format) return "a cache that is not fp8";
  return is_given(p.k_scale_kind) && is_given(p.v_scale_kind) ? nullptr : "scales that the step computes";
}

void check(const assay_problem& p) {
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("latent keys", "keys with their heads unfolded");
  only_causal(p);
}

// Rows as codes of K's format.
assay_tensor cast(Calls& c, const char* stage, const assay_tensor& rows, int32_t heads, int32_t dim,
                  int32_t kind, float host, const assay_tensor& scale) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add(stage, std::to_string(p.total_q) + " rows to fp8");
  assay_problem& own = call.problem;
  own.heads_q = heads, own.head_dim_qk = own.head_dim_v = dim;
  own.source_format = rows.format, own.q_format = p.k_format;
  own.q_scale_kind = kind, own.q_scale_host = host;
  call.tensors.source = slice(read_only(rows), 0, p.total_q), call.tensors.cu_q = c.tensors().cu_q;
  call.tensors.q_scale = read_only(scale);
  return call.tensors.q = c.room(p.k_format, {p.total_q, heads, dim});
}

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  check(p);
  if (p.total_q == 0) return;
  join_sources(c);
  if (falls_back(p) != nullptr) {
    if (!plain(p.q_format)) refuse(std::string("quantised Q beside ") + falls_back(p), "fp32 bf16 fp16");
    add_write(c);
    return attend_all_in_chunks(c);
  }
  add_write(c);
  const bool casts = plain(p.q_format);
  const assay_tensor q =
      casts ? cast(c, "q_cast", t.q, p.heads_q, p.head_dim_qk, ASSAY_SCALE_HOST, 1, {}) : t.q;
  const assay_tensor k =
      cast(c, "k_cast", t.dense_k, p.heads_kv, p.head_dim_qk, p.k_scale_kind, p.k_scale_host, t.k_scale);
  const assay_tensor v =
      cast(c, "v_cast", t.dense_v, p.heads_kv, p.head_dim_v, p.v_scale_kind, p.v_scale_host, t.v_scale);
  const std::string what = requests_text(p, 0, p.requests, "all requests");
  const StageCall& schedule = make_schedule(c, what, kTile, p.heads_kv);
  StageCall& call = attend_dense(c, "tiles", what, everything(c), {p.kv_len, p.kv_len + p.requests}, k, v,
                                 t.cu_q, t.kv_len);
  call.problem.k_scale_kind = p.k_scale_kind, call.problem.v_scale_kind = p.v_scale_kind;
  call.tensors.k_scale = read_only(t.k_scale), call.tensors.v_scale = read_only(t.v_scale);
  if (casts) {
    call.tensors.q = read_only(q);
    call.problem.q_format = p.k_format;
    call.problem.q_scale_kind = ASSAY_SCALE_HOST, call.problem.q_scale_host = 1;
    c.cast_q = p.k_format;
  }
  follow_schedule(c, what, call, schedule);
}

constexpr StagePlace kScheduled[] = {
    {"write", {ASSAY_OP_CACHE_WRITE}},    {"q_cast", {ASSAY_OP_QUANTIZE_INT8}},
    {"k_cast", {ASSAY_OP_QUANTIZE_INT8}}, {"v_cast", {ASSAY_OP_QUANTIZE_INT8}},
    {"schedule", {ASSAY_OP_PS_METADATA}}, {"tiles", {ASSAY_OP_PERSISTENT_PREFILL}},
    {"reduce", {ASSAY_OP_REDUCE}}};
constexpr StagePlace kOwn[] = {kJoinK};
constexpr auto kPlaces = all_places(kScheduled, kNewPlaces, kChunkPlaces, kOwn);

}  // namespace

constinit const Pipeline kAiterMlaPrefill = {
    .description = "vLLM's AITER latent attention: prefill in fp8 by a schedule, or in chunks",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE,
    .takes = kTakesPairs,
};

}  // namespace assay_kernels
