/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be computed, and on what: ops, masks, formats, layouts, the operands in memory and the scalars
 * of one case. The first half of the C door; assay_kernel.h includes it and is what a kernel library
 * includes.
 */
#ifndef ASSAY_PROBLEM_H_
#define ASSAY_PROBLEM_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_MAX_RANK 5

/* Element formats. fp8 names follow ONNX/MLIR: `FN` finite only + NaN, `FNUZ` also no negative zero. */
enum assay_format {
  ASSAY_FORMAT_NONE = 0,
  ASSAY_FP32 = 1,
  ASSAY_BF16 = 2,
  ASSAY_FP16 = 3,
  ASSAY_FP8_E4M3 = 4,     /* OCP e4m3fn: bias 7, max 448, NaN 0x7f/0xff, no infinity */
  ASSAY_FP8_E5M2 = 5,     /* OCP e5m2: bias 15, max 57344, IEEE infinities and NaNs */
  ASSAY_FP8_E4M3FNUZ = 6, /* CDNA3: bias 8, max 240, NaN 0x80 */
  ASSAY_FP8_E5M2FNUZ = 7, /* CDNA3: bias 16, max 57344, NaN 0x80 */
  ASSAY_INT8 = 8,         /* symmetric, no zero point: 0 is 0; codes -127..127 (-128 is never produced) */
  ASSAY_UINT8 = 9,
  ASSAY_INT32 = 10,
  ASSAY_INT64 = 11
};

