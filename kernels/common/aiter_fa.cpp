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

#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

constexpr int32_t kPartKeys = 256;
constexpr int32_t kSmallestSplitHead = 64;
enum Group { kDecode, kExtend, kPrefill, kGroups };

// Requests and rows of a group, which follow each other.
struct Part {
  int32_t first = 0, count = 0;
  int64_t row = 0, rows = 0;
  assay_tensor starts{};  // int32 [count + 1] rows of the group, from 0
};

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

bool plain(int32_t format) { return format == ASSAY_FP32 || format == ASSAY_BF16 || format == ASSAY_FP16; }

void check(const assay_problem& p, const Part (&parts)[kGroups]) {
  if (p.mask != ASSAY_MASK_CAUSAL) refuse("drafts of a tree", "a causal mask");
  if (p.chunk > 0) refuse("local attention in chunks", "none");
  if (p.has_sinks != 0) refuse("sinks", "none");
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

// What a gather writes: a cache of one 16-bit format as it is, codes in the model's format, mixtures in fp32.
int32_t gathered_format(const assay_problem& p) {
  if (plain(p.k_format) && p.k_format == p.v_format) return p.k_format;
  return plain(p.k_format) || plain(p.v_format) ? static_cast<int32_t>(ASSAY_FP32) : p.source_format;
}

// Attention of the rows of a part over dense keys [keys, heads, dim].
StageCall& attend_dense(Calls& c, const char* stage, const std::string& what, const Part& part,
                        std::vector<int32_t> kv_len, const assay_tensor& k, const assay_tensor& v,
                        const assay_tensor& cu_kv, const assay_tensor& lengths) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add(stage, what);
  call.set_lengths({p.q_len + part.first, p.q_len + part.first + part.count}, std::move(kv_len));
  assay_problem& own = call.problem;
  own.k_format = own.v_format = k.format;
  own.k_scale_kind = own.v_scale_kind = ASSAY_SCALE_NONE;
  own.layout = ASSAY_LAYOUT_NHD, own.page_size = 0, own.table = ASSAY_TABLE_NONE;
  take_rows(c, call, part.row, part.rows);
  call.tensors.k = read_only(k), call.tensors.v = read_only(v);
  call.tensors.cu_q = part.starts, call.tensors.cu_kv = cu_kv, call.tensors.kv_len = lengths;
  return call;
}

// Cached tokens of a part's requests to dense rows.
void gather(Calls& c, const std::string& what, const Part& part, const std::vector<int32_t>& tokens,
            const assay_tensor& cu, const assay_tensor& starts, const assay_tensor& request,
            const assay_tensor& k, const assay_tensor& v) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add("gather", what);
  take_cache(c, call, part.first, part.count);
  call.set_lengths(tokens, call.kv_len);
  call.problem.o_format = k.format;
  call.tensors.cu_q = cu, call.tensors.seq_starts = starts;
  call.tensors.token_to_batch = slice(request, 0, call.problem.rows);
  call.tensors.dense_k = slice(k, 0, call.problem.rows);
  call.tensors.dense_v = slice(v, 0, call.problem.rows);
  if (k.format != p.k_format || k.format != p.v_format) c.dequant_format = k.format;
}

// Partial results of rows: planes of O and LSE that lie one behind the other.
struct Planes {
  assay_tensor o, lse;  // [planes, rows, heads, dim], [planes, rows, heads]
};

// States first and first + step into `o`.
void merge(Calls& c, const std::string& what, const Part& part, const Planes& planes, int64_t first,
           int64_t step, int32_t states, const assay_tensor& o, const assay_tensor& lse) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add("merge", what);
  call.set_lengths({p.q_len + part.first, p.q_len + part.first + part.count},
                   {p.kv_len + part.first, p.kv_len + part.first + part.count});
  call.problem.states = states, call.problem.source_format = planes.o.format, call.problem.has_sinks = 0;
  call.problem.o_format = o.format;
  call.tensors.partial_o = read_only(slice(planes.o, first, states));
  call.tensors.partial_lse = read_only(slice(planes.lse, first, states));
  call.tensors.partial_o.stride[0] *= step, call.tensors.partial_lse.stride[0] *= step;
  call.tensors.cu_q = part.starts;
  call.tensors.o = o, call.tensors.lse = lse;
}

