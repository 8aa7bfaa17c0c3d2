// SPDX-License-Identifier: Apache-2.0
// The recipes. Each shapes the same counter-based normal draws, so that what differs between two recipes
// is only what the recipe is about. A recipe may look at its own token (owner, position) and, for Q, at
// the keys of its request, never at the batch around it. A new recipe: a case in q, k and v.
#include "harness/input/value_source.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/parts.hpp"

namespace assay {
namespace {

constexpr int kOwnerShift = 44;  // 2^44 elements per request below, 2^20 requests above

constexpr double kPeakedLogitSd = 12;
// Ascending logits: kAscent * ln(1 + position / kAscentStart), so weight grows like a power of the
// position: at any length about the last ninth of the keys counts, and a tile of 64 keys ends
// kAscent * 64 / position above the one before.
constexpr double kAscent = 8, kAscentStart = 16;
constexpr double kAscentNoiseQ = 0.05, kAscentNoiseK = 0.02;
// Negative logits: Q is -kDepth against the direction of K. The noise of K moves a logit by kDepth *
// kDepthNoise / sqrt(dims), about two units, and 8 bits still hold it beside the 1 of the direction.
constexpr double kDepth = 180, kDepthNoise = 0.1;
// Steep logits: the middle third of a request's keys kSteep above zero, the others as far below, so that from
// a first tile to a later one, forwards or backwards, an exponential goes beyond the range of fp32.
constexpr double kSteep = 60, kSteepNoise = 0.1;
constexpr double kCancelAmplitude = 32;     // 32 * 4.9 stays below 240, the largest e4m3fnuz
constexpr double kLatentDamping = 0x1p-12;  // of Q against the cancelling front of a latent row
constexpr double kDirectionless = 0.05;     // of Q against that front where the logit lies behind it
constexpr double kOutlierFactor = 30;
constexpr int32_t kOutlierEvery = 32;  // one channel in 32 is an outlier
// What SGLang's tests/attention draw; of use only to score such inputs (scenarios/peers).
constexpr double kNarrowMean = 0.1, kNarrowSd = 0.2;

void narrow(int32_t dims, double* out) {
  for (int32_t d = 0; d < dims; ++d) out[d] = kNarrowMean + kNarrowSd * out[d];
}

int32_t scale_of(const Problem& p, Side side) {
  return side == Side::kQ ? p.q_scale : side == Side::kK ? p.k_scale : p.v_scale;
}
// The size of what has one scale, beside that of others.
double unit_factor(const Problem& p, Side side, uint64_t unit) {
  const CounterRng rng(p.seed, kStreamScales);
  return 0.5 + 1.5 * rng.uniform((static_cast<uint64_t>(side) << 62) + unit);
}

}  // namespace

std::vector<int> sharing_roots(const Problem& p) {
  std::vector<int> roots(p.requests.size());
  for (size_t r = 0; r < roots.size(); ++r) {
    const Request& request = p.requests[r];
    roots[r] = request.shared_with >= 0 && request.shared_tokens > 0 ? roots[request.shared_with]
                                                                     : static_cast<int>(r);
  }
  return roots;
}

ValueSource::ValueSource(const Problem& p)
    : p_(p), latent_(op_of(p).has_cache && p.layout == ASSAY_LAYOUT_MLA), roots_(sharing_roots(p)) {
  const int64_t widest = std::max(int64_t{p.heads_q} * std::max(p.head_dim_qk, p.head_dim_v),
                                  int64_t{p.heads_kv} * std::max(p.head_dim_qk, p.head_dim_v));
  const int64_t tokens = std::max<int64_t>({1, p.max_q_len(), p.max_kv_len()});
  ASSAY_CHECK(
      widest <= (int64_t{1} << kOwnerShift) / tokens && p.requests.size() < (size_t{1} << (64 - kOwnerShift)),
      "{} requests of up to {} tokens x {} elements have no room in the counter", p.requests.size(), tokens,
      widest);
  if (answers_are_known(op_of(p)) && answer_is_known(p.recipe))
    exact_ = std::make_unique<ExactRecipe>(p, roots_);
  if (p.recipe == InputRecipe::kCodes) codes_.emplace(p);
  if (p.recipe == InputRecipe::kPatterned) patterns_.emplace(p.seed, double{p.softmax_scale} * p.head_dim_qk);
}

uint64_t ValueSource::kv_index(int owner, int32_t position, int32_t head, int32_t dim) const {
  return (static_cast<uint64_t>(owner) << kOwnerShift) +
         (static_cast<uint64_t>(position) * p_.heads_kv + head) * dim;
}

// A latent row starts with V, which must not be constant: the direction lies behind it where there is room.
int32_t ValueSource::direction_begin() const {
  return latent_ && p_.head_dim_v < p_.head_dim_qk ? p_.head_dim_v : 0;
}

double ValueSource::sign(int root, int32_t head, int32_t dim) const {
  const uint64_t index = (static_cast<uint64_t>(root) * p_.heads_kv + head) * p_.head_dim_qk + dim;
  return CounterRng(p_.seed, kStreamRecipe).bits(index) & 1 ? 1.0 : -1.0;
}

// The outlier channels of a head: one of each kOutlierEvery, wherever the seed puts it.
double ValueSource::outlier(Side side, int32_t head, int32_t dim) const {
  const uint64_t index = (uint64_t{static_cast<uint64_t>(side)} << 40) +
                         static_cast<uint64_t>(head) * p_.head_dim_qk + dim / kOutlierEvery;
  const auto chosen = static_cast<int32_t>(CounterRng(p_.seed, kStreamRecipe).below(index, kOutlierEvery));
  const int32_t width = side == Side::kV ? p_.head_dim_v : p_.head_dim_qk;
  const int32_t group = std::min(kOutlierEvery, width - dim / kOutlierEvery * kOutlierEvery);
  return dim % kOutlierEvery == chosen % group ? kOutlierFactor : 1.0;
}

// Units that have their own scale get data of their own size, a seeded factor in [0.5, 2]: a kernel that
// takes the scale of another head, request, token or channel is then off by a visible amount.
double ValueSource::unit_size(Side side, int request, int64_t token, int32_t head) const {
  switch (static_cast<assay_scale>(scale_of(p_, side))) {
    case ASSAY_SCALE_HEAD:
      return unit_factor(p_, side, head);
    case ASSAY_SCALE_REQUEST_HEAD: {
      const int32_t kv_head = side == Side::kQ ? head / p_.group() : head;
      return unit_factor(p_, side, static_cast<uint64_t>(roots_[request]) * p_.heads_kv + kv_head);
    }
    case ASSAY_SCALE_TOKEN_HEAD:
      return unit_factor(p_, side,
                         (static_cast<uint64_t>(request) << kOwnerShift) +
                             static_cast<uint64_t>(token) * (side == Side::kQ ? p_.heads_q : p_.heads_kv) +
                             head);
    case ASSAY_SCALE_CHANNEL:
    case ASSAY_SCALE_NONE:
    case ASSAY_SCALE_HOST:
    case ASSAY_SCALE_TENSOR:
      break;
  }
  return 1;
}

void ValueSource::spread_units(Side side, int request, int64_t token, int32_t head, double* out) const {
  const int32_t dims = side == Side::kV ? p_.head_dim_v : p_.head_dim_qk;
  if (scale_of(p_, side) == ASSAY_SCALE_CHANNEL) {
    for (int32_t d = 0; d < dims; ++d)
      out[d] *= unit_factor(p_, side, static_cast<uint64_t>(head) * dims + d);
    return;
  }
  const double common = unit_size(side, request, token, head);
  for (int32_t d = 0; d < dims; ++d) out[d] *= common;
}

double ValueSource::up_to(Side side, int request, int32_t token, int32_t head) const {
  if (!codes_ || side != Side::kK) return 0;
  const int owner = token_owner(p_, request, token);
  return codes_->k_up_to(roots_[owner], head) * unit_size(side, owner, token, head);
}

void ValueSource::coded_k(int owner, int32_t position, int32_t head, double* out) const {
  const int32_t even = position & ~1;
  codes_->k(roots_[owner], position, head, kv_index(owner, position, head, p_.head_dim_qk),
            kv_index(token_owner(p_, owner, even), even, head, p_.head_dim_qk), out);
}

// The row agrees with a key it sees, the one at the even position of a pair where it sees that.
bool ValueSource::agreeing_q(int request, int32_t row, int32_t head, uint64_t first, double* out) const {
  if (!codes_->agrees(roots_[request], row, head)) return false;
  const KeyRange range = visible_range(p_, request, row);
  if (range.begin >= range.end) return false;
  const uint64_t drawn =
      CounterRng(p_.seed, kStreamRecipe).below((uint64_t{1} << 63) + first, range.end - range.begin);
  const int32_t key = range.begin + static_cast<int32_t>(drawn);
  for (const int32_t like : {key & ~1, key, range.begin}) {
    if (like < range.begin || !visible(p_, request, row, like)) continue;
    std::vector<double> k_row(p_.head_dim_qk);
    coded_k(token_owner(p_, request, like), like, head / p_.group(), k_row.data());
    codes_->q_like(k_row.data(), first, out);
    return true;
  }
  return false;
}

void ValueSource::k(int request, int32_t position, int32_t head, double* out) const {
  const int owner = token_owner(p_, request, position);
  const int32_t dims = p_.head_dim_qk;
  if (exact_) return exact_->k(owner, position, head, out);
  if (p_.recipe == InputRecipe::kSteep) {
    CounterRng(p_.seed, kStreamK).normals(kv_index(owner, position, head, dims), dims, out);
    const int64_t keys = p_.requests[owner].kv_len;
    const double level = position >= keys / 3 && position < keys - keys / 3 ? 1 : -1;
    for (int32_t d = direction_begin(); d < dims; ++d)
      out[d] = kSteepNoise * out[d] + level * sign(roots_[owner], head, d);
    return spread_units(Side::kK, owner, position, head, out);
  }
  if (codes_) {
    coded_k(owner, position, head, out);
    return spread_units(Side::kK, owner, position, head, out);
  }
  const CounterRng rng(p_.seed, kStreamK);
  switch (p_.recipe) {
    case InputRecipe::kAscending: {
      rng.normals(kv_index(owner, position, head, dims), dims, out);
      const double level = kAscent * std::log1p(position / kAscentStart) / (p_.softmax_scale * dims);
      for (int32_t d = 0; d < dims; ++d)
        out[d] = kAscentNoiseK * out[d] + level * sign(roots_[owner], head, d);
      break;
    }
    case InputRecipe::kNegative: {
      rng.normals(kv_index(owner, position, head, dims), dims, out);
      for (int32_t d = direction_begin(); d < dims; ++d)
        out[d] = kDepthNoise * out[d] + sign(roots_[owner], head, d);
      break;
    }
    case InputRecipe::kCancelling: {
      // Neighbours have equal keys, hence equal weights, and opposite values.
      const int32_t even = position & ~1;
      const int pair_owner = token_owner(p_, owner, even);
      rng.normals(kv_index(pair_owner, even, head, dims), dims, out);
      if (latent_)
        for (int32_t d = 0; d < p_.head_dim_v; ++d)
          out[d] *= position & 1 ? -kCancelAmplitude : kCancelAmplitude;
      break;
    }
    case InputRecipe::kPatterned: {
      const int32_t like = patterns_->k_like(position);
      rng.normals(kv_index(token_owner(p_, owner, like), like, head, dims), dims, out);
      patterns_->k(position, dims, out);
      break;
    }
    default: {
      rng.normals(kv_index(owner, position, head, dims), dims, out);
      if (p_.recipe == InputRecipe::kPeaked) {
        const double size = std::sqrt(kPeakedLogitSd / (p_.softmax_scale * std::sqrt(double(dims))));
        for (int32_t d = 0; d < dims; ++d) out[d] *= size;
      } else if (p_.recipe == InputRecipe::kOutlier) {
        for (int32_t d = 0; d < dims; ++d) out[d] *= outlier(Side::kK, head, d);
      } else if (p_.recipe == InputRecipe::kNarrow) {
        narrow(dims, out);
      }
    }
  }
  spread_units(Side::kK, owner, position, head, out);
}

void ValueSource::v(int request, int32_t position, int32_t head, double* out) const {
  if (latent_) {
    std::vector<double> row(p_.head_dim_qk);
    k(request, position, head, row.data());
    std::copy_n(row.begin(), p_.head_dim_v, out);
    return;
  }
  const int owner = token_owner(p_, request, position);
  const int32_t dims = p_.head_dim_v;
  if (exact_) return exact_->v(owner, position, head, out);
  if (codes_) {
    codes_->v(roots_[owner], head, kv_index(owner, position, head, dims), out);
    return spread_units(Side::kV, owner, position, head, out);
  }
  const CounterRng rng(p_.seed, kStreamV);
  rng.normals(kv_index(owner, position, head, dims), dims, out);
  if (p_.recipe == InputRecipe::kOutlier) {
    for (int32_t d = 0; d < dims; ++d) out[d] *= outlier(Side::kV, head, d);
  } else if (p_.recipe == InputRecipe::kNarrow) {
    narrow(dims, out);
  } else if (patterns_) {
    patterns_->v(position, dims, out);
  } else if (p_.recipe == InputRecipe::kCancelling) {
    const int32_t even = position & ~1;
    const int pair_owner = token_owner(p_, owner, even);
    const CounterRng pairs(p_.seed, kStreamRecipe);
    const double amplitude = position & 1 ? -kCancelAmplitude : kCancelAmplitude;
    const uint64_t first = kv_index(pair_owner, even, head, dims);
    for (int32_t d = 0; d < dims; ++d) out[d] += amplitude * pairs.normal(first + d);
  }
  spread_units(Side::kV, owner, position, head, out);
}

void ValueSource::q(int request, int32_t row, int32_t head, double* out) const {
  const int32_t dims = p_.head_dim_qk;
  if (exact_) return exact_->q(request, row, head, out);
  const CounterRng rng(p_.seed, kStreamQ);
  int32_t like_row = row, like_head = head;
  if (patterns_) patterns_->q_like(like_row, like_head);
  const uint64_t first = (static_cast<uint64_t>(request) << kOwnerShift) +
                         (static_cast<uint64_t>(like_row) * p_.heads_q + like_head) * dims;
  if (codes_) {
    if (!agreeing_q(request, row, head, first, out)) codes_->q(roots_[request], row, head, first, out);
    return spread_units(Side::kQ, request, row, head, out);
  }
  rng.normals(first, dims, out);
  if (p_.recipe == InputRecipe::kSteep) {
    const double level = kSteep / (p_.softmax_scale * (dims - direction_begin()));
    for (int32_t d = 0; d < direction_begin(); ++d) out[d] *= kDirectionless;
    for (int32_t d = direction_begin(); d < dims; ++d)
      out[d] = level * sign(roots_[request], head / p_.group(), d);
  }
  switch (p_.recipe) {
    case InputRecipe::kPeaked: {
      const double size = std::sqrt(kPeakedLogitSd / (p_.softmax_scale * std::sqrt(double(dims))));
      for (int32_t d = 0; d < dims; ++d) out[d] *= size;
      break;
    }
    case InputRecipe::kAscending:
      for (int32_t d = 0; d < dims; ++d)
        out[d] = kAscentNoiseQ * out[d] + sign(roots_[request], head / p_.group(), d);
      break;
    case InputRecipe::kNegative: {
      const double level = kDepth / (p_.softmax_scale * (dims - direction_begin()));
      for (int32_t d = 0; d < direction_begin(); ++d) out[d] *= kDirectionless;
      for (int32_t d = direction_begin(); d < dims; ++d)
        out[d] = -level * sign(roots_[request], head / p_.group(), d);
      break;
    }
    case InputRecipe::kCancelling:
      if (latent_)
        for (int32_t d = 0; d < p_.head_dim_v; ++d) out[d] *= kLatentDamping;
      break;
    case InputRecipe::kBoundary:
      boundary_q(request, row, head, out);
      break;
    case InputRecipe::kNarrow:
      narrow(dims, out);
      break;
    case InputRecipe::kPatterned:
      patterns_->q(like_row, like_head, dims, out);
      break;
    default:
      break;
  }
  spread_units(Side::kQ, request, row, head, out);
}

// Q points at two keys on edges of what the row may see, alternating over rows and heads: a multiple of
// K_e gives key e a logit of about ln(keys) + 3, level with all others together. Edges come in
// pairs, the last key inside and the first outside, so that a mask off by one either loses or gains a
// heavy key. The noise of Q stays underneath at a quarter of its size.
void ValueSource::boundary_q(int request, int32_t row, int32_t head, double* out) const {
  const int32_t dims = p_.head_dim_qk;
  const Request& r = p_.requests[request];
  const KeyRange range = visible_range(p_, request, row);
  for (int32_t d = 0; d < dims; ++d) out[d] *= 0.25;
  if (r.kv_len == 0) return;

  std::vector<int32_t> edges;
  const auto add = [&](int64_t key) {
    for (int64_t e : {key - 1, key})
      if (e >= 0 && e < r.kv_len && std::find(edges.begin(), edges.end(), e) == edges.end())
        edges.push_back(static_cast<int32_t>(e));
  };
  const CounterRng rng(p_.seed, kStreamRecipe);
  const uint64_t draw = (uint64_t{1} << 63) + (static_cast<uint64_t>(request) << kOwnerShift) +
                        static_cast<uint64_t>(row) * p_.heads_q + head;
  add(range.begin);
  add(range.end);
  add(0);
  add(r.kv_len);
  if (p_.mask == ASSAY_MASK_TREE) add(p_.first_draft(r));
  const int32_t width = range.end - range.begin;
  const auto inside = [&](int64_t step, uint64_t salt) {
    if (step > 0 && width > step)
      add((range.begin + static_cast<int64_t>(rng.below(draw ^ salt << 40, width))) / step * step);
  };
  inside(p_.chunk, 1);
  if (op_of(p_).has_cache) inside(p_.page_size, 2);
  inside(p_.part_tokens, 5);
  inside(64, 3);   // a usual tile of keys
  inside(256, 4);  // the partition of split-KV decoding

  const double logit = std::log(std::max(1, width)) + 3;
  std::vector<double> key(dims);
  const uint64_t turn = 2 * (static_cast<uint64_t>(row) * p_.heads_q + head);
  for (uint64_t i = 0; i < std::min<uint64_t>(2, edges.size()); ++i) {
    k(request, edges[(turn + i) % edges.size()], head / p_.group(), key.data());
    double norm = 0;
    for (double x : key) norm += x * x;
    if (norm == 0) continue;
    for (int32_t d = 0; d < dims; ++d) out[d] += logit / (p_.softmax_scale * norm) * key[d];
  }
}

}  // namespace assay
