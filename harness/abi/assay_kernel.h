/* SPDX-License-Identifier: Apache-2.0
 *
 * The door between assay and attention kernels, in C. A backend is a shared library that exports
 * `assay_backend_open`; it lists kernels and knows how to allocate, copy and synchronise on its
 * devices. Built-in kernels, third-party libraries and (later) Python functions are this same table.
 * Nothing here throws, prints or exits: every failure is a status plus a text.
 *
 * Growing the tables: append fields only; readers look at `struct_size` before touching a new field, and who
 * fills a caller's struct (assay_arithmetic, assay_device) writes no more than the `struct_size` found in it.
 */
#ifndef ASSAY_KERNEL_H_
#define ASSAY_KERNEL_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_ABI_VERSION 2u
#define ASSAY_MAX_RANK 5

/* Result of every call across the door. A refusal (`UNSUPPORTED`) is not a failure. `supports`, `plan` and
 * `run` of a kernel may refuse, with "required ..., supported ..., missing ..." as the text. run may do so
 * only before it has served the problem once with this plan, and writes nothing then: what was computed once
 * is supported, and a later refusal is wrong. */
enum assay_status {
  ASSAY_OK = 0,
  ASSAY_UNSUPPORTED = 1,
  ASSAY_INVALID_ARGUMENT = 2,
  ASSAY_OUT_OF_MEMORY = 3,
  ASSAY_FAILED = 4
};

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
  ASSAY_INT8 = 8,         /* symmetric, codes -127..127 (-128 is never produced) */
  ASSAY_UINT8 = 9,
  ASSAY_INT32 = 10,
  ASSAY_INT64 = 11
};

enum assay_op {
  ASSAY_OP_PREFILL = 1, /* ragged q against contiguous ragged k, v */
  ASSAY_OP_PAGED = 2,   /* ragged q against a paged cache */
  /* Building blocks. They read and write the operands named here and no others; rows = assay_problem.rows.
   * Rows from cu_q[requests] on belong to no request (a graph replayed for fewer tokens) and are not written;
   * cache_write, whose padding may stand anywhere, knows it by its slots.
   * merge_states: partial_o, partial_lse, cu_q [, sinks] -> o, lse. Every row and head is the merge of
   *   `states` partial results: w_s = exp(lse_s - M), o = sum w_s o_s / sum w_s, lse = M + ln(sum w_s). A
   *   state of lse -inf counts nothing, whatever its o holds (NaN included). All -inf: o = 0, lse = -inf.
   *   With has_sinks the states come without the sink, and exp(sink - M) joins the sum once.
   * cache_write: dense_k, dense_v, slot_mapping, k_scale, v_scale -> k, v. Row t goes to its slot of the
   *   cache; a row of slot -1 is padding and goes nowhere. code = round(x / scale) to nearest even,
   *   saturated; int8 to -127..127. No scale: one rounding of x. Scale kind TOKEN_HEAD (int8): scale =
   *   max|x| / 127 of the row and head, written to k_scale and v_scale beside the codes. Layout MLA: dense_k
   *   is the whole latent row, no dense_v. All other bytes of the cache stay as they are.
   * cache_gather: k, v, their scales, the page table, kv_len, cu_q, seq_starts, token_to_batch -> dense_k,
   *   dense_v. Row i, of request r = token_to_batch[i], is the cached token seq_starts[r] + i - cu_q[r],
   *   code * scale rounded to o_format. Layout MLA: dense_k only.
   * quantize_int8: source, cu_q -> q (int8). Scale kind CHANNEL (mode 0): q_scale is given. TOKEN_HEAD (mode
   * 2): scale = max|x| / 127 of the row and head, written to q_scale (its strides say which axis runs
   *   fastest). Rounding as cache_write. A row of zeros has codes 0 and any finite scale >= 0.
   * decode_splitkv: the operands of ASSAY_OP_PAGED without sinks, q_len at most 1 -> partial_o, partial_lse,
   *   which are what merge_states takes: `states` partial results over disjoint parts of a request's keys. Of
   *   the kv_len keys part s holds s * part_tokens .. (s + 1) * part_tokens - 1 where part_tokens > 0 (states
   * * part_tokens >= max_kv_len), else P * floor(s N / states) .. P * floor((s + 1) N / states) - 1 with P =
   *   page_size and N = ceil(kv_len / P): whole pages, shared out evenly. Positions, windows and biases are
   *   those of the whole request. partial_o is the part's own softmax average in o_format and partial_lse its
   *   LSE; a part of which the row sees nothing has lse -inf and any o. One number per part and row, and not
   *   the pair of maximum and sum that some kernels keep: the pair depends on the order of the keys (any
   *   maximum not too far off serves), m + ln(sum) does not, and the merge needs no more (Milakov and
   *   Gimelshein 2018, arXiv:1805.02867; FlashInfer's state, Ye et al. 2025, arXiv:2501.01005). */
  ASSAY_OP_MERGE_STATES = 3,
  ASSAY_OP_CACHE_WRITE = 4,
  ASSAY_OP_CACHE_GATHER = 5,
  ASSAY_OP_QUANTIZE_INT8 = 6,
  ASSAY_OP_DECODE_SPLITKV = 7
};

