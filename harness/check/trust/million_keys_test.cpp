// SPDX-License-Identifier: Apache-2.0
// Rows of a million keys: is there a verdict on every kernel of the CPU and of the emulated GPUs? Whether a
// case is decided follows from what a kernel declares for it and from the data alone, so no kernel is run
// here: its declaration for one request of 1,048,576 keys meets a row of so many (d = 8, which sums over keys
// do not see). What a sum swallows by lane is what would make such rows undecided.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "harness/check/trust/trust.hpp"
#include "harness/check/trust/usefulness.hpp"
#include "harness/device/backend.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/bounds/bounds_cases.hpp"

namespace assay {
namespace {

constexpr int32_t kKeys = 1 << 20, kProducts = 8;

struct Line {
  const char* text;
  int32_t kv;
  bool always;  // or with ASSAY_LONG_TESTS=1 only
};
const Line kMillionLines[] = {
    {"paged h=8/2 d=128 batch=1q1s1024k", ASSAY_BF16, true},
    {"paged h=8/2 d=128 kv=fp8_e4m3 batch=1q1s1024k", ASSAY_FP8_E4M3, false},
    {"prefill h=8/2 d=128 batch=1q1s1024k", ASSAY_BF16, false},
    {"paged h=8/2 d=64 q=fp16 batch=1q1s1024k", ASSAY_FP16, false},
    {"paged h=8/2 d=128 q=fp8_e4m3 kv=fp8_e4m3 out=bf16 batch=1q1s1024k", ASSAY_FP8_E4M3, false},
    {"paged h=16/1 d=576/512 layout=mla batch=1q1s1024k", ASSAY_BF16, false},
};

// A row of so many keys. Q in fp32: scores of four products of few bits would repeat, as those of 128 do not.
testkit::DenseCase million(int32_t kv, int32_t out) {
  constexpr int32_t kValues = 32;  // of V, that exchanged pages are noticed in some
  testkit::DenseCase data = testkit::make_case(testkit::Family::kNormal, 1, 1, kProducts, 1, ASSAY_FP32);
  Problem& p = data.problem;
  p.requests = {{1, kKeys}};
  p.head_dim_v = kValues, p.k_format = p.v_format = kv, p.o_format = out;
  data.k.resize(size_t{kKeys} * p.head_dim_qk), data.v.resize(size_t{kKeys} * kValues);
  CounterRng(1, 1).normals(0, static_cast<int64_t>(data.k.size()), data.k.data());
  CounterRng(1, 2).normals(0, static_cast<int64_t>(data.v.size()), data.v.data());
  data.store();
  return data;
}

// Why a row of a million keys would be undecided under this declaration; "" where it is decided.
std::string undecided(const testkit::DenseCase& data, const assay_arithmetic& a, double& half_width) {
  const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), a);
  half_width = class_gate(b, data.problem, a).ratio;
  return distrust(b, data.problem, data.host());
}

class MillionKeys : public ::testing::TestWithParam<std::string> {};

TEST_P(MillionKeys, AreDecidedForEveryKernel) {
  const std::filesystem::path library = std::filesystem::path(ASSAY_BINARY_DIR) / GetParam();
  if (!std::filesystem::exists(library)) GTEST_SKIP() << library.string() << " is not part of this build";
  const Backend backend = Backend::load(library.string());
  const bool whole = std::getenv("ASSAY_LONG_TESTS") != nullptr;
  static std::map<std::string, std::pair<std::string, double>> known;  // by format and declaration
  int asked = 0;
  for (const Line& line : kMillionLines) {
    if (!line.always && !whole) continue;
    const Problem p = make_problem(parse_scenario(line.text));
    const ProblemView view(p);
    std::optional<testkit::DenseCase> data;
    for (const assay_kernel* kernel : backend.kernels()) {
      if (kernel->op != p.op || !call_supports(*kernel, view.get(), nullptr, backend.device(0)).ok())
        continue;
      assay_arithmetic a = default_arithmetic();
      call_arithmetic(backend, *kernel, view.get(), a);
      std::string key = fmt::format("{} {} ", line.kv, p.o_format);
      key.append(reinterpret_cast<const char*>(&a), sizeof a);
      if (!known.contains(key)) {
        if (!data) data = million(line.kv, p.o_format);
        double half_width = 0;
        const std::string why = undecided(*data, a, half_width);
        known[key] = {why, half_width};
      }
      const auto& [why, half_width] = known[key];
      ++asked;
      fmt::print("  {:<28} {:<66} {} (half-width {:.2g} of |O|)\n", kernel->name, line.text,
                 why.empty() ? "decided" : why, half_width);
      // Undeclared orders may bring keys with rising scores, a rescale for each tile: shown, not asked.
      if (a.order_declared == 0) continue;
      EXPECT_EQ(why, "") << kernel->name << ", " << line.text;
    }
  }
  EXPECT_GT(asked, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, MillionKeys,
                         ::testing::Values("libassay_cpu.so", "emulator/libassay_emu32.so",
                                           "emulator/libassay_emu64.so", "emulator/libassay_emu_sm90.so"));

}  // namespace
}  // namespace assay
