// SPDX-License-Identifier: Apache-2.0
// How near legal kernels on 8-bit matrix units come to their bounds: the largest accepted half-width of many
// rows over the largest error, of the kernel as it is declared and of others of the same declaration, looked
// for where they err most (bounds_legal.hpp). What may round otherwise may not do so in one kernel.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "reference/bounds/bounds_eight_bits.hpp"
#include "reference/bounds/bounds_legal.hpp"

namespace assay {
namespace {

using namespace testkit;

// Over all elements: the largest accepted half-width, the largest error of the kernel as declared and of any;
// the largest error over bound; the sum of squares of O.
struct Reached {
  double bound = 0, plain = 0, error = 0, lse_bound = 0, lse_plain = 0, lse_error = 0, worst = 0, squares = 0;
  int64_t rows = 0, elements = 0;
  void add(const Reached& r) {
    bound = std::max(bound, r.bound), plain = std::max(plain, r.plain), error = std::max(error, r.error);
    lse_bound = std::max(lse_bound, r.lse_bound), lse_plain = std::max(lse_plain, r.lse_plain);
    lse_error = std::max(lse_error, r.lse_error), worst = std::max(worst, r.worst);
    squares += r.squares, rows += r.rows, elements += r.elements;
  }
};

// How much is looked at: kernels of a row, and orders of products that they are chosen from.
struct Effort {
  size_t kernels, orders;
};

double widest(const BoundedAttention& b) {
  double half = 0;
  for (size_t i = 0; i < b.value.o.size(); ++i) half = std::max(half, (b.o_high[i] - b.o_low[i]) / 2);
  return half;
}

// Of these kernels of a row.
Reached reached(const EightBits& kernel, const DenseCase& c, uint64_t seed, size_t orders,
                const std::vector<size_t>& kernels) {
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), kernel.arithmetic);
  Reached r;
  r.rows = static_cast<int64_t>(b.value.lse.size()), r.elements = static_cast<int64_t>(b.value.o.size());
  for (const double o : b.value.o) r.squares += o * o;
  const size_t dims = b.value.o.size() / b.value.lse.size();
  std::vector<size_t> widest;
  for (size_t from = 0; from < b.value.o.size(); from += dims) {
    size_t at = 0;
    for (size_t d = 1; d < dims; ++d)
      if (b.o_high[from + d] - b.o_low[from + d] > b.o_high[from + at] - b.o_low[from + at]) at = d;
    widest.push_back(at);
  }
  const auto look = [&](double got, double low, double high, size_t n, double& bound, double& plain,
                        double& error) {
    const double half = (high - low) / 2, off = std::fabs(got - (high + low) / 2);
    bound = std::max(bound, half), error = std::max(error, off);
    if (n == 0) plain = std::max(plain, off);
    r.worst = std::max(r.worst, off / half);
  };
  LegalKernels legal(c, kernel.arithmetic, widest, seed);
  legal.look(orders);
  legal.look_at_keys(orders / 20), legal.look_at_lses(orders / 10);
  for (const size_t n : kernels) {
    const Emulation e = legal.run(n);
    for (size_t i = 0; i < e.o.size(); ++i)
      look(e.o[i], b.o_low[i], b.o_high[i], n, r.bound, r.plain, r.error);
    for (size_t i = 0; i < e.lse.size(); ++i)
      look(e.lse[i], b.lse_low[i], b.lse_high[i], n, r.lse_bound, r.lse_plain, r.lse_error);
  }
  return r;
}

// Where every rounding but those of fp32 is repeated, a bound is as wide as one weight that lies at a tie of
// P's grid, and most rows have none: so the same row is looked at with softmax scales that take a weight to a
// tie, and with some that differ from these in their last bits. What turns over there is a step of the grid,
// as large as the maximum that P stands against, whatever the weight itself: taken are the heaviest weights,
// which lie near ties at any scale, and the heaviest beside the largest maxima, which may be so light that
// the scale is another. Bounds are asked of all, kernels run where most turns over: long rows are dear to
// run.
constexpr size_t kTied = 2, kRun = 2;
constexpr int kScales = 8;         // on either side, a last bit apart
constexpr double kOtherScale = 8;  // times, either way: farther away a row is not what it was

struct Tie {
  double scale = 0, turns = 0;  // `turns`: a step of the grid as a share of O, times V
};

// Of one head: scores without the softmax scale, what they stand against and the largest |V| of each key.
struct TiedRow {
  std::vector<double> x, maximum, v;

  double code(size_t j, double scale) const { return 127 * std::exp(scale * (x[j] - maximum[j])); }
  // The nearest place where key j turns over.
  std::optional<Tie> tie(size_t j, double scale) const {
    if (x[j] == maximum[j]) return std::nullopt;
    const double at = std::log((std::floor(code(j, scale)) + 0.5) / 127) / (x[j] - maximum[j]);
    if (!(at > scale / kOtherScale) || at > scale * kOtherScale) return std::nullopt;
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double y : x) sum += std::exp(at * (y - top));
    return Tie{at, std::exp(at * (maximum[j] - top)) / sum / 127 * v[j]};
  }
};

