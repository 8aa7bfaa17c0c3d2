// SPDX-License-Identifier: Apache-2.0
// The step of vLLM's AITER flash attention (scenarios/SEED_COVERAGE.md, 000): a batch in the order decode,
// extend, prefill, each part its own way over a slice of the operands.
//
//   prefill   dense attention of the new keys
//   extend    dense attention of the new keys, then the context in chunks of a token budget: gathered from
//   the
//             cache, attended without a mask, merged one after the other, and at last with the new keys
//   extend with a window, or ALiBi: one gather of the keys that the window shows, dense attention of those. A
//             bias needs the positions of a chunk's keys, which the seed's chunks do not carry, so it takes
//             the whole context at once
//   decode    parts of 256 keys over the cache and their merge; one call over the cache where there are
//             windows, several rows of a request, heads below 64 or a shuffled cache
//
// What is passed on between stages has Q's format, as there; soft caps hold in every branch, as there not.
#include <algorithm>
#include <vector>

#include "kernels/common/chunked_context.hpp"
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

constexpr int32_t kPartKeys = 256;
constexpr int32_t kSmallestSplitHead = 64;
enum Group { kDecode, kExtend, kPrefill, kGroups };

Group group_of(const assay_problem& p, int32_t r) {
  if (p.q_len[r] <= p.threshold) return kDecode;
  return p.kv_len[r] > p.q_len[r] ? kExtend : kPrefill;
}

// The parts of a batch; a batch in another order is refused.
void find_parts(const assay_problem& p, Part (&parts)[kGroups]) {
  int64_t row = 0;
  Group last = kDecode;
  for (int32_t r = 0; r < p.requests; ++r) {
    const Group g = group_of(p, r);
    if (g < last) refuse("requests in another order", "decodes first, then extends, then prefills");
    last = g;
    if (parts[g].count++ == 0) parts[g].first = r, parts[g].row = row;
    parts[g].rows += p.q_len[r];
    row += p.q_len[r];
  }
}

void check(const assay_problem& p, const Part (&parts)[kGroups]) {
  if (p.mask != ASSAY_MASK_CAUSAL) refuse("drafts of a tree", "a causal mask");
  if (p.chunk > 0) refuse("local attention in chunks", "none");
  if (p.has_sinks != 0) refuse("sinks", "none");
  if (p.prefix_tokens > 0) refuse("a cascade over a prefix", "none");
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("layout mla", "layouts with heads of K and V");
  if (!plain(p.q_format)) refuse("quantised Q", "fp32 bf16 fp16");
  if (p.layout != ASSAY_LAYOUT_SHUFFLED || parts[kDecode].rows == 0) return;
  const std::string with = "a shuffled cache with ";
  if (p.window_left >= 0) refuse(with + "a window in decodes", "none");
  if (p.threshold > 1) refuse(with + "decodes of several rows", "decodes of one row");
  if (std::max(p.head_dim_qk, p.head_dim_v) < kSmallestSplitHead)
    refuse(with + "heads below 64 in decodes", "64 dimensions and more");
}

// Starts of every group, rebased to 0.
void split(Calls& c, Part (&parts)[kGroups]) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  for (Part& part : parts)
    if (part.count == p.requests) {  // nothing to rebase
      part.starts = t.cu_q;
      return;
    }
  StageCall& call = c.add("split", std::to_string(p.requests) + " requests");
  const int64_t requests = p.requests;
  call.tensors.cu_q = t.cu_q, call.tensors.kv_len = t.kv_len;
  call.tensors.out_len = c.room(ASSAY_INT32, {requests});
  call.tensors.out_cu_q = c.room(ASSAY_INT32, {requests + kGroups});
  call.tensors.out_cu_kv = c.room(ASSAY_INT32, {requests + kGroups});
  call.tensors.out_request = c.room(ASSAY_INT32, {requests});
  call.tensors.out_counts = c.room(ASSAY_INT32, {kGroups, 5});
  const assay_tensor starts = read_only(call.tensors.out_cu_q);
  for (int32_t g = 0; g < kGroups; ++g)
    parts[g].starts = slice(starts, parts[g].first + g, parts[g].count + 1);
  // An empty group has no first request: its one entry stands behind those before it, and nobody reads it.
}

void prefill(Calls& c, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  StageCall& call = attend_dense(c, "prefill", requests_text(p, part.first, part.count, "prefills"), part,
                                 {p.q_len + part.first, p.q_len + part.first + part.count},
                                 slice(t.dense_k, part.row, part.rows), slice(t.dense_v, part.row, part.rows),
                                 part.starts, slice(t.kv_len, part.first, part.count));
  call.tensors.o = slice(t.o, part.row, part.rows);
  ask_no_lse(c, call);
  c.dense_new_keys |= ASSAY_REQUEST_PREFILL;
}

