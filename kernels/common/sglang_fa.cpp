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
// - cross: attention to an encoder, whose tokens stand first in a request's row of the table, by their
//   number; those of the decoder behind them are not looked at.
// - decoder: in the other layers of such a model, the pages of the decoder's tokens from behind those of the
//   encoder, wherever these end in memory at the moment, as a table for "decode" and "extend".
//
// Q is cast to the format of an fp8 cache by a scale of 1, for heads of up to 256 dimensions (wider ones take
// codes as they are): stage q_cast. In a hybrid cache local layers read a pool of their own: the table goes
// through slot_map as it is cut.
// Q and new rows of latent attention may come as pairs of tensors, which are put side by side first.
//
// Lengths, starts and tables are made on the device in every step, for batches up to the largest; the host's
// lengths are bounds. Between stages of a tree results have Q's format, as there, or O's where Q is codes.
// Not as there: tables are in slots at every page size, that of an encoder too, which never becomes pages
// there; encoders differ from request to request; sinks count once, chunks are no other than asked for.
#include <algorithm>
#include <vector>

#include "kernels/common/cast_stages.hpp"
#include "kernels/common/chunked_context.hpp"
#include "kernels/common/join_stages.hpp"
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
  if (p.mask == ASSAY_MASK_CROSS && has_distances(p)) refuse("a window or bias over an encoder", "none");
  if (p.full_pool != 0 && p.chunk == 0)
    refuse("a table of another pool", "that of local attention in chunks");
  if (p.encoder_len != nullptr) {
    if (p.window_left >= 0 || p.window_right >= 0) refuse("a window in a model with an encoder", "none");
    if (p.mask == ASSAY_MASK_TREE) refuse("drafts of a tree behind an encoder", "a causal mask");
    if (p.chunk > 0) refuse("local attention in chunks behind an encoder", "none");
    if (p.table == ASSAY_TABLE_CSR) refuse("an encoder in a table of indices", "rows of pages or slots");
  }
  if (p.mask == ASSAY_MASK_TREE && has_distances(p) && p.positions == nullptr)
    refuse("a window or bias over the slots of drafts", "those along the path of a draft (positions)");
}

constexpr int32_t kWidestCast = 256;  // dimensions of a head whose Q is cast

bool casts_q(const assay_problem& p) {
  return plain(p.q_format) && is_fp8(p.k_format) && p.k_format == p.v_format && p.head_dim_qk <= kWidestCast;
}

void into_o(Calls& c, StageCall& call) {
  call.tensors.o = c.tensors().o;
  ask_no_lse(c, call);
}

// All rows over the tokens of their encoders: the first of the table, in its own form.
void cross(Calls& c) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add("cross", requests_text(p, 0, p.requests, "encoders of all requests"));
  take_cache(c, call, 0, p.requests);
  take_rows(c, call, everything(c));
  call.tensors.cu_q = c.tensors().cu_q;
  into_o(c, call);
}

// Pages of the decoder's tokens: where they begin, memory says.
StageCall& decoder_tables(Calls& c) {
  const assay_problem& p = c.problem();
  StageCall& made =
      c.add("decoder", "tables behind the encoders of " + std::to_string(p.requests) + " requests");
  read_tables(c, made);
  made.problem.encoder_len = p.encoder_len;
  made.tensors.kv_len = assay_tensor{};
  made.tensors.context_len = c.tensors().context_len, made.tensors.encoder_len = c.tensors().encoder_len;
  made.tensors.out_len = c.room(ASSAY_INT32, {p.requests});
  made.tensors.out_cu_q = c.room(ASSAY_INT32, {int64_t{p.requests} + 1});
  made.tensors.out_cu_kv = c.room(ASSAY_INT32, {int64_t{p.requests} + 1});
  made.tensors.out_table = c.room(ASSAY_INT32, {p.requests, (p.max_kv_len - 1) / p.page_size + 1});
  return made;
}

