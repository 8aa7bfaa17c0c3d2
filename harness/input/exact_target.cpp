// SPDX-License-Identifier: Apache-2.0
// Which keys a row of a recipe with a known answer asks for. A target is a cube of labels: an anchor key and
// the bits in which others may differ from it. It is accepted when O over the visible keys of the cube is
// representable; otherwise its bits are closed one by one, and a single key always is. To make another kind
// of key matter: another shape of cube in edge_target or spread_target.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "harness/base/random.hpp"
#include "harness/input/exact_recipe.hpp"

namespace assay {
namespace {

// Sixty-four even values of 2..8 add up to at most 512, which 8 significant bits hold after halving.
constexpr int32_t kMostMatches = 64;
constexpr int32_t kOpenBits = 7;  // 64 matches inside the mask and as many outside
// Spread targets: cubes tried per row, and the largest. Beyond 4,096 keys one of them no longer moves a
// 16-bit O of 128 channels.
constexpr int32_t kAttempts = 8;
constexpr int32_t kMostOpen = 12;
constexpr int32_t kSignificantBits = 8;  // of bf16, the shortest output

uint32_t low_bits(int32_t count) { return count >= 32 ? ~0u : (uint32_t{1} << count) - 1; }

}  // namespace

bool ExactRecipe::sees(int request, int32_t row, int32_t key, const KeyRange& range) const {
  if (key < range.begin || key >= range.end) return false;
  const Request& r = p_.requests[request];
  if (p_.mask != ASSAY_MASK_TREE || key < p_.first_draft(r)) return true;
  return p_.tree_mask[tree_first_[request] + int64_t{row} * p_.drafts(r) + (key - p_.first_draft(r))] != 0;
}

std::vector<ExactRecipe::Match> ExactRecipe::visible_matches(int request, int32_t row, int32_t head, Target t,
                                                             const KeyRange& range) const {
  std::vector<Match> keys;
  const int root = roots_[request];
  const int32_t kv_head = head / p_.group();
  // Every subset of the open bits, in ascending order.
  uint32_t subset = 0;
  do {
    // A label and its position share the block, within which each gives the other by the same exchange.
    const uint32_t position = label(root, kv_head, static_cast<int32_t>((t.label & ~t.open) | subset));
    if (position < static_cast<uint32_t>(p_.requests[request].kv_len) &&
        sees(request, row, static_cast<int32_t>(position), range))
      keys.push_back({static_cast<int32_t>(position), level(root, kv_head, static_cast<int32_t>(position))});
    subset = (subset - t.open) & t.open;
  } while (subset != 0);
  return keys;
}

// O_d = N_d / W with N_d the weight in channel d: a short binary fraction when the odd part of W divides
// every N_d and leaves few bits. Weights are shifted to integers; a reversed row has 2^-level.
bool ExactRecipe::representable(int request, int32_t row, int32_t head,
                                const std::vector<Match>& keys) const {
  if (keys.empty()) return false;
  if (p_.o_format == ASSAY_FP32) return keys.size() == 1;
  if (p_.recipe == InputRecipe::kExact)
    return std::has_single_bit(keys.size()) && keys.size() <= static_cast<size_t>(kMostMatches);
  int32_t most = 0;
  for (const Match& key : keys) most = std::max(most, key.level);
  const bool rising = level_sign(row, head) > 0;
  std::map<int32_t, uint64_t> channels;
  uint64_t total = 0;
  for (const Match& key : keys) {
    const uint64_t weight = uint64_t{1} << (rising ? key.level : most - key.level);
    channels[channel(token_owner(p_, request, key.position), head / p_.group(), key.position)] += weight;
    total += weight;
  }
  const uint64_t odd = total >> std::countr_zero(total);
  for (const auto& [unused, weight] : channels) {
    if (weight % odd != 0) return false;
    const uint64_t share = weight / odd;
    if (std::bit_width(share) - std::countr_zero(share) > kSignificantBits) return false;
  }
  return true;
}

// Rows and heads take turns: a block around the end of the visible range (half of it outside), one around
// its beginning, an aligned block anywhere, scattered keys, a single key.
ExactRecipe::Target ExactRecipe::edge_target(int request, int32_t row, int32_t head,
                                             const KeyRange& range) const {
  const int32_t width = range.end - range.begin;
  const CounterRng rng(p_.seed, kStreamRecipe);
  const uint64_t draw = (uint64_t{1} << 63) + (static_cast<uint64_t>(request) << 44) +
                        (static_cast<uint64_t>(row) * p_.heads_q + head) * 4;
  const uint64_t turn = static_cast<uint64_t>(row) * p_.heads_q + head;

  // Open bits that tie the keys on both sides of `edge`: its lowest set bit, which tells the sides apart,
  // and bits below it, up to kOpenBits together.
  const auto block = [](int32_t edge) {
    const uint32_t side = uint32_t{1} << std::countr_zero(static_cast<uint32_t>(edge));
    return side | ((side - 1) & low_bits(kOpenBits - 1));
  };
  Target t;
  t.label = static_cast<uint32_t>(range.begin) + static_cast<uint32_t>(rng.below(draw, width));
  switch (turn % 5) {
    case 0:
      t.label = static_cast<uint32_t>(range.end - 1);
      t.open = block(range.end);
      break;
    case 1:
      t.label = static_cast<uint32_t>(range.begin);
      t.open = range.begin == 0 ? 0 : block(range.begin);
      break;
    case 2:
      t.open = low_bits(static_cast<int32_t>(rng.below(draw + 1, kOpenBits)));
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
  while (!sees(request, row, static_cast<int32_t>(t.label), range)) {
    if (++steps > width) return {};
    t.label =
        t.label + 1 < static_cast<uint32_t>(range.end) ? t.label + 1 : static_cast<uint32_t>(range.begin);
  }
  while (t.open != 0 && !representable(request, row, head, visible_matches(request, row, head, t, range)))
    t.open &= t.open - 1;  // the lowest bits first: the highest is the one that reaches over the edge
  return t;
}

// As many keys as possible, from all over the visible range. Rows and heads of one KV head take turns with
// the groups of an incidence, so that together they ask for every key.
ExactRecipe::Target ExactRecipe::spread_target(int request, int32_t row, int32_t head,
                                               const KeyRange& range) const {
  const int32_t width = range.end - range.begin;
  const int root = roots_[request];
  const int32_t kv_head = head / p_.group();
  const CounterRng rng(p_.seed, kStreamRecipe);
  const uint64_t draw = (uint64_t{1} << 63) + (static_cast<uint64_t>(request) << 44) +
                        (static_cast<uint64_t>(row) * p_.heads_q + head) * 4 * kAttempts;
  // From the last row, which sees most.
  const uint64_t turn =
      static_cast<uint64_t>(p_.requests[request].q_len - 1 - row) * p_.group() + head % p_.group();
  // Groups that all rows and heads together can go through twice; fewer groups are larger ones. Never all
  // keys of a block: keys of equal weight could be exchanged unnoticed.
  const auto queries = static_cast<uint64_t>(p_.requests[request].q_len) * p_.group();
  const int32_t named = std::min(shuffled_, std::max(1, static_cast<int32_t>(std::bit_width(queries)) - 2));
  const uint32_t in_group = low_bits(shuffled_ - named);  // open bits inside a block
  const auto group = static_cast<uint32_t>(turn) & low_bits(named);
  const uint32_t across = low_bits(bits_) & ~low_bits(shuffled_);

  // Every other round through the groups asks for keys behind the largest aligned cube, which a length that
  // is no power of two leaves over.
  const uint64_t round = turn >> named;
  const bool tail = (round & 1) != 0;
  const auto aligned = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(width)));
  const auto enough = static_cast<size_t>(std::max(1, tail ? width / (32 << named) : width / (2 << named)));

