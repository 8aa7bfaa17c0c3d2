// SPDX-License-Identifier: Apache-2.0
// Rules from what spikes show, and kernels that run: drawn kernels, whose arithmetic is known, against what
// calls show of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "harness/explain/cut.hpp"
#include "harness/explain/order_calls.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

const std::string kDrawnBackend = ASSAY_BINARY_DIR "/faulty/libassay_drawn.so";

// What a kernel that works in a layout shows of the last rows.
std::vector<SpikeSeen> seen_in(const Problem& p, const Layout& layout) {
  std::vector<SpikeSeen> seen;
  Rules rules;
  layout.apply(rules);
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int32_t keys = p.requests[r].kv_len;
    const PartsOf parts(rules, KeyRange{0, keys});
    for (const double place : {0.01, 0.99, 0.52, 0.27, 0.77, 0.39}) {
      const int32_t spike = std::clamp(static_cast<int32_t>(place * keys), 1, keys - 3);
      const auto alike = [&](int32_t l, int32_t r) {
        return parts.of(l) == parts.of(r) && parts.state(l) == parts.state(r) &&
               parts.tile(l) >= parts.tile(r);
      };
      const int32_t beside = alike(spike + 1, spike) ? spike + 1 : spike - 1;
      SpikeSeen s{{static_cast<int32_t>(r), p.requests[r].q_len - 1, 0}, {0, keys}, spike, beside, {}};
      for (int32_t k = 0; k < keys; ++k) s.alike.push_back(alike(k, spike));
      seen.push_back(std::move(s));
    }
  }
  return seen;
}

TEST(OrderRule, NamesWhatEveryLengthShows) {
  const Problem p = make_problem(parse_scenario("paged h=4/2 d=64 batch=1q1s300_1q1s150_1q1s1063 seed=1"));
  const auto words = [&](int32_t tile, int32_t splits, int32_t split_keys, const Cut& cut) {
    const OrderSeen o = order_rule(p, seen_in(p, {tile, splits, split_keys, cut, "", 0, nullptr}));
    EXPECT_TRUE(o.known) << o.words;
    return o.words;
  };
  EXPECT_EQ(words(48, 1, 0, {.states = 3}), "tiles of 48 keys dealt in turn to 3 running states");
  EXPECT_EQ(words(31, 1, 0, {}), "tiles of 31 keys");
  EXPECT_EQ(words(64, 5, 256, {}), "tiles of 64 keys, parts of 256 keys");
  EXPECT_EQ(order_rule(p, {}).words, "no end of a tile shows: up to 0 keys share one maximum");
}

// Keys that a fault weighs otherwise have edges of their own, and no rule is made of noise.
TEST(OrderRule, AFaultWithinTilesHidesNone) {
  const Problem p = make_problem(parse_scenario("paged h=4/2 d=64 batch=1q1s300_1q1s150_1q1s450 seed=1"));
  std::vector<SpikeSeen> seen = seen_in(p, {48, 1, 0, {.states = 3}, "", 0, nullptr});
  for (SpikeSeen& s : seen)
    for (size_t k = 0; k < s.alike.size(); ++k)
      if (k / 48 % 4 == 3 && k % 48 < 16) s.alike[k] = 0;
  EXPECT_EQ(order_rule(p, seen).words, "tiles of 48 keys dealt in turn to 3 running states");
  uint32_t draw = 1;
  for (SpikeSeen& s : seen)
    for (char& alike : s.alike) draw = draw * 1664525u + 1013904223u, alike = draw >> 20 & 1;
  EXPECT_FALSE(order_rule(p, seen).known);
}

// What a kernel declares in full is the truth, since the judge holds it to that. ASSAY_DRAWN_ORDERS asks more
// kernels; the figure is in the README of this folder.
TEST(OrderRule, DrawnKernelsShowTheirOrder) {
  const char* more = std::getenv("ASSAY_DRAWN_ORDERS");
  const int32_t count = more ? std::atoi(more) : 12;
  const Backend loaded = Backend::load(kDrawnBackend);
  char error[512] = "";
  ASSERT_EQ(loaded.table()->use_device(0, error, sizeof(error)), ASSAY_OK) << error;
  const Problem problem = make_problem(parse_scenario("paged h=2/1 d=64 batch=1q1s700_1q1s330 seed=5"));
  int32_t asked = 0, same = 0, none = 0;
  std::string other;
  for (const assay_kernel* k : loaded.kernels()) {
    if (asked == count) break;
    const ProblemView view(problem);
    assay_arithmetic a = default_arithmetic();
    if (!call_arithmetic(loaded, *k, view.get(), a) || !a.order_declared || a.tile_keys < 2) continue;
    if (!call_supports(*k, view.get(), nullptr, loaded.device(0)).ok()) continue;
    ++asked;
    const OrderSeen o = order_by_calls(problem, loaded, *k, {.seconds = 20});
    const bool agrees = o.known && o.layout.tile_keys == a.tile_keys;
    same += agrees, none += !o.known;
    if (!agrees)
      other += "\n" + std::string(k->name) + " declares tiles of " + std::to_string(a.tile_keys) +
               ", parts " + std::to_string(a.splits) + "/" + std::to_string(a.split_keys) + ": " + o.words;
  }
  std::printf("drawn kernels: %d of %d orders as declared, %d not observed, %d otherwise%s\n", same, asked,
              none, asked - same - none, other.c_str());
  EXPECT_EQ(asked, count);
  EXPECT_LE(asked - same - none, count / 10) << other;
  EXPECT_GE(same * 100, count * 60) << other;
}

}  // namespace
}  // namespace assay
