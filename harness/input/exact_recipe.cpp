// SPDX-License-Identifier: Apache-2.0
// What the keys and queries of the recipes with a known answer hold. With c named bits, each on `repeats_`
// dimensions, a key that differs in e of them has dot product a*b*repeats*(c - 2e) on the bits and
// -a*b*repeats*c on the constant dimensions: 0 for e = 0, at most -2*a*b*repeats otherwise. `a` is the
// smallest power of two that makes this -200 after the softmax scale. All products have one magnitude, so
// float sums of them are exact.
#include "harness/input/exact_recipe.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kKeySize = 32;    // b; over a scale of 1/2..2 the codes are 16..64, exact in every format
constexpr double kGap = 200;       // exp(-190) is far below the smallest float
constexpr double kQueryCode = 16;  // a / scale before the factor 1/2..2; 3 * 32 fits int8
// A dyadic key adds level * ln 2 to its logit: 2 * level on K, 1/2 on Q. Twice 0..8 over a scale of 1/2..2
// are exact codes of every format, int8 and the three significant bits of e5m2 included.
constexpr double kKeyLevel = 2, kQueryLevel = 0.5;
constexpr double kOneHot = 2;  // over a scale of 1/2..2 the codes 1..4
// Incidence: about this many blocks, each of which gives a group one key.
constexpr int32_t kBlockBits = 7;

// One of 1/2, 1, 2; alone, only 1/2 or 2, so that ignoring the scale is visible.
double power_scale(const CounterRng& rng, uint64_t unit, bool alone) {
  if (alone) return rng.below(unit, 2) == 0 ? 0.5 : 2.0;
  return std::ldexp(1.0, static_cast<int>(rng.below(unit, 3)) - 1);
}

// Draws of the recipe stream: signs below 2^56, then one region per use.
uint64_t shuffle_draw(int root, int32_t head, uint32_t block) {
  return (uint64_t{1} << 62) + (static_cast<uint64_t>(root) << 40) + (static_cast<uint64_t>(head) << 30) +
         block;
}
uint64_t salt_draw(int request, int32_t head) {
  return (uint64_t{1} << 61) + (static_cast<uint64_t>(request) << 12) + static_cast<uint64_t>(head);
}

}  // namespace

ExactRecipe::ExactRecipe(const Problem& p, const std::vector<int>& roots)
    : p_(p), roots_(roots), tree_first_(p.tree_indptr()), longest_(p.requests.size(), 1) {
  const char* name = p.recipe == InputRecipe::kIncidence ? "incidence"
                     : p.recipe == InputRecipe::kDyadic  ? "dyadic"
                                                         : "exact";
  if (p.alibi != ASSAY_ALIBI_NONE)
    throw InputError(
        fmt::format("input={} needs keys of equal logit, which alibi={} does not allow: use alibi=none or "
                    "another input",
                    name, name_of(alibi_names(), p.alibi)));
  if (p.softcap > 0)
    throw InputError(
        fmt::format("input={} needs other keys at logit -200, which cap={} lifts: use cap=0 or another input",
                    name, p.softcap));
  if (p.sinks)
    throw InputError(fmt::format(
        "input={} needs a denominator of keys alone, which a sink breaks: use sinks=off or another input",
        name));
  const bool dyadic = p.recipe == InputRecipe::kDyadic;
  if (dyadic && p.o_format == ASSAY_FP32)
    throw InputError(
        "input=dyadic divides by sums that are no powers of two, so that its answer is exact after rounding "
        "to "
        "16 bits only: use out=bf16, out=fp16 or another input");
  if (dyadic && p.softmax_scale != static_cast<float>(std::log(2.0)))
    throw InputError(
        fmt::format("input=dyadic needs the softmax scale ln 2, not {}: leave out scale=", p.softmax_scale));

  latent_ = op_of(p).has_cache && p.layout == ASSAY_LAYOUT_MLA;
  first_ = latent_ ? p.head_dim_v : 0;
  const int32_t levels = dyadic ? 1 : 0;
  const int32_t room = p.head_dim_qk - first_;
  bits_ = std::max(
      1, static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(std::max(1, p.max_kv_len()) - 1))));
  const int32_t needed = answer_dims(p.recipe, p.max_kv_len());
  if (room < needed)
    throw InputError(
        fmt::format("input={} spells positions below {} in {} dimensions{}, the problem has {}: use a "
                    "larger head dimension, "
                    "shorter requests or another input",
                    name, p.max_kv_len(), needed, latent_ ? " behind the latent part" : "", room));
  repeats_ = std::max(1, (room - levels) / (2 * bits_));
  offsets_ = std::min(room - levels - repeats_ * bits_, repeats_ * bits_);
  q_size_ = std::exp2(std::ceil(std::log2(kGap / (2 * kKeySize * repeats_ * p.softmax_scale))));
  if (p.q_scale == ASSAY_SCALE_NONE &&
      round_to(p.q_format, kBitsPerConstant * q_size_) != kBitsPerConstant * q_size_)
    throw InputError(fmt::format(
        "input={} needs queries of {} to separate logits at softmax scale {}, more than {} holds: use a "
        "scale for q, a larger head dimension or another input",
        name, kBitsPerConstant * q_size_, p.softmax_scale, name_of(format_names(), p.q_format)));
  for (const double factor : {0.5, 1.0, 2.0}) {
    const double code = kQueryLevel / (p.q_scale == ASSAY_SCALE_NONE ? 1 : q_size_ / kQueryCode * factor);
    if (dyadic && round_to(p.q_format, code) != code)
      throw InputError(
          fmt::format("input=dyadic needs a query code of {}, which {} does not hold: use another format for "
                      "q or another "
                      "head dimension",
                      code, name_of(format_names(), p.q_format)));
  }

  for (size_t r = 0; r < p.requests.size(); ++r)
    longest_[roots_[r]] = std::max(longest_[roots_[r]], p.requests[r].kv_len);
  // Blocks of at least four keys, so that a group is scattered.
  if (p.recipe == InputRecipe::kIncidence) shuffled_ = std::min(bits_, std::max(2, bits_ - kBlockBits));
  if (dyadic)
    slot_bits_ = std::min({std::max(1, bits_ - 6), 7,
                           static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(p.head_dim_v))) - 1});
}

