// SPDX-License-Identifier: Apache-2.0
// A backend of steps that are wrong in one way each, and two that are right: what step_judge_test.cpp proves
// the judge with. One plain step in doubles, layout nhd and a block table, cut as vLLM's AITER backend cuts
// it: decodes read all of the cache, extends their context from the cache and their new keys as they came,
// and merge both. To plant a fault: an enumerator, a row of kFaults, its place in the code, a line in the
// test. Cheats are right as often as the judge calls, and what they say they are afterwards:
// watched_series_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/check/testing/fault_library.hpp"
#include "harness/check/testing/step_operands.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/common/formats.hpp"

namespace {

using namespace assay_kernels;
using namespace step_operands;

enum Fault {
  kNone,
  kAllFromCache,  // right: extends and prefills read their new keys from the cache too, and say so
  // the cache
  kKeyUnwritten,     // the last new key of the batch
  kOtherSlot,        // K goes to the slot of the row before
  kSlotsOfRequests,  // T: slots of extends and prefills counted in requests before them
  kForgetsV,
  kBlockForSlot,      // block and slot within it exchanged
  kScaleOfNextHead,   // of new keys
  kUnscaled,          // codes of x instead of x / scale
  kNeighbourTouched,  // one element behind the row
  kContextRewritten,  // the last key of the context, with the first new one
  // lengths and starts
  kStaleLength,  // new keys are not there yet: kv_len of the step before
  kLengthPlusOne,
  kShortStarts,   // rows of the last request counted from the list of one entry less
  kArangeStarts,  // every request has one row
  kOtherTable,    // page table of the request before
  // order and what is read
  kAttendsFirst,  // before the new keys are written
  kSaysCache,     // reads new keys as they came and declares that it reads the cache
  kSaysDense,     // and the other way round
  kDecodeDense,   // decodes read the new key as it came
  // masks, chunks, merges
  kChunkDropsKey,    // the last key of the context
  kChunkRepeatsKey,  // the first new key counts in both parts
  kNewKeysFull,      // no causal mask among new keys
  kCausalBehind,     // a row does not see itself
  kWindowWider,      // by one key
  kWindowOfNewRow,   // window counted from the first new row
  kCapInDecodesOnly,
  kBiasFromChunk,  // distances within the context counted from its own end
  kMeanOfParts,
  kLargerPart,  // the part of the larger LSE alone
  kBase2Merge,
  kNewKeysTwice,  // weight of the new keys squared
  // rows of O
  kLastRowUnwritten,
  kRowOfNextRequest,
  // cheats
  kOOnce,         // O is not written again
  kCacheOnce,     // nor the cache; O is right
  kCacheIfOther,  // the cache is written when the first new key is not that of the call before
  kKeepsContext,  // keys that were there before are read once
  kKnowsQ,        // O is what it was when Q was the same
};

#define PLAIN "step h=4/2 d=64 page=4 batch=2q1s33_2q5s37_1q9 seed=3"
#define CODED "step h=4/2 d=64 kv=fp8_e4m3:head page=4 batch=2q1s33_2q5s37_1q9 seed=3"

// `place`, `causes`, `line`: what an explanation has to say of it there (assay_fault.h).
struct Entry {
  const char* name;
  Fault fault;
  const char *place = nullptr, *causes = nullptr, *line = PLAIN;
};
// mask.causal_long: rows stand where they do and see a key more. keys.kv_len_short: new keys not counted,
// rows stay. output.row_dropped: as it says how, requests of one row that start at 0, 1, 2, ...
constexpr Entry kFaults[] = {
    {"step_right", kNone},
    {"step_all_from_cache_right", kAllFromCache},
    {"step_key_unwritten", kKeyUnwritten, "end write", "row_missing"},
    {"step_other_slot", kOtherSlot, "end write", "slots_shifted"},
    {"step_slots_of_requests", kSlotsOfRequests, "end write", "slots_shifted"},
    {"step_forgets_v", kForgetsV, "end write", "left_out row_missing v_unwritten"},
    {"step_block_for_slot", kBlockForSlot, "end write", "slots_turned"},
    {"step_scale_of_next_head", kScaleOfNextHead, "end write", "scale_other scale_of_one", CODED},
    {"step_unscaled", kUnscaled, "end write", "scale_missing", CODED},
    {"step_neighbour_touched", kNeighbourTouched, "end write", "beside_rows"},
    {"step_context_rewritten", kContextRewritten, "end write", "beside_rows"},
    {"step_stale_length", kStaleLength, "end attend",
     "lengths_without_new new_keys_missing keys.kv_len_short"},
    {"step_length_plus_one", kLengthPlusOne, "end attend", "lengths_off_by_one mask.causal_long"},
    {"step_short_starts", kShortStarts, "end attend", "row_missing last_request_missing"},
    {"step_arange_starts", kArangeStarts, "end attend", "starts_arange output.row_dropped",
     "step h=4/2 d=64 page=4 threshold=4 batch=3q4s33_2q5s37_1q9 seed=3"},
    {"step_other_table", kOtherTable, "end attend", "table_of_next page.of_other_request"},
    {"step_attends_first", kAttendsFirst, "end attend", "out_of_order"},
    {"step_says_cache", kSaysCache, "end attend", "dense_for_cache", CODED},
    {"step_says_dense", kSaysDense, "end attend", "cache_for_dense", CODED},
    {"step_decode_dense", kDecodeDense, "end attend", "dense_for_cache", CODED},
    {"step_chunk_drops_key", kChunkDropsKey, "end attend", "keys.one_dropped lengths_off_by_one"},
    {"step_chunk_repeats_key", kChunkRepeatsKey, "end attend", "keys.one_doubled state_twice"},
    {"step_new_keys_full", kNewKeysFull, "end attend", "mask_full mask.causal_ignored"},
    {"step_causal_behind", kCausalBehind, "end attend", "mask.causal_short"},
    {"step_window_wider", kWindowWider, "end attend", "window_off_by_one mask.window_long",
     "step h=4/2 d=64 page=4 window=11 batch=2q1s33_2q5s37_1q9 seed=3"},
    {"step_window_of_new_row", kWindowOfNewRow, "end attend", "mask.window_anchor window_other",
     "step h=4/2 d=64 page=4 window=11 batch=2q1s33_2q5s37_1q9 seed=3"},
    {"step_cap_in_decodes_only", kCapInDecodesOnly, "end attend", "cap_missing softcap.ignored",
     "step h=4/2 d=64 page=4 cap=2 batch=2q1s33_2q5s37_1q9 seed=3"},
    {"step_bias_from_chunk", kBiasFromChunk, "end attend", "alibi.shifted bias_other",
     "step h=4/2 d=64 page=4 alibi=linear batch=2q1s33_2q5s37_1q9 seed=3"},
    {"step_mean_of_parts", kMeanOfParts, "end attend", "merge_unweighted"},
    {"step_larger_part", kLargerPart, "end attend", "merge_largest"},
    {"step_base2_merge", kBase2Merge, "end attend", "merge_base2"},
    {"step_new_keys_twice", kNewKeysTwice, "end attend", "state_twice"},
    {"step_last_row_unwritten", kLastRowUnwritten, "end attend", "row_missing"},
    {"step_row_of_next_request", kRowOfNextRequest, "end attend",
     "rows_shifted rows.query_of_other_row rows.written_to_other_row"},
    {"step_o_once_cheat", kOOnce},
    {"step_cache_once_cheat", kCacheOnce},
    {"step_cache_if_other_cheat", kCacheIfOther},
    {"step_keeps_context_cheat", kKeepsContext},
    {"step_knows_q_cheat", kKnowsQ},
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr int kJudged = 4;  // calls before anything is timed

int64_t extent(const assay_tensor& t) {
  int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis) last += (t.shape[axis] - 1) * t.stride[axis];
  return (last + 1) * 2;  // cheats meet 16 bits
}
std::vector<char> bytes_of(const assay_tensor& t) {
  const auto* data = static_cast<const char*>(t.data);
  return {data, data + extent(t)};
}

// What a cheat knows of the calls before.
struct Kept {
  int calls = 0;
  std::vector<char> first_key, k, v;
  std::map<std::vector<char>, std::vector<char>> o_of_q;
};

// O and LSE of the keys of one part, for one row and head.
struct Part {
  std::vector<double> o;
  double lse = -kInfinity;
};

struct Step {
  const assay_problem& p;
  const assay_tensors& t;
  Fault fault;

