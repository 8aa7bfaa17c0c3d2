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

#include "assay_problem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_ABI_VERSION 2u

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

/* How a linear position bias is added. COLUMN: slope x (the key's position) to every score, and slope x (the
 * row's position) off the LSE; numbers as large as the context is long, so scores lose that many bits. */
enum assay_bias_form { ASSAY_BIAS_DISTANCE = 0, ASSAY_BIAS_COLUMN = 1 };

/* A kernel's arithmetic() gets assay_default_arithmetic() filled in and changes what differs. Ops that
 * compute no scores read few fields: merge_states and reduce exp_relative_error and merge_lse_format (states
 * are read and results written in the formats of the problem), those that convert formats
 * scaling_relative_error; op step that one beside the rest, for what it writes to the cache. */
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
  /* Format that code * scale of K and V is rounded to, element by element, before the products: of both, also
   * of one that has no scale (fp16 that is multiplied as bf16; every code of 8 bits is a number of 16). A
   * kernel that multiplies one of them as it lies, in 16 bits without a scale, says dequant_replayed 0, which
   * lets it round and does not make it. NONE: codes are multiplied and scales go on scores and results, or
   * code * scale is rounded once to fp32 and multiplied in fp32 (ASSAY_ACC_FMA); all are allowed for. A scale
   * of V for each token has to go into P before P is rounded then, which no replay knows: leave
   * order_declared 0. BF16, FP16: dequantised for a matrix unit. FP32: one more rounding to fp32 than NONE.
   */
  int32_t dequant_format;
  int32_t partial_format, partial_lse_format; /* between splits */
  double rescale_lag_log2;                    /* lazy rescale: how far, in powers of two, weights may stand
                                                 above the maximum, with or without a declared order; 0 = the
                                                 maximum moves wherever it rises */
  double p_offset_log2;                       /* P scaled by 2^offset before rounding */
  double exp_relative_error;                  /* of the exponential used */
  double tanh_relative_error;
  /* Relative error put on Q before the dot product: softmax scale, Q's or K's scale, or Q's code * scale
   * multiplied into Q and rounded. Rounding to a format of unit roundoff u: u + 2^-24 (bf16 2^-8 + 2^-24).
   * 0 also covers Q's code * scale rounded once to fp32 with fp32 products (ASSAY_ACC_FMA). */
  double q_rounding;
  /* Replay: with order_declared the kernel promises that tile_keys, tile_reverse, splits, split_keys,
   * rescale_lag_log2, p_offset_log2 and p_format are what happens, so that the rounding of P is repeated.
   * Tile t of a request holds its keys t * tile_keys .. (t + 1) * tile_keys - 1; a row's running maximum
   * advances once per tile, over its visible keys (and starts at the sink where sink_first is set). Part s of
   * S holds the tiles floor(T s / S) .. floor(T (s + 1) / S) - 1 of T = ceil(kv_len / tile_keys), or the keys
   * s * split_keys .. when split_keys > 0, or as at item_rows. 0: tiles (tile_keys > 0) come as tile_reverse
   * says where splits is 1; else keys come in any order, in any parts; V's values have no say in either. */
  int32_t order_declared;
  int32_t split_keys;       /* keys of a part; a multiple of tile_keys, and `splits` the parts of the longest
                               request: ceil(max_kv_len / split_keys); 0 = `splits` even parts */
  int32_t sink_first;       /* the sink is in the running maximum of every part from the start, and weighs
                               once; 0 = joined at the end. In one part's alone: no order_declared */
  int32_t p_int8_tile_max;  /* p_format INT8: P scaled by 127 / (largest P of the tile); 0 = by 127 */
  int32_t dequant_replayed; /* K, V = rnd(code * scale) to dequant_format in one rounding: repeated in
                               the reference, no error; 0 = some rounding to dequant_format. Op step: bits
                               of enum assay_request_class, requests all of whose keys in the cache are
                               read as a gather leaves them, rnd(fp32(code * scale)); of the others codes
                               are multiplied */
  /* Keys n - 1, 2 n - 1, ... of every tile take the polynomial below, counted from the tile's first key and
   * whatever a row sees; 0 = none. Tiles are those of order_declared, counted from the request's first key,
   * also where a part begins inside one (decode_splitkv). Without order_declared any key may take it. Counted
   * otherwise: the larger of the two errors as exp_relative_error, and 0 here. */
  int32_t exp_poly_every;
  double exp_poly_relative_error;
  /* Data ops: relative error of x / scale, of max|x| / 127 and of code * scale before they are rounded
   * to the result's format. 0 = rounded correctly to fp32 (one IEEE division or product): then every code and
   * scale is known to the bit. A product with a rounded reciprocal errs by 2^-23. */
  double scaling_relative_error;
  /* Names of the device's instructions (assay_instruction) that decide a field above; NULL = none. Where the
   * device was calibrated, what was measured replaces the field: qk and pv, exp_ and tanh_relative_error. */
  const char *qk_instruction, *pv_instruction, *exp_instruction, *tanh_instruction;
  /* Absolute error of the tanh of a soft cap, beside the relative one: (e^x - e^-x) / (e^x + e^-x) errs by
   * about 2^-23 however small its result. */
  double tanh_absolute_error;
  /* Logarithm of a row sum (of a part, and of the whole): |error| <= absolute + relative |ln(sum)|. Both 0:
   * absolute 2^-21. lg2.approx.ftz: 2^-22 and 2^-22. */
  double log_absolute_error, log_relative_error;
  int32_t bias_form; /* enum assay_bias_form */
  /* Unit that adds up the row sum. All 0: fp32 additions, row_sum_chain of them in a row. FMA: weights are
   * dealt to `block` lanes in turn, as keys to pv's. BLOCK: a tensor core that multiplies P by a column of
   * ones (then row_sum_from_rounded_p is what happens). */
  assay_accumulator row_sum;
  /* Absolute error of what q_rounding describes, in units of Q as stored (code * scale): half the smallest
   * subnormal of the format over the factor that Q was multiplied by before it was rounded. */
  double q_rounding_absolute;
  /* Q = rnd(fp32(Q * q_replayed_factor)) to this format: repeated in the reference, no error (q_rounding then
   * covers what comes on top). For a Q without scale; NONE: not so. */
  int32_t q_replayed_format;
  double q_replayed_factor;
  int32_t p_roundings;       /* P is rounded to p_format so often, rescaled in between; 0 = once, against the
                                maximum. P divided by the row sum before it is rounded stands elsewhere on its
                                grid: 2; of 8 bits weights_lse_format, for shares of a row are subnormal there */
  int32_t partial_roundings; /* levels of merging: each stores O and LSE in the partial formats; 0 = 1 */
  int32_t split_interleaved; /* part s of S holds the tiles s, s + S, s + 2 S, ...; not with split_keys */
  int32_t splits_vary;       /* 1: any request may be cut into fewer parts than `splits`, or into none */
  int32_t promote_every;     /* promote_pv after so many tiles of a part, as they are visited; 0 = each */
  /* step: bits of enum assay_request_class, the requests whose rows see new keys and values as they come in
   * dense_k and dense_v. The others see what lies in the cache, quantised where the cache is. */
  int32_t dense_new_keys;
  /* Parts cut by what rows see, in place of the even parts and of split_keys at order_declared. item_rows >
   * 0: an item is a request, a KV head and so many of its rows (new token, query head of that KV head; heads
   * innermost; the last item has what is left). It has the tiles from the one with the first key that any of
   * its rows sees to the one with the last; `first` is the first of them. Part s of an item of T tiles, s <
   * `splits`, holds the tiles first + floor(T s / splits) .. first + floor(T (s + 1) / splits) - 1. */
  int32_t item_rows;
  /* > 0, with item_rows: the tiles of all items are one list of N tiles (requests outermost, then KV heads,
   * then rows), cut into so many shares, and what a share has of an item is a part. Share i ends before place
   * floor(N (i + 1) / shares) of the list; with share_tiles > 0 before (i + 1) * share_tiles, the last at N.
   * `splits` is the most parts an item may have, or more. */
  int32_t shares, share_tiles;
  /* With shares. > 1: what a share has of an item is so many parts, which take its tiles in turn. */
  int32_t share_turns;
  /* 1, with q_replayed_format: before it is rounded Q takes the scales per channel, its own and K's, and keys
   * are multiplied as codes: Q = rnd(fp32(fp32(code * fp32(q_scale * k_scale)) * q_replayed_factor)), a scale
   * of another kind than ASSAY_SCALE_CHANNEL being 1 here and outside the product. Not of op step, and
   * where neither has scales per channel it says nothing more than q_replayed_format. */
  int32_t q_replayed_scales;
  /* 0: where a row's running maximum stays, what was summed stays: it is not multiplied, or by exactly 1 (an
   * exponential that is exact at 0, as ex2.approx is). 1: at every tile of its part, those included of which
   * a row sees no key, it is multiplied by an exponential that is off by exp_relative_error at 0 too. Costs
   * as many times exp_relative_error as a part has tiles, and every statement about random errors. */
  int32_t rescale_inexact;
  /* step, with splits_vary: bits of enum assay_request_class, the requests whose contexts go through a chain
   * of chunks as chunk_metadata cuts them, the budget being divided among those of these classes that have a
   * context: the result of each chunk is stored, merged with that of the chunks before and stored again; the
   * new keys come last. `partial_roundings` is that of the longest chain. Requests of other classes have no
   * chain: what of them is stored goes through `partial_roundings` less the chunks of the longest chain, plus
   * one, levels. 0: where parts end is not said. */
  int32_t chained_requests;
  /* Weights relative to a log-sum-exp, in place of a maximum and a division by the sum of the same weights:
   * the format that the LSE is rounded to before it is subtracted (FP32: as it was computed). NONE: not so.
   * Which formula a kernel follows otherwise (one pass or two, natural or base 2, O divided at the end or
   * weights before they meet O) is its own affair, of merges too, as long as what it divides by is the sum of
   * what it weighed with.
   * weights_lse_format: O = sum rnd(exp(x - LSE)) v, the LSE being that of a pass of its own, and scores
   * perhaps computed anew: the LSE of the row, sums of parts being added as they are, or of each part, whose
   * results are then merged. Without order_declared and row_sum_from_rounded_p.
   * merge_lse_format: o = sum exp(lse_s - LSE) o_s of partial results, on every level of merging, the LSE
   * being what the merge gives as its own. merge_states and reduce read it, too. */
  int32_t weights_lse_format, merge_lse_format;
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
  ASSAY_PROMISE_REPEATABLE = 1,      /* same inputs, same bits, on whatever pages and strides they lie */
  ASSAY_PROMISE_BATCH_INVARIANT = 2, /* a request's bits do not depend on its batch */
  /* A captured run may be replayed after device memory changed in place: other lengths in cu_q, cu_kv and
   * kv_len (no longer than max_q_len and max_kv_len, in sum no more than total_q and total_kv), other tables,
   * other values. Rows behind cu_q[requests] stay. The host's lengths give run() sizes of its grid only. */
  ASSAY_PROMISE_GRAPH = 4,
  /* Ops prefill and paged: where the tensor of the LSE is null nobody asks for one, and O is as ever, to the
   * bit: only with REPEATABLE. Kernels without this bit always get one, but for those of
   * ASSAY_CONTRACT_NO_LSE, which never do. */
  ASSAY_PROMISE_LSE_OPTIONAL = 8
};