void whole(Calls& c) {
  const assay_problem& p = c.problem();
  const StageCall* tables = p.encoder_len != nullptr ? &decoder_tables(c) : nullptr;
  const bool decodes = p.max_q_len <= p.threshold;
  const char* stage = decodes ? "decode" : "extend";
  const std::string what = requests_text(p, 0, p.requests, "all requests");
  StageCall& call = tables != nullptr ? c.add_bounded(stage, what) : c.add(stage, what);
  take_cache(c, call, 0, p.requests);
  if (tables != nullptr) {
    call.problem.table = ASSAY_TABLE_BLOCK;
    call.tensors.block_table = read_only(tables->tensors.out_table);
    call.tensors.kv_len = read_only(tables->tensors.out_len);
  }
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
  cut.problem.full_pool = p.full_pool, cut.tensors.slot_map = c.tensors().slot_map;
  assay_tensors& t = cut.tensors;
  t.out_len = c.room(ASSAY_INT32, {most}), t.out_request = c.room(ASSAY_INT32, {most});
  t.out_cu_q = c.room(ASSAY_INT32, {most + 1}), t.out_cu_kv = c.room(ASSAY_INT32, {most + 1});
  t.out_table = c.room(ASSAY_INT32, {most, (keys - 1) / p.page_size + 1});
  t.out_counts = c.room(ASSAY_INT32, {1});
  StageCall& call = c.add_bounded("extend", what + ", at most " + std::to_string(most) + " of them");
  take_made(c, call, most, rows, keys, ASSAY_TABLE_BLOCK, t.out_cu_q, t.out_len, t.out_table);
  call.problem.chunk = 0;
  call.keys_from = p.chunk;
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
  call.keys_from = StageCall::kPickedKeys;
  take_rows(c, call, everything(c));
  return call;
}

void path(Calls& c) {
  const assay_problem& p = c.problem();
  const std::string what = std::to_string(p.total_q) + " drafts, each behind its context and path";
  const StageCall& list = list_drafts(c, "paths", what, p.max_kv_len);
  into_o(c, attend_listed(c, "path", what, list, p.max_kv_len));
}

// `passed`: the format of results between the stages.
void tree(Calls& c, int32_t passed) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
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
  join_sources(c);
  add_write(c);
  if (p.total_q == 0) return;
  const int32_t passed = plain(p.q_format) ? p.q_format : p.o_format;
  if (casts_q(p)) cast_q(c);
  if (p.mask == ASSAY_MASK_CROSS)
    cross(c);
  else if (p.mask == ASSAY_MASK_TREE)
    has_distances(p) ? path(c) : tree(c, passed);
  else
    p.chunk > 0 ? local(c) : whole(c);
}

constexpr StagePlace kPlaces[] = {{"write", {ASSAY_OP_CACHE_WRITE}},
                                  {"decode", {ASSAY_OP_PAGED}, Role::kFewRows},
                                  {"extend", {ASSAY_OP_PAGED}},
                                  {"local", {ASSAY_OP_LOCAL_BATCHES}},
                                  {"prefix", {ASSAY_OP_PAGED}},
                                  {"drafts", {ASSAY_OP_TREE_TABLES}},
                                  {"draft", {ASSAY_OP_PAGED}, Role::kFewRows},
                                  {"merge", {ASSAY_OP_MERGE_STATES}},
                                  {"paths", {ASSAY_OP_SWA_TREE_TABLE}},
                                  {"path", {ASSAY_OP_PAGED}, Role::kFewRows},
                                  {"decoder", {ASSAY_OP_DECODE_METADATA}},
                                  {"cross", {ASSAY_OP_PAGED}},
                                  {"q_cast", {ASSAY_OP_QUANTIZE_INT8}},
                                  kJoinQ,
                                  kJoinK};

}  // namespace

constinit const Pipeline kSglangFa = {
    .description =
        "SGLang's flash attention: one call over the cache, by chunks, over context and drafts, or to an "
        "encoder",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH,
    .takes = kTakesCross | kTakesEncoders | kTakesPools | kTakesPairs,
};

}  // namespace assay_kernels
