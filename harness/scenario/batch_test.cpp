// SPDX-License-Identifier: Apache-2.0
// The batch= value by itself: what is read, and every mistake with its column.
#include "harness/scenario/batch.hpp"

#include <gmock/gmock.h>

namespace assay {
namespace {

using ::testing::StartsWith;

const SourcePlace kPlace{"b.suite", 2, 5};

TEST(Batch, ReadsGroups) {
  const BatchSpec b = parse_batch("64q1s4k_2q512s2k_q7_3q1s1mp1k_1q0s0", kPlace);
  EXPECT_EQ(b.kind, BatchSpec::Kind::kMix);
  const std::vector<BatchGroup> expected = {
      {64, 1, 4096, 0}, {2, 512, 2048, 0}, {1, 7, 7, 0}, {3, 1, 1048576, 1024}, {1, 0, 0, 0}};
  EXPECT_EQ(b.groups, expected);
  EXPECT_EQ(print(b), "64q1s4k_2q512s2k_1q7_3q1s1024kp1k_1q0");
}

TEST(Batch, ReadsDistributions) {
  const BatchSpec u = parse_batch("uniform(n=8,q=1:16,s=64:4k)", kPlace);
  EXPECT_EQ(u.kind, BatchSpec::Kind::kUniform);
  EXPECT_EQ(u.n, 8);
  EXPECT_EQ(u.q, (LengthRange{1, 16}));
  EXPECT_EQ(u.s, (LengthRange{64, 4096}));
  const BatchSpec z = parse_batch("zipf(n=3,s=5,a=0.75)", kPlace);
  EXPECT_EQ(z.kind, BatchSpec::Kind::kZipf);
  EXPECT_EQ(z.exponent, 0.75);
  EXPECT_EQ(z.q, (LengthRange{1, 1}));
  const BatchSpec t = parse_batch("trace(dir/a-b_c.jsonl,tokens=2k,step=500,seqs=16,rate=2.5)", kPlace);
  EXPECT_EQ(t.kind, BatchSpec::Kind::kTrace);
  EXPECT_EQ(t.file, "dir/a-b_c.jsonl");
  EXPECT_EQ(t.step, 500);
  EXPECT_EQ(t.tokens, 2048);
  EXPECT_EQ(t.seqs, 16);
  EXPECT_EQ(t.rate, 2.5);
  EXPECT_EQ(t.q, (LengthRange{1, 1}));
  const BatchSpec drafts = parse_batch("trace(a.csv,step=5,draft=3)", kPlace);
  EXPECT_EQ(drafts.q, (LengthRange{4, 4}));
  EXPECT_EQ(print(drafts), "trace(a.csv,step=5,draft=3)");
}

TEST(Batch, MistakesWithColumn) {
  const struct {
    const char* text;
    int column;
    const char* message;
  } mistakes[] = {
      {"", 1, "batch: value expected"},
      {"_", 1, "batch: empty group; expected COUNTqQLEN"},
      {"4q1_", 5, "batch: empty group"},
      {"4", 2, "batch: \"q\" and the new tokens expected; a group is"},
      {"4x1", 2, "batch: \"q\" and the new tokens expected where \"x1\" stands"},
      {"x", 1, "batch: number of requests expected where \"x\" stands"},
      {"4q", 3, "batch: new tokens (q) expected at the end"},
      {"4qs5", 3, "batch: new tokens (q) expected where \"s5\" stands"},
      {"0q1", 1, "batch: number of requests: 0 is too small"},
      {"-4q1", 1, "batch: number of requests: -4 is negative"},
      {"4q-1", 3, "batch: new tokens (q): -1 is negative"},
      {"4q1s-7", 5, "batch: visible tokens (s): -7 is negative"},
      {"4q1s7p-1", 7, "batch: shared prefix (p): -1 is negative"},
      {"4q1s3000000000", 5, "batch: visible tokens (s): 3000000000 is too large"},
      {"4q1s99999999999999999999", 5, "batch: visible tokens (s): \"99999999999999999999\" is too large"},
      {"4q1s90000000000000000k", 5, "batch: visible tokens (s): \"90000000000000000k\" is too large"},
      {"4q1s7x", 6, "batch: unexpected \"x\"; a group is"},
      {"4q1p1s7", 6, "batch: unexpected \"s7\""},
      {"unifrm(n=4,s=1)", 1,
       "batch: unknown distribution \"unifrm\" (did you mean \"uniform\"?); accepted: uniform, zipf, trace"},
      {"uniform(n=4,s=1", 8, "batch: \"(\" is never closed"},
      {"uniform(n=4,s=1)x", 17, "batch: nothing may follow the \")\""},
      {"uniform(s=1)", 1, "batch: uniform needs n= (number of requests)"},
      {"zipf(n=4)", 1, "batch: zipf needs s=LOW:HIGH"},
      {"uniform(n=4,s=8:1)", 15, "batch: s: range 8:1 runs backwards; expected LOW:HIGH"},
      {"uniform(n=4,s=1:x)", 17, "batch: s: \"x\" is not a number"},
      {"uniform(n=4,n=5,s=1)", 13, "batch: uniform: argument \"n\" is given twice"},
      {"uniform(n=4,a=5,s=1)", 13, "batch: uniform: unknown argument \"a=5\""},
      {"uniform(n=0,s=1)", 11, "batch: n: 0 is too small"},
      {"zipf(n=4,s=1,a=0)", 16, "batch: a: 0 is out of range"},
      {"zipf(n=4,s=1,a=inf)", 16, "batch: a: \"inf\" is not a finite number"},
      {"trace()", 7, "batch: trace: file name expected"},
      {"trace(step=4)", 11, "batch: trace: the file name comes first"},
      {"trace(a.csv,stp=4)", 13,
       "batch: trace: unknown argument \"stp=4\" (did you mean \"step\"?); accepted: step, tokens, seqs, "
       "rate, draft"},
      {"trace(a.csv,step=-1)", 18, "batch: step: -1 is negative"},
      {"trace(a.csv,tokens=0)", 20, "batch: tokens: 0 is too small"},
      {"trace(a.csv,draft=-1)", 19, "batch: draft: -1 is negative"},
      {"trace(a.csv,rate=-2)", 18, "batch: rate: -2 is out of range"},
  };
  for (const auto& m : mistakes) {
    try {
      parse_batch(m.text, kPlace);
      ADD_FAILURE() << "accepted: " << m.text;
    } catch (const InputError& error) {
      EXPECT_EQ(error.place().line, 2);
      EXPECT_EQ(error.place().column, 4 + m.column) << m.text << "\n" << error.what();
      EXPECT_THAT(error.message(), StartsWith(m.message)) << m.text;
    }
  }
}

}  // namespace
}  // namespace assay