// One gather of what the window shows, new keys with it.
void extend_window(Calls& c, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  std::vector<int32_t> tokens;
  int64_t sum = 0;
  for (int32_t r = part.first; r < part.first + part.count; ++r) {
    const int64_t shown = p.window_left < 0 ? p.kv_len[r] : int64_t{p.q_len[r]} + p.window_left + 1;
    tokens.push_back(static_cast<int32_t>(std::min<int64_t>(p.kv_len[r], shown)));
    sum += tokens.back();
  }
  const std::string what =
      requests_text(p, part.first, part.count, "extends") + ", last " + std::to_string(sum) + " keys of them";
  StageCall& list = list_keys(c, "window", what, part, p.window_left, sum);
  const assay_tensor k = c.room(gathered_format(p), {sum, p.heads_kv, p.head_dim_qk}),
                     v = c.room(gathered_format(p), {sum, p.heads_kv, p.head_dim_v});
  const assay_tensor cu = read_only(list.tensors.out_cu_kv),
                     lengths = entry_of(read_only(list.tensors.out_len), 0);
  gather(c, what, part, tokens, cu, read_only(list.tensors.out_starts), read_only(list.tensors.out_request),
         k, v);
  StageCall& call = attend_dense(c, "extend", what, part, tokens, k, v, cu, lengths);
  if (p.window_left >= 0) call.keys_from = StageCall::kPickedKeys;
  call.tensors.o = slice(t.o, part.row, part.rows);
  ask_no_lse(c, call);
}

void extend(Calls& c, const Part& part) {
  attend_in_chunks(c, part, {"extend", "window", "extends"});
  c.dense_new_keys |= ASSAY_REQUEST_EXTEND, c.chained = ASSAY_REQUEST_EXTEND;
}

void decode(Calls& c, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  int32_t most_rows = 0, most_keys = 1;
  for (int32_t r = part.first; r < part.first + part.count; ++r)
    most_rows = std::max(most_rows, p.q_len[r]), most_keys = std::max(most_keys, p.kv_len[r]);
  const bool whole = p.window_left >= 0 || most_rows > 1 || p.layout == ASSAY_LAYOUT_SHUFFLED ||
                     std::max(p.head_dim_qk, p.head_dim_v) < kSmallestSplitHead;
  const char* stage = whole ? "unified" : "decode";
  const std::string what = requests_text(p, part.first, part.count, "decodes");
  const bool parts = c.at(stage).op == ASSAY_OP_DECODE_SPLITKV;
  const int32_t states = (most_keys - 1) / kPartKeys + 1;
  StageCall& call = c.add(stage, parts ? what + ", " + std::to_string(states) + " parts of 256 keys" : what);
  take_cache(c, call, part.first, part.count);
  take_rows(c, call, part);
  call.tensors.cu_q = part.starts;
  if (!parts) {
    call.tensors.o = slice(t.o, part.row, part.rows);
    ask_no_lse(c, call);
    return;
  }
  const Planes planes = {c.room(p.q_format, {states, part.rows, p.heads_q, p.head_dim_v}),
                         c.room(ASSAY_FP32, {states, part.rows, p.heads_q})};
  call.problem.states = states, call.problem.part_tokens = kPartKeys, call.problem.o_format = p.q_format;
  call.tensors.partial_o = planes.o, call.tensors.partial_lse = planes.lse;
  merge(c, what, part, planes, 0, 1, states, slice(t.o, part.row, part.rows),
        c.room(ASSAY_FP32, {part.rows, p.heads_q}));
  c.parts = std::max(c.parts, std::max(2, states)), c.partial_format = p.q_format;
}

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  Part parts[kGroups];
  find_parts(p, parts);
  check(p, parts);
  if (p.total_q == 0) return;
  add_write(c);
  split(c, parts);
  if (parts[kPrefill].rows > 0) prefill(c, parts[kPrefill]);
  if (parts[kExtend].rows > 0)
    p.window_left >= 0 || p.alibi != ASSAY_ALIBI_NONE ? extend_window(c, parts[kExtend])
                                                      : extend(c, parts[kExtend]);
  if (parts[kExtend].rows > 0) c.gathers = ASSAY_REQUEST_EXTEND;
  if (parts[kDecode].rows > 0) decode(c, parts[kDecode]);
}

constexpr StagePlace kBefore[] = {{"write", {ASSAY_OP_CACHE_WRITE}},
                                  {"split", {ASSAY_OP_SPLIT_BATCH}},
                                  {"prefill", {ASSAY_OP_PREFILL}},
                                  {"extend", {ASSAY_OP_PREFILL}},
                                  {"window", {ASSAY_OP_WINDOW_METADATA}}};
constexpr StagePlace kBehind[] = {{"decode", {ASSAY_OP_DECODE_SPLITKV, ASSAY_OP_PAGED}},
                                  {"unified", {ASSAY_OP_PAGED}}};
constexpr auto kPlaces = all_places(kBefore, kChunkPlaces, kBehind);

}  // namespace

constinit const Pipeline kAiterFa = {
    .description = "vLLM's AITER flash attention: decodes, extends in chunks, prefills",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH,
    .contracts = ASSAY_CONTRACT_GRAPH_DECODES,
};

}  // namespace assay_kernels