/* Base visibility; window and chunk conditions come on top (all conditions together). */
enum assay_mask {
  ASSAY_MASK_CAUSAL = 0, /* key j <= position p = kv_len - q_len + i */
  ASSAY_MASK_FULL = 1,   /* all keys (bidirectional encoder) */
  ASSAY_MASK_CROSS = 2,  /* all keys of the encoder; kv_len is the encoder length */
  ASSAY_MASK_TREE = 3    /* prefix keys all visible, draft keys by tree_mask */
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

/* Order of axes inside the cache. x = 16 bytes / element size of K. */
enum assay_layout {
  ASSAY_LAYOUT_NHD = 0,      /* [blocks, page, heads_kv, dim] */
  ASSAY_LAYOUT_HND = 1,      /* [blocks, heads_kv, page, dim] */
  ASSAY_LAYOUT_X = 2,        /* K [blocks, heads_kv, dim/x, page, x], V [blocks, heads_kv, dim, page] */
  ASSAY_LAYOUT_SHUFFLED = 3, /* K as X, V [blocks, heads_kv, page/x, dim, x] */
  ASSAY_LAYOUT_MLA = 4       /* [blocks, page, head_dim_qk]; V is the first head_dim_v of K */
};

enum assay_table {
  ASSAY_TABLE_NONE = 0,
  ASSAY_TABLE_BLOCK = 1, /* block_table [requests, max_pages], padded */
  ASSAY_TABLE_CSR = 2,   /* indptr [requests+1], indices [nnz], last_page_len [requests] */
  ASSAY_TABLE_TOKEN = 3  /* block_table [requests, max_kv_len] of flat slots page * page_size + slot */
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
  assay_tensor k;             /* prefill [S, heads_kv, head_dim_qk]; paged: by layout */
  assay_tensor v;             /* prefill [S, heads_kv, head_dim_v]; paged: by layout */
  assay_tensor o;             /* [T, heads_q, head_dim_v], written by the kernel */
  assay_tensor lse;           /* fp32 [T, heads_q], natural log, written by the kernel */
  assay_tensor q_scale;       /* fp32: TENSOR [1]; HEAD [heads_q]; REQUEST_HEAD [R, heads_kv];
                                 TOKEN_HEAD [T, heads_q]; CHANNEL [heads_q, head_dim_qk] */
  assay_tensor k_scale;       /* fp32: TENSOR [1]; HEAD [heads_kv]; REQUEST_HEAD [R, heads_kv];
                                 TOKEN_HEAD paged [B, heads_kv, page], prefill [S, heads_kv];
                                 CHANNEL [heads_kv, head_dim_qk] */
  assay_tensor v_scale;       /* as k_scale with head_dim_v */
  assay_tensor cu_q;          /* int32 [R+1], first row of each request */
  assay_tensor cu_kv;         /* int32 [R+1], prefill only */
  assay_tensor kv_len;        /* int32 [R], visible tokens (vLLM seq_len) */
  assay_tensor block_table;   /* int32, see enum assay_table */
  assay_tensor indptr;        /* int32 [R+1], CSR only */
  assay_tensor indices;       /* int32 [nnz], CSR only */
  assay_tensor last_page_len; /* int32 [R], CSR only; 0 for an empty request */
  assay_tensor alibi_slopes;  /* fp32 [heads_q] */
  assay_tensor sinks;         /* fp32 [heads_q], natural-log logits */
  assay_tensor tree_mask;     /* uint8 [sum q_len^2], row-major n x n per request, 1 = visible */
  assay_tensor tree_indptr;   /* int64 [R+1], first entry of each request in tree_mask */
  assay_tensor workspace;     /* uint8 [workspace_bytes]; contents undefined before a run and free to change
                                 after it, but for what refresh left and the zeroed part (assay_kernel) */
  /* Of the building blocks (enum assay_op). */
  assay_tensor partial_o;    /* [states, rows, heads_q, head_dim_v]; source_format, decode_splitkv o_format */
  assay_tensor partial_lse;  /* fp32 [states, rows, heads_q], natural log; -inf: an empty state */
  assay_tensor dense_k;      /* [rows, heads_kv, head_dim_qk]; source_format, cache_gather o_format */
  assay_tensor dense_v;      /* [rows, heads_kv, head_dim_v], as dense_k */
  assay_tensor slot_mapping; /* int64 [rows], block * page_size + slot, each at most once; -1 = padding */
  assay_tensor seq_starts;   /* int32 [R], first cached token of each request to gather */
  assay_tensor token_to_batch; /* int32 [rows], request of each gathered row */
  assay_tensor source;         /* source_format [rows, heads_q, head_dim_qk] */
} assay_tensors;

/* The mathematics and storage of one case, scalars only; host arrays repeat the lengths so that a
 * planner needs no copy from the device. Rules: see the table in reference/README.md. */
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
  /* Of the building blocks. cache_gather: q_len are the tokens to gather of kv_len cached ones. */
  int64_t rows;          /* total_q, in cache_write with the padded rows */
  int32_t states;        /* merge_states, decode_splitkv: partial results of each row, >= 1 */
  int32_t source_format; /* enum assay_format: fp32, bf16 or fp16 */
  int32_t part_tokens;   /* decode_splitkv: keys of a part; 0 = `states` parts of whole pages */
} assay_problem;

