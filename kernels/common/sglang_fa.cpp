// SPDX-License-Identifier: Apache-2.0
// The step of SGLang's flash attention backend (scenarios/SEED_COVERAGE.md, 003): every new key into the
// cache first, then attention that reads all of it there. What differs is how rows come to their keys:
//
// - decode, extend: one call over the cache, for decodes, verification of a chain, extends, mixtures of them.
//   A step of decodes alone has a place of its own.
// - local: attention in chunks. Requests are cut into batches of a chunk each, one causal call over those.
// - tree: verification of several branches, or a draft step of several (its own keys are those of the steps
//   before and the new ones). All rows over the context without a mask, each row over the drafts it sees as a
//   request of its own, and their merge, where a sink counts once.
// - tree with a window or bias: every row as a request of its own over context and the drafts on its path, so
//   that both run along the path, and rows of one draft step stand at one position.
//
// Lengths, starts and tables are made on the device in every step, for batches up to the largest; the host's
// lengths are bounds. Between stages of a tree results have Q's format, as there, or O's where Q is codes.
// Not as there: tables are in slots at every page size, sinks count once, chunks are no other than asked for.
#include <algorithm>
#include <vector>

#include "kernels/common/chunked_context.hpp"
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

bool has_distances(const assay_problem& p) {
  return p.window_left >= 0 || p.window_right >= 0 || p.alibi != ASSAY_ALIBI_NONE;
}

void check(const assay_problem& p) {
  if (p.chunk > 0 && p.chunk % p.page_size != 0)
    refuse("chunks of " + std::to_string(p.chunk) + " tokens in pages of " + std::to_string(p.page_size),
           "chunks of whole pages");
  const bool cut = p.chunk > 0 || p.mask == ASSAY_MASK_TREE;
  if (cut && p.q_scale_kind == ASSAY_SCALE_REQUEST_HEAD)
    refuse("scales of Q per request where requests are cut", "scales of Q by themselves");
  if (p.mask == ASSAY_MASK_TREE && has_distances(p) && p.positions == nullptr)
    refuse("a window or bias over the slots of drafts", "those along the path of a draft (positions)");
}

void into_o(Calls& c, StageCall& call) {
  call.tensors.o = c.tensors().o;
  call.tensors.lse = c.room(ASSAY_FP32, {c.problem().total_q, c.problem().heads_q});
}

void whole(Calls& c) {
  const assay_problem& p = c.problem();
  const bool decodes = p.max_q_len <= p.threshold;
  StageCall& call = c.add(decodes ? "decode" : "extend", requests_text(p, 0, p.requests, "all requests"));
  take_cache(c, call, 0, p.requests);
  take_rows(c, call, everything(c));
  call.tensors.cu_q = c.tensors().cu_q;
  into_o(c, call);
}

void local(Calls& c) {
  const assay_problem& p = c.problem();
  // Wherever requests begin and end: a chunk more than their rows fill, and one for those they begin in.
  const int64_t most = p.total_q / p.chunk + 2 * int64_t{p.requests};
  const int32_t keys = std::min(p.chunk, p.max_kv_len), rows = std::min(p.chunk, p.max_q_len);
  const std::string what = "chunks of " + std::to_string(p.chunk) + " tokens";
  StageCall& cut = c.add("local", what);
  read_tables(c, cut);
  assay_tensors& t = cut.tensors;
  t.out_len = c.room(ASSAY_INT32, {most}), t.out_request = c.room(ASSAY_INT32, {most});
  t.out_cu_q = c.room(ASSAY_INT32, {most + 1}), t.out_cu_kv = c.room(ASSAY_INT32, {most + 1});
  t.out_table = c.room(ASSAY_INT32, {most, (keys - 1) / p.page_size + 1});
  t.out_counts = c.room(ASSAY_INT32, {1});
  StageCall& call = c.add_bounded("extend", what + ", at most " + std::to_string(most) + " of them");
  take_made(c, call, most, rows, keys, ASSAY_TABLE_BLOCK, t.out_cu_q, t.out_len, t.out_table);
  call.problem.chunk = 0;
  take_rows(c, call, everything(c));
  into_o(c, call);
}

