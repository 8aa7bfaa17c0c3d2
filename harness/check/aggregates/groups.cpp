// SPDX-License-Identifier: Apache-2.0
// See groups.hpp.
#include "harness/check/aggregates/groups.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "harness/check/aggregates/grid_place.hpp"
#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

// Rows whose LSE lie closer together than so many standard deviations may have the very same error.
constexpr double kTwinSd = 8;
// Errors that lean by more than this many standard deviations, by their own size; a share of results.
constexpr double kLeansSd = 4, kUsualMisses = 0.1;
// Followed rows see at least so many keys: with fewer, tier R sees as much, and errors are less alike to
// sums of many. Products of all followed rows.
constexpr int64_t kLeastKeys = 256;
constexpr double kFollowedProducts = 0x1p29;

// The first channels of a result, as far as the output shows them; looked up for every row and head.
using Channels = std::array<int64_t, 8>;
struct HashOfChannels {
  size_t operator()(const Channels& all) const {
    uint64_t hash = 0;
    for (const int64_t one : all)
      hash = std::rotl((hash ^ static_cast<uint64_t>(one)) * 0x9e3779b97f4a7c15, 29);
    return static_cast<size_t>(hash);
  }
};

}  // namespace

std::vector<Group> groups_of(const std::vector<RowId>& rows, int32_t heads) {
  std::vector<Group> groups;
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return groups;
  groups.push_back({0, count, 0, heads, -1, -1});
  if (heads == 1 && rows.front().request == rows.back().request) return groups;
  for (int32_t h = 0; h < heads; ++h) groups.push_back({0, count, h, h + 1, -1, h});
  if (rows.front().request == rows.back().request) return groups;
  for (int64_t from = 0, to; from < count; from = to) {
    for (to = from; to < count && rows[to].request == rows[from].request;) ++to;
    for (int32_t h = 0; h < heads; ++h) groups.push_back({from, to, h, h + 1, rows[from].request, h});
  }
  return groups;
}

Twins::Twins(const BoundedAttention& b, const assay_tensor* out, const std::vector<RowMoments>& moments) {
  std::unordered_map<Channels, int64_t, HashOfChannels> known;
  std::unordered_map<int64_t, int64_t> sums;
  known.reserve(moments.size()), sums.reserve(moments.size());
  of_o.resize(moments.size()), of_lse.resize(moments.size());
  const size_t dims = std::min(static_cast<size_t>(b.value.head_dim_v), Channels().size());
  for (size_t slot = 0; slot < moments.size(); ++slot) {
    const double* o = &b.value.o[slot * static_cast<size_t>(b.value.head_dim_v)];
    Channels key{};
    for (size_t d = 0; d < dims; ++d)
      key[d] = out == nullptr ? std::llround(o[d] * 0x1p20) : coarse_place(out->format, o[d]);
    of_o[slot] = known.emplace(key, static_cast<int64_t>(slot)).first->second;
    const RowMoments& m = moments[slot];
    if (!(m.lse_var > 0)) continue;
    const double place = b.value.lse[slot] / (kTwinSd * std::sqrt(m.lse_var));
    of_lse[slot] = sums.emplace(std::llround(place), static_cast<int64_t>(slot)).first->second;
  }
}

bool stands_out(const std::vector<Group>& groups, const std::vector<RowMoments>& moments, const Problem& p,
                bool coarse) {
  for (const Group& g : groups) {
    double lean = 0, seen = 0, one = 0, misses = 0, replayed = 0;
    for (int64_t n = g.first; n < g.last; ++n)
      for (int32_t h = g.head_first; h < g.head_last; ++h) {
        const RowMoments& m = moments[static_cast<size_t>(n * p.heads_q + h)];
        lean += m.lean, seen += m.seen;
        one = std::max(one, m.one);
        if (m.replayed) misses += m.misses, replayed += p.head_dim_v;
      }
    if (std::fabs(lean) > kLeansSd * std::sqrt(seen) + 3 * one) return true;
    if (coarse && misses > kUsualMisses * replayed + 2 * p.head_dim_v) return true;
  }
  return false;
}

std::vector<RowId> rows_to_follow(const Problem& p, const std::vector<RowId>& rows) {
  std::vector<RowId> some, kept;
  double work = 0;
  for (const RowId& id : rows) {
    const KeyInterval keys = key_interval(p, id);
    if (keys.end - keys.begin < kLeastKeys) continue;
    some.push_back(id);
    work += static_cast<double>(p.heads_q) * (p.head_dim_qk + p.head_dim_v) *
            static_cast<double>(keys.end - keys.begin);
  }
  const auto step = static_cast<size_t>(std::max(1.0, std::ceil(work / kFollowedProducts)));
  for (size_t n = 0; n < some.size(); n += step) kept.push_back(some[n]);
  return kept;
}

}  // namespace assay
