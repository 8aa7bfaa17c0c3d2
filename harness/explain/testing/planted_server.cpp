// SPDX-License-Identifier: Apache-2.0
// libassay_planted_server.so: whole steps of a second server, in doubles, with the faults of
// server_faults.hpp. Unlike planted_engine.cpp it keeps one running maximum over tiles of 16 keys, cuts
// decodes into three splits of whole pages, reads extends whole from the cache, and prefills as they came.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/check/testing/fault_library.hpp"
#include "harness/check/testing/step_operands.hpp"
#include "harness/explain/testing/server_faults.hpp"
#include "kernels/common/fill_struct.hpp"

namespace planted_server {
namespace {

using namespace assay_kernels;
using namespace step_operands;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kTile = 16, kSplits = 3, kBlock = 4;

// What a row has of some of its keys, undivided.
struct Sums {
  std::vector<double> o;
  double top = -kInfinity, sum = 0;
};

class Step {
 public:
  Step(const assay_problem& problem, const assay_tensors& tensors, Fault f)
      : p(problem), t(tensors), fault(f) {}
  void run() const {
    write();
    for (int r = 0; r < p.requests; ++r)
      for (int32_t i = 0; i < rows(r); ++i)
        for (int32_t h = 0; h < p.heads_q; ++h) attend(r, i, h);
  }

 private:
  bool is(Fault f) const { return fault == f; }
  int32_t rows(int r) const { return whole(t.cu_q, r + 1) - whole(t.cu_q, r); }
  int32_t keys(int r) const { return whole(t.kv_len, r); }
  int32_t context(int r) const { return keys(r) - rows(r); }
  bool prefills(int r) const { return context(r) == 0 && rows(r) > 1; }
  bool decodes(int r) const { return rows(r) == 1; }
  bool extends(int r) const { return !decodes(r) && !prefills(r); }
  bool latent() const { return p.layout == ASSAY_LAYOUT_MLA; }