  bool is(Fault f) const { return fault == f; }
  bool cheats() const { return fault >= kOOnce; }
  int32_t rows(int r) const { return whole(t.cu_q, r + 1) - whole(t.cu_q, r); }
  int32_t keys(int r) const { return whole(t.kv_len, r); }
  bool decodes(int r) const { return rows(r) <= p.threshold; }

  double scale(const assay_tensor& s, int32_t kind, int32_t head) const {
    return kind == ASSAY_SCALE_HEAD ? real(s, head) : kind == ASSAY_SCALE_TENSOR ? real(s, 0) : 1;
  }

  void write_side(const assay_tensor& dense, const assay_tensor& cache, const assay_tensor& scales,
                  int32_t kind, int32_t row, int64_t slot) const {
    auto* data = static_cast<unsigned char*>(cache.data);
    int64_t block = slot / p.page_size, at = slot % p.page_size;
    if (is(kBlockForSlot) && at < cache.shape[0] && block < p.page_size) std::swap(block, at);
    for (int32_t h = 0; h < p.heads_kv; ++h) {
      const double by =
          is(kUnscaled) ? 1 : scale(scales, kind, is(kScaleOfNextHead) ? (h + 1) % p.heads_kv : h);
      const int32_t dims = static_cast<int32_t>(dense.shape[2]);
      for (int32_t d = 0; d < dims; ++d)
        store_code(data, offset(cache, block, at, h, d), cache.format,
                   static_cast<float>(real(dense, row, h, d)) / static_cast<float>(by));
      if (is(kNeighbourTouched) && h + 1 == p.heads_kv && at + 1 < p.page_size)
        store_code(data, offset(cache, block, at + 1, 0, 0), cache.format, 1.0f);
    }
  }

