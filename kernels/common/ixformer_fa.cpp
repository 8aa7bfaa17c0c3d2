// SPDX-License-Identifier: Apache-2.0
// The step of iXFormer's flash attention (scenarios/SEED_COVERAGE.md, 002) in its three types of cache: 0, 16
// bits or fp8; 1, int8 with a scale per token and head of K and per channel of V; 2, int8 K of that kind and
// a 16-bit V. New keys are in the cache, quantised, before anybody reads them.
//
//   decodes alone   one write that quantises what it stores, one attention
//   mixed, type 0   the same write, then decodes and the others, a call each over a slice of the operands
//   mixed, 1 and 2  K (and V of type 1) to codes and scales of their own, a write of those as they are, then
//                   the two calls
//
//   fused           with a kernel of op step in place "decode": decodes alone have no write, but attention
//                   that writes their new keys itself, codes of types 1 and 2 made before it; in a mixed step
//                   it finds them written
//
//   by a schedule   with a kernel of op persistent_paged in place "decode": one row each of all requests by
//                   lists made ahead of attention, in room for the largest batch; several rows of a request,
//                   a window, sinks and decodes of a mixed step go to the kernel of place "prefill"
//
//   cascade         instead of the calls of type 0, where requests share a prefix, and the seed's rule says
//                   that it pays: all rows over the prefix as one request, each over the rest, merged
//
//   encoder         of an encoder's rows nothing is kept: they see each other, as they came; beside a cache
//                   of codes that is refused
//
// Q comes as the line has it, in 16 bits or as codes with their scales. Not as there: a sink counts once in
// the merge of a cascade, which forgets it there, and codes never reach a cascade.
#include <algorithm>

#include "kernels/common/chunked_context.hpp"
#include "kernels/common/metadata.hpp"
#include "kernels/common/scheduled_stages.hpp"
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

constexpr int32_t kPage = 16, kHead = 8, kLargestHead = 256;
constexpr TileShape kScheduled = {1, 16};
enum Type { kAsItIs, kInt8, kInt8K };

Type type_of(const assay_problem& p) {
  const bool k = p.k_format == ASSAY_INT8 && p.k_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
  if (k && p.v_format == ASSAY_INT8 && p.v_scale_kind == ASSAY_SCALE_CHANNEL) return kInt8;
  if (k && plain(p.v_format)) return kInt8K;
  if (p.k_format == ASSAY_INT8 || p.v_format == ASSAY_INT8 || p.k_scale_kind == ASSAY_SCALE_TOKEN_HEAD ||
      p.v_scale_kind == ASSAY_SCALE_TOKEN_HEAD || p.k_format != p.v_format)
    refuse("a cache of another type",
           "16 bits, fp8 with given scales, int8:token_head/int8:channel, int8:token_head and a 16-bit V");
  return kAsItIs;
}

void check(const assay_problem& p) {
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("layout mla", "layouts with heads of K and V");
  if (p.mask == ASSAY_MASK_TREE) refuse("drafts of a tree", "a causal mask");
  if (p.mask == ASSAY_MASK_FULL && !(plain(p.k_format) && plain(p.v_format) && plain(p.q_format)))
    refuse("an encoder beside a cache of codes", "fp32 bf16 fp16");
  if (p.chunk > 0) refuse("local attention in chunks", "none");
  if (p.page_size % kPage != 0) refuse("pages of " + std::to_string(p.page_size), "multiples of 16");
  for (const int32_t d : {p.head_dim_qk, p.head_dim_v})
    if (d % kHead != 0 || d > kLargestHead)
      refuse("heads of " + std::to_string(d), "multiples of 8 up to 256");
}

// Rows of K or V to codes by a scale per token and head, which is returned, or by given ones.
struct Codes {
  assay_tensor codes{}, scales{};
};
Codes quantise(Calls& c, const char* stage, const assay_tensor& rows, int32_t dim, int32_t kind,
               const assay_tensor& given) {
  const assay_problem& p = c.problem();
  StageCall& call = c.add(stage, std::to_string(p.total_q) + " rows to int8");
  assay_problem& own = call.problem;
  own.heads_q = p.heads_kv, own.head_dim_qk = own.head_dim_v = dim;
  own.q_format = ASSAY_INT8, own.q_scale_kind = kind;
  call.tensors.source = rows, call.tensors.cu_q = c.tensors().cu_q;
  call.tensors.source.shape[0] = p.total_q;
  Codes made = {c.room(ASSAY_INT8, {p.rows, p.heads_kv, dim}), read_only(given)};
  if (kind == ASSAY_SCALE_TOKEN_HEAD) made.scales = c.room(ASSAY_FP32, {p.rows, p.heads_kv});
  call.tensors.q = slice(made.codes, 0, p.total_q);
  call.tensors.q_scale = kind == ASSAY_SCALE_TOKEN_HEAD ? slice(made.scales, 0, p.total_q) : made.scales;
  return made;
}