double ExactRecipe::sign(int root, int32_t head, int32_t dim) const {
  const uint64_t index = (static_cast<uint64_t>(root) * p_.heads_kv + head) * p_.head_dim_qk + dim;
  return CounterRng(p_.seed, kStreamRecipe).bits(index) & 1 ? 1.0 : -1.0;
}

uint32_t ExactRecipe::label(int root, int32_t head, int32_t position) const {
  const auto p = static_cast<uint32_t>(position);
  if (shuffled_ == 0) return p;
  const uint64_t draw = CounterRng(p_.seed, kStreamRecipe).bits(shuffle_draw(root, head, p >> shuffled_));
  return p ^ (static_cast<uint32_t>(draw) & ((uint32_t{1} << shuffled_) - 1));
}

// By head and root in turn: a slow climb, one late step, a staircase of three. The running maximum of a row
// that sees everything moves in almost every tile, in the last one, or in the first, a middle and the last.
int32_t ExactRecipe::level(int root, int32_t head, int32_t position) const {
  if (p_.recipe != InputRecipe::kDyadic) return 0;
  const int32_t block = position >> slot_bits_;
  const int32_t blocks = ((longest_[root] - 1) >> slot_bits_) + 1;
  switch ((p_.seed + static_cast<uint64_t>(root) + static_cast<uint64_t>(head)) % 3) {
    case 0: {
      const auto step = static_cast<int32_t>(
          CounterRng(p_.seed, kStreamRecipe).bits(shuffle_draw(root, head, static_cast<uint32_t>(block))) &
          1);
      return std::min(kMostLevels, static_cast<int32_t>(int64_t{kMostLevels} * block / blocks) + step);
    }
    case 1:
      return block >= blocks - std::max(1, blocks / 16) ? 3 : 0;
    default:
      return block == blocks - 1 ? 5 : block == blocks / 2 ? 4 : block == 0 ? 3 : 0;
  }
}

int32_t ExactRecipe::channel(int owner, int32_t head, int32_t position) const {
  const CounterRng rng(p_.seed, kStreamRecipe);
  const int root = roots_[owner];
  if (p_.recipe == InputRecipe::kDyadic) {
    // Every level block fills the same channels once, in an order of its own. One set for all sharers of a
    // prefix, whose rows see keys of several owners.
    const auto block = static_cast<uint32_t>(position) >> slot_bits_;
    const auto turn = static_cast<uint32_t>(rng.bits(shuffle_draw(root, head, block)) >> 8);
    const uint32_t slot = (static_cast<uint32_t>(position) + turn) & ((uint32_t{1} << slot_bits_) - 1);
    const uint64_t salt = rng.bits(salt_draw(root, head));
    return static_cast<int32_t>((slot * static_cast<uint32_t>(p_.head_dim_v >> slot_bits_) + salt % 4096) %
                                static_cast<uint32_t>(p_.head_dim_v));
  }
  // Neighbours of a group lie in neighbouring channels; the term of the group keeps pages from exchanging
  // their keys unnoticed.
  const uint32_t at = label(root, head, position);
  const uint64_t salt = rng.bits(salt_draw(owner, head)) % 4096;
  const uint64_t group = at & ((uint32_t{1} << shuffled_) - 1);
  return static_cast<int32_t>(((at >> shuffled_) + 37 * group + salt) % static_cast<uint32_t>(p_.head_dim_v));
}