enum assay_op {
  ASSAY_OP_PREFILL = 1, /* ragged q against contiguous ragged k, v */
  ASSAY_OP_PAGED = 2,   /* ragged q against a paged cache */
  /* Data ops. They read and write the operands named here and no others; rows = assay_problem.rows.
   * Rows from cu_q[requests] on belong to no request (a graph replayed for fewer tokens) and are not written;
   * cache_write, whose padding may stand anywhere, knows it by its slots.
   * merge_states: partial_o, partial_lse, cu_q [, sinks] -> o, lse. Every row and head is the merge of
   *   `states` partial results: w_s = exp(lse_s - M), o = sum w_s o_s / sum w_s, lse = M + ln(sum w_s). A
   *   state of lse -inf counts nothing, whatever its o holds (NaN included). All -inf: o = 0, lse = -inf.
   *   With has_sinks the states come without the sink, and exp(sink - M) joins the sum once. M is any number
   *   that keeps exp in range, in any order; weights that are not divided by their sum are to be declared
   *   (assay_arithmetic::merge_lse_format).
   * cache_write: dense_k, dense_v, slot_mapping, k_scale, v_scale -> k, v. Row t goes to its slot of the
   *   cache; a row of slot -1 is padding and goes nowhere. code = round(x / scale) to nearest even,
   *   saturated; int8 to -127..127. No scale: one rounding of x. Scale kind TOKEN_HEAD: scale = max|x| / the
   *   largest code (int8: 127) of the row and head, written to k_scale and v_scale beside the codes.
   *   source_format NONE: rows are codes already (k_format, v_format) and are copied, with TOKEN_HEAD their
   *   scales too, from dense_k_scale, dense_v_scale. Layout MLA: dense_k is the whole latent row; where there
   * is a dense_v, dense_k is the first head_dim_v values of it and dense_v the others. All other bytes of the
   *   cache stay as they are.
   * cache_gather: k, v, their scales, the page table, kv_len, cu_q, seq_starts, token_to_batch -> dense_k,
   *   dense_v. Row i, of request r = token_to_batch[i], is the cached token seq_starts[r] + i - cu_q[r],
   *   code * scale rounded to o_format. Layout MLA: dense_k only.
   * quantize_int8: source, cu_q -> q (q_format: int8 or fp8). Scales are given but for TOKEN_HEAD (mode 2):
   * scale = max|x| / the largest code of the row and head, written to q_scale (its strides say which axis
   * runs fastest). With computed_scales and kind CHANNEL (calibration): scale = max|x| / the largest code of
   * the channel over all rows, written to q_scale. Rounding as cache_write. Where all that a scale is of are
   * zeros, codes are 0 and it is any finite one >= 0; where there are no rows, nothing is written.
   * decode_splitkv: the operands of ASSAY_OP_PAGED without sinks, q_len at most 1 -> partial_o, partial_lse,
   *   which are what merge_states takes: `states` partial results over disjoint parts of a request's keys. Of
   *   the kv_len keys part s holds s * part_tokens .. (s + 1) * part_tokens - 1 where part_tokens > 0 (states
   * * part_tokens >= max_kv_len), else P * floor(s N / states) .. P * floor((s + 1) N / states) - 1 with P =
   *   page_size and N = ceil(kv_len / P): whole pages, shared out evenly. Positions, windows and biases are
   *   those of the whole request. partial_o is the part's own softmax average in o_format and partial_lse its
   *   LSE; a part of which the row sees nothing has lse -inf and any o. One number per part and row, and not
   *   the pair of maximum and sum that some kernels keep: the pair depends on the order of the keys (any
   *   maximum not too far off serves), m + ln(sum) does not, and the merge needs no more (Milakov and
   *   Gimelshein 2018, arXiv:1805.02867; FlashInfer's state, Ye et al. 2025, arXiv:2501.01005).
   * Metadata ops turn what a serving step knows (lengths, page tables, drafts) into what its kernels read.
   * All they write is int32 in operands named out_*, and exact. For request r: n_r = cu_q[r + 1] - cu_q[r]
   * rows, m_r = kv_len[r] keys, c_r = m_r - n_r of context; P = page_size; page(r, i) is the page that holds
   * keys i P .. i P + P - 1, slot(r, j) = page(r, j / P) P + j % P where key j lies, from whichever `table`.
   * How much is written follows from lengths in device memory, which a replayed graph finds changed; tensors
   * are as large as the caller made them. Behind the last entry of a list stands -1 (out_indices,
   * out_request), 0 (out_len) or the last value again (out_cu_q, out_cu_kv), up to the end of the tensor; in
   * rows of out_table whatever there is: nobody reads it.
   * - expand_pages: kv_len, table -> out_cu_kv [R+1] = sums of m, out_indices [>= sum m] = slot(r, j),
   *   request after request: a table of pages of one token.
   * - dcp_lengths: kv_len -> out_len [ranks, R]: keys of each request on each rank. Ranks hold them in turns
   *   of `interleave`: key j lies on rank (j / interleave) % ranks.
   * - local_batches: cu_q, kv_len, table -> attention in chunks of `chunk` tokens (0: uncut) as causal
   *   batches: each request cut where its rows enter a chunk; rows before key 0 are a batch without keys.
   *   out_cu_q, out_cu_kv [B+1], out_len [B] keys from the first of the chunk on, out_request [B], out_table
   *   [B, pages of a chunk], out_counts [1]: how many. `chunk` is a multiple of P.
   * - split_batch: cu_q, kv_len -> requests in the order decode (n <= threshold), extend (c > 0), prefill,
   *   each as they came: out_request [R], out_len [R] = their m, out_cu_q, out_cu_kv [R+3]: sums of each
   * group from 0, out_counts [3, 5]: requests, rows, largest n, smallest n, largest m of each, 0 where it is
   * empty.
   * - chunk_metadata: cu_q, kv_len -> contexts cut into steps of s = max(1, token_budget / E) tokens, E the
   *   requests of c > 0. For step i: out_len [C, R] = tokens of context from i s on, at most s, out_starts
   *   [C, R] = i s (any where that length is 0), out_cu_kv [C, R+1] their sums, out_request [C, max(R,
   *   token_budget)] the request of each token; out_counts [2+C]: steps with a token, s (0, 0 without
   * context), the largest length of each step.
   * - decode_metadata: cu_q, context_len, table [, encoder_len] -> after the step's rows were added: out_len
   *   [>= R] = c + n, out_cu_q, out_cu_kv [>= R+1], out_table [R, pages] = page(r, i).
   * - cascade_metadata: cu_q, kv_len, table -> the prefix that all requests share as one request of all rows,
   *   and what is left of each. F = prefix_tokens, at most the smallest m above 0, cut to whole pages.
   *   out_cu_q [2] = 0, all rows; out_len [R+1] = F, then m - F of each (0 at least); out_indices
   *   [>= prefix_tokens / P] = pages of F in the first request with keys; out_table [R, pages] the rest.
   *   out_counts [1]: 1 where it pays. Not with F < 256, R < 8, a bias, a window or chunks; otherwise yes,
   * but for requests of one row each and groups G = heads_q / heads_kv > 1 only if ceil(heads_q ceil(R / 128)
   * / workers) K < ceil(R heads_kv ceil(G / 128) K / workers), K = ceil(F / 128).
   * - tree_tables: cu_q, kv_len, table, tree_mask, tree_indptr -> for each row the drafts it sees, in their
   *   order: out_len [T], out_cu_q [T+1] = 0, 1, 2, ..., out_cu_kv [T+1], out_table [T, drafts] = slot(r, c +
   * j), at every page size: requests of one row each.
   * - swa_tree_table: as tree_tables, the whole context before the drafts: out_len = c + drafts seen.
   * With flat_tree the rows of tree_mask have m entries, the drafts' last; what the first c hold means
   * nothing. With drafted = g > 0 the drafts of a request are its last n (g + 1) keys (enum assay_mask) and c
   * = m - n (g + 1).
   * - ps_metadata: cu_q, kv_len -> causal attention as work for `workers` that stay, each tile and key once.
   * A tile is tile_rows rows of a request (the last one fewer) of one KV head; it needs its first v keys, all
   *   that its last row may see, in blocks of U = tile_keys rounded up to whole pages, and counts as
   *   max(1, ceil(v / U)) blocks, of which there are N. Work w of worker i is work_info[w] for work_indptr[i]
   *   <= w < work_indptr[i + 1], at most ceil(N / workers) blocks together: request, KV head, first and end
   * row (packed), first and end key (first a multiple of U; equal where v = 0), partial, position of its
   * first row. partial -1: the tile is whole. Else the work leaves a result of its own, numbered from 0 on
   * without gaps, and tile t of reduce_indptr[t] <= i < reduce_indptr[t + 1] is the merge of the partial
   * results reduce_partial_map[i]: reduce_final_map[t] = first and end row, KV head. reduce_indptr ends in
   * its last value again, reduce_partial_map in -1; rows behind the last of work_info, reduce_final_map:
   * whatever.
   * - window_metadata: cu_q, kv_len -> the keys that rows of a request may see through a window of L =
   *   window_left (-1: all), one more than needed: out_len [2, R] = g = min(m, n + L + 1), 0 where n is, and
   *   n; out_starts [R] = m - g, out_cu_kv [R+1] sums of g, out_request [>= sum g] the request of each.
   * Attention by such a schedule, causal, in two halves:
   * - persistent_prefill: the operands of ASSAY_OP_PREFILL without sinks, work_indptr, work_info. For each
   *   work the rows of its tile, of all query heads of its KV head, attend its keys first .. end - 1 where
   *   the mask shows them. partial -1: that is the result, to o and lse. Else it goes to partial_o[partial]
   *   and partial_lse[partial], row i of the tile and head j of the KV head to [i, j]; a row that sees none
   *   of the keys has lse -inf there and any o. o and lse of tiles that are cut stay, and so do partial
   *   results that no work names. Any list will do that holds each tile whole or in parts.
   * - persistent_paged: the same with the operands of ASSAY_OP_PAGED.
   * - reduce: partial_o, partial_lse, reduce_indptr, reduce_final_map, reduce_partial_map -> o, lse of the
   *   tiles that are named there, merged as merge_states has it; all other rows and heads stay.
   *
   * step: q [, q_scale], dense_k, dense_v, slot_mapping, context_len, the operands of ASSAY_OP_PAGED but lse
   * -> o, k, v. One forward step of a served layer. Row t of dense_k and dense_v, of request r, is the new
   * key and value of row t of q: the last q_len of kv_len keys of a request are new (q_len <= kv_len). They
   * are written to their slots as cache_write has it, and o is attention over all kv_len keys: causal, or
   * ASSAY_MASK_TREE where the new tokens are drafts of a tree (positions, if any, are then c + the depth of
   * the draft). context_len counts what is cached before the drafts. Whether rows of a request see its new
   * keys as they came or as they lie in the cache, quantised, is the kernel's to choose and to declare
   * (assay_arithmetic::dense_new_keys). With ASSAY_MASK_CROSS o is attention over the kv_len tokens of an
   * encoder; the rows have no keys of their own, and there is no context_len: dense_k and dense_v are the
   * keys of the encoders, request after request, which are read from the cache alone (no dense_new_keys);
   * with no_write there are none. The table may go on behind them with the decoder's tokens. A layer of the
   * same model that attends to the decoder's own tokens finds the encoder's before them: where encoder_len is
   * given, a row of the table begins with encoder_len[r] tokens of the encoder, so that slot(r, j) is entry
   * encoder_len[r] + j of a row of slots, and page(r, i) entry ceil(encoder_len[r] / P) + i of a row of pages
   * (never CSR). With ASSAY_MASK_FULL the rows are those of an encoder, which see each other: kv_len is
   * q_len, nothing is written (no_write), and the keys are there in both forms, dense and in the cache. A
   * request is a decode where q_len <= threshold, else an extend where it has context, else a prefill.
   * token_budget: tokens of context that a kernel gathers at a time. Operands of `rows` rows may have more
   * than there are in requests: those behind have slot -1, and their o stays. All other bytes of the cache
   * stay too. */
  ASSAY_OP_MERGE_STATES = 3,
  ASSAY_OP_CACHE_WRITE = 4,
  ASSAY_OP_CACHE_GATHER = 5,
  ASSAY_OP_QUANTIZE_INT8 = 6,
  ASSAY_OP_DECODE_SPLITKV = 7,
  ASSAY_OP_EXPAND_PAGES = 8,
  ASSAY_OP_DCP_LENGTHS = 9,
  ASSAY_OP_LOCAL_BATCHES = 10,
  ASSAY_OP_SPLIT_BATCH = 11,
  ASSAY_OP_CHUNK_METADATA = 12,
  ASSAY_OP_DECODE_METADATA = 13,
  ASSAY_OP_CASCADE_METADATA = 14,
  ASSAY_OP_TREE_TABLES = 15,
  ASSAY_OP_SWA_TREE_TABLE = 16,
  ASSAY_OP_PS_METADATA = 17,
  ASSAY_OP_STEP = 18,
  ASSAY_OP_WINDOW_METADATA = 19,
  ASSAY_OP_PERSISTENT_PREFILL = 20,
  ASSAY_OP_PERSISTENT_PAGED = 21,
  ASSAY_OP_REDUCE = 22
};

