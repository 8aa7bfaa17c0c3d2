// SPDX-License-Identifier: Apache-2.0
// The step of vLLM's AITER latent attention where heads are absorbed (scenarios/SEED_COVERAGE.md, 004): new
// latent rows into the cache, its pages seen as pages of one token at every page size, and all heads on one
// key:
//
//   q_heads  Q of two tensors as one, fewer than 16 heads so often each that there are 16
//   decode   one row a request: up to 16 parts of the keys, shared out evenly, and their merge; or, with a
//            kernel of op persistent_paged in this place, by a schedule and a reduce
//   extend   several rows: one call over the same list of tokens
//   o_heads  of 16 heads that were fewer, one of each
//
// Between parts and merge stands fp32. Not as there: starts count the rows there are. A schedule is made in
// the step that follows it, and for one row a request alone. Rows of unfolded heads are kAiterMlaPrefill's.
#include <algorithm>

#include "kernels/common/chunked_context.hpp"
#include "kernels/common/join_stages.hpp"
#include "kernels/common/scheduled_stages.hpp"

namespace assay_kernels {
namespace {

constexpr int32_t kTileHeads = 16, kMostParts = 16, kFewestKeys = 256;
constexpr TileShape kDecodeTile = {1, 16};

void check(const assay_problem& p) {
  const int32_t h = p.heads_q;
  if (p.layout != ASSAY_LAYOUT_MLA) refuse("keys with their heads unfolded", "latent keys (layout mla)");
  if (h % kTileHeads != 0 && kTileHeads % h != 0)
    refuse(std::to_string(h) + " heads", "multiples and divisors of 16");
  only_causal(p);
}

// [blocks, page, dim] as [blocks * page, 1, dim].
assay_tensor by_token(const assay_tensor& cache) {
  assay_tensor t = read_only(cache);
  if (t.data == nullptr) return t;
  if (t.rank != 3 || t.stride[0] != t.shape[1] * t.stride[1])
    refuse("blocks of a cache apart from each other", "blocks one behind the other");
  t.shape[0] *= t.shape[1], t.shape[1] = 1, t.stride[0] = t.stride[1];
  return t;
}

// All rows over the cache by the list of its tokens.
StageCall& attend(Calls& c, const char* stage, const std::string& what, const StageCall& list) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add(stage, what);
  take_cache(c, call, 0, p.requests);
  take_rows(c, call, everything(c));
  call.problem.table = ASSAY_TABLE_CSR, call.problem.page_size = 1;
  call.tensors.k = by_token(c.tensors().k), call.tensors.v = by_token(c.tensors().v);
  call.tensors.block_table = call.tensors.last_page_len = assay_tensor{};
  call.tensors.indptr = read_only(list.tensors.out_cu_kv);
  call.tensors.indices = read_only(list.tensors.out_indices);
  call.tensors.cu_q = c.tensors().cu_q;
  return call;
}

// The step of as many heads as there are now.
void attend_all(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  StageCall& list = c.add("tokens", "pages of " + std::to_string(p.page_size) + " as " +
                                        std::to_string(p.total_kv) + " of one token");
  list.tensors.kv_len = t.kv_len, list.tensors.block_table = t.block_table;
  list.tensors.indptr = t.indptr, list.tensors.indices = t.indices;
  list.tensors.out_cu_kv = c.room(ASSAY_INT32, {int64_t{p.requests} + 1});
  list.tensors.out_indices = c.room(ASSAY_INT32, {std::max<int64_t>(1, p.total_kv)});

  const std::string what = requests_text(p, 0, p.requests, "all requests");
  const int32_t op = p.max_q_len <= 1 ? c.at("decode").op : c.at("extend").op;
  if (op == ASSAY_OP_PERSISTENT_PAGED) {
    const StageCall& schedule = make_schedule(c, what, kDecodeTile, 1);
    return follow_schedule(c, what, attend(c, "decode", what, list), schedule);
  }
  const bool parts = op == ASSAY_OP_DECODE_SPLITKV;
  if (!parts) {
    StageCall& call = attend(c, p.max_q_len <= 1 ? "decode" : "extend", what, list);
    call.tensors.o = t.o;
    return ask_no_lse(c, call);
  }
  const int32_t states = std::clamp((p.max_kv_len - 1) / kFewestKeys + 1, 1, kMostParts);
  StageCall& call = attend(c, "decode", what + ", " + std::to_string(states) + " parts", list);
  const Planes planes = {c.room(ASSAY_FP32, {states, p.total_q, p.heads_q, p.head_dim_v}),
                         c.room(ASSAY_FP32, {states, p.total_q, p.heads_q})};
  call.problem.states = states, call.problem.part_tokens = 0, call.problem.o_format = ASSAY_FP32;
  call.tensors.partial_o = planes.o, call.tensors.partial_lse = planes.lse;
  merge(c, what, everything(c), planes, 0, 1, states, t.o, c.room(ASSAY_FP32, {p.total_q, p.heads_q}));
  c.parts = std::max(2, states), c.partial_format = ASSAY_FP32;
}

void add_calls(Calls& c) {
  const assay_tensor o = c.tensors().o;
  const int32_t heads = c.problem().heads_q;
  check(c.problem());
  if (c.problem().total_q == 0) return;
  add_write(c);
  join_sources(c, std::max(heads, kTileHeads));
  attend_all(c);
  take_heads(c, o, heads);
}

constexpr StagePlace kPlaces[] = {
    {"write", {ASSAY_OP_CACHE_WRITE}},
    {"tokens", {ASSAY_OP_EXPAND_PAGES}},
    {"decode", {ASSAY_OP_DECODE_SPLITKV, ASSAY_OP_PAGED, ASSAY_OP_PERSISTENT_PAGED}},
    {"merge", {ASSAY_OP_MERGE_STATES}},
    {"extend", {ASSAY_OP_PAGED}, Role::kFewRows},
    {"schedule", {ASSAY_OP_PS_METADATA}},
    {"reduce", {ASSAY_OP_REDUCE}},
    kJoinQ,
    kTakeO};

}  // namespace

constinit const Pipeline kAiterMla = {
    .description = "vLLM's AITER latent attention: absorbed heads over a list of tokens",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH,
    .takes = kTakesPairs,
};

}  // namespace assay_kernels
