// SPDX-License-Identifier: Apache-2.0
// libassay_planted_engine.so: whole steps of a server of its own, in doubles, with the faults of
// engine_faults.hpp where a server has them: what `assay explain` is asked that no operand read otherwise
// says. Decodes read all from the cache, in one part or in parts of 32 keys; extends their context in chunks
// of the budget, joined one after the other, then their new keys as they came; a prefix of all is a part of
// its own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/check/testing/fault_library.hpp"
#include "harness/check/testing/step_operands.hpp"
#include "harness/explain/testing/engine_faults.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/common/formats.hpp"

namespace planted_engine {
namespace {

using namespace assay_kernels;
using namespace step_operands;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kPartKeys = 32;

struct Part {
  std::vector<double> o;
  double lse = -kInfinity;
};
// Keys of one part, as a row meets them.
struct Keys {
  int32_t begin, end;
  bool context = false;
  bool dense = false;
  int32_t stale_from = -1, stale_by = 0;  // keys from there on are those so many before
};

class Step {
 public:
  Step(const assay_problem& problem, const assay_tensors& tensors, Fault f)
      : p(problem), t(tensors), fault(f) {
    for (int r = 0; r < p.requests; ++r)
      if (extends(r)) ++extends_, first_extend_ = first_extend_ < 0 ? r : first_extend_;
    for (int r = 0; r < p.requests; ++r) {
      int32_t begin = 0;
      if (extends(r)) most_chunks_ = std::max(most_chunks_, parts_before(r, begin).size());
    }
  }
  void run() const {
    write();
    for (int r = 0; r < p.requests; ++r)
      for (int32_t i = 0; i < rows(r); ++i) attend_row(r, i);
    if (is(kPaddingComputed))
      for (int64_t row = whole(t.cu_q, p.requests); row < t.o.shape[0]; ++row)
        for (int32_t h = 0; h < p.heads_q; ++h)
          for (int32_t d = 0; d < p.head_dim_v; ++d) store_o(row, h, d, 0.5);
  }

 private:
  bool is(Fault f) const { return fault == f; }
  int32_t rows(int r) const { return whole(t.cu_q, r + 1) - whole(t.cu_q, r); }
  int32_t keys(int r) const { return whole(t.kv_len, r); }
  int32_t context(int r) const { return keys(r) - rows(r); }
  bool decodes(int r) const { return rows(r) <= p.threshold; }
  bool extends(int r) const { return !decodes(r) && context(r) > 0; }
  bool latent() const { return p.layout == ASSAY_LAYOUT_MLA; }

