// SPDX-License-Identifier: Apache-2.0
// The model kernel's choices as plain data. `Arithmetic` says how a correct kernel computes: a legal variant
// is one of them. `Switches` says what a kernel gets wrong: every switch is off by default, a planted fault
// turns on one (rarely two). A fault or a variant is one line of a table (variants.cpp, faults_*.cpp).
// To add a kind of fault: a switch here, with the few lines that honour it in the stage it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "kernels/faulty/exponential.hpp"

namespace assay_faulty {

// ---- how a correct kernel computes

struct Accumulator {
  int32_t kind = ASSAY_ACC_FMA;
  int32_t block = 1;           // FMA: lanes; BLOCK: products per step
  int32_t fraction_bits = 0;   // BLOCK
  int32_t mantissa_bits = 23;  // BLOCK
};
inline constexpr Accumulator kSimt{};
inline constexpr Accumulator kAmpere{ASSAY_ACC_BLOCK, 8, 24, 23};
inline constexpr Accumulator kHopper{ASSAY_ACC_BLOCK, 16, 25, 23};
inline constexpr Accumulator kHopperFp8{ASSAY_ACC_BLOCK, 32, 13, 13};
inline constexpr Accumulator kBlackwellFp8{ASSAY_ACC_BLOCK, 32, 25, 23};

// What one kind of operand is multiplied with. `p_format` kOfOperands: P in V's own 16- or 8-bit format.
inline constexpr int32_t kOfOperands = -1;
struct Unit {
  Accumulator qk, pv;
  bool promote_pv = false;
  int32_t promote_every = 1;  // tiles that a row meets in a part
  int32_t p_format = kOfOperands;
  float p_offset_log2 = 0;
};

// What a kernel declares less precisely than it computes, as an author may who did not write it: wider is
// legal.
struct Undeclared {
  bool order = false;         // the rounding of P cannot be replayed
  bool tile = false;          // keys in any order; with `order` only
  bool row_sum = false;       // its chain may be all keys
  double exp_factor = 1;      // of the error of the exponential
  int32_t fraction_bits = 0;  // kept by blocks of products, fewer
};

// Which unit serves a case follows from its formats, as in real kernels: fp8 Q, K and V the 8-bit float unit
// (where a kernel has one), int8 Q and K (P and V) the integer unit, fp32 operands the lanes, all else
// `wide`.
struct Arithmetic {
  Unit wide{kHopper, kHopper};
  bool has_fp8 = false;
  Unit fp8{};
  bool has_int8 = false;       // int8 x int8 exactly, P in int8
  bool int8_tile_max = false;  // P scaled by the tile's largest, else by 127
  int32_t tile_keys = 64;      // at most kMaxTile
  bool reverse = false;
  int32_t splits = 1;      // even parts, at most kMaxSplits
  int32_t split_keys = 0;  // fixed-size parts instead, a multiple of tile_keys
  float lag_log2 = 0;      // lazy rescale
  bool p_truncated = false;
  bool row_sum_from_rounded_p = false;
  int32_t partial_format = ASSAY_FP32, partial_lse_format = ASSAY_FP32;
  bool dequant = false;      // K, V = rnd(code * scale) to the 16-bit format of Q; else scales stay outside
  bool q_prescaled = false;  // softmax scale (and Q's scale) folded into Q, rounded to Q's 16-bit format
  bool sink_first = false;   // else joined at the end
  double exp_error = 0;      // relative error of the exponential beyond fp32 rounding; 0 = accurate
  int32_t exp_poly_every = 0;
  double tanh_error = 0;  // as exp_error
  ErrorForm exp_form = ErrorForm::kTable;
  double reciprocal_error = 0;  // relative, of 1 / row sum before it is rounded to fp32; at most 2^-24
  bool interleaved = false;     // part s of S holds the tiles s, s + S, ...; not with split_keys
  bool splits_vary = false;     // fewer even parts for some lengths
  int32_t sum_lanes = 16;       // of the row sum; 1, 2, 4, 8 or 16
  bool sum_by_unit = false;     // a block unit adds up rounded P as one more column
  double log_absolute = 0, log_relative = 0;  // errors of the logarithm, fixed for each argument
  double tanh_absolute = 0;
  int32_t p_roundings = 1;        // float formats of fewer than 32 bits
  int32_t partial_roundings = 1;  // levels of merging: pairs, but for the last
  bool bias_by_column = false;    // where no row sees a key behind its own
  bool q_replayed = false;        // Q without a scale: rounded again, by a factor that is declared
  bool q_times_log2e = false;     // which then holds log2(e) too
  // A matrix unit of 16 bits takes K's codes, and K's scale per channel multiplies Q before it is rounded, as
  // is declared; else K is dequantised.
  bool channels_in_q = false;
  bool v_scale_in_p = false;      // a scale of V per token goes into P before it is rounded; order undeclared
  bool v_scale_in_any_p = false;  // of whatever format P is; else of bf16 alone
  // Parts of what items of so many rows see (assay_arithmetic::item_rows), even ones or shares of one list.
  int32_t item_rows = 0, shares = 0, share_tiles = 0, share_turns = 1;
  bool rescale_inexact = false;  // a maximum that stays multiplies by the exponential of 0 all the same
  bool sink_in_parts = false;    // with sink_first: the sink starts the maximum of every part
  // P = exp(x - LSE) in a second pass, and weights exp(lse_s - LSE) of parts, undivided: the format in which
  // the LSE is subtracted; NONE: not so.
  int32_t weights_lse_format = ASSAY_FORMAT_NONE, merge_lse_format = ASSAY_FORMAT_NONE;
  Undeclared undeclared{};
  Exponential exponential() const { return {exp_error, exp_poly_every, exp_form}; }
};
inline constexpr int32_t kMaxTile = 256, kMaxSplits = 64;

// ---- what a kernel gets wrong

// One of several things of a row (visible keys), a request (tiles, splits, pages) or a case (heads, rows).
enum class Pick : int8_t { kNone, kFirst, kSecond, kMiddle, kLast, kHashed };

enum class QStart : int8_t {
  kRight,
  kArange,      // cu_q taken as 0, 1, 2, ...: one row per request
  kEntryShort,  // last entry of cu_q missing: the last request's rows are not seen
  kUniform,     // request r starts at r * max_q_len (mod rows)
  kOfKeys,      // starts of the keys taken for those of the rows (mod rows)
};
enum class Softcap : int8_t { kRight, kIgnored, kBeforeScale, kRatio, kAfterMask };
enum class Alibi : int8_t { kRight, kIgnored, kOtherHead, kSignFlipped, kSqrtIgnored, kRecomputed };
enum class Sink : int8_t { kRight, kIgnored, kFirstRowOnly, kOtherHead, kPerSplit, kScaled, kRaw };
enum class Lse : int8_t { kRight, kBase2, kIgnoresMax, kIgnoresSink, kOtherHead, kOtherRow, kFromScaled };
// Codes of one kind read as something else, wherever Q, K or V are read.
enum class Codes : int8_t {
  kRight,
  kSmallestLost,    // subnormal codes (int8: +-1) as zero
  kSmallestRaised,  // subnormal codes with the leading one that they do not have
  kSmallestHalved,  // subnormal codes with the exponent that their bits spell
  kTopIsNaN,        // the largest exponent as IEEE 754 has it: not a number
  kTopLost,         // the largest code as the one below it
  kTopClipped,      // codes beyond half the largest as that half
  kMinusZeroIsNaN,  // as the fnuz formats have it
};
enum Sides : int8_t { kOfQ = 1, kOfK = 2, kOfV = 4 };
enum class HeadMap : int8_t { kRight, kModulo, kPowerOfTwo };

struct Switches {
  // Of the LSE that weights of keys, and of parts, are relative to, whatever is declared.
  int32_t weighing_lse_format = ASSAY_FORMAT_NONE, merging_lse_format = ASSAY_FORMAT_NONE;
  // metadata
  QStart q_start = QStart::kRight;
  int32_t kv_len_delta = 0;         // slots behind the last key that single rows and full masks see
  bool kv_len_page_floor = false;   // last, partly filled page never visited
  bool kv_len_tile_floor = false;   // last, partly filled tile never visited
  bool kv_len_of_first = false;     // every request has the keys of request 0 (at most its own)
  bool kv_len_minus_draft = false;  // drafts not visited: kv_len - q_len + 1 keys
  int32_t zero_tail_keys = 0;       // zero keys behind the last one, visible to every row
  int32_t q_len_cap = 0;            // rows of a request beyond this many are never computed
  int32_t zero_tail_to_tile = 0;   // zero keys up to the tile's end, seen 1: unless causal, 2: by single rows
  int32_t split_overlap_keys = 0;  // every part but the last reads this many keys of the next one
  int32_t request_cap = 0;         // requests from this one on are never computed
  bool packed_rows_uncovered = false;  // tiles of 16 packed rows counted without the group factor