  // Which slot is taken for a row's where each kind of request begins behind as many slots as requests.
  int64_t counted_in_requests(int64_t row) const {
    int r = 0;
    while (whole(t.cu_q, r + 1) <= row) ++r;
    const auto kind = [&](int of) { return decodes(of) ? 0 : keys(of) > rows(of) ? 1 : 2; };
    int first = r;
    while (first > 0 && kind(first - 1) == kind(r)) --first;
    return first + row - whole(t.cu_q, first);
  }

  void write() const {
    const auto slot_of = [&](int64_t row) {
      if (is(kSlotsOfRequests)) row = counted_in_requests(row);
      return static_cast<const int64_t*>(t.slot_mapping.data)[row * t.slot_mapping.stride[0]];
    };
    for (int r = 0; r < p.requests; ++r)
      for (int32_t i = 0; i < rows(r); ++i) {
        const int32_t row = whole(t.cu_q, r) + i;
        if (is(kKeyUnwritten) && row + 1 == whole(t.cu_q, p.requests)) continue;
        const int64_t slot = slot_of(row), other = is(kOtherSlot) && row > 0 ? slot_of(row - 1) : slot;
        write_side(t.dense_k, t.k, t.k_scale, p.k_scale_kind, row, other);
        if (!is(kForgetsV)) write_side(t.dense_v, t.v, t.v_scale, p.v_scale_kind, row, slot);
        if (is(kContextRewritten) && i == 0 && keys(r) > rows(r)) {
          const int32_t last = keys(r) - rows(r) - 1;
          const int64_t before =
              int64_t{whole(t.block_table, r, last / p.page_size)} * p.page_size + last % p.page_size;
          write_side(t.dense_k, t.k, t.k_scale, p.k_scale_kind, row, before);
        }
      }
  }