/* What a request of a step is, one bit each. */
enum assay_request_class {
  ASSAY_REQUEST_DECODE = 1,  /* at most `threshold` new tokens */
  ASSAY_REQUEST_EXTEND = 2,  /* more, and tokens in the cache before them */
  ASSAY_REQUEST_PREFILL = 4, /* more, and none */
  ASSAY_REQUEST_ANY = 7
};

/* Base visibility; window and chunk conditions come on top (all conditions together).
 *
 * Where rows and keys of a request stand, f = first_key[request] or 0:
 *
 * - Key j (0 <= j < kv_len) stands at f + j: the keys are a stretch of a longer sequence where f > 0.
 *
 * - Row i stands at positions[cu_q[request] + i]; without positions at f + kv_len - q_len + i, so the last
 * row at the last key.
 *
 * - With ASSAY_MASK_TREE and positions, the draft key of row n (key kv_len - q_len + n) stands where row n
 *   stands: tokens of a tree stand by their depth. No row of a tree stands before f + kv_len - q_len.
 *
 * - With drafted = g > 0 a tree has g steps of q_len drafts each in the cache before the new ones: key
 *   kv_len - q_len (g + 1) + s q_len + n is the draft of step s on the branch of row n, new where s = g. Rows
 *   of tree_mask have q_len (g + 1) entries; with positions such a key stands g - s before row n, and no row
 *   before f + kv_len - q_len (g + 1) + g.
 *
 * A row at p and a key at k: causal k <= p; window p - window_left <= k <= p + window_right; chunk k <= p and
 * floor(k / chunk) == floor(p / chunk); bias of p - k where k <= p, none otherwise. Nothing else looks at
 * positions: parts, tiles, tables and tree_mask count keys and rows of the request from 0. */
