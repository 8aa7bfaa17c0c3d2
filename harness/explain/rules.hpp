// SPDX-License-Identifier: Apache-2.0
// How a kernel computes one (request, row, head), with a hook at every step where kernels go wrong. Rules
// without hooks are a right kernel of the declared arithmetic; a hypothesis sets one or two hooks. Hooks see
// the logical problem (rows, keys, heads), never the kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

struct Cell {  // one unit of work: a query row under one query head
  int32_t request = 0, row = 0, head = 0;
  bool operator==(const Cell&) const = default;
};

class KvStore;
class Predictor;

// Operands as a kernel sees them that takes strides or formats for something else. Applied to a copy of the
// tensors; strides may only shrink, so that no address leaves the operand.
struct World {
  std::function<void(const Problem&, assay_tensors&)> change;
  // In place of or after it: operands whose elements are other numbers, which `owned` keeps.
  std::function<void(assay_tensors&, std::vector<std::vector<float>>& owned)> rewrite;
  int32_t dequant_format = ASSAY_FORMAT_NONE;  // K and V are rounded to it after their scale
};

// What a hook may look at.
struct Scene {
  const Problem& problem;
  Cell cell;
  KvStore& keys;         // K and V that this cell reads
  int32_t kv_len = 0;    // of the request whose keys are read
  int32_t position = 0;  // of the row, counted from the first key: kv_len - q_len + row unless the case says
  int32_t kv_head = 0;
  Predictor* predictor = nullptr;  // for the results of other cells
};

// Where a key of the request stands, counted from the first one: given for draft trees, else its number.
inline int32_t place_of_key(const Scene& s, int32_t key) {
  const Problem& p = s.problem;
  if (p.mask != ASSAY_MASK_TREE || p.positions.empty() || key < 0 || key >= s.kv_len) return key;
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[s.cell.request];
  return static_cast<int32_t>(key_position(p, s.cell.request, key) - first);
}

// One key as the kernel counts it. Rows of the store: 0 .. kv_len - 1 are the positions of the request;
// KvStore::extra adds others.
struct Term {
  int32_t position = 0;  // where the kernel believes the key stands: mask, bias, tile
  int32_t k_row = 0, v_row = 0;
  double weight = 1;  // times its exponential, everywhere
  double in_sum = 1, in_output = 1;
  double k_factor = 1, v_factor = 1;
  bool zero = false;                                         // K and V are zeros, not memory
  bool k_for_v = false, v_for_k = false;                     // the other one is read in its place
  double forced = std::numeric_limits<double>::quiet_NaN();  // a final score in place of the computed one
};

struct ScoreParts {
  double dot, scale, softcap;
  double slope;         // 0 without ALiBi
  double distance;      // position of the row - position of the key
  int32_t alibi;        // enum assay_alibi
  bool biased = false;  // whatever the distance
};
double standard_score(const ScoreParts&);

// The partial result of one split, normalised.
struct SplitPart {
  std::vector<double> o;
  double lse = -std::numeric_limits<double>::infinity();
  int32_t keys = 0;
  double maximum = -std::numeric_limits<double>::infinity();  // running maximum at the end, natural units
  double first = -std::numeric_limits<double>::infinity();    // ... and behind its first tile
};

struct LseParts {
  double lse;      // the right one
  double maximum;  // final running maximum, natural units
  double sum;      // row sum relative to it
  double sink;     // logit, -inf without
  double without_sink;
};

// How keys are dealt to parts of no fixed size, beside assay_arithmetic's even ones.
struct Cut {
  int32_t least = 0;  // tiles a part should have: no more parts than that allows; 0: as many as there are
  bool least_met = false;    // ... and none has fewer, where there are enough tiles for one
  bool whole = false;        // ceil(tiles / parts) tiles each, the last ones what is left
  bool rest_first = false;   // floor(tiles / parts) tiles each, and one more for the first ones
  bool interleaved = false;  // in turn
  bool all_or_one = false;   // one part where there are fewer tiles than parts
  // What is cut is what a block of rows sees (from the tile of its first key to that of its last), in place
  // of all keys of the request: so many rows, or (row, head of the group) pairs; 0: of the request.
  int32_t block_rows = 0;
  bool packed = false;
  // Running states of a part, to which its tiles are dealt in turn, each with a maximum and sums of its own.
  // They are joined before the parts are; or each counts as a part that is merged with all others.
  int32_t states = 1;
  bool states_merge = false;
  bool operator==(const Cut&) const = default;
};

// The running maximum of a part rises.
struct MaximumMove {
  int32_t number, of;  // 0 is the first of so many
  double by;           // natural units
  int32_t tile;        // of the part, in the order of its visit
};

// Of two passes over the keys that do not agree, the one that follows the rules: that of the weights of the
// output, or that of the maximum and the row sum, of which the LSE is made. The other one is right.
enum class Passes { kBoth, kOutput, kSum };

struct Rules {
  assay_arithmetic arithmetic{};  // the declared one, or a changed copy
  Cut cut;
  std::shared_ptr<const World> world;

  std::function<Cell(const Scene&)> query_of;     // whose Q vector is used
  std::function<Cell(const Cell&)> result_of;     // whose result stands in this cell
  std::function<Cell(const Cell&)> o_of, lse_of;  // the same of O or of the LSE alone
  bool query_at_place = false;  // ... with the Q vector that stands at the place it is stored to
  std::function<bool(const Cell&)> never_written;     // of the cell asked for
  std::function<int32_t(const Cell&)> kv_head_of;     // default head / group
  std::function<int32_t(const Cell&)> kv_request_of;  // whose keys are read; default the cell's

