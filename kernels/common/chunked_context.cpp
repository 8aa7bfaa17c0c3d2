// SPDX-License-Identifier: Apache-2.0
// See chunked_context.hpp.
#include "kernels/common/chunked_context.hpp"

#include <algorithm>
#include <utility>

namespace assay_kernels {
namespace {

// LSE as flash attention leaves it, [planes, heads, rows], seen as [planes, rows, heads].
assay_tensor heads_first(assay_tensor lse) {
  std::swap(lse.shape[1], lse.shape[2]), std::swap(lse.stride[1], lse.stride[2]);
  return lse;
}

// New keys of a part among themselves; `lengths` of them.
StageCall& attend_new(Calls& c, const Part& part, const ChunkStages& stages, const assay_tensor& lengths) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  return attend_dense(
      c, stages.fresh,
      requests_text(p, part.first, part.count, (std::string("new keys of ") + stages.who).c_str()), part,
      {p.q_len + part.first, p.q_len + part.first + part.count}, slice(t.dense_k, part.row, part.rows),
      slice(t.dense_v, part.row, part.rows), part.starts, lengths);
}

}  // namespace

bool plain(int32_t format) { return format == ASSAY_FP32 || format == ASSAY_BF16 || format == ASSAY_FP16; }

int32_t gathered_format(const assay_problem& p) {
  if (plain(p.k_format) && p.k_format == p.v_format) return p.k_format;
  return plain(p.k_format) || plain(p.v_format) ? static_cast<int32_t>(ASSAY_FP32) : p.source_format;
}

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
  take_rows(c, call, part);
  call.tensors.k = read_only(k), call.tensors.v = read_only(v);
  call.tensors.cu_q = part.starts, call.tensors.cu_kv = cu_kv, call.tensors.kv_len = lengths;
  return call;
}

StageCall& gather(Calls& c, const std::string& what, const Part& part, const std::vector<int32_t>& tokens,
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
  return call;
}

void merge(Calls& c, const std::string& what, const Part& part, const Planes& planes, int64_t first,
           int64_t step, int32_t states, const assay_tensor& o, const assay_tensor& lse) {
  StageCall& call = c.add("merge", what);
  take_lengths(c, call, part.first, part.count);
  call.problem.states = states, call.problem.source_format = planes.o.format, call.problem.has_sinks = 0;
  call.problem.o_format = o.format;
  call.tensors.partial_o = read_only(slice(planes.o, first, states));
  call.tensors.partial_lse = read_only(slice(planes.lse, first, states));
  call.tensors.partial_o.stride[0] *= step, call.tensors.partial_lse.stride[0] *= step;
  call.tensors.cu_q = part.starts;
  call.tensors.o = o, call.tensors.lse = lse;
}

StageCall& list_keys(Calls& c, const char* stage, const std::string& what, const Part& part, int32_t window,
                     int64_t keys) {
  StageCall& list = c.add(stage, what);
  take_lengths(c, list, part.first, part.count);
  list.problem.window_left = window;
  list.tensors.cu_q = part.starts;
  list.tensors.kv_len = slice(c.tensors().kv_len, part.first, part.count);
  list.tensors.out_len = c.room(ASSAY_INT32, {2, part.count});
  list.tensors.out_starts = c.room(ASSAY_INT32, {part.count});
  list.tensors.out_cu_kv = c.room(ASSAY_INT32, {part.count + 1});
  list.tensors.out_request = c.room(ASSAY_INT32, {keys});
  return list;
}

void attend_all_in_chunks(Calls& c) {
  attend_in_chunks(c, everything(c), {kNewPlaces[0].name, kNewPlaces[1].name, "all requests"});
  c.dense_new_keys = c.gathers = c.chained = ASSAY_REQUEST_ANY;
}

void attend_in_chunks(Calls& c, const Part& part, const ChunkStages& stages) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const int64_t requests = part.count;
  int32_t longest = 0, extends = 0;
  for (int32_t r = part.first; r < part.first + part.count; ++r)
    longest = std::max(longest, p.kv_len[r] - p.q_len[r]), extends += p.kv_len[r] > p.q_len[r] ? 1 : 0;
  if (extends == 0) {
    StageCall& fresh = attend_new(c, part, stages, slice(t.kv_len, part.first, part.count));
    fresh.tensors.o = slice(t.o, part.row, part.rows);
    ask_no_lse(c, fresh);
    return;
  }
  const int32_t each = std::max(1, p.token_budget / extends);  // tokens of a request in one chunk
  const int32_t chunks = (longest - 1) / each + 1;

  StageCall& list =
      c.add("chunks", requests_text(p, part.first, part.count, stages.who) + ", " + std::to_string(chunks) +
                          " chunks of " + std::to_string(each) + " tokens each");
  take_lengths(c, list, part.first, part.count);
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
                         heads_first(c.room(ASSAY_FP32, {4, p.heads_q, part.rows}))};
  constexpr int64_t kChunk = 1, kNew = 3;
  const StageCall& rows =
      list_keys(c, stages.lengths, std::string("new keys of ") + stages.who, part, 0, part.rows + part.count);
  StageCall& fresh = attend_new(c, part, stages, entry_of(read_only(rows.tensors.out_len), 1));
  fresh.problem.o_format = p.q_format;
  fresh.tensors.o = entry_of(planes.o, kNew), fresh.tensors.lse = entry_of(planes.lse, kNew);

  // A chunk is gathered beside attention to the one before and its merge, so there are two rooms for keys.
  // Merges beside attention as well were no faster: it fills the device, and waits between streams cost.
  constexpr int32_t kGathers = 1;
  assay_tensor k[2], v[2];
  for (int32_t side = 0; side < std::min(chunks, 2); ++side) {
    k[side] = c.room(gathered_format(p), {room, p.heads_kv, p.head_dim_qk});
    v[side] = c.room(gathered_format(p), {room, p.heads_kv, p.head_dim_v});
  }
  std::vector<StageCall*> attended;
  int64_t running = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<int32_t> tokens;
    for (int32_t r = part.first; r < part.first + part.count; ++r) {
      const int64_t left = int64_t{p.kv_len[r]} - p.q_len[r] - int64_t{chunk} * each;
      tokens.push_back(static_cast<int32_t>(std::clamp<int64_t>(left, 0, each)));
    }
    const std::string what = "chunk " + std::to_string(chunk) + " of " + std::to_string(chunks);
    const int32_t side = chunk % 2;
    StageCall& gathered = gather(c, what, part, tokens, entry_of(cu, chunk), entry_of(starts, chunk),
                                 entry_of(request, chunk), k[side], v[side]);
    gathered.lane = kGathers;
    if (chunk == 0) gathered.behind = {&list};
    if (chunk >= 2) gathered.behind = {attended[chunk - 2]};  // read what stood in the room
    StageCall& call = attend_dense(c, "context", what, part, tokens, k[side], v[side], entry_of(cu, chunk),
                                   entry_of(lengths, chunk));
    call.behind = {&gathered};
    attended.push_back(&call);
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
}

}  // namespace assay_kernels
