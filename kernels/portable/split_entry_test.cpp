// SPDX-License-Identifier: Apache-2.0
// The parts that paged_splitkv_gpu declares (item_rows), as tier R reads them (ItemParts), against those that
// its device code cuts (part_of). Built with the kernels of the emulator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "harness/ops/problem_view.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/device/status.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/rows.hpp"
#include "kernels/portable/split_keys.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_items.hpp"

namespace assay_gpu {
namespace {

using Tiles = std::pair<int64_t, int64_t>;                            // the first, how many
using Parts = std::map<std::pair<int, int64_t>, std::vector<Tiles>>;  // by request and item

const assay_kernel& split_kernel() {
  for (const assay_kernel* k : split_kernels())
    if (std::string(k->name) == "paged_splitkv_gpu") return *k;
  throw std::runtime_error("paged_splitkv_gpu is not listed");
}

// What blocks of kRows packed rows take, part by part.
template <int kTile>
Parts taken(const assay::Problem& p, const assay_problem& view, int rows, int splits) {
  std::vector<int32_t> cu_q{0};
  for (const auto& r : p.requests) cu_q.push_back(cu_q.back() + r.q_len);
  Call call{};
  call.op.p = view, call.op.group = p.group(), call.op.cu_q = cu_q.data(), call.op.cu_q_stride = 1;
  call.splits = splits;
  Parts parts;
  for (int64_t block = 0; block < tile_slots(view, rows); ++block) {
    const int32_t request = request_of_tile(call, block, rows);
    const auto& r = p.requests[static_cast<size_t>(request)];
    const int64_t item = block - first_tile(call, request, rows), packed = int64_t{r.q_len} * p.group();
    KeyRange seen{INT32_MAX, 0};
    for (int64_t row = item * rows; row < std::min(packed, (item + 1) * rows); ++row) {
      const KeyInterval keys =
          assay_kernels::key_interval(view, r.q_len, r.kv_len, static_cast<int32_t>(row / p.group()));
      if (keys.begin < keys.end) seen = {std::min(seen.begin, keys.begin), std::max(seen.end, keys.end)};
    }
    for (int split = 0; split < splits; ++split) {
      const KeyRange own = part_of<kTile>(call, seen, split, r.kv_len);
      if (own.begin >= own.end) continue;
      const int64_t first = own.begin / kTile;
      parts[{request, item}].push_back({first, (own.end - 1) / kTile + 1 - first});
    }
  }
  return parts;
}

std::string drawn_line(std::mt19937& random) {
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  static const char* const kMasks[] = {"", " mask=full", " window=33", " mask=full window=70/3", " chunk=48"};
  static const int kDims[] = {40, 64, 128, 192, 256, 320};
  std::string batch;
  for (int n = draw(1, 4); n-- > 0;)
    batch += fmt::format("{}{}q{}s{}", batch.empty() ? "" : "_", draw(1, 3), draw(0, 9),
                         draw(0, 9) ? draw(1, 900) : 0);
  const int kv = draw(1, 3);
  return fmt::format("paged h={}/{} d={}{} batch={}", kv * draw(1, 9), kv, kDims[draw(0, 5)],
                     kMasks[draw(0, 4)], batch);
}

TEST(SplitEntry, DeclaresThePartsThatItsBlocksTake) {
  std::mt19937 random(1);
  int several = 0, undeclared = 0;
  for (int n = 0; n < 400; ++n) {
    multiprocessors = n % 3 == 0 ? 132 : 8;
    const std::string line = drawn_line(random);
    const assay::Problem p = assay::make_problem(assay::parse_scenario(line));
    const assay::ProblemView view(p);
    assay_arithmetic a = assay::default_arithmetic();
    ASSERT_EQ(split_kernel().arithmetic(&split_kernel(), view.get(), &a), ASSAY_OK) << line;
    if (a.order_declared == 0) {
      ++undeclared;
      continue;
    }
    const assay::ItemParts items(p, a);
    Parts declared;
    for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
      for (int64_t i = 0; i * a.item_rows < int64_t{p.requests[static_cast<size_t>(r)].q_len} * p.group();
           ++i)
        for (const assay::TileRun& run : items.parts(r, 0, i)) {
          EXPECT_EQ(run.step, 1);
          declared[{r, i}].push_back({run.first, run.count});
        }
    constexpr int kNarrow = SplitShape<128, kAnyFormat>::kRows,
                  kWide = SplitShape<assay_kernels::kMaxHeadDim, kAnyFormat>::kRows;
    const int rows = std::max(p.head_dim_qk, p.head_dim_v) <= 256 ? kNarrow : kWide;
    const auto take = [&]<int kTile>() {
      return a.tile_keys == kTile ? taken<kTile>(p, *view.get(), rows, a.splits) : Parts{};
    };
    Parts found = take.template operator()<64>();
    found.merge(take.template operator()<32>()), found.merge(take.template operator()<16>());
    found.merge(take.template operator()<4>());
    ASSERT_EQ(declared, found) << line << " on " << multiprocessors << " multiprocessors";
    several += a.splits > 1;
  }
  EXPECT_GT(several, 120);
  EXPECT_GT(undeclared, 5);  // wide heads of several new tokens
}

// Lanes that share the keys of a tile, each with a sum of its own.
TEST(SplitEntry, DeclaresTheGroupsOfItsShapes) {
  const auto groups = [](int dims) {
    const assay::Problem p =
        assay::make_problem(assay::parse_scenario(fmt::format("paged h=2 d={} batch=1q1s99", dims)));
    const assay::ProblemView view(p);
    assay_arithmetic a = assay::default_arithmetic();
    EXPECT_EQ(split_kernel().arithmetic(&split_kernel(), view.get(), &a), ASSAY_OK);
    return a.pv.block;
  };
  EXPECT_EQ(groups(64), (SplitShape<64, ASSAY_BF16>::kGroups));
  EXPECT_EQ(groups(128), (SplitShape<128, kAnyFormat>::kGroups));
  EXPECT_EQ(groups(256), (SplitShape<256, kScattered>::kGroups));
  EXPECT_EQ(groups(320), (SplitShape<assay_kernels::kMaxHeadDim, kScattered>::kGroups));
}

}  // namespace
}  // namespace assay_gpu
