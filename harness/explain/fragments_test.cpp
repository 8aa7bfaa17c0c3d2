// SPDX-License-Identifier: Apache-2.0
// Mistakes of the places where data changes hands in a tiled kernel: fragments, swizzled rows, prologues,
// pages met in the middle, a maximum that starts at a number. Each is fabricated, so that the truth is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/explain/second_line.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

std::string said_of(const std::string& line, const Mistakes& make, const Declares& declare = {}) {
  const Evidence here = fabricated(line, kFake, make, declare),
                 there = fabricated(second_line(line), kFake, make, declare);
  const Explanation x =
      explain(here, {}, [&](BesideLine which) { return which == BesideLine::kSecond ? &there : nullptr; });
  return explanation_text(x, here.problem, 5, false);
}

Mistakes in_terms(const Edit& edit) {
  return [edit](const Problem&, Rules& rules) { rules.edit_terms = edit; };
}

// Columns 8 to 15 of a tile of 32 meet the values of columns 16 to 23, zeros where there are none.
TEST(Fragments, TwoBitsOfAKeysNumberExchanged) {
  const std::string text = said_of(
      "paged h=4/2 d=64 batch=2q1s170_1q9s90 seed=3", in_terms([](Scene& s, std::vector<Term>& terms) {
        for (Term& t : terms) {
          const int32_t lane = t.position % 32, to = lane < 8 || lane > 23 ? lane : lane ^ 24;
          const int32_t from = t.position - lane + to;
          if (from < s.kv_len)
            t.v_row = from;
          else
            t.in_output = 0;
        }
      }));
  EXPECT_THAT(text, HasSubstr("V of the key with bits 8 and 16 of its number exchanged, of every run of 32"));
  EXPECT_THAT(text, HasSubstr("so        some keys or values, of each tile"));
}

TEST(Fragments, ASwizzleThatTheReaderForgets) {
  const std::string text = said_of("paged h=4/2 d=64 batch=2q1s170_1q9s90 seed=3",
                                   in_terms([](Scene& s, std::vector<Term>& terms) {
                                     for (Term& t : terms)
                                       if (t.position & 4) t.k_row = s.keys.with_dims_exchanged(t.k_row, 8);
                                   }));
  EXPECT_THAT(text, HasSubstr("dimensions of K exchanged by 8 times (key over 4 modulo 2)"));
  EXPECT_THAT(text, HasSubstr("so        dimensions of Q or K are read in another order"));
}

TEST(Fragments, SlotsByTheBitsOfAPageSizeThatIsNoPowerOfTwo) {
  const std::string text = said_of("paged h=4/2 d=64 page=24 batch=2q1s100_1q5s60 seed=41",
                                   in_terms([](Scene& s, std::vector<Term>& terms) {
                                     for (Term& t : terms)
                                       t.k_row = t.v_row =
                                           s.keys.through_table(t.position / 24, t.position & 23);
                                   }));
  EXPECT_THAT(text, HasSubstr("slot is the bits that the key's number shares with the page's size less one"));
}

// The maximum starts at 0 and no score comes near it: what is left is that of a row without keys, which a
// symptom says too.
TEST(Fragments, AMaximumThatStartsAtZeroBesideItsSymptom) {
  const std::string text = said_of("paged h=4/2 d=64 input=negative batch=2q1s70_1q5s60 seed=97",
                                   [](const Problem&, Rules& rules) { rules.first_maximum = 0; });
  EXPECT_THAT(text, HasSubstr("softmax.finite_sentinel"));
  EXPECT_THAT(text, HasSubstr("running maximum starts at 0"));
}

// Parts that forget where they begin: a slot, and the tiles that a prologue loads.
class OfParts : public ::testing::Test {
 protected:
  static constexpr int32_t kTile = 16, kPart = 48;
  static void declare(assay_arithmetic& a) {
    a.order_declared = 1, a.tile_keys = kTile, a.split_keys = kPart;
  }
};

TEST_F(OfParts, SlotsFromTheStartOfAPart) {
  const std::string text = said_of(
      "paged h=4/2 d=64 page=32 batch=2q1s200 seed=5", in_terms([](Scene& s, std::vector<Term>& terms) {
        for (Term& t : terms) t.k_row = t.v_row = own_row(s, t.position / 32 * 32 + t.position % kPart % 32);
      }),
      declare);
  EXPECT_THAT(text, HasSubstr("slot counted from the first key of its part"));
}

TEST_F(OfParts, APrologueThatLoadsTheFirstTilesOfTheRequest) {
  const std::string text =
      said_of("paged h=4/2 d=64 batch=2q1s200 seed=5", in_terms([](Scene&, std::vector<Term>& terms) {
                for (Term& t : terms)
                  if (t.position % kPart < 2 * kTile) t.k_row = t.v_row = t.position % kPart;
              }),
              declare);
  EXPECT_THAT(text, HasSubstr("K and V of the first 2 tiles of every part are those of the request's first"));
}

}  // namespace
}  // namespace assay