  // ---- the cache
  int64_t place(const assay_tensor& c, int64_t slot, int32_t h, int32_t d) const {
    const int64_t block = slot / p.page_size, at = slot % p.page_size;
    return latent() ? offset(c, block, at, d) : offset(c, block, at, h, d);
  }
  int64_t scale_place(const assay_tensor& s, int64_t slot, int32_t h) const {
    return offset(s, slot / p.page_size, h, slot % p.page_size);
  }
  bool computed(bool v) const { return (v ? p.v_scale_kind : p.k_scale_kind) == ASSAY_SCALE_TOKEN_HEAD; }
  float given_scale(bool v, int32_t h) const {
    const assay_tensor& s = v ? t.v_scale : t.k_scale;
    const int32_t kind = v ? p.v_scale_kind : p.k_scale_kind;
    if (kind == ASSAY_SCALE_HOST) return v ? p.v_scale_host : p.k_scale_host;
    return kind == ASSAY_SCALE_HEAD ? real(s, h) : kind == ASSAY_SCALE_TENSOR ? real(s, 0) : 1.0f;
  }
  float scale_of_row(bool v, int64_t row, int32_t h) const {
    float largest = 0;
    for (int32_t d = 0; d < (v ? p.head_dim_v : p.head_dim_qk); ++d)
      largest = std::max(largest, std::fabs(real(v ? t.dense_v : t.dense_k, row, h, d)));
    return largest / 127;
  }
  void write_vector(bool v, int r, int64_t row, int64_t slot, int32_t h) const {
    const assay_tensor &cache = v ? t.v : t.k, &dense = v ? t.dense_v : t.dense_k;
    const int64_t last = whole(t.cu_q, p.requests) - 1, first = r < 0 ? row : whole(t.cu_q, r);
    int64_t from = row;
    if (is(kRowsByLongest)) from = std::min<int64_t>(last, int64_t{r} * p.max_q_len + row - first);
    if (is(kVOfNextRow) && v) from = std::min(last, row + 1);
    if (is(kRowsInPairs)) from -= (row - first) % 2;
    if (is(kPaddingInSlotZero) && r < 0) from = row;
    const int32_t head = is(kHeadsInPairs) && !v ? h / 2 * 2 : h;
    float by = given_scale(is(kKByScaleOfV) || (v && !is(kVByScaleOfK)), h);
    if (computed(v)) {
      by = scale_of_row(v, is(kScaleOfRequest) ? first : row, h);
      const float stored = is(kScaleOfRowBefore) && row > first ? scale_of_row(v, row - 1, h) : by;
      const assay_tensor& s = v ? t.v_scale : t.k_scale;
      static_cast<float*>(s.data)[scale_place(s, slot, h)] = stored;
    }
    const int32_t dims = is(kRopeUnwritten) || v ? p.head_dim_v : p.head_dim_qk;
    for (int32_t d = 0; d < dims; ++d) {
      const float x = real(dense, from, head, d);
      float q = by != 0 ? x / by : 0;
      if (is(kVTimesScaleInDecodes) && v && decodes(r)) q = x * by;
      if (is(kScaleOverInBf16)) q = x * static_cast<float>(in_bf16(1 / by));
      auto* const data = static_cast<unsigned char*>(cache.data);
      const int64_t to = place(cache, slot, h, d);
      if (cache.format == ASSAY_INT8)
        data[to] = static_cast<unsigned char>(int8_from_float(q));
      else if (element_bytes_of(cache.format) == 1)
        data[to] = fp8_from_float(q, cache.format);
      else
        store_element(data, to, cache.format, q);
    }
  }
  void write() const {
    const auto* slots = static_cast<const int64_t*>(t.slot_mapping.data);
    for (int64_t row = whole(t.cu_q, p.requests); is(kPaddingInSlotZero) && row < t.slot_mapping.shape[0];
         ++row)
      for (int32_t h = 0; h < p.heads_kv; ++h)
        for (const bool v : {false, true}) write_vector(v, -1, row, 0, h);
    for (int r = 0; r < p.requests; ++r) {
      if (is(kExtendsUnwritten) && extends(r)) continue;
      for (int32_t i = 0; i < rows(r); ++i) {
        const int64_t first = whole(t.cu_q, r);
        const bool new_page =
            context(r) > 0 && (context(r) + i) / p.page_size > (context(r) - 1) / p.page_size;
        if (is(kNewPagesUnwritten) && new_page) continue;
        if (is(kPageEndsUnwritten) && (context(r) + i) % p.page_size + 1 == p.page_size) continue;
        int64_t of = first + (is(kRowsBackwards) ? rows(r) - 1 - i : i);
        if (is(kSlotsByClass)) of = row_by_class(r, i);
        const int64_t slot = slots[of];
        for (int32_t h = 0; h < p.heads_kv; ++h) {
          write_vector(false, r, first + i, slot, h);
          if (!latent()) write_vector(true, r, first + i, slot, h);
        }
      }
    }
  }

  static double in_bf16(double x) {
    unsigned char code[2];
    store_element(code, 0, ASSAY_BF16, static_cast<float>(x));
    return load_element(code, 0, ASSAY_BF16);
  }