  std::function<bool(const Scene&, int32_t key)> sees;  // default visible(); keys below kv_len only
  std::function<void(Scene&, std::vector<Term>&)> edit_terms;
  std::function<void(const Scene&, double* q)> edit_q;        // dequantised, head_dim_qk values
  std::function<bool(const Scene&, const Term&)> edit_q_for;  // of these keys only; unset: of all
  int32_t values_from_k = -1;  // V is this dimension and the next ones of K's row; -1: V
  bool edit_per_key = false;   // K itself is scaled per key (Term::k_factor) and rounded again
  std::function<double(const Scene&, const Term&, const ScoreParts&)> score;
  std::function<void(const Scene&, std::vector<double>&)> edit_scores;  // of all keys that the row takes
  Passes passes = Passes::kBoth;
  bool unrounded = false;  // O is left as it is before it is stored
  std::function<double(const Scene&, double sink)> sink;
  std::function<double(const Scene&, double slope)> slope;
  // ALiBi's distance of a key at the row's position or before it.
  std::function<double(const Scene&, const Term&, double)> distance;
  bool sink_per_split = false;
  bool sink_raw = false;        // its logit joins the row sum, not its exponential
  bool sink_unshifted = false;  // its exponential joins the row sum without the maximum taken off
  double sink_exponent = 1;     // its weight is exp(so much * (sink - maximum))

  double exponent_factor = 1;                                    // exp(factor * (x - m))
  std::function<double(const Scene&, const Term&)> exponent_of;  // ... and one more of a key's own weight
  double rescale_exponent = 1;           // ... and a power of it where the maximum rises
  std::function<double(double)> exp_of;  // in place of exp, for the weights alone ...
  bool exp_everywhere = false;           // ... or where sums are rescaled and merged too
  std::function<double(double)> p_of;    // what the output makes of a weight, and the row sum too ...
  bool p_of_in_sum = false;              // ... if this says so
  double round_clamp = std::numeric_limits<double>::infinity();  // largest P the format holds
  double first_maximum = -std::numeric_limits<double>::infinity();
  // When the running maximum rises: is the rescale forgotten, of O in these dimensions (unset: all)?
  std::function<bool(const MaximumMove&)> o_kept, l_kept;
  std::function<bool(int32_t dim)> kept_dims;
  // ... or is it applied a second time, to both, or to one of them?
  std::function<bool(const MaximumMove&)> rescaled_twice;
  bool twice_o = true, twice_l = true;
  // Rises of no more than this, in natural units, leave the maximum where it is; of the sums that keep their
  // scale with it these are rescaled all the same.
  double lazy_below = 0;
  bool lazy_sum_rescaled = false, lazy_output_rescaled = false;
  std::function<bool(const Scene&, int32_t position)> in_maximum;  // keys that join it; none does: all
  // Tiles whose largest score is so far below the running maximum are skipped.
  double skip_below = std::numeric_limits<double>::infinity();
  bool stale_maximum = false;  // weights of a tile are relative to the maximum before it
  bool maximum_stays = false;  // the maximum of the first tile of a part is that of the part
  // What a kernel makes of scores that are NaN is nobody's promise. False: they spread. True: a maximum of
  // NaN leaves the row without a maximum, so that it ends as a row without keys. Both are tried where NaN
  // scores occur.
  bool nan_hides = false;
  bool splits_of_longest = false;  // boundaries from the longest request's keys
  int32_t maximum_lanes = 0;       // the maximum of a tile is that of its first lanes; 0 = all
  bool maximum_per_tile = false;   // each tile has its own maximum, nothing is rescaled
  double sum_factor = 1;
  double sum_offset = 0;             // what the row sum that divides O has too much of ...
  bool sum_offset_of_parts = false;  // ... that of every part instead of the merged one
  bool sum_offset_in_lse = false;    // ... and that of the LSE
  bool divide = true;
  bool merge_divides = true;                        // merged outputs are divided by the sum of the weights
  int32_t accumulator_format = ASSAY_FORMAT_NONE;   // O rounded to it after every tile ...
  bool accumulator_per_key = false;                 // ... and after every key of one
  int32_t sum_format = ASSAY_FORMAT_NONE;           // row sum rounded to it ...
  bool sum_per_key = false;                         // ... after every key instead of every tile
  bool sum_of_tile = false;                         // ... that of a tile alone, before it joins
  double p_step = 0;                                // weights rounded to multiples of it; 0: not
  int32_t p_mantissa = 0;                           // weights rounded to so many bits after the first; 0: not
  int32_t score_format = ASSAY_FORMAT_NONE;         // dot products rounded to it
  int32_t scaled_score_format = ASSAY_FORMAT_NONE;  // ... after the scale, cap and bias
  int32_t dot_format = ASSAY_FORMAT_NONE;           // dot products accumulated in it ...
  int32_t dot_step = 16;                            // ... so many dimensions at a time
  int32_t scale_format = ASSAY_FORMAT_NONE;         // softmax scale rounded to it

  std::function<void(const Scene&, std::vector<SplitPart>&)> edit_parts;
  bool one_part_too = false;  // one that is all there is goes by the merge too
  std::function<double(double lse, double top)> merge_weight;  // default exp(lse - top)
  std::function<double(const Scene&, const std::vector<SplitPart>&, double lse)> merge_lse;
  std::function<double(const Scene&, const LseParts&)> lse;
  std::function<void(const Scene&, std::vector<double>& o, double& lse)> finish;
  bool truncate_output = false;
  // A hypothesis about noise: standard deviation of relative errors of the weights that nobody can repeat.
  double weight_noise = 0;
};

// Whether two rules that say so share what stands before the merge: no step before it is changed, but for the
// arithmetic and the cut.
bool plain_before_merge(const Rules&);

}  // namespace assay