  // addressing
  Pick page_swapped = Pick::kNone;       // page and its successor exchanged (K and V)
  Pick page_v_swapped = Pick::kNone;     // the same for V only
  Pick page_wrong = Pick::kNone;         // page read in place of this one: the first (or the second)
  bool page_v_of_previous_tile = false;  // V's page index fetched a tile too late
  bool page_of_tile_start = false;       // one page index per tile although a tile straddles pages
  bool page_of_next_request = false;     // table row of another request
  bool page_table_dense = false;         // row stride of the table taken as its width in use
  bool last_page_len_ignored = false;    // CSR only: as kv_len_page_ceil
  Pick key_stale = Pick::kNone;          // this key holds another token
  HeadMap kv_head_map = HeadMap::kRight;
  bool q_heads_swapped = false;  // neighbouring query heads exchanged on load
  int32_t q_row_shift = 0;       // query taken from another row of the request (wraps round)
  int32_t o_row_shift = 0;       // result written to another row of the request (wraps round)
  int32_t qk_dims_dropped = 0, v_dim_shift = 0;
  bool v_dims_of_qk = false;  // one width for both: V read up to min(d_qk, d_v)
  int32_t offset_bits = 0;    // cache offsets computed in this many bits (wrap, stay in the cache)
  bool q_stride_dense = false, kv_stride_dense = false, lse_stride_dense = false, o_stride_of_q = false;
  bool last_page_of_previous = false;  // entry of the last page read from the row of the request before
  bool page_index_per_token = false;   // table indexed by the token instead of its page
  bool page_id_times_page = false;     // page ids taken for slots
  bool page_index_halved = false;      // pages taken to be twice as long when indexing the table
  bool new_keys_from_start = false;    // new tokens looked for at the start of the request
  bool mla_v_from_end = false;         // V as the last dims of the latent row instead of the first
  int32_t qk_dims_limit = 0;           // dims of the product from this one on are left out
  bool qk_first_half_lost = false;     // second half of the product overwrites the first
  int32_t v_dims_floor = 0;            // dims computed in whole blocks of this many only
  bool head_remap8 = false;            // heads dealt to 8 dies, remapped one off: one twice, one never
  bool scale_stride_dense = false;     // scales of tokens taken as packed