enum assay_mask {
  ASSAY_MASK_CAUSAL = 0, /* keys at or before the row */
  ASSAY_MASK_FULL = 1,   /* all keys (bidirectional encoder) */
  ASSAY_MASK_CROSS = 2,  /* all keys of the encoder; kv_len is the encoder length */
  ASSAY_MASK_TREE = 3    /* keys before the drafts all visible, drafts by tree_mask */
};

enum assay_alibi { ASSAY_ALIBI_NONE = 0, ASSAY_ALIBI_LINEAR = 1, ASSAY_ALIBI_SQRT = 2 };

/* Granularity of a quantisation scale; value = code * scale. Shapes are listed at assay_tensors. */
enum assay_scale {
  ASSAY_SCALE_NONE = 0,
  ASSAY_SCALE_TENSOR = 1, /* one float in device memory */
  ASSAY_SCALE_HOST = 2,   /* one float, by value in assay_problem */
  ASSAY_SCALE_HEAD = 3,
  ASSAY_SCALE_REQUEST_HEAD = 4, /* FlashAttention-3 descale shape */
  ASSAY_SCALE_TOKEN_HEAD = 5,
  ASSAY_SCALE_CHANNEL = 6
};

/* Order of axes inside the cache. x = 16 bytes / element size of K. What is "/x" has one axis more: K of X
 * and of SHUFFLED and V of SHUFFLED are of rank 5, V of X of rank 4, latent rows of rank 3. */