TiedRow tied_row(const EightBits& kernel, const DenseCase& c, int64_t h) {
  const int64_t keys = c.m(), d = c.problem.head_dim_qk, dv = c.problem.head_dim_v,
                tile = kernel.arithmetic.tile_keys;
  const double codes = double{c.q_scale[0]} * c.k_scale[0];
  TiedRow row;
  for (int64_t j = 0; j < keys; ++j) {
    row.x.push_back(codes * std::inner_product(&c.q[h * d], &c.q[(h + 1) * d], &c.k[j * d], 0.0));
    double largest = 0;
    for (int64_t t = 0; t < dv; ++t) largest = std::max(largest, std::fabs(c.v[j * dv + t]));
    row.v.push_back(largest * c.v_scale[0]);
  }
  // What a key's P stands against: the largest score of its tile, or of all tiles so far.
  row.maximum.resize(row.x.size());
  for (int64_t from = 0; from < keys; from += tile) {
    const int64_t to = std::min(keys, from + tile);
    const bool alone = from == 0 || kernel.arithmetic.p_int8_tile_max != 0;
    const double before = alone ? row.x[from] : row.maximum[from - 1];
    const double top = *std::max_element(row.x.begin() + from, row.x.begin() + to);
    std::fill_n(row.maximum.begin() + from, to - from, std::max(before, top));
  }
  return row;
}

// The softmax scales to look at, those where most turns over first.
std::vector<Tie> ties_of(const EightBits& kernel, const DenseCase& c) {
  std::vector<Tie> ties;
  for (int64_t h = 0; h < c.problem.heads_q; ++h) {
    const TiedRow row = tied_row(kernel, c, h);
    std::vector<size_t> order(row.x.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto take = [&](const auto& before) {
      std::sort(order.begin(), order.end(), before);
      size_t tied = 0;
      for (size_t at = 0; at < order.size() && tied < kTied; ++at)
        if (const std::optional<Tie> tie = row.tie(order[at], c.problem.softmax_scale))
          ties.push_back(*tie), ++tied;
    };
    take([&](size_t i, size_t j) { return row.x[i] > row.x[j]; });
    take([&](size_t i, size_t j) {
      return std::pair(row.maximum[i], row.x[i]) > std::pair(row.maximum[j], row.x[j]);
    });
  }
  std::stable_sort(ties.begin(), ties.end(), [](const Tie& a, const Tie& b) { return a.turns > b.turns; });
  return ties;
}

std::vector<float> scales_about(double tie) {
  std::vector<float> scales = {static_cast<float>(tie)};
  for (const float end : {0.0f, 1.0f}) {
    float scale = scales[0];
    for (int step = 0; step < kScales; ++step) scales.push_back(scale = std::nextafter(scale, end));
  }
  return scales;
}

Reached reached(const EightBits& kernel, Family family, int32_t keys, uint64_t seed, const Effort& effort) {
  DenseCase c = eight_bit_case(kernel, family, keys, seed);
  std::vector<size_t> kernels(effort.kernels);
  std::iota(kernels.begin(), kernels.end(), size_t{0});
  Reached all = reached(kernel, c, seed, effort.orders, kernels);
  if (kernel.operands != ASSAY_INT8) return all;
  size_t run = 0;
  for (const Tie& tie : ties_of(kernel, c)) {
    const bool runs = run++ < kRun;
    for (const float scale : scales_about(tie.scale)) {
      c.problem.softmax_scale = scale;
      if (!runs) {
        all.bound =
            std::max(all.bound, widest(bounded_attention(c.problem, c.host(), c.rows(), kernel.arithmetic)));
        continue;
      }
      // Both heads, both directions of LegalKernels' choice of each weight's error; the LSE moves as much a
      // last bit of the scale further, so it is looked at once: all that it errs by one way, and the other.
      std::vector<size_t> which = {4, 5, 12, 13};
      if (scale == static_cast<float>(tie.scale)) which.insert(which.end(), {2, 3});
      Reached there = reached(kernel, c, seed, 0, which);
      there.squares = 0, there.rows = there.elements = 0;
      all.add(there);
    }
  }
  return all;
}

Reached of_seeds(const EightBits& kernel, Family family, int32_t keys, int64_t seeds, const Effort& effort,
                 int64_t first = 1) {
  Reached all;
#pragma omp parallel for schedule(dynamic)
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    const Reached r = reached(kernel, family, keys, static_cast<uint64_t>(seed), effort);
#pragma omp critical
    all.add(r);
  }
  return all;
}

const char* name_of(Family family) {
  return family == Family::kNormal ? "normal" : family == Family::kPositive ? "V > 0" : "peaked";
}

constexpr const char* kHead =
    "kernel,data,keys,rows,kernels,orders looked at,O bound / error of one,O bound / error of all,O bound / "
    "|O|,LSE / one,LSE / all,largest error / bound\n";