  // ---- the cache
  int64_t place(bool v, int64_t slot, int32_t h, int32_t d) const {
    const assay_tensor& c = v ? t.v : t.k;
    const int64_t page = is(kDoublePages) && writing_ ? 2 * p.page_size : p.page_size;
    const int64_t block = slot / page, at = slot % page;
    if (latent()) return offset(c, block, at, d);
    if (p.layout == ASSAY_LAYOUT_NHD) return offset(c, block, at, h, d);
    if (is(kHeadsForSlots) && writing_)
      return block * c.stride[0] + (at * p.heads_kv + h) * c.stride[2] + d * c.stride[3];
    return offset(c, block, h, at, d);
  }
  float dense(bool v, int64_t row, int32_t h, int32_t d) const {
    if (p.two_sources != 0 && d >= p.head_dim_v) return real(t.dense_v, row, h, d - p.head_dim_v);
    return real(v ? t.dense_v : t.dense_k, row, h, d);
  }
  float fixed_scale(bool v, int32_t h) const {
    const assay_tensor& s = v ? t.v_scale : t.k_scale;
    const int32_t kind = v ? p.v_scale_kind : p.k_scale_kind;
    if (kind == ASSAY_SCALE_HOST) return v ? p.v_scale_host : p.k_scale_host;
    return kind == ASSAY_SCALE_HEAD ? real(s, h) : kind == ASSAY_SCALE_TENSOR ? real(s, 0) : 1.0f;
  }
  bool dynamic(bool v) const { return (v ? p.v_scale_kind : p.k_scale_kind) == ASSAY_SCALE_TOKEN_HEAD; }
  int64_t scale_place(bool v, int64_t slot, int32_t h) const {
    return offset(v ? t.v_scale : t.k_scale, slot / p.page_size, h, slot % p.page_size);
  }
  float computed_scale(bool v, int64_t row, int32_t h, int32_t dims) const {
    float largest = 0;
    const bool of_v = v && !is(kScaleOfKInV);
    for (int32_t d = 0; d < (is(kLargestOfHalf) ? dims / 2 : dims); ++d) {
      const float x = dense(of_v, row, h, d);
      largest = std::max(largest, is(kLargestSigned) ? x : std::fabs(x));
    }
    return largest / (is(kOver128) ? 128.0f : 127.0f);
  }
  unsigned char code_of(int32_t format, float x) const {
    if (is(kCodesDown)) x = std::floor(x);
    if (format == ASSAY_INT8) return static_cast<unsigned char>(int8_from_float(x));
    if (is(kOverflowToNan) && std::fabs(x) > 448) return 0x7f;
    if (is(kSubnormalsFlushed) && std::fabs(x) < 0x1p-6f) return 0;
    return fp8_from_float(x, is(kOtherBias) ? int32_t{ASSAY_FP8_E4M3FNUZ} : format);
  }
  void write_row(bool v, int64_t row, int64_t slot, int32_t h) const {
    const assay_tensor& cache = v ? t.v : t.k;
    const int32_t dims = v ? p.head_dim_v : p.head_dim_qk;
    const int32_t from = is(kHeadsBackwards) ? p.heads_kv - 1 - h : h;
    float by = fixed_scale(v, h);
    if (dynamic(v)) {
      by = computed_scale(v, row, from, dims);
      if (!is(kScaleUnstored))
        static_cast<float*>((v ? t.v_scale : t.k_scale).data)[scale_place(v, slot, h)] =
            is(kReciprocalStored) && by > 0 ? 1 / by : by;
    }
    if (is(kScaleTwice)) by *= by;
    if (is(kKTimesScale) && !v) by = 1 / by;
    for (int32_t d = 0; d < dims; ++d) {
      int32_t source = d;
      if (is(kDimsApart)) source = d < dims / 2 ? 2 * d : 2 * (d - dims / 2) + 1;
      if (is(kRopeFirst)) source = (d + p.head_dim_v) % dims;
      const float x = dense(v, row, from, source), q = by != 0 ? x / by : 0;
      auto* const data = static_cast<unsigned char*>(cache.data);
      const int64_t to = place(v, slot, h, d);
      if (element_bytes_of(cache.format) == 1)
        data[to] = code_of(cache.format, q);
      else
        store_element(data, to, cache.format, q);
    }
  }
  void write() const {
    writing_ = true;
    const auto* slots = static_cast<const int64_t*>(t.slot_mapping.data);
    for (int r = 0; r < p.requests; ++r)
      for (int32_t i = 0; i < rows(r); ++i) {
        if (is(kFourRows) && i >= 4) break;
        const int64_t row = whole(t.cu_q, r) + i;
        const int64_t slot =
            is(kSlotsOfHalfWidth) ? static_cast<const int32_t*>(t.slot_mapping.data)[row] : slots[row];
        for (int32_t h = 0; h < p.heads_kv; ++h)
          for (const bool v : {false, true}) {
            if (v && latent()) continue;
            if (h + 1 == p.heads_kv && (is(kLastHead) || (is(kLastHeadOfV) && v))) continue;
            write_row(v, row, slot, h);
          }
      }
    writing_ = false;
  }

