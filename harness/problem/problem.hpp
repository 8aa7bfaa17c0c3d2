// SPDX-License-Identifier: Apache-2.0
// One attention case, concrete: the mathematics, the storage and the lengths of every request. A
// Problem is plain data without pointers; it is fully determined by a scenario line (which holds the
// seed) and everything downstream (inputs, reference, kernels, bounds) takes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

// One request of the ragged batch. Row i (0 <= i < q_len) sits at position kv_len - q_len + i, unless the
// Problem has first_key or positions.
struct Request {
  int32_t q_len = 0;   // new tokens, >= 0
  int32_t kv_len = 0;  // visible tokens (vLLM seq_len), >= 0; q_len > kv_len is legal
  // The first shared_tokens keys are the same tokens as those of request shared_with (an earlier
  // index, or -1): full pages of that prefix are the same physical pages.
  int32_t shared_with = -1;
  int32_t shared_tokens = 0;
  int32_t context_len() const { return kv_len - q_len; }  // may be negative
  bool operator==(const Request&) const = default;
};

// How K and V planes of a paged cache share memory. Kernels see it through strides only.
enum class Storage : int32_t {
  kSplit,        // two allocations
  kStacked,      // [2, blocks, ...]
  kInterleaved,  // [blocks, 2, ...]
};

// Which operands are strided views of something larger ("strides=" of a scenario).
struct StridedOperands {
  bool q = false;       // Q is the head slice of a fused QKV projection [T, heads_q + 2 heads_kv, d]
  bool kv = false;      // K and V are head slices: rows padded by one extra head
  bool out = false;     // O rows padded by one extra head, LSE is [heads_q, T] transposed
  bool table = false;   // page table rows padded; the padding is poison
  bool scales = false;  // per-token scales stored [heads, tokens] instead of [tokens, heads]
  bool last = false;    // dimensions of rows of values two elements apart: Q, K, V, O and what data ops move
  bool operator==(const StridedOperands&) const = default;
};

enum class InputRecipe : int32_t {
  kNormal,      // unit normal Q, K, V
  kPeaked,      // logits of standard deviation ~12: few keys carry the weight
  kAscending,   // logits grow with position: the running maximum moves in every tile
  kBoundary,    // keys at window, chunk, page and request edges carry visible weight
  kCancelling,  // V alternates +-large: sum p|v| >> |sum p v|
  kOutlier,     // a few channels 30x larger (what int8 and fp8 caches suffer from)
  kExact,       // the answer is representable: must match bit for bit
  kIncidence,   // known answer: O tells which keys of a scattered group were attended how often
  kDyadic,  // known answer: logits are multiples of ln 2, so weights and rescaling factors are powers of two
  kNarrow,  // mean 0.1, deviation 0.2: the softmax is flat and hides most faults (what some test suites draw)
  kNegative,   // all logits near -180: nothing may rest on a logit above a constant, or on zero being low
  kPatterned,  // patterns that the seed draws: repeated, flat, one-signed, by tile, sparse, heavy-tailed
  kCodes,      // every kind of code of the storage format (subnormal, largest, -0), each where it matters
  kSteep,      // the middle third of the keys far above the others: a first maximum that is kept overflows
};
// The recipes whose O and LSE are known beforehand (Inputs::exact_o).
bool answer_is_known(InputRecipe);
// Dimensions of Q and K, behind the latent part where there is one, in which such a recipe spells the
// positions of requests up to `max_kv_len` keys; 0 for other recipes.
int32_t answer_dims(InputRecipe, int64_t max_kv_len);
// Constant dimensions carry up to this many times the size of a bit: exact codes in fp8 and int8.
inline constexpr int32_t kBitsPerConstant = 3;

// Relations between a result and the results of other problems that hold the same values ("relate=" of a
// scenario), one bit each.
enum Relation : uint32_t {
  kRelatePages = 1u << 0,    // physical pages placed elsewhere
  kRelateOrder = 1u << 1,    // requests in another order
  kRelateAlone = 1u << 2,    // each request by itself
  kRelateSplit = 1u << 3,    // two calls over half the context each, merged by LSE
  kRelateChunked = 1u << 4,  // the new tokens in several calls
  kRelateWindow = 1u << 5,   // a window as long as the longest request
  kRelateSink = 1u << 6,     // sinks so low that they weigh nothing, against no sinks
  kRelateStrides = 1u << 7,  // strided operands packed, packed operands strided
};

// Keys begin .. end - 1 of a request.
struct KeyRange {
  int32_t begin = 0, end = 0;
  bool operator==(const KeyRange&) const = default;
};

struct Problem {
  int32_t op = ASSAY_OP_PAGED;

  // Mathematics (section "Attention" of reference/README.md).
  int32_t heads_q = 32, heads_kv = 8;
  int32_t head_dim_qk = 128, head_dim_v = 128;
  int32_t mask = ASSAY_MASK_CAUSAL;
  int32_t window_left = -1, window_right = -1;  // tokens, inclusive; -1 = unlimited
  int32_t chunk = 0;                            // tokens, 0 = off
  float softcap = 0.0f;
  float softmax_scale = 0.0f;  // always concrete here (1/sqrt(head_dim_qk) unless given)
  int32_t alibi = ASSAY_ALIBI_NONE;
  bool sinks = false;
  std::vector<Request> requests;
  // Tree masks, request after request, row-major q_len x drafts(), 1 = visible (mask == TREE only).
  std::vector<uint8_t> tree_mask;
  int32_t drafted =
      0;  // draft steps of q_len tokens each that are cached before the new ones (enum assay_mask)
  // Where keys and rows stand (see enum assay_mask): position of the first key of every request, and of every
  // row of every request. Empty: from 0, and with the last row at the last key.
  std::vector<int32_t> first_key;
  std::vector<std::vector<int32_t>> positions;
  // The keys of each request that count at all, over any mask; empty: all. Not of a case but of what one part
  // of a decode_splitkv is compared with (harness/ops/parts.hpp): a kernel never sees such a problem.
  std::vector<KeyRange> only_keys;

