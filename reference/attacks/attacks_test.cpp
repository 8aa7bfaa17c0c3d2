// SPDX-License-Identifier: Apache-2.0
// Every attack in both forms of the bounds: no tier may be left. The table it prints says how near each came.
#include <gtest/gtest.h>

#include "reference/attacks/attacks_blind.hpp"
#include "reference/attacks/attacks_folded.hpp"
#include "reference/attacks/attacks_grid.hpp"
#include "reference/attacks/attacks_heavy.hpp"
#include "reference/attacks/attacks_more.hpp"
#include "reference/attacks/attacks_orders.hpp"
#include "reference/attacks/attacks_rare.hpp"
#include "reference/attacks/attacks_shared.hpp"
#include "reference/attacks/attacks_small.hpp"
#include "reference/attacks/attacks_swallowed.hpp"
#include "reference/attacks/attacks_units.hpp"

namespace assay::attacks {
namespace {

// least: what the largest error must be of its bound; a bound that no kernel comes near holds for anything.
void defend(const std::vector<Attack>& attacks, double least = 1e-4) {
  std::printf("  %-44s %5s %5s %5s %5s %5s   element-wise\n", "matrix form, largest error / bound", "D", "P",
              "R", "LSE", "LSE P");
  for (const Attack& a : attacks) {
    const Outcome o = run(a);
    const TierRatios &m = o.matrix, &e = o.elementwise;
    std::printf("  %-44s %5.2f %5.2f %5.2f %5.2f %5.2f   %5.2f %5.2f %5.2f %5.2f %5.2f%s\n", a.name, m.d, m.p,
                m.r, m.lse, m.lse_p, e.d, e.p, e.r, e.lse, e.lse_p, o.largest() > 1 ? "  <-" : "");
    EXPECT_LE(o.largest(), 1) << a.name << ", against " << a.aim;
    EXPECT_GT(std::max({m.d, m.p, m.r, m.lse, m.lse_p}), least) << a.name;
  }
}

TEST(Attacks, FoundByOthers) { defend(found()); }
TEST(Attacks, OfSmallWeights) { defend(of_small_weights(), 0.01); }
TEST(Attacks, OfRareFields) { defend(of_rare_fields()); }
TEST(Attacks, More) { defend(more()); }
TEST(Attacks, OfCountedCuts) { defend(of_counted_cuts(), 0.1); }
TEST(Attacks, OfUnitsOfFewBits) { defend(of_units()); }
// Within a factor of ten of the bound: it cannot be ten times narrower and hold for all legal orders.
TEST(Attacks, UndeclaredOrdersComeNearTheirBound) { defend(of_undeclared_orders(), 0.1); }
TEST(Attacks, OfRisingScores) { defend(of_rising_scores(), 0.02); }
// So near that no bound which lets errors cancel within a bin of the argument, of any width, could hold.
TEST(Attacks, OfCoarseExponentials) { defend(of_coarse_exponentials(), 0.9); }
// Two clusters of repeated scores at 32k keys: tier P declines, and D is what a cluster shares.
TEST(Attacks, OfRepeatedScoresUnderACubic) {
  const std::vector<Attack> all = found();
  const auto at = std::find_if(all.begin(), all.end(), [](const Attack& a) {
    return std::string(a.name) == "two clusters, V by cluster, cubic";
  });
  ASSERT_NE(at, all.end());
  Attack repeated = *at;
  repeated.name = "two clusters of repeated scores, 32k keys";
  repeated.data = [](uint64_t seed) { return two_clusters(seed, 32768, 0); };
  repeated.seeds = 1;
  const Outcome o = run(repeated);
  EXPECT_EQ(std::max(o.matrix.p, o.elementwise.p), 0);  // declined
  defend({repeated}, 0.02);
}
TEST(Attacks, OfFoldedChannels) { defend(of_folded_channels()); }
TEST(Attacks, OfLargeErrors) { defend(of_large_errors()); }
// Where D bounds no row sum it bounds the LSE.
TEST(Attacks, OfLargeErrorsLeaveNoLseUnbounded) {
  for (const Attack& a : of_large_errors()) {
    const DenseCase c = a.data(0);
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a.declared);
    for (const double bound : b.lse_bound) EXPECT_TRUE(std::isfinite(bound)) << a.name;
  }
}
TEST(Attacks, OfGrids) { defend(of_grids()); }
TEST(Attacks, OfHeavyKeys) { defend(of_heavy_keys()); }
TEST(Attacks, OfOrdersWithoutV) { defend(of_orders_without_v()); }
TEST(Attacks, OfRules) { defend(of_rules()); }
TEST(Attacks, OfSwallowedWeights) { defend(of_swallowed_weights(), 0.01); }
TEST(Attacks, OfSharedProducts) { defend(of_shared_products()); }
TEST(Attacks, OfAlikeKeys) { defend(of_alike_keys()); }

}  // namespace
}  // namespace assay::attacks