  // dequant: wrong index (added, modulo the axis), missing, or off by a factor (0 = off)
  bool q_scale_missing = false, k_scale_missing = false, v_scale_missing = false;
  int32_t q_scale_head = 0, k_scale_head = 0, v_scale_head = 0;
  int32_t k_scale_token = 0, v_scale_token = 0;
  int32_t q_scale_request = 0, k_scale_request = 0, v_scale_request = 0;
  int32_t k_scale_channel = 0, v_scale_channel = 0;
  float k_scale_factor = 0, v_scale_factor = 0;
  int32_t k_scale_format = ASSAY_FORMAT_NONE, v_scale_format = ASSAY_FORMAT_NONE;  // scales rounded to this
  bool fnuz_as_fn = false;
  Codes codes = Codes::kRight;
  int8_t codes_of = 0;                 // Sides, one or several
  bool k_scale_missing_fp8_q = false;  // with Q in fp8, K comes back without its scale

  // mask
  int32_t window_left_delta = 0;
  bool window_left_ignored = false, window_right_ignored = false;
  bool window_page_granular = false;  // left edge rounded down to a page (paged) or 16 keys
  int32_t causal_delta = 0;           // keys beyond (positive) the diagonal, where causality applies
  bool causal_ignored = false;
  bool causal_top_left = false;  // row i at position i, whatever the context
  int32_t chunk_shift = 0;       // origin of the chunks
  bool chunk_ignored = false;
  bool chunk_of_first_row = false;  // the chunk of the request's first row serves all
  bool tree_transposed = false, tree_ignored = false;
  int32_t tree_shift = 0;           // draft columns read this far off (wraps round)
  bool tree_stride_of_max = false;  // matrix rows taken as max_q_len apart (wraps inside the matrix)
  bool tree_of_first = false;       // every request reads the matrix of the first
  Pick key_dropped = Pick::kNone, key_doubled = Pick::kNone, tile_dropped = Pick::kNone;
  bool window_context_ignored = false;  // keys before the new tokens not tested against the window
  bool window_tile_granular = false;    // left edge rounded down to a tile
  bool window_of_last_row = false;      // all rows have the left edge of the request's last row
  bool full_as_causal = false;          // full and cross masks taken as causal
  bool causal_unsigned = false;         // rows before the first key see all keys
  bool causal_bound_packed = false;     // bound of a tile of 16 packed rows rounded down inside a group
  bool tree_row_packed = false;         // matrix row = packed row (modulo the request's rows)

