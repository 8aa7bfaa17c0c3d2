// SPDX-License-Identifier: Apache-2.0
// iXFormer's flash attention under decode context parallelism (scenarios/SEED_COVERAGE.md, 002): ranks share
// the keys of every request in turns, and the heads of Q.
//
//   write      the new keys that are this rank's, into its cache
//   lengths    how many keys of each context every rank has: the exact ones; the host's are bounds
//   q_heads    Q head after head
//   gather_q   the heads of all ranks
//   context    rows of all heads over the keys here, no mask (all stand before the rows), with LSE
//   gather_lse the LSE of those parts, of all ranks
//   correct    parts times exp(LSE of the part - LSE of all parts)
//   scatter    sums of those over ranks, to each rank its own heads
//   rows, new  the new keys, as they came, among themselves under a causal mask: every rank has them
//   merge      context with new keys
//
// A group with wide exchanges (group.hpp) does q_heads and gather_q in one, and gather_lse, correct and
// scatter: what is computed is the same.
//
// Exchanges take and give what each rank has in one piece. So heads come before rows, [ranks, heads of a
// rank, T]: what is exchanged are the heads of the step in their order, and one attention works on all of
// them. Refused is what needs to know where a key stands (window, bias, chunks), for a local index says
// nothing of it.
#include <algorithm>

#include "kernels/common/chunked_context.hpp"
#include "kernels/common/group.hpp"
#include "kernels/common/metadata.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

struct Heads {
  int32_t ranks, rank, own, group;  // `own` of Q on a rank, `group` of Q to one of K and V
  int32_t kv() const { return std::max(1, own / group); }
  int32_t first_kv(int32_t of_rank) const { return of_rank * own / group; }
};

Heads check(const assay_problem& p) {
  if (p.mask != ASSAY_MASK_CAUSAL) refuse("drafts of a tree", "a causal mask");
  if (p.window_left >= 0 || p.window_right >= 0) refuse("a window", "none: a rank's keys lie in turns");
  if (p.alibi != ASSAY_ALIBI_NONE) refuse("a bias by distance", "none: a rank's keys lie in turns");
  if (p.chunk > 0) refuse("local attention in chunks", "none");
  if (p.no_write != 0) refuse("no write", "new keys that are written");
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("layout mla", "layouts with heads of K and V");
  if (!plain(p.q_format)) refuse("quantised Q", "fp32 bf16 fp16");
  for (const int32_t kind : {p.k_scale_kind, p.v_scale_kind})
    if (kind == ASSAY_SCALE_TOKEN_HEAD || kind == ASSAY_SCALE_REQUEST_HEAD)
      refuse("scales of tokens or requests", "none, tensor, host, head, channel");
  const assay_group* group = joined_group();
  const std::string ranks = std::to_string(p.ranks) + " ranks";
  if (p.ranks == 1 && p.interleave <= 1) refuse("1 rank", "2 and more, or a group of one (interleave=2)");
  if (p.ranks < 1 || p.heads_q % p.ranks != 0) refuse(ranks, "a number of ranks that divides heads_q");
  if (group != nullptr && group->ranks != p.ranks)
    refuse(ranks, "the " + std::to_string(group->ranks) + " of the group that was joined");
  const Heads h = {p.ranks, group != nullptr ? group->rank : 0, p.heads_q / p.ranks, p.heads_q / p.heads_kv};
  if (h.own % h.group != 0 && h.group % h.own != 0)
    refuse("heads of a rank that end within a group of " + std::to_string(h.group),
           "whole groups, or parts of one");
  return h;
}

assay_tensor narrow(assay_tensor t, int axis, int32_t first, int32_t count) {
  if (t.data == nullptr) return t;
  t.data = static_cast<unsigned char*>(t.data) + first * t.stride[axis] * element_bytes(t.format);
  t.shape[axis] = count;
  return t;
}

// Of a call: heads of Q of one rank, and the heads of K and V that belong to them.
void take_heads(StageCall& call, const Heads& h) {
  call.problem.ranks = call.problem.interleave = 0;
  call.problem.heads_q = h.own, call.problem.heads_kv = h.kv();
}

// [.., heads, rows] or [.., heads, rows, dims] as kernels take it: rows, then heads.
assay_tensor rows_first(assay_tensor t, int heads_axis) {
  std::swap(t.shape[heads_axis], t.shape[heads_axis + 1]);
  std::swap(t.stride[heads_axis], t.stride[heads_axis + 1]);
  return t;
}