void print(const EightBits& kernel, Family family, int32_t keys, const Effort& e, const Reached& r) {
  std::printf("\"%s\",%s,%d,%lld,%zu,%zu,%.1f,%.1f,%.4f,%.1f,%.1f,%.2f\n", kernel.name.c_str(),
              name_of(family), keys, static_cast<long long>(r.rows), e.kernels, e.orders, r.bound / r.plain,
              r.bound / r.error, r.bound / std::sqrt(r.squares / static_cast<double>(r.elements)),
              r.lse_bound / r.lse_plain, r.lse_bound / r.lse_error, r.worst);
  std::fflush(stdout);
}

// The same as numbers that can be put together with those of other seeds (scripts/reached_table).
void print_parts(const EightBits& kernel, Family family, int32_t keys, const Effort& e, const Reached& r) {
  std::printf("#,\"%s\",%s,%d,%lld,%zu,%zu,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%lld\n",
              kernel.name.c_str(), name_of(family), keys, static_cast<long long>(r.rows), e.kernels, e.orders,
              r.bound, r.plain, r.error, r.lse_bound, r.lse_plain, r.lse_error, r.worst, r.squares,
              static_cast<long long>(r.elements));
  std::fflush(stdout);
}

// The largest bound of all rows is no more than 10 times the largest error of these kernels.
void expect_ten_times(const EightBits& kernel, int32_t keys, int64_t seeds, const Effort& effort) {
  const Reached r = of_seeds(kernel, Family::kPeaked, keys, seeds, effort);
  print(kernel, Family::kPeaked, keys, effort, r);
  EXPECT_LE(r.worst, 1) << kernel.name << ", " << keys;
  EXPECT_LE(r.bound, 10 * r.error) << kernel.name << ", " << keys;
  EXPECT_LE(r.lse_bound, 10 * r.lse_error) << kernel.name << ", " << keys;
}

TEST(Reached, TenTimesTheLargestErrorOfLegalKernels) {
  std::printf("%s", kHead);
  for (const EightBits& kernel : eight_bit_kernels()) {
    if (kernel.operands != ASSAY_FP8_E4M3 || kernel.arithmetic.p_format != ASSAY_FP8_E4M3 ||
        kernel.arithmetic.promote_pv != 0)
      continue;
    // A few rows of 64 keys have no largest error.
    for (const int32_t keys : {64, 300}) expect_ten_times(kernel, keys, keys == 64 ? 24 : 12, {8, 100});
  }
}

// A row with one key of all the weight: every other stands alone in its tile or is far below its maximum.
TEST(Reached, AStepOfTheGridAsLargeAsTheLargestMaximum) {
  std::printf("%s", kHead);
  for (const EightBits& kernel : eight_bit_kernels())
    if (kernel.operands == ASSAY_INT8) expect_ten_times(kernel, 300, 1, {8, 100});
}

// What an LSE may be off by where a cache of 8 bits meets fp16 products is mostly how scores round, which
// habits decide: with those of one kernel alone it is 20 times the largest error and more.
TEST(Reached, TenTimesTheLargestErrorOfProductsInFp16) {
  std::printf("%s", kHead);
  for (const EightBits& kernel : eight_bit_kernels())
    if (kernel.operands == ASSAY_FP8_E4M3 && kernel.arithmetic.p_format == ASSAY_FP16)
      expect_ten_times(kernel, 300, 12, {8, 2000});
}

// Of a table (results/power/eight_bits.csv): rows, kernels and orders for so many keys in all a line.
TEST(Reached, Table) {
  const char* budget = std::getenv("ASSAY_REACHED_KEYS");
  if (budget == nullptr)
    GTEST_SKIP() << "a table: ASSAY_REACHED_KEYS=2000000 build/bounds_reached_test --gtest_filter='*Table*'";
  const char* only = std::getenv("ASSAY_REACHED_ONLY");   // part of the lines' names: ",131072,"
  const char* first = std::getenv("ASSAY_REACHED_SEED");  // one of many runs: this seed alone
  if (first == nullptr) std::printf("%s", kHead);
  const uint64_t all = std::strtoull(budget, nullptr, 10);
  for (const uint64_t keys : {64, 300, 1500, 4096, 16384, 131072})
    for (const EightBits& kernel : eight_bit_kernels())
      for (const Family family : {Family::kNormal, Family::kPositive, Family::kPeaked}) {
        const std::string line = kernel.name + "," + name_of(family) + "," + std::to_string(keys) + ",";
        if (only != nullptr && line.find(only) == std::string::npos) continue;
        const Effort effort{std::clamp<uint64_t>(all / keys / 32, 8, 32), 3000};
        const auto seeds = std::clamp<uint64_t>(all / keys / effort.kernels, 2, 64);
        const auto length = static_cast<int32_t>(keys);
        const Reached r = first != nullptr
                              ? of_seeds(kernel, family, length, 1, effort, std::strtoll(first, nullptr, 10))
                              : of_seeds(kernel, family, length, static_cast<int64_t>(seeds), effort);
        (first != nullptr ? print_parts : print)(kernel, family, length, effort, r);
        EXPECT_LE(r.worst, 1) << line;
      }
}

}  // namespace
}  // namespace assay
