// SPDX-License-Identifier: Apache-2.0
// The peers' rules do what their tests do: accept what their tests accept, reject one step beyond, look at
// nothing else, and cover only what their tests cover.
#include "harness/mutants/peer_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/scenario/scenario.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Bench {
  explicit Bench(const std::string& line) : problem(make_problem(parse_scenario(line))), peer_case(problem) {}
  std::string verdict(Peer peer, const PeerOutputs& got) const {
    const PeerRule* rule = rule_for(peer, problem);
    return rule == nullptr ? "no rule" : rule->rejects(peer_case, got);
  }
  Problem problem;
  PeerCase peer_case;
};

const std::string kPaged = "paged h=4/2 d=64 batch=2q1s200_1q3s70 seed=1";
const std::string kPrefill = "prefill h=4/2 d=64 batch=1q40 seed=1";
const std::string kMla = "paged h=4/1 d=64/48 layout=mla batch=2q1s65 seed=1";

TEST(PeerRules, EveryRuleAcceptsTheExactAnswerAndSomeCaseReachesIt) {
  std::vector<bool> met(peer_rules().size(), false);
  for (const std::string& line :
       {kPaged, kPrefill, kMla, std::string("paged h=4/2 d=64 batch=2q1s70 seed=1"),
        std::string("prefill h=4/2 d=64 q=fp8_e4m3 kv=fp8_e4m3 batch=1q30 seed=1"),
        std::string("paged h=4/2 d=64 kv=fp8_e4m3 batch=2q1s70 seed=1"),
        std::string("paged h=4/2 d=64 q=fp16 batch=2q3s70 mask=tree seed=1"),
        std::string("paged h=4/1 d=64/48 layout=mla kv=fp8_e4m3 batch=2q1s65 seed=1"),
        std::string("paged h=4/2 d=64 layout=x batch=2q1s65 seed=1"),
        std::string("prefill h=4/2 d=64 alibi=linear batch=1q40 seed=1")}) {
    const Bench b(line);
    for (const PeerInfo& info : peers()) {
      const PeerRule* rule = rule_for(info.peer, b.problem);
      if (rule == nullptr) continue;
      met[rule - peer_rules().data()] = true;
      // vLLM, SGLang and AITER compare with a reference of low precision, which has to accept itself.
      EXPECT_TRUE(rule->rejects(b.peer_case, b.peer_case.exact()).empty() ||
                  rule->rejects(b.peer_case, b.peer_case.low_precision()).empty())
          << info.name << " " << line;
    }
  }
  for (size_t i = 0; i < met.size(); ++i)
    EXPECT_TRUE(met[i]) << peer_rules()[i].source << ": " << peer_rules()[i].cases;
}

TEST(PeerRules, EachRejectsNaNAndZeros) {
  for (const std::string& line : {kPaged, kPrefill, kMla}) {
    const Bench b(line);
    PeerOutputs nan = b.peer_case.exact(), zeros = b.peer_case.exact();
    nan.o[5] = std::nan("");
    std::fill(zeros.o.begin(), zeros.o.end(), 0.0);
    for (const PeerInfo& info : peers()) {
      if (rule_for(info.peer, b.problem) == nullptr) continue;
      EXPECT_THAT(b.verdict(info.peer, zeros), Not(IsEmpty())) << info.name << " " << line;
      const bool quota = info.peer == Peer::kAiter && b.problem.max_q_len() == 1;
      if (!quota) {
        EXPECT_THAT(b.verdict(info.peer, nan), Not(IsEmpty())) << info.name << " " << line;
      }
    }
  }
}

TEST(PeerRules, VllmsToleranceIsAbsolutePlusRelativeToItsReference) {
  const Bench b(kPaged);
  PeerOutputs got = b.peer_case.low_precision();
  const double x = std::fabs(got.o[3]);
  got.o[3] += 1.5e-2 + 1e-2 * x - 1e-6;
  EXPECT_THAT(b.verdict(Peer::kVllm, got), IsEmpty());
  got.o[3] += 2e-6;
  EXPECT_THAT(b.verdict(Peer::kVllm, got), HasSubstr("1 of"));
}

TEST(PeerRules, FlashAttentionsYardstickIsTheErrorOfTorch) {
  const Bench b(kPrefill);
  const PeerOutputs &exact = b.peer_case.exact(), &torch = b.peer_case.low_precision();
  double worst = 0;
  for (size_t i = 0; i < exact.o.size(); ++i) worst = std::max(worst, std::fabs(torch.o[i] - exact.o[i]));
  // bf16 throughout: a few units of 2^-9 of values below 4.
  EXPECT_GT(worst, 1e-3);
  EXPECT_LT(worst, 5e-2);
  EXPECT_THAT(b.verdict(Peer::kFa2, torch), IsEmpty());
  PeerOutputs got = exact;
  got.o[0] = exact.o[0] + 2 * worst;
  EXPECT_THAT(b.verdict(Peer::kFa2, got), IsEmpty());
  got.o[0] = exact.o[0] + 2 * worst + 2e-5;
  EXPECT_THAT(b.verdict(Peer::kFa2, got), HasSubstr("PyTorch"));
  EXPECT_THAT(b.verdict(Peer::kFa3, got), IsEmpty()) << "its rounding probe allows more";
}