StageCall& fresh_keys(Calls& c, const Heads& h, int32_t lane, const assay_tensor& o,
                      const assay_tensor& lse) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const Part all = everything(c);
  StageCall& rows = list_keys(c, "rows", "new keys of all requests", all, 0, p.total_q + p.requests);
  const auto dense = [&](const assay_tensor& x) {
    return narrow(slice(x, 0, p.total_q), 1, h.first_kv(h.rank), h.kv());
  };
  StageCall& call = attend_dense(c, "new", requests_text(p, 0, p.requests, "new keys of all requests"), all,
                                 {p.q_len, p.q_len + p.requests}, dense(t.dense_k), dense(t.dense_v), t.cu_q,
                                 entry_of(read_only(rows.tensors.out_len), 1));
  take_heads(call, h);
  rows.lane = call.lane = lane;
  call.problem.o_format = o.format;
  call.tensors.o = o, call.tensors.lse = lse;
  return call;
}

// The parts of all ranks as one, of this rank's heads.
void add_sum(Calls& c, const Heads& h, const assay_tensor& part_o, const assay_tensor& part_lse,
             const assay_tensor& o, const assay_tensor& lse, const std::string& from_all) {
  const int64_t rows = part_o.shape[2], dims = part_o.shape[3];
  if (sums_parts(part_o)) {
    StageCall& sum = c.add("scatter", "parts and their LSE, corrected sums " + from_all);
    sum.tensors.partial_o = read_only(part_o), sum.tensors.partial_lse = read_only(part_lse);
    sum.tensors.o = o, sum.tensors.lse = lse;
    return;
  }
  StageCall& gather_lse = c.add("gather_lse", "parts " + from_all);
  gather_lse.tensors.source = read_only(part_lse);
  gather_lse.tensors.o = c.room(ASSAY_FP32, {h.ranks, h.ranks, h.own, rows});

  StageCall& correct = c.add("correct", "parts relative to all of a row");
  correct.problem.states = h.rank;
  correct.tensors.partial_o = read_only(part_o),
  correct.tensors.partial_lse = read_only(gather_lse.tensors.o);
  correct.tensors.o = c.room(ASSAY_FP32, {h.ranks, h.own, rows, dims});
  correct.tensors.lse = lse;

  StageCall& scatter = c.add("scatter", "sums " + from_all);
  scatter.tensors.partial_o = read_only(correct.tensors.o);
  scatter.tensors.o = o;
}

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const Heads h = check(p);
  if (p.total_q == 0) return;
  add_write(c);
  StageCall& write = c.calls().back();
  write.problem.ranks = write.problem.interleave = 0;
  c.dense_new_keys = ASSAY_REQUEST_ANY;
  const int64_t rows = p.total_q;
  const assay_tensor q = slice(t.q, 0, rows);
  // Of a group of one, too: its stages exchange with nobody, yet only in a process that joined it.
  if (q.data != nullptr && (joined_group() == nullptr || q.shape[1] != h.own))
    refuse("heads of all ranks", "those of one, in processes that joined a group");
  if (q.data != nullptr &&
      (q.stride[2] != 1 || q.stride[1] != p.head_dim_qk || q.stride[0] != int64_t{h.own} * p.head_dim_qk))
    refuse("strided q", "dense q");
  bool context = false, decodes = true;
  for (int32_t r = 0; r < p.requests; ++r)
    context = context || p.kv_len[r] > p.q_len[r], decodes = decodes && p.q_len[r] <= p.threshold;
  // A run of decodes that is captured serves others, whose context may be as long as any request here.
  if (!context && !decodes) {
    fresh_keys(c, h, 0, t.o, c.room(ASSAY_FP32, {rows, h.own}));
    return;
  }

  // What needs no exchange runs beside those: this rank's write and lengths, and the new keys.
  constexpr int32_t kHere = 1;
  StageCall& count = c.add("lengths", "contexts of all requests on " + std::to_string(p.ranks) + " ranks");
  count.tensors.kv_len = t.context_len;
  count.tensors.out_len = c.room(ASSAY_INT32, {p.ranks, p.requests});
  write.lane = count.lane = kHere;
  const assay_tensor lengths = entry_of(read_only(count.tensors.out_len), h.rank);

  // Heads of Q before rows; put so where the exchange cannot read them as they lie.
  assay_tensor heads_q = q;
  heads_q.rank = 3, heads_q.shape[0] = h.own, heads_q.shape[1] = rows, heads_q.shape[2] = p.head_dim_qk;
  heads_q.stride[0] = p.head_dim_qk, heads_q.stride[1] = h.own * heads_q.stride[0], heads_q.stride[2] = 1;
  if (h.own > 1 && rows > 1 && !gathers_rows(heads_q)) {
    StageCall& turn = c.add("q_heads", std::to_string(h.own) + " heads, one after the other");
    turn.tensors.source = q, turn.tensors.cu_q = t.cu_q;
    heads_q = c.room(p.q_format, {h.own, rows, p.head_dim_qk});
    turn.tensors.o = rows_first(heads_q, 0);
  }
  const std::string from_all = "of " + std::to_string(p.ranks) + " ranks";
  StageCall& gather_q = c.add("gather_q", "rows and heads " + from_all);
  gather_q.tensors.source = read_only(heads_q);
  gather_q.tensors.o = c.room(p.q_format, {p.ranks, h.own, rows, p.head_dim_qk});

  const assay_tensor part_o = c.room(ASSAY_FP32, {p.ranks, h.own, rows, p.head_dim_v}),
                     part_lse = c.room(ASSAY_FP32, {p.ranks, h.own, rows});
  // Heads of all ranks lie as far from each other as those of one.
  const auto all_heads = [&](const assay_tensor& of_ranks) {
    assay_tensor all = entry_of(of_ranks, 0);
    all.shape[0] = p.heads_q;
    return rows_first(all, 0);
  };
  StageCall& call = c.add_bounded("context", "keys here, all heads");
  call.behind = {&count};
  take_cache(c, call, 0, p.requests);
  std::vector<int32_t> here;
  for (int32_t r = 0; r < p.requests; ++r)
    here.push_back(metadata::keys_of_rank(decodes ? p.max_kv_len : p.kv_len[r] - p.q_len[r], p.ranks,
                                          p.interleave, h.rank));
  call.set_lengths({p.q_len, p.q_len + p.requests}, std::move(here));
  call.problem.ranks = call.problem.interleave = 0;
  call.tensors.kv_len = lengths, call.tensors.last_page_len = assay_tensor{};
  call.problem.mask = ASSAY_MASK_FULL, call.problem.has_sinks = 0;
  call.problem.o_format = ASSAY_FP32;
  call.tensors.q = all_heads(read_only(gather_q.tensors.o)), call.tensors.cu_q = t.cu_q;
  call.tensors.o = all_heads(part_o), call.tensors.lse = all_heads(part_lse);

  // Planes of the merge: context, new keys.
  const assay_tensor heads_o = c.room(ASSAY_FP32, {2, h.own, rows, p.head_dim_v}),
                     heads_lse = c.room(ASSAY_FP32, {2, h.own, rows}), o = rows_first(heads_o, 1),
                     lse = rows_first(heads_lse, 1);
  add_sum(c, h, part_o, part_lse, entry_of(heads_o, 0), entry_of(heads_lse, 0), from_all);

  StageCall& fresh = fresh_keys(c, h, kHere, entry_of(o, 1), entry_of(lse, 1));
  fresh.problem.has_sinks = 0, fresh.tensors.sinks = assay_tensor{};

  merge(c, "context with new keys", everything(c), {o, lse}, 0, 1, 2, t.o, c.room(ASSAY_FP32, {rows, h.own}));
  StageCall& last = c.calls().back();
  last.behind = {&fresh};
  take_heads(last, h);
  last.problem.has_sinks = p.has_sinks, last.tensors.sinks = t.sinks;
  // A part is rounded where it is made, corrected, and added to those of the other ranks; then merged.
  c.parts = p.ranks + 1, c.levels = p.ranks + 2, c.partial_format = ASSAY_FP32;
}

constexpr StagePlace kPlaces[] = {{"write", {ASSAY_OP_CACHE_WRITE}},
                                  {"lengths", {ASSAY_OP_DCP_LENGTHS}},
                                  {"context", {ASSAY_OP_PAGED}, Role::kFewRows},
                                  {"rows", {ASSAY_OP_WINDOW_METADATA}},
                                  {"new", {ASSAY_OP_PREFILL}},
                                  {"merge", {ASSAY_OP_MERGE_STATES}},
                                  {"q_heads", {}, Role::kJoin},
                                  {"gather_q", {}, Role::kAllGather},
                                  {"gather_lse", {}, Role::kAllGather},
                                  {"correct", {}, Role::kCorrect},
                                  {"scatter", {}, Role::kReduceScatter}};

}  // namespace

constinit const Pipeline kIxformerDcp = {
    .description =
        "iXFormer's flash attention on ranks that share keys in turns: parts, corrected sums, new keys",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH,
    .contracts = ASSAY_CONTRACT_GRAPH_DECODES,
    .takes = kTakesRanks,
};

}  // namespace assay_kernels