  // Key j of request r, from the cache or as row `dense` of the new ones.
  double key(bool v, int r, int32_t j, int32_t dense, int32_t h, int32_t d) const {
    if (dense >= 0) return real(v ? t.dense_v : t.dense_k, dense, h, d);
    const int table = is(kOtherTable) && r > 0 ? r - 1 : r;
    const int64_t pages = t.block_table.shape[1], page = std::min<int64_t>(j / p.page_size, pages - 1);
    const int64_t block =
        std::clamp<int64_t>(whole(t.block_table, table, static_cast<int32_t>(page)), 0, t.k.shape[0] - 1);
    const assay_tensor& cache = v ? t.v : t.k;
    return real(cache, block, j % p.page_size, h, d) *
           scale(v ? t.v_scale : t.k_scale, v ? p.v_scale_kind : p.k_scale_kind, h);
  }

  // Keys begin .. end - 1 that row i of the request sees, `position` where it stands.
  Part attend(int r, int32_t row, int32_t position, int32_t head, int32_t begin, int32_t end, bool dense,
              bool context) const {
    const int32_t kv_head = head / (p.heads_q / p.heads_kv), first_new = keys(r) - rows(r);
    std::vector<double> scores;
    double top = -kInfinity;
    for (int32_t j = begin; j < end; ++j) {
      const int32_t from = dense && j >= first_new ? whole(t.cu_q, r) + j - first_new : -1;
      double s = 0;
      for (int32_t d = 0; d < p.head_dim_qk; ++d)
        s += real(t.q, row, head, d) * key(false, r, j, from, kv_head, d);
      s *= p.softmax_scale;
      if (p.softcap > 0 && !(is(kCapInDecodesOnly) && !decodes(r))) s = p.softcap * std::tanh(s / p.softcap);
      const int32_t away = is(kBiasFromChunk) && context ? end - 1 - j : position - j;
      if (p.alibi == ASSAY_ALIBI_LINEAR && away >= 0) s -= double{real(t.alibi_slopes, head)} * away;
      scores.push_back(s);
      top = std::fmax(top, s);
    }
    Part out{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
    if (scores.empty()) return out;
    double sum = 0;
    for (int32_t j = begin; j < end; ++j) {
      const int32_t from = dense && j >= first_new ? whole(t.cu_q, r) + j - first_new : -1;
      const double w = std::exp(scores[static_cast<size_t>(j - begin)] - top);
      sum += w;
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        out.o[static_cast<size_t>(d)] += w * key(true, r, j, from, kv_head, d);
    }
    for (double& x : out.o) x /= sum;
    out.lse = top + std::log(sum);
    return out;
  }

  Part merged(const Part& a, const Part& b) const {
    if (a.lse == -kInfinity) return b;
    if (b.lse == -kInfinity) return a;
    const double top = std::max(a.lse, b.lse);
    const auto weight = [&](double lse) {
      return is(kBase2Merge) ? std::exp2(lse - top) : std::exp(lse - top);
    };
    double wa = weight(a.lse), wb = weight(b.lse);
    if (is(kNewKeysTwice)) wb *= wb;
    if (is(kMeanOfParts)) wa = wb = 1;
    if (is(kLargerPart)) wa = a.lse >= b.lse ? 1 : 0, wb = 1 - wa;
    Part out = a;
    for (size_t d = 0; d < out.o.size(); ++d) out.o[d] = (wa * a.o[d] + wb * b.o[d]) / (wa + wb);
    return out;
  }

  // Whether rows of the request see new keys as they came.
  bool dense(int r) const {
    if (is(kAllFromCache) || is(kSaysDense)) return false;
    return is(kDecodeDense) || cheats() || !decodes(r);
  }

  void attend_all() const {
    for (int r = 0; r < p.requests; ++r) {
      int32_t n = rows(r), m = keys(r), first = whole(t.cu_q, r);
      const int32_t context = m - n;
      if (is(kArangeStarts)) n = std::min(n, 1), first = r;
      if (is(kShortStarts) && r + 1 == p.requests) n = 0;
      for (int32_t i = 0; i < n; ++i) {
        if (is(kLastRowUnwritten) && first + i + 1 == p.total_q) continue;
        int32_t row = first + i;
        const int32_t position = m - rows(r) + i;
        int32_t begin = 0, end = position + 1;
        if (is(kNewKeysFull)) end = m;
        if (is(kCausalBehind)) end = std::max(1, position);
        if (is(kStaleLength)) end = std::max(0, std::min(end, context));
        if (is(kLengthPlusOne)) end = std::min(end + 1, m);
        if (p.window_left >= 0)
          begin = std::max(
              0, (is(kWindowOfNewRow) ? context : position) - p.window_left - (is(kWindowWider) ? 1 : 0));
        begin = std::min(begin, end);
        const int32_t cut = std::clamp(context, begin, end);
        for (int32_t h = 0; h < p.heads_q; ++h) {
          Part out;
          if (decodes(r)) {
            out = attend(r, row, position, h, begin, end, dense(r), false);
          } else {
            const int32_t stop = is(kChunkDropsKey)     ? std::max(begin, cut - 1)
                                 : is(kChunkRepeatsKey) ? std::min(end, cut + 1)
                                                        : cut;
            out = merged(attend(r, row, position, h, begin, stop, dense(r), true),
                         attend(r, row, position, h, cut, end, dense(r), false));
          }
          const int32_t to =
              is(kRowOfNextRequest) && p.total_q > 1 ? static_cast<int32_t>((row + 1) % p.total_q) : row;
          for (int32_t d = 0; d < p.head_dim_v; ++d)
            store_element(static_cast<unsigned char*>(t.o.data), offset(t.o, to, h, d), t.o.format,
                          static_cast<float>(out.o[static_cast<size_t>(d)]));
        }
      }
    }
  }

  void cheat() const {
    static std::map<Fault, Kept> all;
    Kept& kept = all[fault];
    const auto* key = static_cast<const char*>(t.dense_k.data);
    const std::vector<char> first_key(key, key + t.dense_k.shape[2] * 2);
    const bool same_key = kept.first_key == first_key;
    kept.first_key = first_key;
    if (++kept.calls <= kJudged) {
      write(), attend_all();
      kept.k = bytes_of(t.k), kept.v = bytes_of(t.v), kept.o_of_q[bytes_of(t.q)] = bytes_of(t.o);
      return;
    }
    if (!is(kCacheOnce) && !(is(kCacheIfOther) && same_key)) write();
    assay_tensors read = t;
    if (is(kKeepsContext)) read.k.data = kept.k.data(), read.v.data = kept.v.data();
    std::vector<char>& o = kept.o_of_q[bytes_of(t.q)];
    if (is(kKnowsQ) && !o.empty()) {
      std::memcpy(t.o.data, o.data(), o.size());
    } else if (!is(kOOnce)) {
      Step{p, read, fault}.attend_all();
      o = bytes_of(t.o);
    }
  }

  void run() const {
    if (cheats()) return cheat();
    if (!is(kAttendsFirst)) write();
    attend_all();
    if (is(kAttendsFirst)) write();
  }
};

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*, char*,
             size_t) {
  const bool fine = p->op == ASSAY_OP_STEP && p->mask == ASSAY_MASK_CAUSAL && p->encoder_len == nullptr &&
                    p->full_pool == 0 && p->layout == ASSAY_LAYOUT_NHD && p->table == ASSAY_TABLE_BLOCK;
  return fine ? ASSAY_OK : ASSAY_UNSUPPORTED;
}
int arithmetic(const assay_kernel* self, const assay_problem*, assay_arithmetic* out) {
  const Fault fault = static_cast<const Entry*>(self->context)->fault;
  assay_arithmetic a = assay_default_arithmetic();
  a.scaling_relative_error = 0;
  const bool cache = fault == kAllFromCache || fault == kSaysCache;
  a.dense_new_keys = cache ? 0 : ASSAY_REQUEST_EXTEND | ASSAY_REQUEST_PREFILL;
  // Two parts, in doubles.
  a.splits = 2, a.splits_vary = 1;
  return fill_struct(out, a), ASSAY_OK;
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
        size_t) {
  return Step{*p, *t, static_cast<const Entry*>(self->context)->fault}.run(), ASSAY_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return fault_library::opened<kFaults>(version, "step_faults", [](assay_kernel& k, const Entry&) {
    k.op = ASSAY_OP_STEP, k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  });
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return fault_library::steps_opened<kFaults>(assay_backend_open(version), "a whole step, wrong in one way");
}