enum assay_layout {
  ASSAY_LAYOUT_NHD = 0,      /* [blocks, page, heads_kv, dim] */
  ASSAY_LAYOUT_HND = 1,      /* [blocks, heads_kv, page, dim] */
  ASSAY_LAYOUT_X = 2,        /* K [blocks, heads_kv, dim/x, page, x], V [blocks, heads_kv, dim, page] */
  ASSAY_LAYOUT_SHUFFLED = 3, /* K as X, V [blocks, heads_kv, page/x, dim, x]; x is K's, also of another V */
  ASSAY_LAYOUT_MLA = 4       /* [blocks, page, head_dim_qk]; V is the first head_dim_v of K, and the tensor v
                                a view of them: k's data and strides, never null */
};

enum assay_table {
  ASSAY_TABLE_NONE = 0,
  ASSAY_TABLE_BLOCK = 1, /* block_table [requests, max_pages]; behind a request's last page: anything */
  ASSAY_TABLE_CSR = 2,   /* indptr [requests+1], indices [nnz], last_page_len [requests] */
  ASSAY_TABLE_TOKEN = 3  /* block_table [requests, max_kv_len] of flat slots page * page_size + slot; in ops
                            that look for pages (metadata ops, step) the tokens of a page lie in order */
};

/* What the op does with an operand, as its list at enum assay_op says. */
enum assay_role {
  ASSAY_ROLE_NONE = 0, /* unused: data is NULL */
  ASSAY_ROLE_IN = 1,   /* only read; a kernel that changes it is wrong */
  ASSAY_ROLE_OUT = 2,  /* contents undefined until the kernel writes them */
  ASSAY_ROLE_IN_OUT =
      3 /* read and written: a cache (and its scales) that gets new tokens and keeps the others */
};