  // ---- attention
  int32_t encoder(int r) const { return t.encoder_len.data == nullptr ? 0 : whole(t.encoder_len, r); }
  int64_t slot_of(int row, int32_t j) const {
    const int32_t before = encoder(row);
    if (is(kEncoderFollowed)) j += before;
    const int32_t entry =
        (is(kEncoderFollowed) ? 0 : (before + p.page_size - 1) / p.page_size) + j / p.page_size;
    const int64_t block = whole(t.block_table, row, entry), at = j % p.page_size;
    if (t.slot_map.data == nullptr) return block * p.page_size + at;
    if (is(kMapByBlock)) return whole(t.slot_map, static_cast<int>(block)) / p.page_size * p.page_size + at;
    return whole(t.slot_map, static_cast<int>(block * p.page_size + at));
  }
  // By the table row of a request.
  double from_cache(bool of_v, int row, int32_t j, int32_t h, int32_t d) const {
    const int64_t slot = slot_of(row, j);
    const assay_tensor& cache = of_v ? t.v : t.k;
    const double code =
        load_element(static_cast<const unsigned char*>(cache.data), place(cache, slot, h, d), cache.format);
    const bool scale_of_v = of_v && !is(kScaleOfKForV);
    if (computed(of_v)) {
      const assay_tensor& s = scale_of_v ? t.v_scale : t.k_scale;
      return code * static_cast<const float*>(s.data)[scale_place(s, slot, h)];
    }
    return code * given_scale(scale_of_v, h);
  }
  double element(bool v, int r, int32_t j, int32_t h, int32_t d) const {
    if (latent() && v && is(kVBehindRope)) d += p.head_dim_qk - p.head_dim_v;
    const bool of_v = v && !latent();
    if (prefills(r)) return real(of_v ? t.dense_v : t.dense_k, whole(t.cu_q, r) + j, h, d);
    if (is(kNewVAsItCame) && of_v && j >= context(r))
      return real(t.dense_v, whole(t.cu_q, r) + j - context(r), h, d);
    const int32_t page = j / p.page_size;
    const bool last = page == (keys(r) - 1) / p.page_size;
    if (is(kTableOfRequestBefore) && decodes(r) && r > 0) return from_cache(of_v, r - 1, j, h, d);
    const int row = is(kLastPageOfNext) && last && r + 1 < p.requests && extends(r) ? r + 1 : r;
    return from_cache(of_v, row, j, h, d);
  }
  bool in_tree(int r, int32_t i, int32_t draft) const {
    if (is(kDraftsOfSelfAlone)) return draft == i;
    if (is(kDraftsOfLast)) {
      if (draft == i) return true;
      i = rows(r) - 1;
    }
    int64_t first = static_cast<const int64_t*>(t.tree_indptr.data)[r * t.tree_indptr.stride[0]];
    if (is(kTreesOfOneWidth)) first = int64_t{r} * rows(0) * rows(0);
    return static_cast<const uint8_t*>(
               t.tree_mask.data)[(first + int64_t{i} * rows(r) + draft) * t.tree_mask.stride[0]] != 0;
  }
  bool visible(int r, int32_t i, int32_t j) const {
    const int32_t here = context(r) + (is(kRowsAtFirst) && extends(r) ? 0 : i);
    if (p.mask == ASSAY_MASK_TREE && j >= context(r)) {
      if (!in_tree(r, i, j - context(r))) return false;
    } else if (!(is(kPrefillsUnmasked) && prefills(r))) {
      int32_t newest = here;
      if (is(kCausalByBlock)) newest = std::min(keys(r) - 1, context(r) + i / kBlock * kBlock + kBlock - 1);
      if (j > newest) return false;
    }
    if (is(kDecodesWithoutNew) && decodes(r) && j >= context(r)) return false;
    if (is(kNewKeysOfSelfAlone) && extends(r) && j >= context(r) && j != here) return false;
    if (is(kFirstPageSkipped) && extends(r) && j < p.page_size) return false;
    if (is(kSixtyFourKeys) && j >= 64) return false;
    if (is(kTailTileDropped) && extends(r) && j >= keys(r) / kTile * kTile && j < context(r)) return false;
    if (p.window_left >= 0 && !(is(kWindowInExtendsAlone) && decodes(r))) {
      int32_t edge = here - p.window_left;
      if (is(kWindowOfPages)) edge = std::max(0, edge) / p.page_size * p.page_size;
      if (j < edge && !(is(kFirstKeysKept) && j < kBlock)) return false;
    }
    if (p.chunk > 0) {
      int32_t begin = (is(kChunkOfFirstRow) ? context(r) : here) / p.chunk * p.chunk;
      if (is(kChunkBeforeSeen)) begin -= p.chunk;
      if (j < begin) return false;
    }
    return true;
  }
  int32_t kv_head(int r, int32_t head) const {
    const int32_t group = p.heads_q / p.heads_kv;
    if (is(kHeadsInTurnInDecodes) && decodes(r)) return head % p.heads_kv;
    return is(kGroupsOfDouble) ? head / (2 * group) : head / group;
  }
  double score(int r, int32_t i, int32_t j, int32_t head) const {
    const int32_t h = kv_head(r, head);
    const int32_t of = is(kQueryHeadsInPairs) ? head ^ 1 : head;
    const int64_t row = whole(t.cu_q, r) + (is(kQueriesInPairs) ? i / 2 * 2 : i);
    double s = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d)
      s += double{real(t.q, row, of, d)} * element(false, r, j, h, d);
    if (p.softcap > 0 && is(kCapBeforeScale))
      s = p.softcap * std::tanh(s / p.softcap) * p.softmax_scale;
    else
      s *= p.softmax_scale;
    if (p.softcap > 0 && !is(kCapBeforeScale)) s = p.softcap * std::tanh(s / p.softcap);
    if (p.alibi == ASSAY_ALIBI_LINEAR) {
      int32_t away = context(r) + i - j;
      if (is(kBiasOfTiles)) away = context(r) + i - j / kTile * kTile;
      s -= double{real(t.alibi_slopes, head)} * away;
    }
    return is(kScoresInBf16) ? in_bf16(s) : s;
  }
  // Keys begin to end of a row, tile by tile.
  Sums over(int r, int32_t i, int32_t head, int32_t begin, int32_t end) const {
    const int32_t h = kv_head(r, head);
    Sums out{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
    for (int32_t tile = begin; tile < end; tile += kTile) {
      std::vector<int32_t> seen;
      std::vector<double> scores;
      double top = out.top;
      for (int32_t j = tile; j < std::min(end, tile + kTile); ++j)
        if (visible(r, i, j))
          seen.push_back(j), scores.push_back(score(r, i, j, head)), top = std::fmax(top, scores.back());
      if (seen.empty()) continue;
      const double rescale = std::exp(out.top - top);
      if (!is(kTilesNotRescaled) || !extends(r))
        for (double& x : out.o) x *= rescale;
      out.sum *= rescale, out.top = top;
      for (size_t n = 0; n < seen.size(); ++n) {
        double w = std::exp(scores[n] - top);
        out.sum += w;
        if (is(kWeightsInBf16)) w = in_bf16(w);
        if (is(kLaneOfVDropped) && seen[n] % kTile == 5) w = 0;
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          out.o[static_cast<size_t>(d)] += w * element(true, r, seen[n], h, d);
      }
    }
    return out;
  }
  std::vector<Sums> splits(int r, int32_t i, int32_t h) const {
    std::vector<Sums> all;
    if (!decodes(r)) return {over(r, i, h, 0, keys(r))};
    const int32_t pages = (keys(r) + p.page_size - 1) / p.page_size;
    const int32_t each = (pages + kSplits - 1) / kSplits * p.page_size;
    for (int32_t n = 0; n < kSplits; ++n) {
      if (is(kMiddleSplitDropped) && n == 1) continue;
      Sums part = over(r, i, h, std::min(keys(r), n * each), std::min(keys(r), (n + 1) * each));
      if (part.sum == 0) continue;
      if (p.has_sinks != 0 && is(kSinkInEverySplit) && n > 0)
        part.sum += std::exp(real(t.sinks, h) - part.top);
      all.push_back(part);
      if (is(kLastSplitTwice) && (n + 1) * each >= keys(r) && n * each < keys(r)) all.push_back(part);
    }
    return all;
  }
  int64_t row_of(int r, int32_t i) const {
    return is(kResultsByClass) ? row_by_class(r, i) : whole(t.cu_q, r) + i;
  }
  int64_t row_by_class(int r, int32_t i) const {
    int64_t row = i;
    const auto sort = [&](int n) { return decodes(n) ? 0 : extends(n) ? 1 : 2; };
    for (int n = 0; n < p.requests; ++n)
      if (sort(n) < sort(r) || (sort(n) == sort(r) && n < r)) row += rows(n);
    return row;
  }
  void attend(int r, int32_t i, int32_t h) const {
    std::vector<Sums> parts = splits(r, i, h);
    double top = -kInfinity, sum = 0;
    std::vector<double> o(static_cast<size_t>(p.head_dim_v), 0.0);
    for (const Sums& part : parts) top = std::fmax(top, part.top);
    if (is(kSumsOfNextSplit))
      for (size_t n = 0; n + 1 < parts.size(); ++n) std::swap(parts[n].sum, parts[n + 1].sum);
    for (const Sums& part : parts) {
      const double by = is(kSplitsUnweighted) ? 1 / part.sum : std::exp(part.top - top);
      sum += is(kSplitsUnweighted) ? 1 : by * part.sum;
      for (size_t d = 0; d < o.size(); ++d) o[d] += by * part.o[d];
    }
    if (p.has_sinks != 0) sum += std::exp(real(t.sinks, h) - top);
    for (int32_t d = 0; d < p.head_dim_v; ++d) {
      const int32_t of = is(kHalvesExchanged) ? (d + p.head_dim_v / 2) % p.head_dim_v : d;
      const double half = is(kHalfOfDecodes) && decodes(r) ? 0.5 : 1;
      const double x = parts.empty() ? 0 : half * o[static_cast<size_t>(of)] / sum;
      store_element(static_cast<unsigned char*>(t.o.data), offset(t.o, row_of(r, i), h, d), t.o.format,
                    static_cast<float>(x));
    }
  }

  const assay_problem& p;
  const assay_tensors& t;
  Fault fault;
};

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*, char*,
             size_t) {
  const bool fine = p->op == ASSAY_OP_STEP && (p->mask == ASSAY_MASK_CAUSAL || p->mask == ASSAY_MASK_TREE) &&
                    p->table == ASSAY_TABLE_BLOCK &&
                    (p->layout == ASSAY_LAYOUT_NHD || p->layout == ASSAY_LAYOUT_MLA) && p->drafted == 0 &&
                    p->two_sources == 0 && p->window_right < 0 && p->alibi != ASSAY_ALIBI_SQRT &&
                    p->positions == nullptr && p->prefix_tokens == 0 && p->ranks == 1;
  return fine ? ASSAY_OK : ASSAY_UNSUPPORTED;
}
int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic a = assay_default_arithmetic();
  a.scaling_relative_error = 0;
  a.dense_new_keys = ASSAY_REQUEST_PREFILL;
  a.splits = kSplits, a.splits_vary = 1;
  return fill_struct(out, a), ASSAY_OK;
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
        size_t) {
  return Step(*p, *t, static_cast<const Entry*>(self->context)->fault).run(), ASSAY_OK;
}

}  // namespace
}  // namespace planted_server

using planted_server::Entry;
using planted_server::kEntries;

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return fault_library::opened<kEntries>(version, "planted_server", [](assay_kernel& k, const Entry& e) {
    k.op = ASSAY_OP_STEP, k.supports = planted_server::supports;
    k.arithmetic = planted_server::arithmetic, k.run = planted_server::run;
    // Where a place is read that nobody wrote, it is to hold a number.
    if (e.fault != planted_server::kRight) k.contracts = ASSAY_CONTRACT_FINITE_UNUSED;
  });
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return fault_library::steps_opened<kEntries>(assay_backend_open(version), "a whole step, wrong in one way");
}