// What stages of their own make of the new keys of types 1 and 2.
struct NewCodes {
  Codes k, v;
};
NewCodes make_codes(Calls& c, Type type) {
  const assay_tensors& t = c.tensors();
  const assay_problem& p = c.problem();
  NewCodes made = {quantise(c, "k_codes", t.dense_k, p.head_dim_qk, ASSAY_SCALE_TOKEN_HEAD, {}),
                   {t.dense_v, {}}};
  if (type == kInt8) made.v = quantise(c, "v_codes", t.dense_v, p.head_dim_v, ASSAY_SCALE_CHANNEL, t.v_scale);
  return made;
}
// For a call that writes them as they are.
void take_codes(const NewCodes& made, StageCall& call) {
  call.problem.source_format = ASSAY_FORMAT_NONE;
  call.tensors.dense_k = read_only(made.k.codes), call.tensors.dense_v = read_only(made.v.codes);
  call.tensors.dense_k_scale = read_only(made.k.scales);
}

void write_codes(Calls& c, Type type) {
  const NewCodes made = make_codes(c, type);
  add_write(c);
  take_codes(made, c.calls().back());
}

void attend(Calls& c, const char* stage, const char* who, const Part& part) {
  const assay_problem& p = c.problem();
  if (part.rows == 0) return;
  StageCall& call = c.add(stage, requests_text(p, part.first, part.count, who));
  take_cache(c, call, part.first, part.count);
  take_rows(c, call, part);
  call.tensors.cu_q = part.starts;
  call.tensors.o = slice(c.tensors().o, part.row, part.rows);
  ask_no_lse(c, call);
}

// Decodes by a kernel of a whole step, which writes their new keys itself, as codes where those are `ready`;
// in a mixed step, or where there is nothing to write, it finds them in the cache.
void attend_fused(Calls& c, Type type, bool ready, const Part& part) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  if (part.rows == 0) return;
  const bool writes = p.no_write == 0 && part.count == p.requests;
  NewCodes made;
  if (writes && ready) made = make_codes(c, type);
  StageCall& call = c.add(
      "decode", requests_text(p, part.first, part.count, writes ? "decodes with their new keys" : "decodes"));
  take_cache(c, call, part.first, part.count);
  take_rows(c, call, part);
  call.tensors.cu_q = part.starts;
  call.tensors.o = slice(t.o, part.row, part.rows);
  call.tensors.context_len = slice(t.context_len, part.first, part.count);
  call.problem.no_write = writes ? 0 : 1;
  if (!writes) return;
  call.tensors.k = t.k, call.tensors.v = t.v;
  call.tensors.k_scale = t.k_scale, call.tensors.v_scale = t.v_scale;
  call.problem.rows = p.rows;
  call.tensors.dense_k = t.dense_k, call.tensors.dense_v = t.dense_v;
  call.tensors.slot_mapping = t.slot_mapping;
  if (ready) take_codes(made, call);
}

// Whether lists are made for this step: the kernel that follows them knows neither windows nor sinks, and for
// drafts they cost more than they gain.
bool is_scheduled(const assay_problem& p) {
  return p.max_q_len <= 1 && p.window_left < 0 && p.window_right < 0 && p.has_sinks == 0;
}

void attend_scheduled(Calls& c) {
  const assay_problem& p = c.problem();
  const std::string what = requests_text(p, 0, p.requests, "decodes");
  const StageCall& schedule = make_schedule(c, what, kScheduled, p.heads_kv);
  StageCall& call = c.add("decode", what);
  take_cache(c, call, 0, p.requests);
  take_rows(c, call, everything(c));
  call.tensors.cu_q = c.tensors().cu_q;
  follow_schedule(c, what, call, schedule);
}

// Decodes and the others, which follow them.
void find_parts(const assay_problem& p, Part& decodes, Part& others) {
  int64_t row = 0;
  for (int32_t r = 0; r < p.requests; ++r) {
    const bool decode = p.q_len[r] <= p.threshold;
    if (decode && others.count > 0) refuse("requests in another order", "decodes first, then the others");
    Part& part = decode ? decodes : others;
    if (part.count++ == 0) part.first = r, part.row = row;
    part.rows += p.q_len[r], row += p.q_len[r];
  }
}