/* A view. Strides are in elements; the last axis need not have stride 1. data == NULL: unused. */
typedef struct assay_tensor {
  void* data;
  int32_t format; /* enum assay_format */
  int32_t rank;
  int64_t shape[ASSAY_MAX_RANK];
  int64_t stride[ASSAY_MAX_RANK];
  int32_t role; /* enum assay_role */
} assay_tensor;

/* Every operand of every op; unused ones are null (readers of an old table check struct_size first). Pointers
 * are device pointers of the backend. R = requests, T = sum q_len, S = sum kv_len, B = blocks of the cache.
 */
typedef struct assay_tensors {
  uint32_t struct_size;
  assay_tensor q;             /* [T, heads_q, head_dim_qk] */
  assay_tensor k;             /* prefill [S, heads_kv, head_dim_qk]; paged: shape and rank by enum
                                 assay_layout */
  assay_tensor v;             /* prefill [S, heads_kv, head_dim_v]; paged: by enum assay_layout, of MLA a view
                                 into k */
  assay_tensor o;             /* [T, heads_q, head_dim_v], written by the kernel */
  assay_tensor lse;           /* fp32 [T, heads_q], natural log, written by the kernel */
  assay_tensor q_scale;       /* fp32: TENSOR [1]; HEAD [heads_q]; REQUEST_HEAD [R, heads_kv];
                                 TOKEN_HEAD [T, heads_q]; CHANNEL [heads_q, head_dim_qk] */
  assay_tensor k_scale;       /* fp32: TENSOR [1]; HEAD [heads_kv]; REQUEST_HEAD [R, heads_kv];
                                 TOKEN_HEAD paged [B, heads_kv, page], prefill [S, heads_kv];
                                 CHANNEL [heads_kv, head_dim_qk] */
  assay_tensor v_scale;       /* as k_scale with head_dim_v */
  assay_tensor cu_q;          /* int32 [R+1], first row of each request */
  assay_tensor cu_kv;         /* int32 [R+1], prefill only: first key of each request */
  assay_tensor kv_len;        /* int32 [R], visible tokens (vLLM seq_len), of prefill too */
  assay_tensor block_table;   /* int32, see enum assay_table */
  assay_tensor indptr;        /* int32 [R+1], CSR only */
  assay_tensor indices;       /* int32 [nnz], CSR only */
  assay_tensor last_page_len; /* int32 [R], CSR only; 0 for an empty request */
  assay_tensor alibi_slopes;  /* fp32 [heads_q] */
  assay_tensor sinks;         /* fp32 [heads_q], natural-log logits */
  assay_tensor tree_mask;     /* uint8 [sum q_len^2 (drafted + 1)], a row for each of q_len, 1 = visible */
  assay_tensor tree_indptr;   /* int64 [R+1], first entry of each request in tree_mask */
  assay_tensor workspace;     /* uint8 [workspace_bytes]; contents undefined before a run and free to change
                                 after it, but for what refresh left and the zeroed part (assay_kernel) */
  /* Of the data ops (enum assay_op). */
  assay_tensor partial_o;    /* [states, rows, heads_q, head_dim_v]; source_format, decode_splitkv o_format;
                                by a schedule fp32 [2 workers, tile_rows, heads_q / heads_kv, head_dim_v] */
  assay_tensor partial_lse;  /* fp32, as partial_o without its last axis, natural log; -inf: an empty state */
  assay_tensor dense_k;      /* [rows, heads_kv, head_dim_qk]; source_format, cache_gather o_format */
  assay_tensor dense_v;      /* [rows, heads_kv, head_dim_v], as dense_k */
  assay_tensor slot_mapping; /* int64 [rows], block * page_size + slot, each at most once; -1 = padding */
  assay_tensor seq_starts;   /* int32 [R], first cached token of each request to gather */
  assay_tensor token_to_batch; /* int32 [rows], request of each gathered row */
  assay_tensor source;         /* source_format [rows, heads_q, head_dim_qk] */
  /* Of ops with a mask; see enum assay_mask. */
  assay_tensor first_key; /* int32 [R], position of each request's first key, >= 0 */
  assay_tensor positions; /* int32 [T], position of each row, >= 0 */
  /* Of the metadata ops, all int32; shapes at enum assay_op. */
  assay_tensor context_len; /* [R], tokens of each request cached before this step */
  assay_tensor out_len;     /* lengths in tokens */
  assay_tensor out_cu_q;    /* cumulative rows */
  assay_tensor out_cu_kv;   /* cumulative keys */
  assay_tensor out_starts;  /* first token */
  assay_tensor out_table;   /* pages or slots, a row for each request, batch or row of Q */
  assay_tensor out_indices; /* pages or slots, flat */
  assay_tensor out_request; /* request of each entry */
  assay_tensor out_counts;
  /* A schedule, int32: see ps_metadata. W >= tiles + workers. */
  assay_tensor work_indptr;        /* [workers + 1] */
  assay_tensor work_info;          /* [W, 8] */
  assay_tensor reduce_indptr;      /* [workers + 1] */
  assay_tensor reduce_final_map;   /* [workers, 3] */
  assay_tensor reduce_partial_map; /* [2 workers] */
  /* Scales of codes that cache_write gets ready made. */
  assay_tensor dense_k_scale; /* fp32 [rows, heads_kv] */
  assay_tensor dense_v_scale; /* as dense_k_scale */
  assay_tensor encoder_len; /* int32 [R], step, decode_metadata: tokens before a request's own in the table */
  assay_tensor slot_map;    /* int32 [slots of a full pool], step, local_batches with full_pool: slot s of the
                               table is slot slot_map[s] of the cache; pages stay whole */
  /* step with two_sources, the dimensions from head_dim_v on: of layout MLA those of q [T, heads_q,
   * head_dim_qk - head_dim_v] in q_format, else those of dense_k, which all heads have in common [rows, 1,
   * head_dim_qk - head_dim_v] in source_format. */
  assay_tensor rope;
} assay_tensors;

