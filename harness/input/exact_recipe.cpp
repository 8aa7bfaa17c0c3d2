// SPDX-License-Identifier: Apache-2.0
// The arithmetic behind the exact recipe. With c named bits, each on `repeats_` dimensions, a key that
// differs in e of them has dot product a*b*repeats*(c - 2e) on the bits and -a*b*repeats*c on the constant
// dimensions: 0 for e = 0, at most -2*a*b*repeats otherwise. `a` is the smallest power of two that makes
// this -200 after the softmax scale. All products have one magnitude, so float sums of them are exact.
#include "harness/input/exact_recipe.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats.hpp"

namespace assay {
namespace {

constexpr double kKeySize = 32;  // b; over a scale of 1/2..2 the codes are 16..64, exact in every format
constexpr double kGap = 200;     // exp(-200) is far below the smallest float
constexpr int32_t kMostPerOffset = 3;  // a constant dimension carries up to 3a, an exact code in fp8 and int8
constexpr double kQueryCode = 16;      // a / scale before the factor 1/2..2; 3 * 32 fits int8
// Sixty-four even values of 2..8 add up to at most 512, which 8 significant bits hold after halving.
constexpr int32_t kMostMatches = 64;
constexpr int32_t kOpenBits = 7;  // 64 matches inside the mask and as many outside

// One of 1/2, 1, 2; alone, only 1/2 or 2, so that ignoring the scale is visible.
double power_scale(const CounterRng& rng, uint64_t unit, bool alone) {
  if (alone) return rng.below(unit, 2) == 0 ? 0.5 : 2.0;
  return std::ldexp(1.0, static_cast<int>(rng.below(unit, 3)) - 1);
}

}  // namespace

ExactRecipe::ExactRecipe(const Problem& p, const std::vector<int>& roots)
    : p_(p), roots_(roots), tree_first_(p.tree_indptr()) {
  if (p.alibi != ASSAY_ALIBI_NONE)
    throw InputError(
        fmt::format("input=exact needs keys of equal logit, which alibi={} does not allow: use alibi=none or "
                    "another input",
                    name_of(alibi_names(), p.alibi)));
  if (p.softcap > 0)
    throw InputError(fmt::format(
        "input=exact needs other keys at logit -200, which cap={} lifts: use cap=0 or another input",
        p.softcap));
  if (p.sinks)
    throw InputError(
        "input=exact needs a power-of-two denominator, which a sink breaks: use sinks=off or another input");

  latent_ = p.op == ASSAY_OP_PAGED && p.layout == ASSAY_LAYOUT_MLA;
  first_ = latent_ ? p.head_dim_v : 0;
  const int32_t room = p.head_dim_qk - first_;
  bits_ = std::max(
      1, static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(std::max(1, p.max_kv_len()) - 1))));
  const int32_t needed = bits_ + (bits_ + kMostPerOffset - 1) / kMostPerOffset;
  if (room < needed)
    throw InputError(
        fmt::format("input=exact spells positions below {} in {} dimensions{}, the problem has {}: use a "
                    "larger head dimension, "
                    "shorter requests or another input",
                    p.max_kv_len(), needed, latent_ ? " behind the latent part" : "", room));
  repeats_ = std::max(1, room / (2 * bits_));
  offsets_ = std::min(room - repeats_ * bits_, repeats_ * bits_);
  q_size_ = std::exp2(std::ceil(std::log2(kGap / (2 * kKeySize * repeats_ * p.softmax_scale))));
  if (p.q_scale == ASSAY_SCALE_NONE &&
      round_to(p.q_format, kMostPerOffset * q_size_) != kMostPerOffset * q_size_)
    throw InputError(fmt::format(
        "input=exact needs queries of {} to separate logits at softmax scale {}, more than {} holds: use a "
        "scale for q, a larger head dimension or another input",
        kMostPerOffset * q_size_, p.softmax_scale, name_of(format_names(), p.q_format)));
}

double ExactRecipe::sign(int root, int32_t head, int32_t dim) const {
  const uint64_t index = (static_cast<uint64_t>(root) * p_.heads_kv + head) * p_.head_dim_qk + dim;
  return CounterRng(p_.seed, kStreamRecipe).bits(index) & 1 ? 1.0 : -1.0;
}

double ExactRecipe::value(int owner, int32_t position, int32_t head, int32_t dim) const {
  // Two bits per value: one draw serves 32 dimensions.
  const int32_t words = (p_.head_dim_v + 31) / 32;
  const uint64_t token = static_cast<uint64_t>(position) * p_.heads_kv + head;
  const uint64_t word =
      CounterRng(p_.seed, kStreamV).bits((static_cast<uint64_t>(owner) << 44) + token * words + dim / 32);
  return 2.0 * static_cast<double>(1 + (word >> (2 * (dim % 32)) & 3));
}

void ExactRecipe::k(int owner, int32_t position, int32_t head, double* out) const {
  const int root = roots_[owner];
  for (int32_t d = 0; d < first_; ++d) out[d] = value(owner, position, head, d);
  std::fill(out + first_, out + p_.head_dim_qk, 0.0);
  // The last dimension spells a bit, so that a kernel which drops it errs.
  double* const last = out + p_.head_dim_qk - 1;
  for (int32_t i = 0; i < repeats_ * bits_ + offsets_; ++i) {
    const bool set = i >= repeats_ * bits_ || (static_cast<uint32_t>(position) >> (i % bits_) & 1u) != 0;
    *(last - i) = (set ? kKeySize : -kKeySize) * sign(root, head, i);
  }
}