// Every row as a request: its drafts, or context and drafts.
StageCall& list_drafts(Calls& c, const char* stage, const std::string& what, int64_t columns) {
  const assay_problem& p = c.problem();
  StageCall& list = c.add(stage, what);
  read_tables(c, list);
  list.problem.drafted = p.drafted;
  list.tensors.tree_mask = c.tensors().tree_mask, list.tensors.tree_indptr = c.tensors().tree_indptr;
  list.tensors.out_len = c.room(ASSAY_INT32, {p.total_q});
  list.tensors.out_cu_q = c.room(ASSAY_INT32, {p.total_q + 1});
  list.tensors.out_cu_kv = c.room(ASSAY_INT32, {p.total_q + 1});
  list.tensors.out_table = c.room(ASSAY_INT32, {p.total_q, columns});
  return list;
}

StageCall& attend_listed(Calls& c, const char* stage, const std::string& what, const StageCall& list,
                         int32_t keys) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add_bounded(stage, what);
  const assay_tensors& t = list.tensors;
  take_made(c, call, p.total_q, 1, keys, ASSAY_TABLE_TOKEN, t.out_cu_q, t.out_len, t.out_table);
  call.problem.mask = ASSAY_MASK_CAUSAL;  // the row is the last of its keys
  call.problem.window_right = -1;         // behind it are none
  take_rows(c, call, everything(c));
  return call;
}

void path(Calls& c) {
  const assay_problem& p = c.problem();
  const std::string what = std::to_string(p.total_q) + " drafts, each behind its context and path";
  const StageCall& list = list_drafts(c, "paths", what, p.max_kv_len);
  into_o(c, attend_listed(c, "path", what, list, p.max_kv_len));
}

void tree(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const int32_t passed = plain(p.q_format) ? p.q_format : p.o_format;
  const assay_tensor o = c.room(passed, {2, p.total_q, p.heads_q, p.head_dim_v}),
                     lse = c.room(ASSAY_FP32, {2, p.total_q, p.heads_q});
  const auto into_part = [&](StageCall& call, int64_t part) {
    call.problem.has_sinks = 0, call.tensors.sinks = assay_tensor{};
    call.problem.o_format = passed;
    call.tensors.o = entry_of(o, part), call.tensors.lse = entry_of(lse, part);
  };
  // The context may be longer than the host says when rows are fewer, so all keys are the bound.
  StageCall& prefix = c.add_bounded("prefix", requests_text(p, 0, p.requests, "contexts of all requests"));
  take_cache(c, prefix, 0, p.requests);
  prefix.tensors.kv_len = t.context_len, prefix.tensors.last_page_len = assay_tensor{};
  prefix.tensors.cu_q = t.cu_q;
  prefix.problem.mask = ASSAY_MASK_FULL, prefix.problem.positions = nullptr;
  take_rows(c, prefix, everything(c));
  into_part(prefix, 0);

  const std::string what = std::to_string(p.total_q) + " drafts, each with those it sees";
  const int32_t drafts = p.max_q_len * (p.drafted + 1);
  const StageCall& list = list_drafts(c, "drafts", what, drafts);
  into_part(attend_listed(c, "draft", what, list, drafts), 1);

  StageCall& merge = c.add("merge", "context with drafts");
  merge.problem.states = 2, merge.problem.source_format = passed;
  merge.tensors.partial_o = read_only(o), merge.tensors.partial_lse = read_only(lse);
  merge.tensors.sinks = t.sinks, merge.tensors.cu_q = t.cu_q;
  into_o(c, merge);
  c.parts = 2, c.partial_format = passed;
}

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  check(p);
  if (p.total_q == 0) return;
  add_write(c);
  if (p.mask == ASSAY_MASK_TREE)
    has_distances(p) ? path(c) : tree(c);
  else
    p.chunk > 0 ? local(c) : whole(c);
}

constexpr StagePlace kPlaces[] = {
    {"write", {ASSAY_OP_CACHE_WRITE, 0}},    {"decode", {ASSAY_OP_PAGED, 0}},
    {"extend", {ASSAY_OP_PAGED, 0}},         {"local", {ASSAY_OP_LOCAL_BATCHES, 0}},
    {"prefix", {ASSAY_OP_PAGED, 0}},         {"drafts", {ASSAY_OP_TREE_TABLES, 0}},
    {"draft", {ASSAY_OP_PAGED, 0}},          {"merge", {ASSAY_OP_MERGE_STATES, 0}},
    {"paths", {ASSAY_OP_SWA_TREE_TABLE, 0}}, {"path", {ASSAY_OP_PAGED, 0}}};

}  // namespace

constinit const Pipeline kSglangFa = {
    "SGLang's flash attention: one call over the cache, by chunks, or over context and drafts", kPlaces,
    add_calls, ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH, 0};

}  // namespace assay_kernels