/* The mathematics and storage of one case, scalars only; host arrays repeat the lengths so that a
 * planner needs no copy from the device. The struct and its arrays live as long as the call that gets them:
 * what a plan needs of them it copies.
 *
 * Ops that attend, query head h on KV head h / (heads_q / heads_kv), in this order, on dequantised values:
 *
 * 1. s = softmax_scale * (q . k)
 * 2. softcap > 0: s = softcap * tanh(s / softcap)
 * 3. alibi, row at p and key at k <= p: LINEAR s -= slopes[h] * (p - k), SQRT s -= slopes[h] * sqrt(p - k)
 * 4. Only keys count that mask, window and chunk all let the row see (enum assay_mask says where both stand).
 * 5. O = sum exp(s) v / Z and LSE = ln Z with Z = sum exp(s); has_sinks: exp(sinks[h]) joins Z (a final
 * logit: not scaled, capped or biased), so the LSE holds it, and brings no value. ln Z as it is: its sign is
 * not turned (two keys of s = 0: 0.693), and neither a maximum nor ln(number of keys) is taken off. Slopes
 * and softmax_scale are what is given here, not what a textbook has for so many heads or dimensions.
 *
 * A row that sees no key: O = 0 and LSE = -inf, or sinks[h] with a sink. Both are written. */
