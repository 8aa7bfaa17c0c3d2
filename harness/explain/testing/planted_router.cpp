// SPDX-License-Identifier: Apache-2.0
// libassay_planted_router.so: whole steps that list for every row the parts of its keys, in doubles, with the
// faults of router_faults.hpp: a tree's context and drafts, a prefix and the rest, up to four splits of a
// decode, the chunks of an extend's context and its new keys as they came.
#include <limits>

#include "harness/abi/assay_fault.h"
#include "harness/check/testing/fault_library.hpp"
#include "harness/explain/testing/router_cache.hpp"
#include "kernels/common/fill_struct.hpp"

namespace planted_router {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostSplits = 4;

struct Vector {
  std::vector<double> o;
  double lse = -kInfinity;
};
struct Keys {
  int begin, end;
  bool context = false, dense = false, prefix = false;
};

class Step : Cache {
 public:
  Step(const assay_problem& problem, const assay_tensors& tensors, Fault f) : Cache(problem, tensors, f) {
    for (int r = 0; r < p.requests; ++r) extends_ += extends(r);
  }
  void run() {
    write();
    std::vector<int> order(static_cast<size_t>(p.requests));
    std::iota(order.begin(), order.end(), 0);
    if (is(kSortedResults))
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return rows(a) == 1 && rows(b) == 1 && keys(a) > keys(b); });
    for (int r = 0; r < p.requests; ++r)
      for (int i = 0; i < rows(r); ++i) {
        const int of = is(kSortedResults) && rows(r) == 1 ? order[static_cast<size_t>(r)] : r;
        const int at = is(kResultsBack) && decodes(r) ? rows(r) - 1 - i : i;
        attend_row(r, i, whole(t.cu_q, of) + at);
      }
  }

 private:
  int drafts(int r) const { return rows(r) * (p.drafted + 1); }

  double value(bool v, int r, int j, const Keys& part, int h, int d) const {
    if (is(kVOneBehind) && v && part.context && j > part.begin) --j;
    const bool of_v = v && !latent();
    if (part.dense && j >= context(r))
      return real(of_v ? t.dense_v : t.dense_k, whole(t.cu_q, r) + j - context(r), h, d);
    const int64_t slot = slot_of(r, j, true, part.context);
    double by = scale(of_v, slot, h);
    if (is(kKScaleOfPage) && !v) by = scale(false, slot / p.page_size * p.page_size, h);
    if (is(kVScaleOfFirst) && v) by = scale(true, slot, 0);
    if (is(kNewUnscaled) && j >= context(r)) by = 1;
    if (is(kContextKScaleOfV) && !v && part.context) by = scale(true, slot, h);
    const double x = stored(of_v, slot, h, d) * by;
    return is(kContextRoundedTo8) && part.context ? in_e4m3(x) : x;
  }
  static double in_e4m3(double x) {
    return float_from_fp8(fp8_from_float(static_cast<float>(x), ASSAY_FP8_E4M3), ASSAY_FP8_E4M3);
  }
  bool bit(int r, int i, int draft) const {
    const int n = rows(r), old = n * p.drafted;
    const int64_t first = static_cast<const int64_t*>(t.tree_indptr.data)[r * t.tree_indptr.stride[0]];
    if (is(kTreeTransposed)) std::swap(i, draft);
    if (is(kTreeBackwards)) draft = drafts(r) - 1 - draft;
    if (is(kFirstBranch) && draft < old) return draft % n == 0;
    if (is(kStepMajor) && draft < old) draft = draft / n + draft % n * p.drafted;
    return static_cast<const uint8_t*>(
               t.tree_mask.data)[(first + int64_t{i} * drafts(r) + draft) * t.tree_mask.stride[0]] != 0;
  }
  bool in_tree(int r, int i, int draft) const {
    const int own = drafts(r) - rows(r) + i;
    if (is(kDraftsCausal)) return draft <= own;
    if ((is(kTreeWithoutSelf) && draft == own) || !bit(r, i, draft)) return false;
    if (!is(kParentsOnly) || draft == own) return true;
    int parent = own - 1;
    while (parent >= 0 && !bit(r, i, parent)) --parent;
    return draft == parent;
  }
  int stands(int r, int j) const {
    const bool draft = p.mask == ASSAY_MASK_TREE && t.positions.data != nullptr && j >= context(r);
    return draft ? whole(t.positions, whole(t.cu_q, r) + j - context(r)) : j;
  }
  bool sees(int r, int i, int j, const Keys& part) const {
    if (p.mask == ASSAY_MASK_TREE && j >= keys(r) - drafts(r)) {
      if (!in_tree(r, i, j - keys(r) + drafts(r))) return false;
    } else {
      int newest = context(r) + i;
      if (is(kRowsAboveFour) && extends(r)) newest = context(r) + std::min(i, 4);
      if (is(kDraftsAllInDecodes) && decodes(r)) newest = keys(r);
      if (j > newest) return false;
    }
    if (part.prefix && is(kPrefixCausal) && j > i + p.prefix_tokens - rows(r)) return false;
    const int here = is(kWindowOfLast) ? context(r) + rows(r) - 1 : stands(r, context(r) + i);
    return p.window_left < 0 || stands(r, j) >= here - p.window_left;
  }
  double score(int r, int i, int j, int head, const Keys& part) const {
    const int h = head / (p.heads_q / p.heads_kv);
    int64_t row = whole(t.cu_q, r) + i;
    if (is(kQueryOfFirst) && decodes(r)) row = whole(t.cu_q, r);
    if (is(kRowsByMaxQ)) row = std::min<int64_t>(int64_t{r} * p.max_q_len + i, whole(t.cu_q, p.requests) - 1);
    double by = p.softmax_scale, x = 0;
    if (is(kScaleOfV)) by = 1 / std::sqrt(double(p.head_dim_v));
    if (is(kScalePadded)) by = 1 / std::sqrt((p.head_dim_qk + 31) / 32 * 32.0);
    for (int d = 0; d < p.head_dim_qk; ++d) {
      const double q = real(t.q, row, head, d);
      x += (is(kQueryInE4m3InDecodes) && decodes(r) ? in_e4m3(q) : q) * value(false, r, j, part, h, d);
    }
    x *= by;
    for (int n = 0; p.softcap > 0 && n < (is(kCapTwice) ? 2 : 1); ++n)
      x = p.softcap * std::tanh(x / p.softcap);
    if (p.alibi == ASSAY_ALIBI_LINEAR) {
      int away = stands(r, context(r) + i) - stands(r, j);
      if (is(kBiasFromSuffix) && !part.prefix) away -= p.prefix_tokens;
      x -= (is(kBiasScaled) ? by : 1) * real(t.alibi_slopes, is(kSlopesByKvHead) ? h : head) * away;
    }
    return x;
  }
  Vector attend(int r, int i, int head, const Keys& part) const {
    Vector out{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
    std::vector<double> scores;
    std::vector<int> seen;
    double top = -kInfinity, sum = 0;
    for (int j = part.begin; j < part.end; ++j)
      if (sees(r, i, j, part))
        seen.push_back(j), scores.push_back(score(r, i, j, head, part)), top = std::fmax(top, scores.back());
    if (seen.empty()) return out;
    for (size_t n = 0; n < seen.size(); ++n) {
      const double w = std::exp(scores[n] - top);
      sum += w;
      for (int d = 0; d < p.head_dim_v; ++d)
        out.o[static_cast<size_t>(d)] +=
            w * value(true, r, seen[n], part, head / (p.heads_q / p.heads_kv), d);
    }
    if (!is(kUndividedPart) || !part.context)
      for (double& x : out.o) x /= sum;
    out.lse = top + std::log(sum) - (is(kContextHalved) && part.context ? std::log(2.0) : 0);
    return out;
  }
  std::vector<Keys> parts(int r) const {
    std::vector<Keys> out;
    const auto add = [&](Keys k) {
      if (k.end > k.begin) out.push_back(k);
    };
    int n = keys(r), c = context(r);
    if (is(kFullLastPageLost) && n % p.page_size == 0) n -= p.page_size;
    if (is(kLengthOfLastForFull) && n % p.page_size == 0) n -= 1;
    if (is(kKeysWholeFours)) n = n / 4 * 4;
    c = std::min(c, n);
    if (p.mask == ASSAY_MASK_TREE) {
      add({0, keys(r) - drafts(r), true}), add({keys(r) - drafts(r), n});
    } else if (p.prefix_tokens > 0) {
      const int end = is(kPrefixRounded) ? (p.prefix_tokens + p.page_size - 1) / p.page_size * p.page_size
                                         : p.prefix_tokens;
      add({0, end, true, false, true}), add({p.prefix_tokens, n});
    } else if (decodes(r)) {
      const int each = std::max(16, (p.max_kv_len + kMostSplits - 1) / kMostSplits);
      for (int at = 0; at < n; at += each) add({at, std::min(n, at + each)});
    } else if (c == 0) {
      add({0, n, false, true});
    } else {
      if (is(kContextWholePages)) c = c / p.page_size * p.page_size;
      if (is(kContextMissing)) c = 0;
      const int size = std::max(1, static_cast<int>(p.token_budget) / extends_);
      for (int at = 0; at < c; at += size)
        add({is(kChunksFromPages) ? at / p.page_size * p.page_size : at, std::min(c, at + size), true});
      add({context(r), n, false, true});
    }
    return out;
  }
  void join(Vector& sum, const Vector& more, double first_lse) const {
    if (more.lse == -kInfinity) return;
    if (sum.lse == -kInfinity) {
      sum = more;
      return;
    }
    const double a = (is(kLseOfFirst) ? first_lse : sum.lse) * (is(kPrefixBase2) ? M_LOG2E : 1);
    const double top = std::fmax(a, more.lse), wa = std::exp(a - top), wb = std::exp(more.lse - top);
    for (size_t d = 0; d < sum.o.size(); ++d) sum.o[d] = (wa * sum.o[d] + wb * more.o[d]) / (wa + wb);
    sum.lse = top + std::log(wa + wb);
  }
  void attend_row(int r, int i, int64_t to) const {
    const Vector zeros{std::vector<double>(static_cast<size_t>(p.head_dim_v), 0.0)};
    for (int h = 0; h < p.heads_q; ++h) {
      const int head = is(kEvenHeadsOnly) ? h / 2 * 2 : h;
      Vector sum = zeros, of_sink = zeros, of_padding = zeros;
      if (p.has_sinks != 0) of_sink.lse = real(t.sinks, h) * (is(kSinkTimesLog2e) ? M_LOG2E : 1);
      double first = -kInfinity;
      for (const Keys& part : parts(r)) {
        Vector one = attend(r, i, head, part);
        if (first == -kInfinity) first = one.lse;
        if (is(kSinkInBoth) && one.lse > -kInfinity) join(one, of_sink, one.lse);
        join(sum, one, first);
      }
      of_padding.lse = 0;
      for (int64_t n = whole(t.cu_q, p.requests); is(kPaddingJoined) && r + 1 == p.requests && n < p.rows;
           ++n)
        join(sum, of_padding, sum.lse);
      if (!is(kSinkInBoth)) join(sum, of_sink, sum.lse);
      const int place = is(kHeadsTiled) ? h % 2 * (p.heads_q / 2) + h / 2 : h;
      for (int d = 0; d < p.head_dim_v; ++d)
        store_element(static_cast<unsigned char*>(t.o.data), offset(t.o, to, place, d), t.o.format,
                      static_cast<float>(sum.o[static_cast<size_t>(d)]));
    }
  }

  int extends_ = 0;
};

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*, char*,
             size_t) {
  const bool layout =
      p->layout == ASSAY_LAYOUT_NHD || p->layout == ASSAY_LAYOUT_HND || p->layout == ASSAY_LAYOUT_MLA;
  const bool fine = p->op == ASSAY_OP_STEP && layout && p->table != ASSAY_TABLE_TOKEN && p->full_pool == 0 &&
                    (p->mask == ASSAY_MASK_CAUSAL || p->mask == ASSAY_MASK_TREE) && p->chunk == 0 &&
                    p->window_right < 0 && p->alibi != ASSAY_ALIBI_SQRT && p->two_sources == 0 &&
                    p->ranks == 1 && p->q_scale_kind == ASSAY_SCALE_NONE;
  return fine ? ASSAY_OK : ASSAY_UNSUPPORTED;
}
int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic a = assay_default_arithmetic();
  a.scaling_relative_error = 0;
  if (p->prefix_tokens == 0 && p->mask != ASSAY_MASK_TREE)
    a.dense_new_keys = ASSAY_REQUEST_EXTEND | ASSAY_REQUEST_PREFILL;
  a.splits = 4 + p->max_kv_len / 8, a.splits_vary = 1;
  return fill_struct(out, a), ASSAY_OK;
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
        size_t) {
  return Step(*p, *t, static_cast<const Entry*>(self->context)->fault).run(), ASSAY_OK;
}

}  // namespace
}  // namespace planted_router

using planted_router::Entry;
using planted_router::kEntries;

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return fault_library::opened<kEntries>(version, "planted_router", [](assay_kernel& k, const Entry& e) {
    k.op = ASSAY_OP_STEP, k.supports = planted_router::supports;
    k.arithmetic = planted_router::arithmetic, k.run = planted_router::run;
    // Where a place is read that nobody wrote, it is to hold a number.
    if (e.fault != planted_router::kRight) k.contracts = ASSAY_CONTRACT_FINITE_UNUSED;
  });
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return fault_library::steps_opened<kEntries>(assay_backend_open(version), "a whole step, wrong in one way");
}