/* ---- arithmetic model: what the kernel promises about its rounding; error bounds follow from it.
 * Definitions and the measured constants behind the defaults are in reference/README.md. */
enum assay_accumulator_kind {
  ASSAY_ACC_FMA = 0,   /* fp32 fused or separate multiply-add, round to nearest, any order */
  ASSAY_ACC_BLOCK = 1, /* block fused dot product: align, truncate, add (tensor cores) */
  ASSAY_ACC_INT32 = 2  /* exact */
};

typedef struct assay_accumulator {
  int32_t kind;          /* enum assay_accumulator_kind */
  int32_t block;         /* products per step (K); FMA: length of a step, 1 */
  int32_t fraction_bits; /* F: bits kept at alignment; BLOCK only */
  int32_t mantissa_bits; /* m: bits of the stored accumulator; 23 = fp32 */
} assay_accumulator;

/* A kernel's arithmetic() gets assay_default_arithmetic() filled in and changes what differs. */
typedef struct assay_arithmetic {
  uint32_t struct_size;
  assay_accumulator qk, pv;
  int32_t promote_pv;    /* each tile accumulated apart, then added in fp32 */
  int32_t tile_keys;     /* keys per softmax tile; 0 = undeclared */
  int32_t tile_reverse;  /* tiles visited last to first */
  int32_t splits;        /* partial results merged at the end; 1 = none */
  int32_t row_sum_chain; /* longest chain of sequential adds in the row sum; 0 = all keys */
  int32_t p_format;      /* enum assay_format of P in the second product */
  int32_t p_truncated;   /* P rounded toward zero instead of to nearest */
  int32_t row_sum_from_rounded_p;
  /* Format that code * scale of K and V is rounded to, element by element, before the products. NONE: the
   * codes themselves are multiplied and scales go on scores and results, or code * scale is rounded once to
   * fp32 and multiplied in fp32 (ASSAY_ACC_FMA); both are allowed for. BF16, FP16: what a kernel does that
   * dequantises for the matrix unit. FP32: room for one more rounding to fp32 than NONE. */
  int32_t dequant_format;
  int32_t partial_format, partial_lse_format; /* between splits */
  double rescale_lag_log2;                    /* lazy rescale threshold; 0 = always rescale */
  double p_offset_log2;                       /* P scaled by 2^offset before rounding */
  double exp_relative_error;                  /* of the exponential used */
  double tanh_relative_error;
  /* Relative error put on Q before the dot product: softmax scale, Q's or K's scale, or Q's code * scale
   * multiplied into Q and rounded. Rounding to a format of unit roundoff u: u + 2^-24 (bf16 2^-8 + 2^-24).
   * 0 also covers Q's code * scale rounded once to fp32 with fp32 products (ASSAY_ACC_FMA). */
  double q_rounding;
  /* Replay: with order_declared the kernel promises that tile_keys, tile_reverse, splits, split_keys,
   * rescale_lag_log2, p_offset_log2 and p_format describe exactly what happens, so that the rounding of
   * P can be repeated. Tile t of a request holds its keys t * tile_keys .. (t + 1) * tile_keys - 1; the
   * running maximum of a row advances once per tile, over the visible keys of the tile (and starts at the
   * sink where sink_first is set). Part s of S holds the tiles floor(T s / S) .. floor(T (s + 1) / S) - 1
   * of T = ceil(kv_len / tile_keys), or the keys s * split_keys .. when split_keys > 0. */
  int32_t order_declared;
  int32_t split_keys;       /* keys of a part; a multiple of tile_keys; 0 = `splits` even parts */
  int32_t sink_first;       /* the sink is in the running maximum from the start; 0 = joined at the end */
  int32_t p_int8_tile_max;  /* p_format INT8: P scaled by 127 / (largest P of the tile); 0 = by 127 */
  int32_t dequant_replayed; /* K, V = rnd(code * scale) to dequant_format in one rounding: repeated in
                               the reference, no error; 0 = some rounding to dequant_format */
  int32_t exp_poly_every;   /* every n-th key of a tile takes the polynomial below; 0 = none */
  double exp_poly_relative_error;
  /* Building blocks: relative error of x / scale, of max|x| / 127 and of code * scale before they are rounded
   * to the result's format. 0 = rounded correctly to fp32 (one IEEE division or product): then every code and
   * scale is known to the bit. A product with a rounded reciprocal errs by 2^-23. */
  double scaling_relative_error;
  /* Names of the device's instructions (assay_instruction) that decide a field above; NULL = none. Where the
   * device was calibrated, what was measured replaces the field: qk and pv, exp_ and tanh_relative_error. */
  const char *qk_instruction, *pv_instruction, *exp_instruction, *tanh_instruction;
} assay_arithmetic;