  // ---- attention
  int table_row(int r, bool context) const {
    const bool of_class = is(kExtendTableOfClass) || (is(kContextTableOfClass) && context);
    return of_class && extends(r) ? r - first_extend_ : r;
  }
  double element(bool v, int r, int32_t j, const Keys& part, int32_t h, int32_t d) const {
    if (part.stale_from >= 0 && j >= part.stale_from) j -= part.stale_by;
    if (part.dense && j >= context(r)) return dense(v && !latent(), whole(t.cu_q, r) + j - context(r), h, d);
    int32_t page = j / p.page_size;
    if (is(kSuffixFromFirstPage) && j >= p.prefix_tokens) page -= p.prefix_tokens / p.page_size;
    if (is(kLastPageStale) && page > 0 && page == (keys(r) - 1) / p.page_size) --page;
    const int64_t slot =
        int64_t{whole(t.block_table, table_row(r, part.context), page)} * p.page_size + j % p.page_size;
    const bool of_v = v && !latent();
    const double code = load_element(static_cast<const unsigned char*>((of_v ? t.v : t.k).data),
                                     place(of_v, slot, h, d), (of_v ? t.v : t.k).format);
    if (v && part.context && is(kContextOfVUnscaled)) return code;
    if (dynamic(of_v))
      return code *
             static_cast<const float*>((of_v ? t.v_scale : t.k_scale).data)[scale_place(of_v, slot, h)];
    return code * fixed_scale(of_v, h);
  }
  // Where a key stands: a draft of a tree where its row says.
  int32_t stands(int r, int32_t j) const {
    const bool draft = p.mask == ASSAY_MASK_TREE && t.positions.data != nullptr && j >= context(r);
    return draft && !is(kPositionsIgnored) ? whole(t.positions, whole(t.cu_q, r) + j - context(r)) : j;
  }
  bool visible(int r, int32_t i, int32_t position, int32_t j, const Keys& part) const {
    if (part.stale_from >= 0 && j >= part.stale_from) return true;
    if (p.mask == ASSAY_MASK_TREE && j >= context(r)) {
      int64_t first = static_cast<const int64_t*>(t.tree_indptr.data)[r * t.tree_indptr.stride[0]];
      if (is(kTreeOfRows)) first = whole(t.cu_q, r);
      if (static_cast<const uint8_t*>(
              t.tree_mask.data)[(first + i * rows(r) + j - context(r)) * t.tree_mask.stride[0]] == 0)
        return false;
    } else if (p.mask == ASSAY_MASK_CAUSAL && j > context(r) + i) {
      return false;
    }
    if (part.context && is(kCausalInChunks) && j > part.end - rows(r) + i) return false;
    if (p.window_left >= 0) {
      int32_t at = position;
      if (part.context && is(kWindowFromChunkEnd)) at = part.end - 1;
      const bool applies = !(is(kWindowInNewAlone) && part.context);
      if (applies && stands(r, j) < at - p.window_left) return false;
    }
    return true;
  }
  Part attend(int r, int32_t i, int32_t head, const Keys& part) const {
    const int32_t group = p.heads_q / p.heads_kv, row = whole(t.cu_q, r) + i;
    const bool in_turn = is(kHeadsInTurn) || (is(kContextHeadsInTurn) && part.context);
    const int32_t h = in_turn ? head % p.heads_kv : head / group;
    int32_t position = context(r) + i;
    if (t.positions.data != nullptr && !is(kPositionsIgnored)) position = whole(t.positions, row);
    if (is(kPositionsOneOn)) ++position;
    const int32_t of_q =
        is(kQueriesByRequests) && extends(r) ? first_extend_ + row - whole(t.cu_q, first_extend_) : row;
    const int32_t dims = is(kWithoutRope) ? p.head_dim_v : p.head_dim_qk;
    Part out{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
    std::vector<double> scores;
    std::vector<int32_t> seen;
    double top = -kInfinity;
    for (int32_t j = part.begin; j < part.end; ++j) {
      if (!visible(r, i, position, j, part)) continue;
      double s = 0;
      for (int32_t d = 0; d < dims; ++d) {
        double q = p.two_sources != 0 && d >= p.head_dim_v ? real(t.rope, of_q, head, d - p.head_dim_v)
                                                           : real(t.q, of_q, head, d);
        if (is(kQueryInEightBits))
          q = float_from_fp8(fp8_from_float(static_cast<float>(q), ASSAY_FP8_E4M3), ASSAY_FP8_E4M3);
        s += q * element(false, r, j, part, h, d);
      }
      s *= is(kContextScaledOtherwise) && part.context ? 1.0 / p.head_dim_qk : p.softmax_scale;
      if (p.softcap > 0 && !(is(kContextUncapped) && part.context)) s = p.softcap * std::tanh(s / p.softcap);
      int32_t at = position;
      if (is(kBiasFromChunkEnd) && part.context) at = part.end - rows(r) + i;
      const int32_t away = at - stands(r, j);
      if (p.alibi == ASSAY_ALIBI_LINEAR && away >= 0) s -= double{real(t.alibi_slopes, head)} * away;
      scores.push_back(s), seen.push_back(j);
      top = std::fmax(top, s);
    }
    double sum = 0;
    for (size_t n = 0; n < seen.size(); ++n) {
      const double w = std::exp(scores[n] - top);
      sum += w;
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        out.o[static_cast<size_t>(d)] += w * element(true, r, seen[n], part, h, d);
    }
    if (seen.empty()) return out;
    for (double& x : out.o) x /= sum;
    out.lse = top + std::log(sum);
    return out;
  }
  Part merged(const Part& a, const Part& b, bool last) const {
    if (a.lse == -kInfinity) return b;
    if (b.lse == -kInfinity) return a;
    const double top = std::max(a.lse, b.lse);
    const bool base2 = is(kBase2BetweenChunks) && !last;
    double wa = base2 ? std::exp2(a.lse - top) : std::exp(a.lse - top);
    double wb = base2 ? std::exp2(b.lse - top) : std::exp(b.lse - top);
    Part out = a;
    out.lse = is(kLargestLseKept) ? top : top + std::log(std::exp(a.lse - top) + std::exp(b.lse - top));
    if (is(kWeightsExchanged) && last) std::swap(wa, wb);
    for (size_t d = 0; d < out.o.size(); ++d) out.o[d] = (wa * a.o[d] + wb * b.o[d]) / (wa + wb);
    return out;
  }
  // The parts of a row but the last one.
  std::vector<Keys> parts_before(int r, int32_t& begin) const {
    std::vector<Keys> list;
    if (p.prefix_tokens > 0) {
      list.push_back({0, p.prefix_tokens, true});
      if (is(kPrefixMissing)) list.clear();
      begin = is(kPrefixTwice) ? 0 : p.prefix_tokens;
    } else if (decodes(r)) {
      for (; keys(r) - begin > kPartKeys; begin += kPartKeys) list.push_back({begin, begin + kPartKeys});
    } else if (extends(r)) {
      const int32_t size = std::max(1, static_cast<int32_t>(p.token_budget) / extends_);
      for (int32_t at = 0, n = 0; at < context(r); at += size, ++n) {
        Keys part{at, std::min(at + size, context(r)), true};
        if (is(kChunksOverlap) && n > 0) --part.begin;
        if (is(kChunksApart)) --part.end;
        if (is(kChunksInWholeEights)) part.end = part.begin + (part.end - part.begin) / 8 * 8;
        if (is(kLastChunkStale) && n > 0)
          part.stale_from = part.end, part.stale_by = size, part.end = at + size;
        list.push_back(part);
      }
      begin = context(r);
      if (is(kLastChunkAlone)) list.erase(list.begin(), list.end() - 1);
      if (is(kFirstChunkMissing)) list.erase(list.begin());
    }
    return list;
  }
  // What a row of another head, or another row, left as LSE.
  double lse_for(int r, int32_t i, int32_t head, const Keys& part, double own) const {
    int32_t of = i, h = head;
    if (is(kLseOfNextHead)) h = (head + 1) % p.heads_q;
    if (is(kLseTurned)) {
      const int32_t flat = i * p.heads_q + head;
      h = flat / rows(r), of = flat % rows(r);
    }
    return of == i && h == head ? own : attend(r, of, h, part).lse;
  }
  void attend_row(int r, int32_t i) const {
    int32_t begin = 0;
    const std::vector<Keys> before = parts_before(r, begin);
    const Keys last{begin, keys(r), false, !decodes(r) && p.prefix_tokens == 0};
    for (int32_t h = 0; h < p.heads_q; ++h) {
      Part sum{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
      for (const Keys& part : before) {
        Part next = attend(r, i, h, part);
        sum = merged(sum, next, false);
      }
      if (is(kEmptyCounts) && extends(r))
        for (size_t n = before.size(); n < most_chunks_; ++n) sum = merged(sum, nothing(), false);
      Part fresh = attend(r, i, h, last);
      if ((is(kLseTurned) || is(kLseOfNextHead)) && extends(r) && !before.empty())
        fresh.lse = lse_for(r, i, h, last, fresh.lse);
      const bool dropped = is(kLastPartMissing) && decodes(r) && !before.empty();
      Part out = dropped ? sum : merged(sum, fresh, true);
      if (p.has_sinks != 0 && !(is(kExtendsWithoutSink) && extends(r))) {
        const double sink = real(t.sinks, h), share = 1 / (1 + std::exp(sink - out.lse));
        for (double& x : out.o) x *= share;
      }
      for (int32_t d = 0; d < p.head_dim_v; ++d) store_o(row_of(r, i), h, d, out.o[static_cast<size_t>(d)]);
    }
  }
  Part nothing() const { return {std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0), 0.0}; }
  int64_t row_of(int r, int32_t i) const {
    const int64_t row = whole(t.cu_q, r) + i;
    return is(kRowsByRequests) && extends(r) ? first_extend_ + row - whole(t.cu_q, first_extend_) : row;
  }
  void store_o(int64_t row, int32_t h, int32_t d, double x) const {
    store_element(static_cast<unsigned char*>(t.o.data), offset(t.o, row, h, d), t.o.format,
                  static_cast<float>(x));
  }

  const assay_problem& p;
  const assay_tensors& t;
  Fault fault;
  int32_t extends_ = 0, first_extend_ = -1;
  size_t most_chunks_ = 0;
  mutable bool writing_ = false;
};

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*, char*,
             size_t) {
  const bool layout =
      p->layout == ASSAY_LAYOUT_NHD || p->layout == ASSAY_LAYOUT_HND || p->layout == ASSAY_LAYOUT_MLA;
  const bool fine = p->op == ASSAY_OP_STEP && p->mask != ASSAY_MASK_FULL && p->mask != ASSAY_MASK_CROSS &&
                    p->encoder_len == nullptr && p->full_pool == 0 && layout &&
                    p->table == ASSAY_TABLE_BLOCK && p->drafted == 0 &&
                    (p->two_sources == 0 || p->layout == ASSAY_LAYOUT_MLA) && p->chunk == 0 &&
                    p->window_right < 0 && p->alibi != ASSAY_ALIBI_SQRT && p->ranks == 1;
  return fine ? ASSAY_OK : ASSAY_UNSUPPORTED;
}
int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic a = assay_default_arithmetic();
  a.scaling_relative_error = 0;
  a.dense_new_keys = p->prefix_tokens > 0 ? 0 : ASSAY_REQUEST_EXTEND | ASSAY_REQUEST_PREFILL;
  a.splits = 2 + p->max_kv_len / 8, a.splits_vary = 1;
  return fill_struct(out, a), ASSAY_OK;
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
        size_t) {
  return Step(*p, *t, static_cast<const Entry*>(self->context)->fault).run(), ASSAY_OK;
}

}  // namespace
}  // namespace planted_engine

using planted_engine::Entry;
using planted_engine::kEntries;

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return fault_library::opened<kEntries>(version, "planted_engine", [](assay_kernel& k, const Entry& e) {
    k.op = ASSAY_OP_STEP, k.supports = planted_engine::supports;
    k.arithmetic = planted_engine::arithmetic, k.run = planted_engine::run;
    // Where a place is read that nobody wrote, it is to hold a number.
    if (e.fault != planted_engine::kRight) k.contracts = ASSAY_CONTRACT_FINITE_UNUSED;
  });
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return fault_library::steps_opened<kEntries>(assay_backend_open(version), "a whole step, wrong in one way");
}
