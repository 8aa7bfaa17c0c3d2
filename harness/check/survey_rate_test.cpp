// SPDX-License-Identifier: Apache-2.0
// How surely a single bad row among those that are not sampled is found: the probability that README.md
// states, beside the rate at which the judge finds drawn faults in drawn rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "harness/check/testing/fake_library.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/handed_on.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testkit::fake;

constexpr double kSpread = 0.01;         // of the legal errors of rows of many keys, in rms of their row
constexpr int32_t kWide = 400;           // rows of so many keys,
constexpr int32_t kTight = 150;          // and rows of one, in which next to nothing is legal
constexpr double kSurveyBudget = 1.8e4;  // of the reference: all that is not sampled is surveyed
constexpr int kNominated = 8;            // of attention_whole.cpp

// Errs legally in the rows of many keys, normally distributed, and by `size` rms in one element of one row:
// in one head, or in one of each KV head. Declared so wide that nothing but a wrong row is trusted. What the
// inner kernel writes is computed once.
struct Faulty : HandedOn {
  std::vector<std::vector<char>> known;
  int32_t row = -1, head = 0, dim = 0;
  bool in_every_kv_head = false;
  double size = 0;
  uint64_t seed = 0;
};

double row_rms(const assay_problem& p, const assay_tensor& o, int64_t row, int64_t head) {
  double squares = 0;
  for (int32_t d = 0; d < p.head_dim_v; ++d) {
    const double x = load(o.format, o.data, row * o.stride[0] + head * o.stride[1] + d * o.stride[2]);
    squares += x * x;
  }
  return std::sqrt(squares / p.head_dim_v);
}

void add(const assay_tensor& o, int64_t row, int64_t head, int64_t dim, double error) {
  const int64_t at = row * o.stride[0] + head * o.stride[1] + dim * o.stride[2];
  store(o.format, o.data, at, load(o.format, o.data, at) + error);
}

int run_faulty(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
               void* stream, char* why, size_t size) {
  auto& faulty = static_cast<Faulty&>(const_cast<HandedOn&>(handed_on(self)));
  const assay_tensor* const outputs[] = {&t->o, &t->lse};
  const auto bytes = [&](const assay_tensor& out) {
    return static_cast<size_t>(p->total_q * out.stride[0]) * (out.format == ASSAY_FP32 ? 4 : 2);
  };
  if (faulty.known.empty()) {
    const int status = faulty.inner->run(faulty.inner, p, t, plan, stream, why, size);
    if (status != ASSAY_OK) return status;
    for (const assay_tensor* out : outputs) {
      const char* const first = static_cast<const char*>(out->data);
      faulty.known.emplace_back(first, first + bytes(*out));
    }
  }
  for (size_t i = 0; i < 2; ++i) std::memcpy(outputs[i]->data, faulty.known[i].data(), bytes(*outputs[i]));
  std::mt19937_64 rng(faulty.seed);
  std::normal_distribution<double> normal(0, kSpread);
  for (int32_t row = 0; row < kWide; ++row)
    for (int32_t h = 0; h < p->heads_q; ++h) {
      const double rms = row_rms(*p, t->o, row, h);
      for (int32_t d = 0; d < p->head_dim_v; ++d) add(t->o, row, h, d, rms * normal(rng));
    }
  if (faulty.row < 0) return ASSAY_OK;
  for (int32_t h = faulty.head % (faulty.in_every_kv_head ? 2 : 4); h < p->heads_q; h += 2)
    if (faulty.in_every_kv_head || h == faulty.head)
      add(t->o, faulty.row, h, faulty.dim, faulty.size * row_rms(*p, t->o, faulty.row, h));
  return ASSAY_OK;
}

// That at most 7 of `rows` err more than a fault of `size` spreads, each by the largest of `elements` normal
// errors.
double stated(double size, int64_t rows, int64_t elements) {
  const double below = std::erf(size / std::sqrt(2.0));
  const double more = 1 - std::pow(below, static_cast<double>(elements));
  double sum = 0, term = std::pow(1 - more, static_cast<double>(rows));
  for (int k = 0; k < kNominated; ++k) {
    sum += term;
    term *= static_cast<double>(rows - k) / (k + 1) * more / (1 - more);
  }
  return sum;
}