void prefill(Calls& c, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  StageCall& call = attend_dense(c, "prefill", requests_text(p, part.first, part.count, "prefills"), part,
                                 {p.q_len + part.first, p.q_len + part.first + part.count},
                                 slice(t.dense_k, part.row, part.rows), slice(t.dense_v, part.row, part.rows),
                                 part.starts, slice(t.kv_len, part.first, part.count));
  call.tensors.o = slice(t.o, part.row, part.rows);
  call.tensors.lse = c.room(ASSAY_FP32, {part.rows, p.heads_q});
  c.dense_new_keys |= ASSAY_REQUEST_PREFILL;
}

// Lengths, starts and requests of the keys that a window shows the rows of a part, `keys` of them.
StageCall& list_keys(Calls& c, const std::string& what, const Part& part, int32_t window, int64_t keys) {
  const assay_problem& p = c.problem();
  StageCall& list = c.add("window", what);
  list.set_lengths({p.q_len + part.first, p.q_len + part.first + part.count},
                   {p.kv_len + part.first, p.kv_len + part.first + part.count});
  list.problem.window_left = window;
  list.tensors.cu_q = part.starts;
  list.tensors.kv_len = slice(c.tensors().kv_len, part.first, part.count);
  list.tensors.out_len = c.room(ASSAY_INT32, {2, part.count});
  list.tensors.out_starts = c.room(ASSAY_INT32, {part.count});
  list.tensors.out_cu_kv = c.room(ASSAY_INT32, {part.count + 1});
  list.tensors.out_request = c.room(ASSAY_INT32, {keys});
  return list;
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
  StageCall& list = list_keys(c, what, part, p.window_left, sum);
  const assay_tensor k = c.room(gathered_format(p), {sum, p.heads_kv, p.head_dim_qk}),
                     v = c.room(gathered_format(p), {sum, p.heads_kv, p.head_dim_v});
  const assay_tensor cu = read_only(list.tensors.out_cu_kv),
                     lengths = entry_of(read_only(list.tensors.out_len), 0);
  gather(c, what, part, tokens, cu, read_only(list.tensors.out_starts), read_only(list.tensors.out_request),
         k, v);
  StageCall& call = attend_dense(c, "extend", what, part, tokens, k, v, cu, lengths);
  call.tensors.o = slice(t.o, part.row, part.rows);
  call.tensors.lse = c.room(ASSAY_FP32, {part.rows, p.heads_q});
}

