// SPDX-License-Identifier: Apache-2.0
// Every attack in both forms of the bounds: no tier may be left. The table it prints says how near each came.
#include <gtest/gtest.h>

#include "reference/attacks/attacks_more.hpp"
#include "reference/attacks/attacks_orders.hpp"
#include "reference/attacks/attacks_units.hpp"

namespace assay::attacks {
namespace {

// least: what the largest error must be of its bound; a bound that no kernel comes near holds for anything.
void defend(const std::vector<Attack>& attacks, double least = 1e-4) {
  std::printf("  %-44s %5s %5s %5s %5s %5s   element-wise\n", "matrix form, largest error / bound", "D", "P",
              "R", "LSE", "LSE P");
  for (const Attack& a : attacks) {
    const Outcome o = run(a);
    const Ratios &m = o.matrix, &e = o.elementwise;
    std::printf("  %-44s %5.2f %5.2f %5.2f %5.2f %5.2f   %5.2f %5.2f %5.2f %5.2f %5.2f%s\n", a.name, m.d, m.p,
                m.r, m.lse, m.lse_p, e.d, e.p, e.r, e.lse, e.lse_p, o.largest() > 1 ? "  <-" : "");
    EXPECT_LE(o.largest(), 1) << a.name << ", against " << a.aim;
    EXPECT_GT(std::max({m.d, m.p, m.r, m.lse, m.lse_p}), least) << a.name;
  }
}

TEST(Attacks, FoundByOthers) { defend(found()); }
TEST(Attacks, More) { defend(more()); }
TEST(Attacks, OfUnitsOfFewBits) { defend(of_units()); }
// Within a factor of ten of the bound: it cannot be ten times narrower and hold for all legal orders.
TEST(Attacks, UndeclaredOrdersComeNearTheirBound) { defend(of_undeclared_orders(), 0.1); }
TEST(Attacks, OfRisingScores) { defend(of_rising_scores(), 0.02); }
TEST(Attacks, OfAlikeKeys) { defend(of_alike_keys()); }

}  // namespace
}  // namespace assay::attacks