  // Storage.
  int32_t q_format = ASSAY_BF16, k_format = ASSAY_BF16, v_format = ASSAY_BF16, o_format = ASSAY_BF16;
  int32_t q_scale = ASSAY_SCALE_NONE, k_scale = ASSAY_SCALE_NONE, v_scale = ASSAY_SCALE_NONE;
  int32_t layout = ASSAY_LAYOUT_NHD;  // paged only, like the next three
  int32_t page_size = 16;
  int32_t min_blocks = 0;  // of the allocation; more than needed puts the pages far apart
  Storage storage = Storage::kSplit;
  // Of interleaved storage: layers of a model that lie between each other in one allocation, and which of
  // them this is: [blocks, layers, 2, ...], of layout HND [blocks, heads, layers, 2, page, dim].
  int32_t layers = 1, layer = 0;
  int32_t table = ASSAY_TABLE_BLOCK;
  // Hybrid cache: window layers keep only the pages a window can still see; table entries of pages
  // outside it went through full_to_swa_index_mapping and point at poison.
  bool swa_index = false;
  // Tokens of a page lie in its slots in a drawn order, another one in every block; only where tokens are
  // found one by one (a token table, slots to write to).
  bool drawn_slots = false;
  StridedOperands strided;

  // Data ops (see enum assay_op). In a cache_write the last q_len of kv_len tokens of a request are
  // new; a cache_gather copies q_len of its kv_len cached tokens.
  int32_t source_format = ASSAY_BF16;  // of partial_o, of dense_k and dense_v of cache_write, of source
  int32_t states = 2;                  // merge_states; decode_splitkv: parts of the keys
  int32_t part_tokens = 0;             // decode_splitkv: keys of a part, 0: `states` parts of whole pages
  // cache_write: rows of slot -1 among the others; metadata ops: entries of flat lists behind the live ones.
  int32_t padded_rows = 0;
  int32_t ranks = 2, interleave = 1;  // dcp_lengths; turns in tokens
  int32_t threshold = 1;              // split_batch: rows of a decode at most
  int32_t token_budget = 32768;       // chunk_metadata: tokens of context in a step
  int32_t prefix_tokens = 0;          // cascade_metadata
  int32_t workers = 132;              // ps_metadata, like the next
  int32_t tile_rows = 256, tile_keys = 128;
  bool flat_tree = false;  // tree_tables, swa_tree_table: see assay_problem
  bool no_write = false;   // step: the new keys are in the cache already
  // step, decode_metadata: tokens of an encoder of each request, whose entries stand before its own in its
  // row of the page table (whole pages of them in a table of pages). Nobody keeps their pages: what is
  // attended are the request's own. Empty: none.
  std::vector<int32_t> encoder_len;
  bool full_pool = false;  // step, local_batches: the table has slots of another pool (full_ids())
  // cache_write, layout MLA: latent part and rope part are rows of their own; step: see two_sources
  bool split_latent = false;
  bool computed_scales = false;  // quantize_int8: scales per channel come from the rows, see assay_problem

  // Inputs.
  InputRecipe recipe = InputRecipe::kNormal;
  uint32_t relations = 0;  // bits of enum Relation, checked after the case itself
  uint64_t seed = 0;

  // Logical pages of each request -> physical block. pages[r].size() == ceil(kv_len / page_size).
  // Blocks are a seeded shuffle with unused blocks in between; -1 never occurs.
  std::vector<std::vector<int32_t>> pages;
  int32_t num_blocks = 0;  // of the allocation, used and unused

  int32_t group() const { return heads_q / heads_kv; }
  // Of a tree: keys that are drafts, and the first of them.
  int32_t drafts(const Request& r) const { return r.q_len * (drafted + 1); }
  int32_t first_draft(const Request& r) const { return r.kv_len - drafts(r); }
  int64_t total_q() const;   // sum of q_len
  int64_t total_kv() const;  // sum of kv_len
  int64_t rows() const;      // total_q and the padded rows
  // Rows of new keys: those of Q, of cross attention the tokens of the encoder (mask == CROSS).
  int64_t key_rows() const;
  int32_t max_q_len() const;
  int32_t max_kv_len() const;
  std::vector<int32_t> q_lens() const;
  std::vector<int32_t> kv_lens() const;
  std::vector<int32_t> cu_q() const;         // [R+1]
  std::vector<int32_t> cu_kv() const;        // [R+1]
  std::vector<int64_t> tree_indptr() const;  // [R+1], offsets into tree_mask
};

// Where row and key of a request stand, see enum assay_mask.
int64_t row_position(const Problem&, int request, int32_t row);
int64_t key_position(const Problem&, int request, int32_t key);

// Visibility of key j (0 <= j < kv_len) for row i of request r: base mask, window and chunk together.
// The single statement of the mask rules outside the reference's own; used to size work and to find
// edge rows, never to check results.
bool visible(const Problem&, int request, int32_t row, int32_t key);

// First and one-past-last key that any condition except a tree mask leaves visible; begin >= end when
// none is. Exact for causal, full, cross, window and chunk (all are intervals); draft keys that stand by
// positions are all inside.
KeyRange visible_range(const Problem&, int request, int32_t row);

// The request whose token stands at `position`: follows shared prefixes to the request that owns it.
// Equal owner and position means equal K and V.
int token_owner(const Problem&, int request, int32_t position);

}  // namespace assay