void ExactRecipe::v(int owner, int32_t position, int32_t head, double* out) const {
  for (int32_t d = 0; d < p_.head_dim_v; ++d) out[d] = value(owner, position, head, d);
}

void ExactRecipe::q(int request, int32_t row, int32_t head, double* out) const {
  const Target t = target(request, row, head);
  const int root = roots_[request];
  const int32_t kv_head = head / p_.group();
  std::fill_n(out, p_.head_dim_qk, 0.0);
  double* const last = out + p_.head_dim_qk - 1;
  int32_t named = 0;
  for (int32_t i = 0; i < repeats_ * bits_; ++i) {
    const int32_t bit = i % bits_;
    if (t.open >> bit & 1u) continue;
    ++named;
    *(last - i) = (t.position >> bit & 1u ? q_size_ : -q_size_) * sign(root, kv_head, i);
  }
  for (int32_t j = 0; j < offsets_; ++j) {
    const int32_t share = named / offsets_ + (j < named % offsets_ ? 1 : 0);
    const int32_t i = repeats_ * bits_ + j;
    *(last - i) = -q_size_ * share * sign(root, kv_head, i);
  }
}

double ExactRecipe::q_scale(uint64_t unit, bool alone) const {
  return q_size_ / kQueryCode * power_scale(CounterRng(p_.seed, kStreamScales), unit, alone);
}

double ExactRecipe::kv_scale(uint64_t unit, bool alone) const {
  return power_scale(CounterRng(p_.seed, kStreamScales), unit, alone);
}

bool ExactRecipe::sees(int request, int32_t row, int32_t key, const KeyRange& range) const {
  if (key < range.begin || key >= range.end) return false;
  const Request& r = p_.requests[request];
  if (p_.mask != ASSAY_MASK_TREE || key < r.context_len()) return true;
  return p_.tree_mask[tree_first_[request] + int64_t{row} * r.q_len + (key - r.context_len())] != 0;
}

std::vector<int32_t> ExactRecipe::visible_matches(int request, int32_t row, Target t,
                                                  const KeyRange& range) const {
  std::vector<int32_t> keys;
  // Every subset of the open bits, in ascending order.
  uint32_t subset = 0;
  do {
    const uint32_t key = (t.position & ~t.open) | subset;
    if (key < static_cast<uint32_t>(p_.requests[request].kv_len) &&
        sees(request, row, static_cast<int32_t>(key), range))
      keys.push_back(static_cast<int32_t>(key));
    subset = (subset - t.open) & t.open;
  } while (subset != 0);
  return keys;
}

// Rows and heads take turns: a block around the end of the visible range (half of it outside), one around
// its beginning, an aligned block anywhere, scattered keys, a single key. A turn that matches a number of
// visible keys that is no power of two closes bits until it does; a single key always does.
ExactRecipe::Target ExactRecipe::target(int request, int32_t row, int32_t head) const {
  const KeyRange range = visible_range(p_, request, row);
  const int32_t width = range.end - range.begin;
  if (width <= 0) return {};  // asks for key 0, which the row must not get
  const CounterRng rng(p_.seed, kStreamRecipe);
  const uint64_t draw = (uint64_t{1} << 63) + (static_cast<uint64_t>(request) << 44) +
                        (static_cast<uint64_t>(row) * p_.heads_q + head) * 4;
  const uint64_t turn = static_cast<uint64_t>(row) * p_.heads_q + head;

  // Open bits that tie the keys on both sides of `edge`: its lowest set bit, which tells the sides apart,
  // and bits below it, up to kOpenBits together.
  const auto block = [](int32_t edge) {
    const uint32_t side = uint32_t{1} << std::countr_zero(static_cast<uint32_t>(edge));
    return side | ((side - 1) & ((uint32_t{1} << (kOpenBits - 1)) - 1));
  };
  Target t;
  t.position = static_cast<uint32_t>(range.begin) + static_cast<uint32_t>(rng.below(draw, width));
  switch (turn % 5) {
    case 0:
      t.position = static_cast<uint32_t>(range.end - 1);
      t.open = block(range.end);
      break;
    case 1:
      t.position = static_cast<uint32_t>(range.begin);
      t.open = range.begin == 0 ? 0 : block(range.begin);
      break;
    case 2:
      t.open = (uint32_t{1} << rng.below(draw + 1, kOpenBits)) - 1;
      break;
    case 3:
      for (uint64_t i = 0; i < 4; ++i)
        t.open |= uint32_t{1} << (rng.bits(draw + 2) >> (8 * i) & 0xff) % static_cast<uint32_t>(bits_);
      break;
    default:
      break;
  }
  // The anchor must be visible: in a tree, walk to the next key that is.
  int32_t steps = 0;
  while (!sees(request, row, static_cast<int32_t>(t.position), range)) {
    if (++steps > width) return {};
    t.position = t.position + 1 < static_cast<uint32_t>(range.end) ? t.position + 1
                                                                   : static_cast<uint32_t>(range.begin);
  }
  const int32_t most = p_.o_format == ASSAY_FP32 ? 1 : kMostMatches;
  while (t.open != 0) {
    const auto count = visible_matches(request, row, t, range).size();
    if (std::has_single_bit(count) && count <= static_cast<size_t>(most)) break;
    t.open &= t.open - 1;  // the highest bit is the one that reaches over the edge
  }
  return t;
}

std::vector<int32_t> ExactRecipe::matching_keys(int request, int32_t row, int32_t head) const {
  return visible_matches(request, row, target(request, row, head), visible_range(p_, request, row));
}

}  // namespace assay
