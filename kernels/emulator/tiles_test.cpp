// SPDX-License-Identifier: Apache-2.0
// The schedule that suites reach: how many tiles of keys one part walks, and how many parts one request has,
// for every attention kernel of the portable and the Hopper libraries, by what it declares of each case. A
// fault in the hand-over from tile to tile, or from part to part, shows in no case with one of each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

constexpr int64_t kMany = 4, kCasesLeast = 5;

struct Met {
  int64_t cases = 0, declared = 0;         // supported; that say how long a tile is
  int64_t many_tiles = 0, many_parts = 0;  // cases with so many in one part, of one request
  int64_t most_tiles = 0, most_parts = 0;
  int64_t cut = 0;  // cases with more than one part
};

void count(const Backend& backend, const assay_kernel& kernel, const Problem& p, const ProblemView& view,
           Met& met) {
  if (!call_supports(kernel, view.get(), nullptr, backend.device(0)).ok()) return;
  ++met.cases;
  assay_arithmetic a = assay_default_arithmetic();
  call_arithmetic(backend, kernel, view.get(), a);
  int64_t tiles = 0, parts = 0;
  for (const Request& r : p.requests) {
    if (r.q_len == 0 || r.kv_len == 0) continue;
    const int64_t own =
        a.split_keys > 0 ? (r.kv_len + a.split_keys - 1) / a.split_keys : std::max<int64_t>(1, a.splits);
    parts = std::max(parts, own);
    const int64_t keys = a.split_keys > 0 ? std::min<int64_t>(a.split_keys, r.kv_len) : r.kv_len / own;
    if (a.tile_keys > 0) tiles = std::max(tiles, keys / a.tile_keys);
  }
  met.declared += a.tile_keys > 0;
  met.many_tiles += tiles >= kMany, met.many_parts += parts >= kMany, met.cut += parts > 1;
  met.most_tiles = std::max(met.most_tiles, tiles), met.most_parts = std::max(met.most_parts, parts);
}

class Tiles : public ::testing::TestWithParam<const char*> {};

TEST_P(Tiles, EveryKernelOfAGpuMeetsManyTilesAndManyParts) {
  const Backend backend =
      Backend::load(fmt::format("{}/emulator/libassay_{}.so", ASSAY_BINARY_DIR, GetParam()));
  std::vector<std::pair<const assay_kernel*, Met>> all;
  for (const assay_kernel* kernel : backend.kernels())
    if (kernel->op == ASSAY_OP_PREFILL || kernel->op == ASSAY_OP_PAGED ||
        kernel->op == ASSAY_OP_DECODE_SPLITKV)
      all.emplace_back(kernel, Met());
  ASSERT_FALSE(all.empty());
  for (const char* name : {"correctness", "boundaries"}) {
    Suite suite = Suite::open(name);
    while (const auto c = suite.next()) {
      const Problem p = make_problem(c->scenario);
      const ProblemView view(p);
      for (auto& [kernel, met] : all)
        if (kernel->op == p.op) count(backend, *kernel, p, view, met);
    }
  }
  std::string table = fmt::format("{:32}{:>7}{:>9}{:>8}{:>6}{:>8}{:>6}\n", "kernel", "cases", "declare",
                                  "tiles", "most", "parts", "most");
  for (const auto& [kernel, met] : all) {
    table += fmt::format("{:32}{:7}{:9}{:8}{:6}{:8}{:6}\n", kernel->name, met.cases, met.declared,
                         met.many_tiles, met.most_tiles, met.many_parts, met.most_parts);
    EXPECT_GE(met.cases, kCasesLeast) << kernel->name;
    if (met.declared > 0) {
      EXPECT_GE(met.many_tiles, kCasesLeast) << kernel->name;
    }
    // Some cut a request into two or three parts and no more, whatever comes.
    if (met.most_parts > 1) {
      EXPECT_GE(met.most_parts < kMany ? met.cut : met.many_parts, kCasesLeast) << kernel->name;
    }
  }
  std::printf("%s", table.c_str());
}

INSTANTIATE_TEST_SUITE_P(Backends, Tiles, ::testing::Values("emu32", "emu_sm90"));

}  // namespace
}  // namespace assay
