// SPDX-License-Identifier: Apache-2.0
// Hypotheses about what happens where the running maximum rises: O, the row sum or both keep their old
// scale, in all dimensions or in some, or are scaled twice. All of it depends on the tiles and parts in which
// keys are met, so every way the kernel may go is tried.
#include <numbers>

#include "harness/explain/families/read_orders.hpp"
#include "harness/explain/hypothesis.hpp"

namespace assay {
namespace {

using Kept = std::function<bool(const MaximumMove&)>;

struct When {
  std::string name;
  Kept kept;
  double cost;
};

std::vector<When> whens() {
  std::vector<When> list = {
      {"whenever the maximum rises", [](const MaximumMove&) { return true; }, 0},
      {"at the first rise of the maximum", [](const MaximumMove& m) { return m.number == 0; }, 0.2},
      {"at the second rise of the maximum", [](const MaximumMove& m) { return m.number == 1; }, 0.2},
      {"at the middle rise of the maximum", [](const MaximumMove& m) { return m.number == m.of / 2; }, 0.2},
      {"at the last rise of the maximum", [](const MaximumMove& m) { return m.number == m.of - 1; }, 0.2},
  };
  for (int32_t tile : {2, 3})
    list.push_back({fmt::format("from tile {} of a part on", tile),
                    [tile](const MaximumMove& m) { return m.tile >= tile; }, 0.2});
  for (bool odd : {true, false})
    list.push_back({fmt::format("in {} tiles of a part", odd ? "odd" : "even"),
                    [odd](const MaximumMove& m) { return (m.tile % 2 == 1) == odd; }, 0.2});
  // A threshold of a lazy rescale, in natural units or in powers of two.
  for (double by : {0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0}) {
    list.push_back({fmt::format("where the maximum rises by less than {:g}", by),
                    [by](const MaximumMove& m) { return m.by < by; }, 0.25});
    list.push_back({fmt::format("where the maximum rises by less than ln(2) times {:g}", by),
                    [by](const MaximumMove& m) { return m.by < by * 0.6931471805599453; }, 0.3});
  }
  return list;
}

// Dimensions of O that one fragment, warp or unrolled loop has.
struct Dims {
  std::string name;
  std::function<bool(int32_t)> holds;
};

std::vector<Dims> parts_of_dims(int32_t n) {
  std::vector<Dims> list;
  for (int32_t count : {n / 2, n / 4, 3 * n / 4, 8, 16, 32}) {
    if (count <= 0 || count >= n) continue;
    list.push_back({fmt::format("the first {} dimensions", count), [count](int32_t d) { return d < count; }});
    list.push_back(
        {fmt::format("the last {} dimensions", count), [n, count](int32_t d) { return d >= n - count; }});
  }
  for (int32_t run : {1, 2, 4, 8, 16})
    for (int32_t which : {0, 1})
      if (2 * run < n)
        list.push_back({fmt::format("every second run of {} dimensions, from number {}", run, which),
                        [run, which](int32_t d) { return d / run % 2 == which; }});
  return list;
}

}  // namespace

void rescale_family(const Clues& clues, Hypotheses& out) {
  std::vector<Layout> tilings = clues.tilings;
  // From key to key, which few kernels do.
  if (!clues.one_layout && !order_repeated(clues.evidence.declared))
    tilings.push_back({1, 1, 0, {}, ", key by key", 0.2});
  const std::vector<When> all = whens();
  const std::vector<Dims> dims = parts_of_dims(clues.problem().head_dim_v);
  for (const Layout& tiling : tilings) {
    const auto add = [&](std::string_view cause, std::string text, double cost,
                         const std::function<void(Rules&)>& set) {
      Hypothesis h = propose(clues, cause, std::move(text) + tiling.words, cost + tiling.cost);
      tiling.apply(h.rules);
      set(h.rules);
      out.push_back(std::move(h));
    };
    for (const When& when : all) {
      const double cost = 0.1 + when.cost;
      add("softmax.o_not_rescaled", "not rescaled " + when.name, cost,
          [&](Rules& r) { r.o_kept = when.kept; });
      add("softmax.l_not_rescaled", "not rescaled " + when.name, cost,
          [&](Rules& r) { r.l_kept = when.kept; });
      add("softmax.o_not_rescaled", "neither output nor row sum rescaled " + when.name, cost + 0.1,
          [&](Rules& r) { r.o_kept = r.l_kept = when.kept; });
      out.back().also_called = {"softmax.stale_maximum"};
      // The weights that follow are relative to another maximum than what they join.
      add("softmax.stale_maximum", "what was summed before stays relative to the old one " + when.name,
          cost + 0.1, [&](Rules& r) { r.o_kept = r.l_kept = when.kept; });
      out.back().also_called = {"softmax.o_not_rescaled"};
      add("softmax.rescaled_twice", when.name, cost + 0.2, [&](Rules& r) { r.rescaled_twice = when.kept; });
      for (bool output : {true, false})
        add("softmax.rescaled_twice",
            fmt::format("the {} alone, {}", output ? "output" : "row sum", when.name), cost + 0.2,
            [&](Rules& r) {
              r.rescaled_twice = when.kept;
              r.twice_o = output, r.twice_l = !output;
            });
    }
    for (const Dims& some : dims)
      add("softmax.o_not_rescaled", some.name + " not rescaled", 0.2, [&](Rules& r) {
        r.o_kept = all.front().kept;
        r.kept_dims = some.holds;
      });
    add("softmax.o_not_rescaled", "each tile keeps its own maximum, nothing is rescaled", 0.2,
        [](Rules& r) { r.maximum_per_tile = true; });
    for (double below : {0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0})
      add("keys.tile_dropped",
          fmt::format("tiles whose scores lie {:g} below the maximum are skipped", below), 0.35,
          [below](Rules& r) { r.skip_below = below; });
    for (bool base2 : {true, false})
      add("softmax.log2e", base2 ? "sums rescaled by 2^x in place of e^x" : "sums rescaled by e^(x log2(e))",
          0.2, [base2](Rules& r) { r.rescale_exponent = base2 ? std::numbers::ln2 : std::numbers::log2e; });
    add("softmax.stale_maximum", "weights relative to the maximum before their tile", 0.2,
        [](Rules& r) { r.stale_maximum = true; });
    rescales_of_others(clues, tiling, out);
  }
}

}  // namespace assay