TEST(PeerRules, AitersQuotaHidesAFewElements) {
  const Bench b("paged h=4/2 d=64 layout=x batch=4q1s70 seed=1");
  PeerOutputs got = b.peer_case.low_precision();
  const size_t quota = got.o.size() / 20;
  for (size_t i = 0; i < quota; ++i) got.o[i] = 1e3;
  EXPECT_THAT(b.verdict(Peer::kAiter, got), IsEmpty());
  got.o[quota] = 1e3;
  EXPECT_THAT(b.verdict(Peer::kAiter, got), Not(IsEmpty()));
}

TEST(PeerRules, OnlyMlaTestsLookAtTheLse) {
  const Bench paged(kPaged), mla(kMla);
  PeerOutputs got = paged.peer_case.low_precision();
  for (double& l : got.lse) l += 100;
  EXPECT_THAT(paged.verdict(Peer::kVllm, got), IsEmpty());
  got = mla.peer_case.exact();
  EXPECT_THAT(mla.verdict(Peer::kFlashMla, got), IsEmpty());
  got.lse[1] += 1e-3 * std::fabs(got.lse[1]);
  EXPECT_THAT(mla.verdict(Peer::kFlashMla, got), HasSubstr("LSE"));
  EXPECT_THAT(mla.verdict(Peer::kFlashInfer, got), IsEmpty());
}

TEST(PeerRules, CoverOnlyWhatTheTestsHave) {
  const auto covered = [](Peer peer, const std::string& line) {
    return rule_for(peer, make_problem(parse_scenario(line))) != nullptr;
  };
  EXPECT_FALSE(covered(Peer::kFlashMla, kPaged));
  EXPECT_FALSE(covered(Peer::kVllm, kPrefill));
  EXPECT_FALSE(covered(Peer::kSglang, "paged h=4/2 d=64 kv=fp8_e4m3 batch=1q1s9"));
  EXPECT_FALSE(covered(Peer::kFa3, "prefill h=4/2 d=64 sinks=on batch=1q9"));
  EXPECT_FALSE(covered(Peer::kFlashInfer, "paged h=4/2 d=64 chunk=4 batch=1q1s9"));
  for (const PeerInfo& info : peers())
    EXPECT_FALSE(covered(info.peer, "paged h=4/2 d=64 kv=int8:token_head chunk=16 batch=1q1s40"))
        << info.name;
}

TEST(PeerCase, LowPrecisionFollowsTheFormat) {
  const auto error = [](const std::string& line) {
    const Bench b(line);
    double worst = 0;
    for (size_t i = 0; i < b.peer_case.exact().o.size(); ++i)
      worst = std::max(worst, std::fabs(b.peer_case.low_precision().o[i] - b.peer_case.exact().o[i]));
    return worst;
  };
  const std::string rest = " cap=20 alibi=linear sinks=on window=20 batch=1q40s60 seed=2";
  const double bf16 = error("prefill h=4/2 d=64" + rest), fp16 = error("prefill h=4/2 d=64 q=fp16" + rest),
               fp32 = error("prefill h=4/2 d=64 q=fp32" + rest);
  EXPECT_LT(fp16, bf16 / 3);
  EXPECT_GT(fp16, bf16 / 30);
  EXPECT_LT(fp32, 1e-5);
  // Logits of deviation 12 lose up to 0.06 to bf16, and weights as much in relation; K / 8 loses nothing.
  EXPECT_GT(error("prefill h=4/2 d=64 input=peaked batch=1q40s60 seed=2"), 0.04);
}

// Three equal weights: a third in bf16 is 0.333984375, so the yardstick is off by a known factor.
TEST(PeerCase, LowPrecisionRoundsTheWeights) {
  const Bench b("prefill h=2 d=64 mask=full out=fp32 scale=1e-12 batch=20q1s3 seed=4");
  const std::vector<double>&exact = b.peer_case.exact().o, &low = b.peer_case.low_precision().o;
  int equal = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    equal += low[i] == round_to(ASSAY_BF16, exact[i] * (3 * 0.333984375));
  EXPECT_GT(equal, 0.99 * static_cast<double>(exact.size()));
}

}  // namespace
}  // namespace assay
