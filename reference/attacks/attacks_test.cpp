// SPDX-License-Identifier: Apache-2.0
// Every attack in both forms of the bounds: no tier may be left. The table it prints says how near each came.
#include <gtest/gtest.h>

#include "reference/attacks/attacks_more.hpp"
#include "reference/attacks/attacks_units.hpp"

namespace assay::attacks {
namespace {

void defend(const std::vector<Attack>& attacks) {
  std::printf("  %-44s %5s %5s %5s %5s %5s   element-wise\n", "matrix form, largest error / bound", "D", "P",
              "R", "LSE", "LSE P");
  for (const Attack& a : attacks) {
    const Outcome o = run(a);
    const Ratios &m = o.matrix, &e = o.elementwise;
    std::printf("  %-44s %5.2f %5.2f %5.2f %5.2f %5.2f   %5.2f %5.2f %5.2f %5.2f %5.2f%s\n", a.name, m.d, m.p,
                m.r, m.lse, m.lse_p, e.d, e.p, e.r, e.lse, e.lse_p, o.largest() > 1 ? "  <-" : "");
    EXPECT_LE(o.largest(), 1) << a.name << ", against " << a.aim;
    EXPECT_GT(o.largest(), 1e-4) << a.name << ": a bound so wide holds for anything";
  }
}

TEST(Attacks, FoundByOthers) { defend(found()); }
TEST(Attacks, More) { defend(more()); }
TEST(Attacks, OfUnitsOfFewBits) { defend(of_units()); }
TEST(Attacks, OfAlikeKeys) { defend(of_alike_keys()); }

}  // namespace
}  // namespace assay::attacks
