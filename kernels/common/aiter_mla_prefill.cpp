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
#include "kernels/common/cast_stages.hpp"
#include "kernels/common/chunked_context.hpp"
#include "kernels/common/join_stages.hpp"
#include "kernels/common/scheduled_stages.hpp"

namespace assay_kernels {
namespace {

constexpr TileShape kTile = {256, 128};

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
  if (!is_e4m3(p.k_format) || p.k_format != p.v_format) return "a cache that is not fp8";
  return is_given(p.k_scale_kind) && is_given(p.v_scale_kind) ? nullptr : "scales that the step computes";
}

void check(const assay_problem& p) {
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("latent keys", "keys with their heads unfolded");
  only_causal(p);
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
  if (plain(p.q_format)) cast_q(c);
  const assay_tensor k =
      cast_rows(c, "k_cast", t.dense_k, p.heads_kv, p.head_dim_qk, p.k_scale_kind, p.k_scale_host, t.k_scale);
  const assay_tensor v =
      cast_rows(c, "v_cast", t.dense_v, p.heads_kv, p.head_dim_v, p.v_scale_kind, p.v_scale_host, t.v_scale);
  const std::string what = requests_text(p, 0, p.requests, "all requests");
  const StageCall& schedule = make_schedule(c, what, kTile, p.heads_kv);
  StageCall& call = attend_dense(c, "tiles", what, everything(c), {p.kv_len, p.kv_len + p.requests}, k, v,
                                 t.cu_q, t.kv_len);
  call.problem.k_scale_kind = p.k_scale_kind, call.problem.v_scale_kind = p.v_scale_kind;
  call.tensors.k_scale = read_only(t.k_scale), call.tensors.v_scale = read_only(t.v_scale);
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
