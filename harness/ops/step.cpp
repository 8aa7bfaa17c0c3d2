// SPDX-License-Identifier: Apache-2.0
// One forward step of a served layer: new keys into the cache, then attention over all of it. See enum
// assay_op. What a kernel makes of it (which stages, which requests together) is its own.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/text.hpp"
#include "harness/problem/request_class.hpp"

namespace assay {
namespace {

// Behind an encoder's tokens stand those of the decoder, of which there are as many as rows at least.
TensorLayout table(const Problem& p) {
  return layouts::block_table_before(p, p.mask == ASSAY_MASK_CROSS ? p.max_q_len() : 0);
}

constexpr OperandUse kOperands[] = {
    {Operand::kQ, Role::kIn, layouts::q_read},
    {Operand::kRope, Role::kIn, layouts::rope},
    {Operand::kQScale, Role::kIn, layouts::q_scale},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged, Role::kInOut},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged, Role::kInOut},
    {Operand::kDenseK, Role::kIn, layouts::dense_k_read},
    {Operand::kDenseV, Role::kIn, layouts::dense_v_read},
    {Operand::kSlotMapping, Role::kIn, layouts::slot_mapping},
    {Operand::kContextLen, Role::kIn, layouts::context_len},
    {Operand::kEncoderLen, Role::kIn, layouts::encoder_len},
    {Operand::kSlotMap, Role::kIn, layouts::slot_map},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kLastPageLen, Role::kIn, layouts::csr_last_page_len},
    {Operand::kAlibiSlopes, Role::kIn, layouts::alibi_slopes},
    {Operand::kSinks, Role::kIn, layouts::sinks},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kK, Role::kInOut, layouts::k_paged},
    {Operand::kV, Role::kInOut, layouts::v_paged},
    {Operand::kO, Role::kOut, layouts::o},
};

constexpr std::string_view kFields[] = {
    "q",      "kv",      "from",   "out",        "page",      "blocks", "layout",  "storage",
    "layers", "table",   "window", "cap",        "alibi",     "scale",  "sinks",   "threshold",
    "budget", "mask",    "bits",   "chunk",      "positions", "pad",    "drafted", "write",
    "prefix", "workers", "ranks",  "interleave", "encoder",   "pool",   "sources"};

constexpr std::string_view kExamples[] = {
    "step h=4/2 d=32 batch=2q1s40_1q9s20_1q7 seed=1",
    "step h=4/2 d=64 kv=fp8_e4m3:head layout=shuffled table=csr strides=q+kv+out window=20 "
    "batch=1q1s33_1q5s40_1q6 seed=2",
    "step h=4/1 d=64/32 kv=fp8_e4m3 budget=16 layout=mla table=token sinks=on batch=1q3s50_1q0s9 seed=3",
    "step h=4/2 d=32 pad=2 threshold=8 mask=tree window=6 positions=depth batch=2q6s30_1q0s9_1q4 seed=4",
    "step h=4/2 d=32 threshold=3 drafted=2 mask=tree batch=2q3s30_1q0s9_1q2s6 seed=8",
    "step h=4/2 d=32 kv=fp8_e4m3:head write=off batch=2q1s33_1q9s20_1q7 seed=9",
    "step h=4/2 d=32 prefix=12 workers=8 page=4 batch=3q2s33p12 seed=10",
    "step h=4/2 d=32 page=4 chunk=8 batch=2q1s33_1q9s20 seed=5",
    "step h=4/2 d=32 encoder=9 page=4 table=token batch=2q1s33_1q9s20_1q0s3 seed=11",
    "step h=4/2 d=32 kv=fp8_e4m3:head pad=2 page=4 mask=cross batch=2q1s33_1q9s4_1q3s0_1q0s5 seed=12",
    "step h=4/2 d=32 write=off mask=cross batch=2q1s33_1q9s4 seed=13",
    "step h=4/2 d=32 pool=full page=4 table=token chunk=8 batch=2q1s33_1q9s20 seed=14",
    "step h=4/2 d=32 write=off mask=full window=3/5 batch=2q9_1q20 seed=15",
    "step h=4/2 d=32 strides=q+kv+out+last batch=1q1s33_1q5s40_1q6 seed=6",
    "step h=4/2 d=64 kv=int8:token_head/int8:channel layout=hnd batch=2q1s33_1q9s20 seed=7",
    "step h=4/1 d=64/48 kv=fp8_e4m3 pad=2 sources=2 layout=mla strides=q+last batch=2q1s33_1q5s9 seed=16",
    "step h=4/2 d=64/48 sources=2 strides=q batch=1q1s33_2q5s9 seed=17",
    "step h=4/2 d=64 kv=int8:token_head write=off batch=2q1s33_1q9s20 input=exact seed=18"};

bool writable(const Quantization& q) { return q.scale != ASSAY_SCALE_REQUEST_HEAD; }