  // scores
  bool softmax_scale_default = false;                // 1 / sqrt(head_dim_qk), whatever was asked
  bool softmax_scale_of_v = false;                   // 1 / sqrt(head_dim_v)
  int32_t softmax_scale_format = ASSAY_FORMAT_NONE;  // scale rounded to this
  int32_t scores_format = ASSAY_FORMAT_NONE;         // dot products rounded to this
  Softcap softcap = Softcap::kRight;
  Alibi alibi = Alibi::kRight;
  int32_t alibi_shift = 0;                   // distance off by this
  int32_t alibi_format = ASSAY_FORMAT_NONE;  // slopes rounded to this
  int32_t alibi_head = 1;                    // kOtherHead: this many heads further on
  Sink sink = Sink::kRight;

  // softmax
  Pick o_not_rescaled = Pick::kNone, l_not_rescaled = Pick::kNone;  // at which update of the maximum
  bool l_never_rescaled = false, o_never_rescaled = false;
  Pick l_missing_key = Pick::kNone;
  bool not_normalised = false;
  float log2e = 0;           // 0 = right
  float sentinel = 0;        // masked scores hold this instead of -infinity; 0 = off
  bool p_saturated = false;  // fp8 P offset by 4 more than declared: past a lagging maximum it saturates
  int32_t p_format = ASSAY_FORMAT_NONE;  // P rounded to this instead of what is declared
  bool p_truncated = false, row_sum_flipped = false;
  double exp_error = 0;
  float l_factor = 0;              // row sum off by this factor; 0 = right
  bool masked_tile_nan = false;    // tiles before the first visible key are visited: -inf - -inf
  bool max_of_half_tile = false;   // maximum over the first half of each tile
  bool max_of_first_tile = false;  // the running maximum never moves again

  // values
  int32_t o_accumulator_format = ASSAY_FORMAT_NONE;   // O rounded to this after every tile
  int32_t qk_accumulator_format = ASSAY_FORMAT_NONE;  // dot products accumulated in this, 16 at a time
  bool qk_sums_saturated = false;  // sums of 16 products of int8 codes are held in 16 bits before they join

  // faults of any size (sized.cpp); 0 = off
  float key_weight_error = 0;      // relative, of the weight of one key, which all rows see
  double softmax_scale_error = 0;  // relative
  double output_error = 0;         // relative, before the output is rounded
  // Bits of the mantissa that are kept of P, of partial results, of O after every step of the second product.
  int32_t p_bits = 0, v_bits = 0, partial_bits = 0, o_bits = 0;

  // merge
  bool merge_base2 = false;  // natural LSE under exp2
  bool merge_uniform = false;
  Pick split_dropped = Pick::kNone;
  bool merge_empty_counted = false;  // a split without visible keys weighs in with LSE 0
  bool merge_empty_nan = false;      // two empty splits: -inf - -inf
  bool merge_partial_stale = false;  // an empty split's partial result is what another row left behind
  int32_t partial_format = ASSAY_FORMAT_NONE, partial_lse_format = ASSAY_FORMAT_NONE;
  bool merge_group_unsplit =
      false;                       // heads behind the cut of a packed tile take the first part for the whole
  bool merge_padded_rows = false;  // partial results read as if requests had their rows padded to 4
  bool merge_skipped = false;      // the first part with keys is the result
  bool splits_of_longest =
      false;                    // parts sized by the longest request, empty ones merged with what lies there
  int32_t split_short_nan = 0;  // a last part of fewer keys is NaN; -1: fewer than the request's rows
  bool merge_leading_nan = false;   // empty first part: -inf - -inf
  bool merge_stride_of_qk = false;  // partial results from the third part on read with the width of K
  bool lse_of_split = false;        // LSE of the last part that has keys stands for the whole