/* What an undeclared kernel is judged by: sequential fp32 in any order, P kept in fp32, one pass over keys of
 * unknown order, an approximate reciprocal. Nothing is assumed that a plain correct fp32 kernel might not do;
 * one with a coarser P or accumulator must say so. Fields not named here are 0 or NULL. */
static inline assay_arithmetic assay_default_arithmetic(void) {
  const assay_accumulator fp32 = {ASSAY_ACC_FMA, 1, 0, 23};
  assay_arithmetic a;
  memset(&a, 0, sizeof(a));
  a.struct_size = sizeof(a);
  a.qk = a.pv = fp32;
  a.splits = 1;
  a.p_format = a.partial_format = a.partial_lse_format = ASSAY_FP32;
  a.exp_relative_error = 1.0 / (1 << 21);
  a.tanh_relative_error = 1.0 / (1 << 11);
  a.scaling_relative_error = 1.0 / (1 << 22);
  return a;
}

typedef struct assay_device {
  uint32_t struct_size;
  char name[128];
  char uuid[64];           /* empty where the device has none */
  char arch[32];           /* "x86-64-v4+amx", "sm_90", "gfx942" */
  int32_t multiprocessors; /* CPU: hardware threads */
  int64_t memory_bytes;
  int64_t cache_bytes; /* last private level: the size to flush for cold runs */
  char pci[32];        /* "0000:c1:00.0"; empty where the device has none */
} assay_device;

typedef struct assay_plan assay_plan; /* opaque, owned by the kernel */

enum assay_promise {
  ASSAY_PROMISE_REPEATABLE = 1,      /* same inputs, same bits */
  ASSAY_PROMISE_BATCH_INVARIANT = 2, /* a request's bits do not depend on its batch */
  /* A captured run may be replayed after device memory changed in place: other lengths in cu_q, cu_kv and
   * kv_len (no longer than max_q_len and max_kv_len, in sum no more than total_q and total_kv), other tables,
   * other values. Rows behind cu_q[requests] stay. The host's lengths give run() sizes of its grid only. */
  ASSAY_PROMISE_GRAPH = 4
};