void check(const Problem& p) {
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  for (const Quantization& q : {Quantization{p.k_format, p.k_scale}, Quantization{p.v_format, p.v_scale}})
    ASSAY_CHECK(writable(q) && !(latent && q.scale == ASSAY_SCALE_TOKEN_HEAD),
                "step writes {}:{}, whose scales would come from somewhere else",
                name_of(format_names(), q.format), name_of(scale_names(), q.scale));
  const bool cross = p.mask == ASSAY_MASK_CROSS;
  ASSAY_CHECK(p.positions.empty() || p.mask == ASSAY_MASK_TREE, "rows of a step stand behind its context");
  ASSAY_CHECK(p.mask != ASSAY_MASK_FULL || (p.no_write && p.prefix_tokens == 0), "an encoder keeps no cache");
  for (const Request& r : p.requests)
    ASSAY_CHECK(p.mask != ASSAY_MASK_FULL || r.q_len == r.kv_len, "an encoder of {} rows and {} keys",
                r.q_len, r.kv_len);
  ASSAY_CHECK(!cross || (p.window_left < 0 && p.window_right < 0 && p.alibi == ASSAY_ALIBI_NONE),
              "rows have no distance to the tokens of an encoder");
  ASSAY_CHECK(!cross || (p.encoder_len.empty() && p.prefix_tokens == 0),
              "cross attention is to the encoder's tokens alone");
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const Request& own = p.requests[r];
    const int32_t most = own.shared_with < 0 || cross
                             ? 0
                             : std::min(p.first_draft(own), p.first_draft(p.requests[own.shared_with]));
    ASSAY_CHECK(own.shared_tokens <= most, "request {} shares {} tokens, of which only {} are no new ones", r,
                own.shared_tokens, most);
    ASSAY_CHECK(
        p.prefix_tokens == 0 || r == 0 || (own.shared_with == 0 && own.shared_tokens >= p.prefix_tokens),
        "request {} has not the prefix of {} tokens in common", r, p.prefix_tokens);
  }
  ASSAY_CHECK(p.drafted == 0 || p.mask == ASSAY_MASK_TREE, "{} draft steps without a tree", p.drafted);
  ASSAY_CHECK(p.ranks >= 1 && p.interleave >= 1 && p.heads_q % p.ranks == 0,
              "{} ranks in turns of {} tokens share {} heads", p.ranks, p.interleave, p.heads_q);
  ASSAY_CHECK(p.threshold >= 0 && p.token_budget >= 1, "a threshold of {} rows, a budget of {} tokens",
              p.threshold, p.token_budget);
}

// Attention over everything, new rows read once more and written once; an encoder's once and for all.
Work work(const Problem& p) {
  Work w = attention_work(p, static_cast<double>(p.total_q()));
  if (p.mask != ASSAY_MASK_CROSS || !p.no_write) w.total_bytes += cached_row_bytes(p) + new_row_bytes(p);
  return w;
}

std::string describe(const Problem& p) {
  struct Group {
    int64_t requests = 0, rows = 0;
  };
  std::map<assay_request_class, Group> groups;
  for (const Request& r : p.requests) {
    Group& group = groups[request_class(p, r)];
    ++group.requests, group.rows += r.q_len;
  }
  const Group decodes = groups[ASSAY_REQUEST_DECODE], extends = groups[ASSAY_REQUEST_EXTEND],
              prefills = groups[ASSAY_REQUEST_PREFILL];
  std::string more = p.ranks > 1
                         ? fmt::format("\nranks     {}: keys in turns of {} tokens, {} heads of Q each",
                                       p.ranks, p.interleave, p.heads_q / p.ranks)
                         : "";
  if (p.mask == ASSAY_MASK_CROSS)
    more +=
        fmt::format("\nencoder   its tokens are the keys, {}; the decoder's stand behind them in the table",
                    p.no_write ? "in the cache already" : "written now");
  if (!p.encoder_len.empty())
    more += fmt::format("\nencoder   up to {} tokens before a request's own in its row of the table",
                        *std::max_element(p.encoder_len.begin(), p.encoder_len.end()));
  if (p.full_pool)
    more += fmt::format("\npool      the table names slots of {} blocks, a map leads to those of the cache",
                        full_blocks(p));
  return fmt::format(
             "{}\nstep      {} decodes ({} rows), {} extends ({}), {} prefills ({}); new keys {} into a "
             "cache of {}",
             attention_text(p), decodes.requests, decodes.rows, extends.requests, extends.rows,
             prefills.requests, prefills.rows, name_of(format_names(), p.source_format), kv_text(p)) +
         more;
}

}  // namespace

constinit const Op ops::step = {
    .id = ASSAY_OP_STEP,
    .name = "step",
    .summary = "One forward step: new keys into the cache, then attention over all of it.",
    .attends_rows = true,
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .masks = mask_bit(ASSAY_MASK_CAUSAL) | mask_bit(ASSAY_MASK_FULL) | mask_bit(ASSAY_MASK_CROSS) |
             mask_bit(ASSAY_MASK_TREE),
    .rows_anywhere = false,
    .kv_rule =
        {writable,
         "kv= with scales of a request: the cache of a step is written by steps (with write=off by another "
         "layer's), with scales that are given for all of it or computed for each token; take kv= without "
         "scales or with tensor, host, head, channel or token_head, or paged, which reads any cache"},
    .foreign_fields = "first keys, hybrid caches and relations",
    .check = check,
    .work = work,
    .multiply_adds = attention_multiply_adds,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