typedef struct assay_problem {
  uint32_t struct_size;
  int32_t op;   /* enum assay_op */
  int32_t mask; /* enum assay_mask */
  int32_t heads_q, heads_kv, head_dim_qk, head_dim_v;
  int32_t q_format, k_format, v_format, o_format;   /* enum assay_format */
  int32_t q_scale_kind, k_scale_kind, v_scale_kind; /* enum assay_scale */
  float q_scale_host, k_scale_host, v_scale_host;   /* only for ASSAY_SCALE_HOST */
  float softmax_scale;                              /* multiplies the dot product, natural units */
  float softcap;                                    /* 0 = off; s = cap * tanh(s / cap) */
  int32_t window_left, window_right;                /* tokens, inclusive; -1 = unlimited */
  int32_t chunk;                                    /* tokens, 0 = off */
  int32_t alibi;                                    /* enum assay_alibi */
  int32_t has_sinks;
  int32_t layout;    /* enum assay_layout, paged only */
  int32_t page_size; /* tokens, paged only */
  int32_t table;     /* enum assay_table */
  int32_t requests, max_q_len, max_kv_len;
  int64_t total_q, total_kv; /* tokens */
  const int32_t* q_len;      /* host [requests] */
  const int32_t* kv_len;     /* host [requests] */
  /* Of the data ops. cache_gather: q_len are the tokens to gather of kv_len cached ones. */
  int64_t rows;          /* total_q, in cache_write with the padded rows */
  int32_t states;        /* merge_states, decode_splitkv: partial results of each row, >= 1 */
  int32_t source_format; /* enum assay_format: fp32, bf16 or fp16 */
  int32_t part_tokens;   /* decode_splitkv: keys of a part; 0 = `states` parts of whole pages */
  /* What the tensors of these names hold; NULL: there are none, and a kernel that looks at neither must
   * refuse a problem that has one. */
  const int32_t* first_key; /* host [requests] */
  const int32_t* positions; /* host [total_q] */
  /* Of the metadata ops (enum assay_op). */
  int32_t ranks, interleave;    /* dcp_lengths: >= 1; turns in tokens, >= 1 */
  int32_t threshold;            /* split_batch, step: rows a decode has at most, 1 + drafts */
  int32_t token_budget;         /* chunk_metadata, step: tokens of context gathered at a time, >= 1 */
  int32_t prefix_tokens;        /* cascade_metadata: tokens that all requests have in common */
  int32_t workers;              /* schedules, cascade_metadata (blocks that run at once): >= 1 */
  int32_t tile_rows, tile_keys; /* schedules: >= 1; keys are rounded up to whole pages */
  int32_t flat_tree;            /* tree_tables, swa_tree_table: tree_mask has a column for every key */
  /* Trees of step, tree_tables and swa_tree_table: draft steps whose tokens are cached already (enum
   * assay_mask). Lines set it for these ops only, and 0 for all others; a kernel of another op that does not
   * look at it refuses a tree where it is not 0, for whoever calls it without assay. */
  int32_t drafted;
  int32_t no_write; /* step: the cache holds the new keys already, as of a layer that shares it; k, v and
                       their scales are only read, and there is no slot_mapping */
  /* What the tensor of this name holds; NULL: there is none, and a kernel of op step or decode_metadata that
   * does not look at it must refuse a problem that has one. */
  const int32_t* encoder_len; /* host [requests] */
  int32_t full_pool; /* step, local_batches: the table names slots of another pool, which slot_map leads to
                        those of k and v; a kernel that does not look at it must refuse it */
  /* step: what latent attention makes of one projection each comes in tensors of its own. Layout MLA: q and
   * dense_k hold the first head_dim_v dimensions, rope the others of q and dense_v those of the new rows (as
   * cache_write has it). Other layouts: dense_k holds the first head_dim_v dimensions, rope the others. */
  int32_t two_sources;
  int32_t computed_scales; /* quantize_int8, scale kind CHANNEL: scales come from the rows; a kernel that does
                              not look at it must refuse it */
} assay_problem;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_PROBLEM_H_ */
