// SPDX-License-Identifier: Apache-2.0
// The score counts what is right, what misleads and what is not known, over faults of another kernel than the
// catalogue's.
#include "harness/explain/score.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

// Of a fault that is known, one that has no cause here, and one that is known, with its cause taken away.
TEST(ScoreOfFaults, TheScoreCountsWhatIsRightWhatMisleadsAndWhatIsNotKnown) {
  ExplainScoreOptions options;
  options.backend = ASSAY_BINARY_DIR "/faulty/libassay_unseen.so";
  options.suites = {"paged h=2/1 d=32 batch=2q1s40"};  // not used: each of these faults names its line
  options.jobs = 1;
  const auto scored = [&](const char* fault) {
    options.filter = fault;
    return score_catalogue(options, [](const ExplainedFault&) {});
  };
  const ExplainScore known = scored("heads_reversed");
  ASSERT_EQ(known.explained, 1) << known.faults.at(0).problem;
  EXPECT_EQ(known.known, 1);
  EXPECT_EQ(known.first, 1);
  EXPECT_EQ(known.right, 1);
  EXPECT_EQ(known.misled, 0);
  EXPECT_EQ(known.unknown_without, 1) << known.faults[0].first_without;
  const ExplainScore foreign = scored("o_clamped");
  ASSERT_EQ(foreign.explained, 1) << foreign.faults.at(0).problem;
  EXPECT_EQ(foreign.known, 0);
  EXPECT_EQ(foreign.first, 0);
  EXPECT_EQ(foreign.right, 1) << foreign.faults[0].first;
}

// Numbers of a cache that are asked for once a code.
TEST(ScoreOfFaults, CodesReadOtherwiseAreRecognised) {
  ExplainScoreOptions options;
  options.backend = ASSAY_BINARY_DIR "/faulty/libassay_unseen.so";
  options.suites = {"paged h=2/1 d=32 batch=2q1s40"};  // not used
  options.jobs = 1;
  options.without_every = 1000;
  options.filter = "int8_k_unsigned";
  const ExplainScore score = score_catalogue(options, [](const ExplainedFault&) {});
  ASSERT_EQ(score.explained, 1) << score.faults.at(0).problem;
  EXPECT_EQ(score.first, 1) << score.faults[0].first;
  EXPECT_EQ(score.right, 1) << score.faults[0].first;
}

// Faults of another kernel than the catalogue's: the half that may be looked at, every sixth of it.
TEST(ScoreOfFaults, FaultsOfAnotherKernelAreRecognisedAndNoneMisleads) {
  ExplainScoreOptions options;
  options.backend = ASSAY_BINARY_DIR "/faulty/libassay_unseen.so";
  options.suites = {"paged h=2/1 d=32 batch=2q1s40"};  // not used
  options.jobs = 1;
  options.half = 1;
  options.every = 6;
  options.without_every = 1000;  // what is said without the true cause is not looked at here
  const ExplainScore score = score_catalogue(
      options, [](const ExplainedFault& f) { EXPECT_FALSE(f.misled) << f.name << ": " << f.how; });
  EXPECT_EQ(score.explained, 9);
  EXPECT_GE(score.right, 8);
}

}  // namespace
}  // namespace assay