/* One kernel. Functions get the entry itself, so one function may serve many kernels that differ by context.
 * Order of calls: supports, arithmetic, workspace_bytes, workspace_zeroed_bytes, plan, [refresh,] run as
 * often as wanted, free_plan. Several plans may exist, each over tensors of its own. */
typedef struct assay_kernel assay_kernel;
struct assay_kernel {
  uint32_t struct_size;
  const char* name;        /* file, registry and report column: the same string */
  const char* description; /* one line */
  const char* arch;        /* what it needs, e.g. "x86-64", "sm_90a" */
  int32_t op;              /* enum assay_op */
  uint32_t promises;       /* bits of enum assay_promise */
  void* context;           /* the kernel's own; nobody else looks at it */
  /* ASSAY_OK, or ASSAY_UNSUPPORTED with "required ..., supported ..., missing ..." in why. The tensors are
   * those of the call to come but for the workspace: formats, shapes, strides, roles and the alignment of
   * data (modulo 4096) may be looked at, memory may not. NULL: only the problem is known; OK then means "with
   * tensors it likes", and a refusal holds for all tensors. The device may be NULL: any. */
  int (*supports)(const assay_kernel* self, const assay_problem*, const assay_tensors*, const assay_device*,
                  char* why, size_t why_size);
  /* Changes what differs from assay_default_arithmetic(); OK with nothing changed declares the defaults.
   * NULL, or ASSAY_UNSUPPORTED: undeclared, judged by the same defaults and shown as undeclared. */
  int (*arithmetic)(const assay_kernel* self, const assay_problem*, assay_arithmetic*);
  int64_t (*workspace_bytes)(const assay_kernel* self, const assay_problem*); /* may be NULL: 0 */
  /* Of the workspace, the first bytes that are zero when a plan is made and then belong to the runs,
   * refreshes and replays with that plan alone: nobody else touches them (semaphores that every run leaves as
   * it found them). At most workspace_bytes. May be NULL: 0. */
  int64_t (*workspace_zeroed_bytes)(const assay_kernel* self, const assay_problem*);
  /* Host work done once per batch shape, timed apart. May be NULL; then run gets plan == NULL. */
  int (*plan)(const assay_kernel* self, const assay_problem*, const assay_tensors*, assay_plan**, char* error,
              size_t error_size);
  void (*free_plan)(const assay_kernel* self, assay_plan*); /* may be NULL when plan is */
  /* Metadata work that may run apart from run, timed apart. May be NULL: run then does everything. Enqueued
   * on stream after plan and before a run or a replay whenever, since the last refresh with this plan,
   * metadata changed in place (the integers among the operands: lengths, cumulative lengths, tables, slots,
   * starts, trees) or anybody else wrote the workspace. The problem is that of the batch to come: host
   * lengths, total_q and total_kv may differ from plan's as ASSAY_PROMISE_GRAPH allows, everything else is as
   * planned, and the tensors are those of plan. Reads metadata operands on the device, the host's lengths and
   * the workspace; writes the workspace and the plan and nothing else; does not wait for the device. What it
   * leaves in the workspace stays there for the runs and replays that follow. */
  int (*refresh)(const assay_kernel* self, const assay_problem*, const assay_tensors*, assay_plan*,
                 void* stream, char* error, size_t error_size);
  /* Enqueue on stream (CPU: NULL, runs to completion). Must not write anything but operands of role OUT and
   * IN_OUT (enum assay_op says which elements) and workspace. */
  int (*run)(const assay_kernel* self, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
             char* error, size_t error_size);
};