void extend(Calls& c, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const int64_t requests = part.count;
  const int32_t each = std::max(1, p.token_budget / part.count);  // tokens of a request in one chunk
  int32_t longest = 0;
  for (int32_t r = part.first; r < part.first + part.count; ++r)
    longest = std::max(longest, p.kv_len[r] - p.q_len[r]);
  const int32_t chunks = (longest - 1) / each + 1;

  StageCall& list =
      c.add("chunks", requests_text(p, part.first, part.count, "extends") + ", " + std::to_string(chunks) +
                          " chunks of " + std::to_string(each) + " tokens each");
  list.set_lengths({p.q_len + part.first, p.q_len + part.first + part.count},
                   {p.kv_len + part.first, p.kv_len + part.first + part.count});
  int64_t room = 0;  // tokens of the first chunk, the largest
  for (int32_t r = part.first; r < part.first + part.count; ++r)
    room += std::min(each, p.kv_len[r] - p.q_len[r]);
  list.tensors.cu_q = part.starts, list.tensors.kv_len = slice(t.kv_len, part.first, part.count);
  list.tensors.out_len = c.room(ASSAY_INT32, {chunks, requests});
  list.tensors.out_starts = c.room(ASSAY_INT32, {chunks, requests});
  list.tensors.out_cu_kv = c.room(ASSAY_INT32, {chunks, requests + 1});
  list.tensors.out_request = c.room(ASSAY_INT32, {chunks, room});
  list.tensors.out_counts = c.room(ASSAY_INT32, {2 + chunks});
  const assay_tensor lengths = read_only(list.tensors.out_len), starts = read_only(list.tensors.out_starts),
                     cu = read_only(list.tensors.out_cu_kv), request = read_only(list.tensors.out_request);

  // Planes 0 to 2 are in turns the running result and the next chunk's, which lies beside it; 3 is that of
  // the new keys.
  const Planes planes = {c.room(p.q_format, {4, part.rows, p.heads_q, p.head_dim_v}),
                         c.room(ASSAY_FP32, {4, part.rows, p.heads_q})};
  constexpr int64_t kChunk = 1, kNew = 3;
  const StageCall& rows = list_keys(c, "new keys of extends", part, 0, part.rows + part.count);
  StageCall& fresh = attend_dense(
      c, "extend", requests_text(p, part.first, part.count, "new keys of extends"), part,
      {p.q_len + part.first, p.q_len + part.first + part.count}, slice(t.dense_k, part.row, part.rows),
      slice(t.dense_v, part.row, part.rows), part.starts, entry_of(read_only(rows.tensors.out_len), 1));
  fresh.problem.o_format = p.q_format;
  fresh.tensors.o = entry_of(planes.o, kNew), fresh.tensors.lse = entry_of(planes.lse, kNew);

  const assay_tensor k = c.room(gathered_format(p), {room, p.heads_kv, p.head_dim_qk}),
                     v = c.room(gathered_format(p), {room, p.heads_kv, p.head_dim_v});
  int64_t running = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<int32_t> tokens;
    for (int32_t r = part.first; r < part.first + part.count; ++r) {
      const int64_t left = int64_t{p.kv_len[r]} - p.q_len[r] - int64_t{chunk} * each;
      tokens.push_back(static_cast<int32_t>(std::clamp<int64_t>(left, 0, each)));
    }
    const std::string what = "chunk " + std::to_string(chunk) + " of " + std::to_string(chunks);
    gather(c, what, part, tokens, entry_of(cu, chunk), entry_of(starts, chunk), entry_of(request, chunk), k,
           v);
    StageCall& call =
        attend_dense(c, "context", what, part, tokens, k, v, entry_of(cu, chunk), entry_of(lengths, chunk));
    call.problem.mask = ASSAY_MASK_FULL, call.problem.o_format = p.q_format;
    call.problem.window_right = -1;  // under the step's causal mask it hides nothing, without one it would
    const int64_t to = chunk == 0 ? running : kChunk;
    call.tensors.o = entry_of(planes.o, to), call.tensors.lse = entry_of(planes.lse, to);
    if (chunk == 0) continue;
    const int64_t next = 2 - running;
    merge(c, what + " with those before", part, planes, std::min(running, kChunk), 1, 2,
          entry_of(planes.o, next), entry_of(planes.lse, next));
    running = next;
  }
  merge(c, "context with new keys", part, planes, running, kNew - running, 2, slice(t.o, part.row, part.rows),
        c.room(ASSAY_FP32, {part.rows, p.heads_q}));
  c.parts = std::max(c.parts, chunks + 1), c.levels = std::max(c.levels, chunks);
  c.partial_format = p.q_format;
  c.dense_new_keys |= ASSAY_REQUEST_EXTEND;
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
  take_rows(c, call, part.row, part.rows);
  call.tensors.cu_q = part.starts;
  if (!parts) {
    call.tensors.o = slice(t.o, part.row, part.rows);
    call.tensors.lse = c.room(ASSAY_FP32, {part.rows, p.heads_q});
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
  if (parts[kDecode].rows > 0) decode(c, parts[kDecode]);
}

constexpr StagePlace kPlaces[] = {
    {"write", {ASSAY_OP_CACHE_WRITE, 0}},      {"split", {ASSAY_OP_SPLIT_BATCH, 0}},
    {"prefill", {ASSAY_OP_PREFILL, 0}},        {"extend", {ASSAY_OP_PREFILL, 0}},
    {"window", {ASSAY_OP_WINDOW_METADATA, 0}}, {"chunks", {ASSAY_OP_CHUNK_METADATA, 0}},
    {"gather", {ASSAY_OP_CACHE_GATHER, 0}},    {"context", {ASSAY_OP_PREFILL, 0}},
    {"merge", {ASSAY_OP_MERGE_STATES, 0}},     {"decode", {ASSAY_OP_DECODE_SPLITKV, ASSAY_OP_PAGED}},
    {"unified", {ASSAY_OP_PAGED, 0}}};

}  // namespace

constinit const Pipeline kAiterFa = {"vLLM's AITER flash attention: decodes, extends in chunks, prefills",
                                     kPlaces, add_calls, ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH,
                                     ASSAY_CONTRACT_GRAPH_DECODES};

}  // namespace assay_kernels