class SurveyRate : public ::testing::Test {
 protected:
  static Problem problem() {
    Problem p = testkit::small_problem(ASSAY_OP_PREFILL);
    p.o_format = ASSAY_FP32;  // whose own rounding adds nothing to the errors
    p.requests.assign(kWide, {1, 48});
    p.requests.insert(p.requests.end(), kTight, {1, 1});
    return p;
  }
  void SetUp() override {
    const std::vector<RowId> sampled = select_rows(p, kSurveyBudget).rows;
    for (int32_t r = 0; r < kWide + kTight; ++r)
      if (std::find(sampled.begin(), sampled.end(), RowId{r, 0}) == sampled.end())
        (r < kWide ? wide : tight).push_back(r);
    hand_on(faulty, *fake().find("prefill_ok_fake"), run_faulty);
    faulty.kernel.arithmetic = [](const assay_kernel*, const assay_problem*, assay_arithmetic* a) {
      a->q_rounding = 1.0 / 16;
      return static_cast<int>(ASSAY_OK);
    };
  }
  Verdict judged() { return judge.judge(fake(), faulty.kernel, fake().device(0)); }
  // The share of `draws` faults that are found.
  double rate(double spreads, bool in_every_kv_head, int draws) {
    int found = 0;
    for (int n = 0; n < draws; ++n) {
      faulty.seed = rng();
      faulty.row = tight[rng() % tight.size()];
      faulty.head = static_cast<int32_t>(rng() % 4), faulty.dim = static_cast<int32_t>(rng() % 32);
      faulty.size = spreads * kSpread * (rng() % 2 == 0 ? 1 : -1);
      faulty.in_every_kv_head = in_every_kv_head;
      const Verdict v = judged();
      if (v.outcome != Outcome::kWrong) continue;
      EXPECT_THAT(v.reason, StartsWith("in a row that was not sampled but stands out: O wrong in "));
      EXPECT_THAT(v.reason, HasSubstr("request " + std::to_string(faulty.row) + " "));
      ++found;
    }
    return static_cast<double>(found) / draws;
  }
  const Problem p = problem();
  Judge judge{p, kSurveyBudget};
  Faulty faulty;
  std::vector<int32_t> wide, tight;  // not sampled
  std::mt19937_64 rng{11};
};

TEST_F(SurveyRate, IsTheProbabilityThatIsStated) {
  ASSERT_GT(wide.size(), 150u);
  ASSERT_GT(tight.size(), 30u);
  for (faulty.seed = 0; faulty.seed < 8; ++faulty.seed) {
    const Verdict v = judged();
    EXPECT_EQ(v.outcome, Outcome::kUntrusted) << v.reason;
    EXPECT_EQ(v.rows_checked + v.rows_surveyed, kWide + kTight);
  }
  constexpr int kDraws = 80;
  const struct {
    double spreads;
    bool everywhere;
  } points[] = {{3.5, true}, {3.5, false}, {4.5, false}};
  for (const auto& [spreads, everywhere] : points) {
    const double expected =
        stated(spreads, static_cast<int64_t>(wide.size()), int64_t{p.group()} * p.head_dim_v) *
        (everywhere ? 1.0 : 1.0 / p.heads_kv);
    const double measured = rate(spreads, everywhere, kDraws);
    RecordProperty(fmt::format("at {} in {}", spreads, everywhere ? "every" : "one"),
                   fmt::format("{:.3f} stated, {:.3f} measured", expected, measured));
    const double sd = std::sqrt(std::max(expected * (1 - expected), 0.01) / kDraws);
    EXPECT_NEAR(measured, expected, 4 * sd) << spreads << " spreads, every KV head: " << everywhere;
  }
}

// The figures of README.md.
TEST(SurveyRateOf6144Rows, IsWhatTheReadmeSays) {
  constexpr int64_t kElements = 4 * 128;
  EXPECT_NEAR(stated(4.5, 6143, kElements), 0.00, 0.005);
  EXPECT_NEAR(stated(4.75, 6143, kElements), 0.69, 0.005);
  EXPECT_NEAR(stated(5, 6143, kElements), 0.999, 0.001);
}

}  // namespace
}  // namespace assay