/* What a kernel does not promise, or does its own way. Each bit is a narrower contract: cases outside of it
 * are refused in the kernel's name, everything else is checked as ever, and rows of results say what was
 * declared. The bits with LSE in their name are for the ops prefill and paged. */
enum assay_contract {
  /* K, V, partial_o and their scales hold finite numbers also where nothing may be read (slots behind the
   * last key, blocks that nobody owns, gaps between rows, states of no weight): P = 0 times such a value is
   * 0, where a NaN would stay. Results must still not depend on what stands there. */
  ASSAY_CONTRACT_FINITE_UNUSED = 1,
  /* No LSE: its tensor is null. */
  ASSAY_CONTRACT_NO_LSE = 2,
  /* LSE = log2(Z), sums of powers of two as many kernels keep them; not with NO_LSE. */
  ASSAY_CONTRACT_LSE_BASE_2 = 4,
  /* LSE lies as [heads_q, T], dense: its tensor has the strides {1, T} in every case, T = total_q (in a
   * graph: at capture). Not with NO_LSE. Without this bit the strides are whatever a case says. */
  ASSAY_CONTRACT_LSE_HEADS_FIRST = 8,
  /* No request has q_len 0 or kv_len 0, in graphs neither. */
  ASSAY_CONTRACT_NO_EMPTY_REQUESTS = 16,
  /* Rows of O and LSE behind cu_q[requests] may be overwritten (a graph replayed for fewer rows). */
  ASSAY_CONTRACT_ROWS_BEHIND_LOST = 32,
  /* Op step: a captured run may be replayed (ASSAY_PROMISE_GRAPH) for batches of decodes alone; every
   * request, at capture and at replay, has at most `threshold` rows. */
  ASSAY_CONTRACT_GRAPH_DECODES = 64,
  /* The tokens of a page lie in its slots in their order, also where a token table or slots to write to name
   * each of them: the first of a page says where all are. Without this bit they lie in any order. */
  ASSAY_CONTRACT_SLOTS_IN_ORDER = 128
};