// Starts of both, rebased to 0. With a threshold that nobody exceeds all of a slice are one group.
void split(Calls& c, Part& decodes, Part& others) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  decodes.starts = slice(t.cu_q, 0, int64_t{decodes.count} + 1);
  others.starts = t.cu_q;
  if (decodes.count == 0 || others.count == 0) return;
  StageCall& call = c.add("split", requests_text(p, others.first, others.count, "extends and prefills"));
  take_lengths(c, call, others.first, others.count);
  call.problem.threshold = p.max_q_len;
  const int64_t count = others.count;
  call.tensors.cu_q = slice(t.cu_q, others.first, count + 1);
  call.tensors.kv_len = slice(t.kv_len, others.first, count);
  call.tensors.out_len = c.room(ASSAY_INT32, {count});
  call.tensors.out_cu_q = c.room(ASSAY_INT32, {count + 3});
  call.tensors.out_cu_kv = c.room(ASSAY_INT32, {count + 3});
  call.tensors.out_request = c.room(ASSAY_INT32, {count});
  call.tensors.out_counts = c.room(ASSAY_INT32, {3, 5});
  others.starts = slice(read_only(call.tensors.out_cu_q), 0, count + 1);
}

// Tokens of the prefix of a cascade: whole pages that are context of every request; 0 where there is to be
// none. The rule is cascade_metadata's, asked with the lengths of the host.
int32_t cascade_prefix(const assay_problem& p) {
  int32_t shortest = p.prefix_tokens;
  MetadataOperands m{};
  bool single_rows = true;
  for (int32_t r = 0; r < p.requests; ++r) {
    if (p.kv_len[r] > 0) shortest = std::min(shortest, p.kv_len[r] - p.q_len[r]);
    single_rows = single_rows && p.q_len[r] == 1;
  }
  const int32_t prefix = shortest / p.page_size * p.page_size;
  m.heads_q = p.heads_q, m.heads = p.heads_kv, m.requests = p.requests, m.workers = p.workers;
  m.plain = p.alibi == ASSAY_ALIBI_NONE && p.window_left < 0;
  const bool scaled = p.q_scale_kind != ASSAY_SCALE_NONE || p.k_scale_kind != ASSAY_SCALE_NONE ||
                      p.v_scale_kind != ASSAY_SCALE_NONE;
  return !scaled && plain(p.q_format) && metadata::prefix_pays(m, prefix, single_rows) ? prefix : 0;
}

void cascade(Calls& c, int32_t prefix) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  const int64_t pages = prefix / p.page_size, requests = p.requests;
  const std::string what = "a prefix of " + std::to_string(prefix) + " keys";
  StageCall& list = c.add("cascade", what + " in " + std::to_string(requests) + " requests");
  read_tables(c, list);
  list.problem.prefix_tokens = prefix;
  assay_tensors& made = list.tensors;
  made.out_len = c.room(ASSAY_INT32, {requests + 1}), made.out_cu_q = c.room(ASSAY_INT32, {2});
  made.out_table = c.room(ASSAY_INT32, {requests, (p.max_kv_len - 1) / p.page_size + 1});
  made.out_indices = c.room(ASSAY_INT32, {pages}), made.out_counts = c.room(ASSAY_INT32, {1});

  const Planes planes = {c.room(p.q_format, {2, p.total_q, p.heads_q, p.head_dim_v}),
                         c.room(ASSAY_FP32, {2, p.total_q, p.heads_q})};
  const auto into_plane = [&](StageCall& call, int64_t plane) {
    take_rows(c, call, everything(c));
    call.problem.has_sinks = 0, call.tensors.sinks = assay_tensor{};
    call.problem.o_format = p.q_format;
    call.tensors.o = entry_of(planes.o, plane), call.tensors.lse = entry_of(planes.lse, plane);
  };
  assay_tensor table = made.out_indices;  // [pages] as [1, pages]
  table.rank = 2, table.shape[1] = table.shape[0], table.shape[0] = 1, table.stride[1] = table.stride[0];
  StageCall& whole = c.add("prefix", what + ", all " + std::to_string(p.total_q) + " rows as one request");
  take_made(c, whole, 1, static_cast<int32_t>(p.total_q), prefix, ASSAY_TABLE_BLOCK, made.out_cu_q,
            slice(made.out_len, 0, 1), table);
  whole.problem.mask = ASSAY_MASK_FULL;
  into_plane(whole, 0);

  StageCall& rest = c.add("suffix", requests_text(p, 0, p.requests, "what is left of all requests"));
  std::vector<int32_t> keys;
  for (int32_t r = 0; r < p.requests; ++r) keys.push_back(std::max(0, p.kv_len[r] - prefix));
  take_made(c, rest, requests, 1, 1, ASSAY_TABLE_BLOCK, t.cu_q, slice(made.out_len, 1, requests),
            made.out_table);
  rest.set_lengths({p.q_len, p.q_len + p.requests}, std::move(keys));
  into_plane(rest, 1);

  StageCall& both = c.add("merge", "the prefix with what is left");
  both.problem.states = 2, both.problem.source_format = p.q_format;
  both.tensors.partial_o = read_only(planes.o), both.tensors.partial_lse = read_only(planes.lse);
  both.tensors.sinks = t.sinks, both.tensors.cu_q = t.cu_q;
  both.tensors.o = t.o, both.tensors.lse = c.room(ASSAY_FP32, {p.total_q, p.heads_q});
  c.parts = 2, c.partial_format = p.q_format;
}