/* ---- calibration: instructions whose arithmetic can be found out by probing (harness/calibrate). */
enum assay_instruction_kind {
  ASSAY_INSTRUCTION_PRODUCTS = 1, /* d = c + sum of `products` products, c and d fp32 */
  ASSAY_INSTRUCTION_FUNCTION = 2  /* fp32 -> fp32, see enum assay_function */
};
enum assay_function {
  ASSAY_FUNCTION_NONE = 0,
  ASSAY_FUNCTION_EXP2 = 1,
  ASSAY_FUNCTION_LOG2 = 2,
  ASSAY_FUNCTION_TANH = 3,
  ASSAY_FUNCTION_RECIPROCAL = 4
};
typedef struct assay_instruction {
  uint32_t struct_size;
  const char* name; /* "mma.sync bf16", "ex2.approx.ftz": the string kernels declare */
  int32_t kind;     /* enum assay_instruction_kind */
  int32_t format;   /* PRODUCTS: enum assay_format of both operands */
  int32_t products; /* PRODUCTS: terms of one dot product */
  int32_t function; /* FUNCTION: enum assay_function */
} assay_instruction;

typedef struct assay_graph assay_graph; /* opaque, owned by the backend */

typedef struct assay_backend {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* name; /* "cpu", "cuda", ... */
  int32_t kernel_count;
  const assay_kernel* const* kernels; /* [kernel_count] */
  int32_t (*device_count)(void);
  int (*device_info)(int32_t device, assay_device*, char* error, size_t);
  int (*use_device)(int32_t device, char* error, size_t); /* once, before anything below */
  int (*allocate)(int64_t bytes, void** pointer, char* error, size_t);
  int (*release)(void* pointer, char* error, size_t);
  int (*copy_to_device)(void* to, const void* from, int64_t bytes, char* error, size_t);
  int (*copy_to_host)(void* to, const void* from, int64_t bytes, char* error, size_t);
  int (*synchronize)(char* error, size_t);
  /* Bytes read per second (op 0), copied, read + write (op 1), or written (op 2), measured over `bytes` of
   * memory. */
  int (*measure_bandwidth)(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t);
  /* Multiply-add rate of the matrix path for a format, in FLOP/s, measured. */
  int (*measure_matrix_rate)(int32_t format, double* flops, char* error, size_t);
  /* One call of kernel->run timed by the device's own clock (events on the stream), in microseconds, after
   * reading and writing `flush_bytes` of other memory (0: hot). Returns when the device is done. NULL: the
   * host's clock round run and synchronize is the time. */
  int (*time_run)(const assay_kernel* kernel, const assay_problem*, const assay_tensors*, assay_plan*,
                  int64_t flush_bytes, double* microseconds, char* error, size_t);
  /* Why times of this backend mean nothing (an emulator): its kernels are checked and never timed. NULL: they
   * may be timed. */
  const char* no_times;
  /* ---- calibration; all NULL where nothing can be probed. After use_device; pointers to host memory. */
  int (*instructions)(const assay_instruction* const** list, int32_t* count, char* error, size_t);
  /* `count` dot products: d[i] = c[i] + sum over j of a[i][j] * b[i][j]; a and b are [count, products],
   * values of the instruction's format (INT8: whole numbers). */
  int (*run_products)(const assay_instruction*, int64_t count, const float* a, const float* b, const float* c,
                      float* d, char* error, size_t);
  /* out[i] = f(the float whose bit pattern is first + i). */
  int (*run_function)(const assay_instruction*, uint32_t first, int64_t count, float* out, char* error,
                      size_t);
  /* Operations per second (2 per product) with every multiprocessor at work; PRODUCTS only. */
  int (*measure_rate)(const assay_instruction*, double* flops, char* error, size_t);
  /* ---- graphs; all NULL where there are none. begin_capture() gives a stream; what calls of kernel->run
   * enqueue there, one call or several, is recorded and not run, until end_capture() makes a graph of it.
   * end_capture (NULL, ...) discards what was recorded: every begin has its end, also after a call that
   * failed. One capture at a time. replay() runs a graph and waits; time_replay() is time_run() of a replay.
   */
  int (*begin_capture)(void** stream, char* error, size_t size);
  int (*end_capture)(assay_graph**, char* error, size_t size);
  int (*replay)(assay_graph*, char* error, size_t);
  int (*time_replay)(assay_graph*, int64_t flush_bytes, double* microseconds, char* error, size_t);
  void (*free_graph)(assay_graph*);
} assay_backend;

/* The one exported symbol. Returns NULL when it cannot serve `abi_version`. Version 2 is not read by programs
 * of version 1, nor the other way round: rebuild against this header. */
const assay_backend* assay_backend_open(uint32_t abi_version);
typedef const assay_backend* (*assay_backend_open_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_KERNEL_H_ */