  Target best;
  size_t most = 0;
  for (uint64_t attempt = 0; attempt < kAttempts && most < enough; ++attempt) {
    const uint64_t kind = round / 2 + attempt;
    const int32_t from = tail ? std::min(aligned, width - 1) : 0;
    int32_t anchor = range.begin + from + static_cast<int32_t>(rng.below(draw + 4 * attempt, width - from));
    if (kind % 4 == 0) anchor = range.end - 1;
    if (kind % 4 == 1)
      anchor = std::max(range.begin + from, range.end - 1 - (1 << slot_bits_) - (1 << shuffled_));
    Target t;
    t.label = label(root, kv_head, anchor);
    if (shuffled_ > 0) {
      const uint32_t wanted =
          (t.label & ~low_bits(shuffled_)) | (group << (shuffled_ - named)) | (t.label & in_group);
      const auto other = static_cast<int32_t>(label(root, kv_head, static_cast<int32_t>(wanted)));
      if (sees(request, row, other, range)) t.label = wanted;
    }
    if (!sees(request, row, static_cast<int32_t>(label(root, kv_head, static_cast<int32_t>(t.label))), range))
      continue;
    const uint32_t inside = shuffled_ > 0 ? in_group : low_bits(slot_bits_);
    // Below an anchor at the end, the cube of its set bits lies inside a range that begins at 0; otherwise
    // the cube of all bits, which closing cuts down to an aligned one, or some of them.
    if (kind % 3 == 0) t.open = inside | (t.label & across);
    if (kind % 3 == 1) t.open = inside | across;
    if (kind % 3 == 2) t.open = inside | (across & static_cast<uint32_t>(rng.bits(draw + 4 * attempt + 1)));
    while (std::popcount(t.open) > kMostOpen) t.open &= ~std::bit_floor(t.open);
    std::vector<Match> keys = visible_matches(request, row, head, t, range);
    while (t.open != 0 && !representable(request, row, head, keys)) {
      t.open &= ~std::bit_floor(t.open);
      keys = visible_matches(request, row, head, t, range);
    }
    if (keys.size() > most) {
      best = t;
      most = keys.size();
    }
  }
  if (most > 0) return best;
  // Nothing tried was visible (a tree): the first key that is.
  for (int32_t key = range.begin; key < range.end; ++key)
    if (sees(request, row, key, range)) return {label(root, kv_head, key), 0};
  return {};
}

ExactRecipe::Target ExactRecipe::target(int request, int32_t row, int32_t head) const {
  const KeyRange range = visible_range(p_, request, row);
  if (range.begin >= range.end) return {};  // asks for key 0, which the row must not get
  return p_.recipe == InputRecipe::kExact ? edge_target(request, row, head, range)
                                          : spread_target(request, row, head, range);
}

std::vector<int32_t> ExactRecipe::matching_keys(int request, int32_t row, int32_t head) const {
  std::vector<int32_t> keys;
  for (const Match& key :
       visible_matches(request, row, head, target(request, row, head), visible_range(p_, request, row)))
    keys.push_back(key.position);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace assay