// The rows of encoders among themselves, as they came; a window of W tokens reaches W - 1 to either side.
void encoder(Calls& c) {
  const assay_problem& p = c.problem();
  const assay_tensors& t = c.tensors();
  StageCall& call = attend_dense(c, "encoder", requests_text(p, 0, p.requests, "encoders"), everything(c),
                                 {p.q_len, p.q_len + p.requests}, slice(t.dense_k, 0, p.total_q),
                                 slice(t.dense_v, 0, p.total_q), t.cu_q, t.kv_len);
  call.tensors.o = t.o;
  ask_no_lse(c, call);
  c.dense_new_keys = ASSAY_REQUEST_ANY;
}

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  check(p);
  if (p.mask == ASSAY_MASK_FULL) {
    if (p.total_q > 0) encoder(c);
    return;
  }
  const Type type = type_of(p);
  Part decodes, others;
  find_parts(p, decodes, others);
  if (p.total_q == 0) return;
  // Codes of V must be those of the cache already where the write takes them as they are.
  const bool ready = type == kInt8 || (type == kInt8K && p.source_format == p.v_format);
  const int32_t prefix = type == kAsItIs ? cascade_prefix(p) : 0;
  const bool fused = c.at("decode").op == ASSAY_OP_STEP;
  if (!fused || prefix > 0 || others.rows > 0)
    others.rows > 0 && ready&& p.no_write == 0 ? write_codes(c, type) : add_write(c);
  if (prefix > 0) return cascade(c, prefix);
  const bool lists = c.at("decode").op == ASSAY_OP_PERSISTENT_PAGED;
  if (lists && others.rows == 0 && is_scheduled(p)) return attend_scheduled(c);
  split(c, decodes, others);
  fused ? attend_fused(c, type, ready, decodes) : attend(c, lists ? "prefill" : "decode", "decodes", decodes);
  attend(c, "prefill", "extends and prefills", others);
}

constexpr StagePlace kPlaces[] = {
    {"write", {ASSAY_OP_CACHE_WRITE}},
    {"k_codes", {ASSAY_OP_QUANTIZE_INT8}},
    {"v_codes", {ASSAY_OP_QUANTIZE_INT8}},
    {"split", {ASSAY_OP_SPLIT_BATCH}},
    {"decode", {ASSAY_OP_PAGED, ASSAY_OP_STEP, ASSAY_OP_PERSISTENT_PAGED}, Role::kFewRows},
    {"prefill", {ASSAY_OP_PAGED}},
    {"cascade", {ASSAY_OP_CASCADE_METADATA}},
    {"prefix", {ASSAY_OP_PAGED}},
    {"suffix", {ASSAY_OP_PAGED}, Role::kFewRows},
    {"merge", {ASSAY_OP_MERGE_STATES}},
    {"encoder", {ASSAY_OP_PREFILL}},
    {"schedule", {ASSAY_OP_PS_METADATA}},
    {"reduce", {ASSAY_OP_REDUCE}}};

}  // namespace

constinit const Pipeline kIxformerFa = {
    .description =
        "iXFormer's flash attention: int8, fp8 and 16-bit caches, decodes and the others from the cache, "
        "cascades",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH,
    .contracts = ASSAY_CONTRACT_GRAPH_DECODES,
    .takes = kTakesFull,
};

}  // namespace assay_kernels