  // output
  Lse lse = Lse::kRight;
  Pick row_unwritten = Pick::kNone;  // row of a request left as it was
  bool empty_rows_lse_zero = false;
  bool output_zeros = false;
  float output_factor = 0;  // 0 = off
  bool output_truncated = false;
  bool o_width_of_qk = false;              // rows of O stored head_dim_qk wide, the excess as zeros
  bool empty_request_clears_next = false;  // 16 rows cleared behind a request without keys
  bool lse_unwritten = false;
  bool empty_rows_nan = false, empty_rows_lse_inf = false;  // rows that see nothing: 0 / 0; LSE +inf
  bool empty_request_unwritten = false;                     // requests without keys left as they were
  bool negative_rows_unwritten = false;                     // rows before the first key left as they were

  // state and memory
  bool plan_from_first_call = false;   // lengths kept from the first call with as many requests
  bool scale_from_first_call = false;  // softmax scale kept from the first call of this kernel
  bool counter_not_reset = false;      // every second call merges one split too few
  bool unstable = false;               // result depends on the number of the call, in the last bits
  bool reads_unused_slots = false;     // 0 * (what lies behind the last key) joins the sum
  bool reads_past_table =
      false;  // table entry behind the last one is fetched and its page read with weight 0
  bool writes_guard = false, writes_input = false;
  bool workspace_as_state = false;  // accumulates onto what the workspace holds
  bool softcap_from_first_call = false, mask_from_first_call = false, strides_from_first_call = false;
  bool merge_late = false;           // every second call: weights of the row before
  bool v_tile_late = false;          // every second call: first key of a tile multiplied with the V before it
  bool tile_of_batch = false;        // tile chosen by the longest request of the batch
  bool alibi_shift_hidden = false;   // distances off by one, and the LSE corrected for it
  bool reads_before_window = false;  // 0 * V of the keys before the window in its first tile
  bool reads_block_zero = false;     // 0 * V of block 0 for the lanes behind the last key
};

// One row of a table of faults, or of variants (cause null).
struct Row {
  const char* name;
  const char* summary;
  const char* stage;
  const char* museum;
  const char* cause;
  Arithmetic arithmetic;
  Switches switches = {};
  int (*reached)(const assay_problem*) = nullptr;
  bool equivalent = false;
  int32_t ops = 3;                                // bit 0: prefill exists, bit 1: paged exists
  const char *family = nullptr, *unit = nullptr;  // of a fault that comes in several sizes
  double size = 0;
  bool only_where_reached = false;  // right on every other problem: the switches say what happens there
};

// The tables. Variants: variants.cpp. Faults: faults.cpp gathers them from the files of the stages.
struct Table {
  const Row* rows;
  int32_t count;
};
Table legal_variants();
Table planted_faults();

// What a kernel remembers between calls, kept by its door in the backend (for faults of state; legal variants
// never look). Kernels of this library are not called from two threads at once.
struct State {
  static constexpr int32_t kKept = 256;
  int64_t calls = 0;  // finished before this one
  // Of the first call; requests < 0: there was none.
  int32_t requests = -1, mask = 0;
  float softmax_scale = 0, softcap = 0;
  int32_t kv_len[kKept] = {};
  // Strides of Q by its shape, first seen.
  struct Launch {
    int64_t shape[3], stride[3];
  };
  std::vector<Launch> launches;
};

// What an arithmetic amounts to on a case, as the C table declares it.
assay_arithmetic declared_arithmetic(const Arithmetic&, const assay_problem&);
// The row's arithmetic, unless a fault lets the batch decide.
Arithmetic arithmetic_of(const Row&, const assay_problem&);

// Runs the model kernel: ASSAY_OK, or a status and a text.
int run_model(const Row&, const assay_problem*, const assay_tensors*, State&, char* error, size_t size);

}  // namespace assay_faulty