double ExactRecipe::value(int owner, int32_t position, int32_t head, int32_t dim) const {
  // Two bits per value: one draw serves 32 dimensions.
  const int32_t words = (p_.head_dim_v + 31) / 32;
  const uint64_t token = static_cast<uint64_t>(position) * p_.heads_kv + head;
  const uint64_t word =
      CounterRng(p_.seed, kStreamV).bits((static_cast<uint64_t>(owner) << 44) + token * words + dim / 32);
  return 2.0 * static_cast<double>(1 + (word >> (2 * (dim % 32)) & 3));
}

void ExactRecipe::v(int owner, int32_t position, int32_t head, double* out) const {
  if (p_.recipe == InputRecipe::kExact) {
    for (int32_t d = 0; d < p_.head_dim_v; ++d) out[d] = value(owner, position, head, d);
    return;
  }
  std::fill_n(out, p_.head_dim_v, 0.0);
  out[channel(owner, head, position)] = kOneHot;
}

void ExactRecipe::k(int owner, int32_t position, int32_t head, double* out) const {
  const int root = roots_[owner];
  std::fill_n(out, p_.head_dim_qk, 0.0);
  if (latent_) v(owner, position, head, out);
  const uint32_t code = label(root, head, position);
  // The last dimension spells a bit, so that a kernel which drops it errs.
  double* const last = out + p_.head_dim_qk - 1;
  const int32_t count = repeats_ * bits_ + offsets_;
  for (int32_t i = 0; i < count; ++i) {
    const bool set = i >= repeats_ * bits_ || (code >> (i % bits_) & 1u) != 0;
    *(last - i) = (set ? kKeySize : -kKeySize) * sign(root, head, i);
  }
  if (p_.recipe == InputRecipe::kDyadic)
    *(last - count) = kKeyLevel * level(root, head, position) * sign(root, head, count);
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
    *(last - i) = (t.label >> bit & 1u ? q_size_ : -q_size_) * sign(root, kv_head, i);
  }
  for (int32_t j = 0; j < offsets_; ++j) {
    const int32_t share = named / offsets_ + (j < named % offsets_ ? 1 : 0);
    const int32_t i = repeats_ * bits_ + j;
    *(last - i) = -q_size_ * share * sign(root, kv_head, i);
  }
  const int32_t count = repeats_ * bits_ + offsets_;
  if (p_.recipe == InputRecipe::kDyadic)
    *(last - count) = kQueryLevel * level_sign(row, head) * sign(root, kv_head, count);
}

double ExactRecipe::q_scale(uint64_t unit, bool alone) const {
  return q_size_ / kQueryCode * power_scale(CounterRng(p_.seed, kStreamScales), unit, alone);
}

double ExactRecipe::kv_scale(uint64_t unit, bool alone) const {
  return power_scale(CounterRng(p_.seed, kStreamScales), unit, alone);
}

double ExactRecipe::answer(int request, int32_t row, int32_t head, double* o) const {
  std::fill_n(o, p_.head_dim_v, 0.0);
  const std::vector<Match> keys =
      visible_matches(request, row, head, target(request, row, head), visible_range(p_, request, row));
  if (keys.empty()) return -std::numeric_limits<double>::infinity();
  const int32_t turn = level_sign(row, head);
  std::vector<double> value(p_.head_dim_v);
  double weight = 0, sum = 0;
  for (const Match& key : keys) {
    const double w = std::ldexp(1.0, turn * key.level);
    v(token_owner(p_, request, key.position), key.position, head / p_.group(), value.data());
    for (int32_t d = 0; d < p_.head_dim_v; ++d) o[d] += w * value[d];
    weight += w;
    // The logit as it is stored: the scale is ln 2 rounded to fp32.
    sum += std::exp(turn * key.level * static_cast<double>(p_.softmax_scale));
  }
  for (int32_t d = 0; d < p_.head_dim_v; ++d) o[d] /= weight;
  return std::log(sum);
}

}  // namespace assay
