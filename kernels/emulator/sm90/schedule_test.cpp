// SPDX-License-Identifier: Apache-2.0
// The parts that decode_paged_splitkv_sm90, paged_mla_sm90 and paged_mla_widened_sm90 declare (item_rows,
// shares, share_tiles, share_turns), as tier R reads them (ItemParts), against those that the device code
// hands out, for drawn batches and machines of 1 to 132 multiprocessors. What the merge of MLA is told
// against the same.
#include "kernels/emulator/sm90/testing/schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "harness/ops/problem_view.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/device/status.hpp"
#include "kernels/sm90/sm90.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_items.hpp"

namespace assay {
namespace {

using Tiles = std::vector<int64_t>;
using Place = std::tuple<int, int, int>;  // request, KV head, item
using Parts = std::map<Place, std::vector<Tiles>>;

std::string drawn_line(std::mt19937& random, bool latent) {
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  const auto size = [&](int most) {  // log-uniform from 1
    return static_cast<int>(std::exp2(std::uniform_real_distribution(0.0, std::log2(most + 1.0))(random)));
  };
  const bool few = !latent && draw(0, 4) == 0;  // requests and heads that may get clusters
  const int group = latent ? 1 : 1 << draw(0, 3), kv = latent || few ? 1 : draw(1, 9),
            heads = latent ? std::vector{16, 20, 64, 128, 8}[static_cast<size_t>(draw(0, 4))] : group * kv;
  const int most_rows = latent ? 5 : std::max(1, 32 / group);
  std::string batch;
  for (int n = draw(1, 5); n-- > 0;) {
    const int keys = draw(0, 9) == 0 ? 0 : size(latent ? 6000 : 3000);
    batch += fmt::format("{}{}q{}s{}", batch.empty() ? "" : "_", draw(1, 4),
                         draw(0, 7) == 0 ? 0 : draw(1, draw(0, 1) ? 1 : std::min(most_rows, 4)), keys);
  }
  // Equal requests, which stay whole where that costs little.
  const int alike = latent ? draw(1, 3) : 1;  // rows
  if (draw(0, 2) == 0) batch = fmt::format("{}q{}s{}", size(300), alike, size(2000));
  if (!latent && draw(0, 3) == 0) batch = fmt::format("1q{}s{}", draw(1, 2), size(3000));
  if (few) batch = fmt::format("1q1s{}_{}q{}s{}", size(2000), draw(1, 2), draw(0, 1), size(2000));
  std::string line =
      latent ? fmt::format("paged h={}/1 d=576/512 layout=mla", heads)
             : fmt::format("paged h={}/{} d=128 kv={}", heads, kv, draw(0, 1) ? "bf16" : "fp8_e4m3");
  static const char* const kMasks[] = {"", "", " mask=full", " mask=full", " chunk=48"};
  line += kMasks[draw(0, 4)];
  if (line.find("chunk") == std::string::npos && draw(0, 2) == 0)
    line += line.find("full") != std::string::npos ? fmt::format(" window={}/{}", size(900), draw(0, 40))
                                                   : fmt::format(" window={}", size(900));
  return line + " page=64 batch=" + batch;
}

struct Declared {
  assay_arithmetic a;
  Parts parts;
};

class Schedules : public ::testing::Test {
 protected:
  // Problem of the line, and what the kernel declares for it on a machine of so many multiprocessors.
  Declared declared(const Problem& p, const assay_kernel& kernel, int multiprocessors) {
    assay_gpu::multiprocessors = multiprocessors;
    const ProblemView view(p);
    char why[512] = "";
    EXPECT_EQ(kernel.supports(&kernel, view.get(), nullptr, nullptr, why, sizeof why), ASSAY_OK) << why;
    Declared d{default_arithmetic(), {}};
    EXPECT_EQ(kernel.arithmetic(&kernel, view.get(), &d.a), ASSAY_OK);
    if (d.a.item_rows < 1) return d;
    const ItemParts items(p, d.a);
    for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
      for (int h = 0; h < p.heads_kv; ++h)
        for (int64_t i = 0; i * d.a.item_rows < int64_t{p.requests[static_cast<size_t>(r)].q_len} * p.group();
             ++i)
          for (const TileRun& run : items.parts(r, h, i)) {
            Tiles tiles;
            for (int64_t n = 0; n < run.count; ++n) tiles.push_back(run.first + n * run.step);
            d.parts[{r, h, static_cast<int>(i)}].push_back(tiles);
          }
    return d;
  }
  template <class Call>
  Call call_of(const Problem& p) {
    cu_q_ = {0}, kv_len_.clear();
    for (const auto& r : p.requests) cu_q_.push_back(cu_q_.back() + r.q_len), kv_len_.push_back(r.kv_len);
    Call c{};
    c.cu_q = cu_q_.data(), c.kv_len = kv_len_.data(), c.cu_q_stride = c.kv_len_stride = 1;
    c.requests = static_cast<int32_t>(p.requests.size());
    c.causal = p.mask == ASSAY_MASK_CAUSAL, c.chunk = p.chunk;
    c.window_left = p.window_left, c.window_right = p.window_right;
    return c;
  }
  // As the warps or warpgroups of a worker take the tiles of a piece.
  static Parts taken(const std::vector<schedule::Piece>& pieces, int turns) {
    Parts parts;
    for (const schedule::Piece& w : pieces)
      for (int turn = 0; turn < turns; ++turn) {
        Tiles tiles;
        for (int tile = w.tile + turn; tile < w.stop; tile += turns) tiles.push_back(tile);
        if (!tiles.empty()) parts[{w.request, w.head, w.item}].push_back(tiles);
      }
    return parts;
  }
  static void expect_same(const Declared& d, const Parts& taken, const std::string& what) {
    ASSERT_GT(d.a.order_declared, 0) << what;
    EXPECT_EQ(d.parts, taken) << what;
    for (const auto& [place, parts] : taken) EXPECT_LE(static_cast<int>(parts.size()), d.a.splits) << what;
  }
  // The merge finds every piece of an item where its worker leaves it.
  static void expect_plans(const std::vector<schedule::Piece>& pieces,
                           const std::vector<assay_sm90::MlaMergePlan>& plans, int items,
                           const std::string& what) {
    std::map<size_t, std::vector<schedule::Piece>> of;
    for (const schedule::Piece& w : pieces) of[static_cast<size_t>(w.request * items + w.item)].push_back(w);
    for (size_t i = 0; i < plans.size(); ++i) {
      const auto& [first, last, second, unused] = plans[i];
      if (of.count(i) == 0) {
        EXPECT_EQ(std::pair(first, last), std::pair(0, -1)) << what;
        continue;
      }
      const std::vector<schedule::Piece>& own = of[i];
      // Of a whole item it does not ask who wrote it.
      EXPECT_EQ(last - first, own.back().worker - own.front().worker) << what;
      EXPECT_TRUE(first == last || first == own.front().worker) << what;
      EXPECT_EQ(static_cast<int>(own.size()), last - first + 1) << what;  // it looks for no gaps
      for (const schedule::Piece& w : own)
        EXPECT_EQ(w.part, first == last ? -1 : 2 * w.worker + (second != 0 && w.worker == first)) << what;
    }
  }
  std::vector<int32_t> cu_q_, kv_len_;
};

constexpr int kMachines[] = {1, 2, 3, 4, 7, 78, 132};

TEST_F(Schedules, OfDecodeAreDeclared) {
  std::mt19937 random(1);
  const assay_kernel& kernel = *assay_sm90::decode_kernels()[0];
  int clusters = 0, several = 0;
  for (int n = 0; n < 400; ++n) {
    const std::string line = drawn_line(random, false);
    const Problem p = make_problem(parse_scenario(line));
    const int machine = kMachines[n % std::size(kMachines)];
    const Declared d = declared(p, kernel, machine);
    auto call = call_of<assay_sm90::DecodeCall>(p);
    call.heads_kv = p.heads_kv, call.group = p.group();
    // As the entry launches it: columns are padded to 8, 16 or 32, blocks are those of decode_blocks().
    int columns = 0;
    for (const auto& r : p.requests) columns = std::max(columns, r.q_len * p.group());
    using assay_sm90::DecodeCodes;
    const assay_sm90::DecodeShape shape{
        false, p.k_format == ASSAY_BF16 ? DecodeCodes::k16 : DecodeCodes::kE4m3, false,
        columns <= 8    ? 1
        : columns <= 16 ? 2
                        : 4};
    // A cluster for every head of one request, or of several whose keys are all seen (decode_one.h): its
    // warps take the head's tiles in turn.
    const auto most_keys = static_cast<int32_t>(p.max_kv_len());
    const auto hides_nothing = [](int window, int reach) { return window < 0 || window >= reach; };
    const bool all_keys = call.chunk == 0 && hides_nothing(call.window_left, most_keys) &&
                          hides_nothing(call.window_right, most_keys + columns / p.group());
    const int cluster = call.requests == 1 || all_keys
                            ? assay_sm90::decode_cluster(shape, call.requests, p.heads_kv, most_keys, machine)
                            : 0;
    const int turns = cluster > 0 ? assay_sm90::decode_one_warps(shape.codes) * cluster : 1;
    const std::string what = fmt::format("{} on {} multiprocessors", line, machine);
    if (cluster > 0 && call.requests > 1) {
      EXPECT_EQ(std::tuple(d.a.order_declared, d.a.item_rows, d.a.split_interleaved, d.a.splits),
                std::tuple(1, 0, 1, turns))
          << what;
      for (const schedule::Piece& w : schedule::of_decode(call, 1)) EXPECT_EQ(w.tile, 0) << what;
      ++several;
    } else {
      const int workers = cluster > 0 ? p.heads_kv
                                      : assay_sm90::decode_blocks(call.requests, p.heads_kv, machine) *
                                            assay_sm90::decode_warps(shape);
      expect_same(d, taken(schedule::of_decode(call, workers), turns), what);
    }
    clusters += cluster > 0;
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  EXPECT_GT(clusters, 10);
  EXPECT_GT(several, 10);
}

// Segments and blocks divide where no more than a twentieth of the machine is left out for it.
TEST(DecodeBlocks, HoldWholeSegments) {
  using assay_sm90::decode_blocks;
  EXPECT_EQ(decode_blocks(64, 8, 132), 128);   // four segments a block
  EXPECT_EQ(decode_blocks(8, 8, 132), 128);    // two blocks a segment
  EXPECT_EQ(decode_blocks(11, 12, 132), 132);  // all of them
  EXPECT_EQ(decode_blocks(31, 8, 132), 132);   // 124 would be too few
  EXPECT_EQ(decode_blocks(1, 80, 132), 80);    // heads of one request never share a block
  EXPECT_EQ(decode_blocks(0, 8, 132), 132);
  EXPECT_EQ(decode_blocks(3, 2, 4), 4);
  // Latent rows: two blocks for each of 64 items, four pairs of them for each of 16 of 128 rows.
  EXPECT_EQ(assay_sm90::dividing_workers(64, 132), 128);
  EXPECT_EQ(assay_sm90::dividing_workers(16, 66), 64);
}

TEST_F(Schedules, OfLatentRowsAreDeclared) {
  std::mt19937 random(2);
  int whole = 0, single = 0, cut = 0, pairs = 0;
  for (int n = 0; n < 400; ++n) {
    // Every fourth by the kernel that widens codes: it has no items of few rows.
    const bool widened = n % 4 == 3;
    const assay_kernel& kernel = *assay_sm90::mla_kernels()[widened ? 1 : 0];
    const std::string line = drawn_line(random, true) + (widened ? " kv=fp8_e4m3" : "");
    const Problem p = make_problem(parse_scenario(line));
    const int machine = kMachines[n % std::size(kMachines)];
    const Declared d = declared(p, kernel, machine);
    auto call = call_of<assay_sm90::MlaCall>(p);
    call.heads = p.heads_q;
    int most = 0;
    for (const auto& r : p.requests) most = std::max(most, r.q_len * p.heads_q);
    const int rows = !widened && most <= assay_sm90::kMlaFewRows ? assay_sm90::kMlaFewRows
                     : most <= 64                                ? 64
                                                                 : 128;
    call.items = (most + rows - 1) / rows;
    // Pairs of blocks share an item of 128 rows.
    const int workers = assay_sm90::dividing_workers(int64_t{call.requests} * call.items,
                                                     std::max(1, rows == 128 ? machine / 2 : machine));
    // Two warpgroups take the tiles of up to 16 rows in turn (mla_turned.h), and of more each tile
    // (mla_held.h, mla_widened.h).
    const int turns = rows == assay_sm90::kMlaFewRows ? 2 : 1;
    std::vector<assay_sm90::MlaMergePlan> plans;
    const auto pieces = schedule::of_mla(call, rows, workers, plans);
    const std::string what = fmt::format("{} on {} multiprocessors", line, machine);
    expect_same(d, taken(pieces, turns), what);
    expect_plans(pieces, plans, call.items, what);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
    ++(d.a.share_tiles > 1 ? whole : d.a.share_tiles == 1 ? single : cut), pairs += rows == 128;
  }
  EXPECT_GT(whole, 30);
  EXPECT_GT(single, 30);
  EXPECT_GT(cut, 80);
  EXPECT_GT(pairs, 20);
}

// Whole items of a request are taken by neighbours at the same time, so that they read the same keys then.
TEST_F(Schedules, OfLatentRowsAreBeside) {
  for (const int items : {2, 4}) {
    const Problem p = make_problem(
        parse_scenario(fmt::format("paged h=128/1 d=576/512 layout=mla page=64 batch=32q{}s500", items)));
    auto call = call_of<assay_sm90::MlaCall>(p);
    call.heads = 128, call.items = items;
    std::vector<assay_sm90::MlaMergePlan> plans;
    const auto pieces = schedule::of_mla(call, 128, 16, plans);
    std::map<std::pair<int, int>, const schedule::Piece*> at;  // worker, how many pieces it had before
    std::map<int, int> had;
    for (const schedule::Piece& w : pieces) at[{w.worker, had[w.worker]++}] = &w;
    EXPECT_EQ(pieces.size(), static_cast<size_t>(32 * items));
    for (const auto& [place, w] : at) {
      const auto& [worker, number] = place;
      EXPECT_EQ(w->item, worker % items);
      EXPECT_EQ(w->request, at.at({worker / items * items, number})->request);
    }
  }
}

}  // namespace
}  // namespace assay