/* One kernel. Functions get the entry itself, so one function may serve many kernels that differ by context.
 * What supports, arithmetic, workspace_bytes and workspace_zeroed_bytes say follows from their arguments:
 * asked again they answer the same, and a kernel that does not is wrong. Order of calls: supports,
 * arithmetic, workspace_bytes, workspace_zeroed_bytes, plan, [refresh,] run as often as wanted, free_plan.
 * Several plans may exist, each over tensors of its own. */
typedef struct assay_kernel assay_kernel;

/* A kernel in its place in a kernel made of kernels. */
typedef struct assay_stage {
  const char* name; /* "decode" */
  const assay_kernel* kernel;
} assay_stage;

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
  /* Enqueue on stream (CPU: NULL, runs to completion). Any run may find other values in the operands that are
   * read, and anything in outputs and workspace. Must not write anything but operands of role OUT and
   * IN_OUT (enum assay_op says which elements) and workspace. */
  int (*run)(const assay_kernel* self, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
             char* error, size_t error_size);
  uint32_t contracts; /* bits of enum assay_contract; 0: none, the whole of this header holds */
  /* Of a kernel made of kernels, whose run() enqueues theirs, maybe beside each other; else 0 and NULL. */
  int32_t stage_count;
  const assay_stage* stages; /* what stands in each place */
  /* What run() enqueues for the problem, in order, a line "stage: kernel, of what" each. A function of the
   * problem alone. ASSAY_UNSUPPORTED as supports(). */
  int (*dispatch)(const assay_kernel* self, const assay_problem*, char* text, size_t size);
  /* The same kernel with others in the `count` places named, called `name`; it lives as long as the process.
   * ASSAY_INVALID_ARGUMENT: no such place, or a kernel of an op that does not fit there, and what would. */
  int (*with_stages)(const assay_kernel* self, const char* name, const assay_stage* stages, int32_t count,
                     const assay_kernel** made, char* error, size_t size);
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
  /* From here to measure_matrix_rate nothing may be NULL (who cannot measure answers ASSAY_UNSUPPORTED); what
   * comes behind may, on a CPU and elsewhere, and means that the library has no such thing. */
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
  /* 1: kernels take any memory of this process, and run to completion in the thread that calls them or before
   * they return. Operands then lie in memory of the caller's: behind unreadable pages, inputs read-only while
   * a kernel runs. 0: in what allocate() gives. */
  int32_t host_memory;
} assay_backend;

/* The one exported symbol, called once or more often in a process: the same table each time, with the same
 * kernels. Returns NULL when it cannot serve `abi_version`. Version 2 is not read by programs
 * of version 1, nor the other way round: rebuild against this header. */
const assay_backend* assay_backend_open(uint32_t abi_version);
typedef const assay_backend* (*assay_backend_open_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_KERNEL_H_ */
