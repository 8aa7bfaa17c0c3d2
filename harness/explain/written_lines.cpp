// SPDX-License-Identifier: Apache-2.0
// The lines that are asked beside the one that is explained (second_line.hpp).
#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr uint64_t kOtherSeed = 0x5eed, kThirdSeed = 0x7ed;
constexpr int32_t kRowsThere = 5;  // of a request that had one, on the line that separates causes
// ... and of one more, at least and at most.
constexpr int32_t kManyRowsThere = 37, kMostRowsThere = 101;
constexpr int32_t kLargestPower = 64;  // of two, that lengths are told apart by
constexpr size_t kKinds = 4;           // of requests that get a companion
constexpr int64_t kLongest = 4096;     // keys of a companion

// Lengths beside one: odd where it is even and the other way round, so that no remainder by a power of two is
// that of the request itself.
int32_t other_parity(int32_t of, int32_t length) { return of % 2 == length % 2 ? length + 1 : length; }
int32_t longer_than(int32_t keys) { return other_parity(keys, keys + keys / 2 + 13); }
int32_t shorter_than(int32_t keys) { return other_parity(keys, keys - keys / 4 - 2); }

// More keys, of another remainder by every power of two, and for several rows another number of them, unless
// the line says what all requests have (bits=).
std::vector<BatchGroup> companions(const std::vector<BatchGroup>& groups, bool same_rows) {
  std::vector<BatchGroup> more;
  for (const BatchGroup& g : groups) {
    if (g.q_len == 0 || g.kv_len == 0 || g.kv_len > kLongest) continue;
    const bool known = std::any_of(more.begin(), more.end(), [&](const BatchGroup& m) {
      return (m.q_len > 1) == (g.q_len > 1) && m.kv_len == longer_than(g.kv_len);
    });
    if (known || more.size() >= 2 * kKinds) continue;
    BatchGroup longer = g;
    longer.count = 1;
    longer.shared = 0;
    longer.kv_len = longer_than(g.kv_len);
    if (g.q_len > 1 && !same_rows) longer.q_len = g.q_len + 3;
    more.push_back(longer);
    longer.kv_len = std::max(g.q_len, shorter_than(g.kv_len));
    longer.q_len = g.q_len;
    more.push_back(longer);
  }
  return more;
}

}  // namespace

// The line as printed; empty where it is not legal.
static std::string legal(const Scenario& scenario) {
  try {
    const std::string text = print(scenario);
    make_problem(parse_scenario(text));
    return text;
  } catch (const InputError&) {
  } catch (const CheckError&) {
  }
  return {};
}

double scale_of(const Scenario& s) {
  return s.softmax_scale > 0 ? s.softmax_scale : 1 / std::sqrt(double(s.head_dim_qk));
}

std::string second_line(const std::string& line) {
  Scenario s = parse_scenario(line);
  s.seed += kOtherSeed;
  s.relations = 0;
  if (s.batch.kind == BatchSpec::Kind::kMix) {
    for (const bool same_rows : {false, true}) {
      Scenario more = s;
      for (const BatchGroup& g : companions(s.batch.groups, same_rows)) more.batch.groups.push_back(g);
      if (std::string text = legal(more); !text.empty()) return text;
    }
  }
  return legal(s);
}

std::string usual_line(const std::string& line) {
  Scenario s = parse_scenario(line);
  if (s.recipe == InputRecipe::kNormal) return {};
  s.recipe = InputRecipe::kNormal;
  s.relations = 0;
  return legal(s);
}

// As the longest request, with more rows than a window or a chunk holds keys, and than a tile of rows has.
static bool add_many_rows(Scenario& s) {
  const BatchGroup* longest = nullptr;
  int32_t most = 0;
  for (const BatchGroup& g : s.batch.groups) {
    if (g.q_len == 0 || g.kv_len > kLongest) continue;
    if (longest == nullptr || g.kv_len > longest->kv_len) longest = &g;
    most = std::max(most, g.q_len);
  }
  const int32_t rows = std::min(kMostRowsThere, std::max({kManyRowsThere, s.window_left + 9, s.chunk + 9}));
  if (longest == nullptr || most >= rows) return false;
  BatchGroup g = *longest;
  const bool no_context = g.q_len == g.kv_len;
  g.count = 1, g.shared = 0;
  g.kv_len = no_context ? rows : std::max(g.kv_len, rows) + 7;
  g.q_len = rows;
  s.batch.groups.push_back(g);
  return true;
}

// Requests of as many keys as are a multiple of one power of two and not of the next: what holds in requests
// of a multiple of 16 keys is told from what holds where they are one of 4.
static Scenario with_remainders(Scenario s, bool same_rows) {
  const int32_t own_rows = s.batch.groups.front().q_len;
  int32_t longest = 0;
  for (const BatchGroup& g : s.batch.groups)
    if (g.q_len > 0 && g.kv_len <= kLongest) longest = std::max(longest, g.kv_len);
  const int32_t base = std::max(1, longest / kLargestPower) * kLargestPower;
  for (int32_t power = kLargestPower / 2; power > 1 && longest > 0; power /= 2)
    for (const int32_t rows : {1, 2}) {
      BatchGroup g = s.batch.groups.front();
      g.count = 1, g.shared = 0, g.q_len = same_rows ? own_rows : rows;
      g.kv_len = std::max(g.q_len, base + power);
      s.batch.groups.push_back(g);
    }
  return s;
}

std::string separating_line(const std::string& line, int step, bool many_rows) {
  Scenario s = parse_scenario(line);
  s.seed += kThirdSeed;
  s.relations = 0;
  // No power of two, and no number that a cap or a head's size is.
  s.softmax_scale = 1.3 * scale_of(s);
  // What a kernel does by pages it does by others.
  if (step < 1 && s.page_size > 1) s.page_size = s.page_size > 32 ? s.page_size / 2 : s.page_size * 2;
  if (step < 3) {
    s.softcap *= 0.55;  // where it was hardly reached it is
    if (s.window_left > 2) s.window_left = s.window_left * 2 / 3;
    if (s.window_right > 1) s.window_right = s.window_right + 3;
    if (s.chunk > 4) s.chunk = s.chunk * 3 / 4;
  }
  if (step < 2) {
    for (Quantization* of : {&s.q, &s.k, &s.v})
      if (of->scale == ASSAY_SCALE_HOST || of->scale == ASSAY_SCALE_TENSOR) of->scale = ASSAY_SCALE_HEAD;
    std::vector<BatchGroup> more;
    for (BatchGroup g : s.batch.groups) {
      if (g.q_len != 1 || g.kv_len < kRowsThere || more.size() >= kKinds) continue;
      g.count = 1, g.shared = 0, g.q_len = kRowsThere, g.kv_len += 7;
      more.push_back(g);
    }
    s.batch.groups.insert(s.batch.groups.end(), more.begin(), more.end());
    // Whole steps are judged over all their requests, of which so many short ones leave what is wrong too
    // little.
    if (s.batch.kind == BatchSpec::Kind::kMix && op_of(s.op).whole_context)
      for (const bool same_rows : {false, true})
        if (Scenario all = with_remainders(s, same_rows); !legal(all).empty()) {
          s = std::move(all);
          break;
        }
  }
  if (many_rows && (step >= kManyRowsSteps || s.batch.kind != BatchSpec::Kind::kMix || !add_many_rows(s)))
    return {};
  return legal(s);
}

}  // namespace assay
