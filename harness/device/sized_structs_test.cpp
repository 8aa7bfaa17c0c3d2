// SPDX-License-Identifier: Apache-2.0
// What libraries answer into a struct of the caller. A program built against an older header has a shorter
// one: nothing behind its struct_size may be written, and what it has room for is what a longer one gets.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr std::byte kGuard{0xa5};

// A struct of `bytes` bytes, filled by `fill`, and as many guard bytes behind it as a whole one has.
template <class Struct>
std::vector<std::byte> filled(uint32_t bytes, const std::function<int(Struct*)>& fill) {
  std::vector<std::byte> memory(2 * sizeof(Struct), kGuard);
  std::memcpy(memory.data(), &bytes, sizeof bytes);
  EXPECT_EQ(fill(reinterpret_cast<Struct*>(memory.data())), ASSAY_OK);
  return memory;
}

template <class Struct>
void expect_no_more(uint32_t bytes, const std::function<int(Struct*)>& fill) {
  const std::vector<std::byte> whole = filled<Struct>(sizeof(Struct), fill),
                               part = filled<Struct>(bytes, fill);
  uint32_t size = 0;
  std::memcpy(&size, part.data(), sizeof size);
  EXPECT_EQ(size, bytes);
  EXPECT_EQ(std::memcmp(part.data() + sizeof size, whole.data() + sizeof size, bytes - sizeof size), 0);
  for (size_t i = bytes; i < part.size(); ++i) ASSERT_EQ(part[i], kGuard) << "byte " << i << " of " << bytes;
  for (size_t i = sizeof(Struct); i < whole.size(); ++i) ASSERT_EQ(whole[i], kGuard) << "byte " << i;
}

class SizedStructs : public ::testing::TestWithParam<std::string> {};

TEST_P(SizedStructs, AreFilledNoFurtherThanTheCallerSays) {
  const std::string library = ASSAY_BINARY_DIR "/" + GetParam();
  if (!std::filesystem::exists(library)) GTEST_SKIP() << library << " is not part of this build";
  const Backend backend = Backend::load(library);
  char error[512] = "";
  for (const uint32_t bytes :
       {uint32_t{offsetof(assay_device, memory_bytes)}, uint32_t{sizeof(assay_device)}})
    expect_no_more<assay_device>(
        bytes, [&](assay_device* out) { return backend.table()->device_info(0, out, error, sizeof error); });
  size_t asked = 0;
  const assay_device device = backend.device(0);
  for (const assay_kernel* kernel : backend.kernels()) {
    Problem problem = testkit::small_problem(op_of(kernel->op).whole_context ? kernel->op : ASSAY_OP_PAGED);
    problem.source_format = ASSAY_BF16;
    const ProblemView attention(problem);
    assay_problem view = *attention.get();
    view.op = kernel->op;
    if (!op_of(kernel->op).whole_context) {  // enough of a block for what it declares
      view.q_format = ASSAY_INT8, view.source_format = ASSAY_BF16, view.states = 2;
      if (op_of(kernel->op).attends_rows) view.q_format = ASSAY_BF16, view.max_q_len = 1;
    }
    if (!call_supports(*kernel, &view, nullptr, device).ok() || kernel->arithmetic == nullptr) continue;
    ++asked;
    for (const uint32_t bytes :
         {uint32_t{offsetof(assay_arithmetic, order_declared)}, uint32_t{sizeof(assay_arithmetic)}})
      expect_no_more<assay_arithmetic>(
          bytes, [&](assay_arithmetic* out) { return kernel->arithmetic(kernel, &view, out); });
    if (HasFatalFailure()) FAIL() << kernel->name;
  }
  EXPECT_GT(asked, 3u) << "kernels that support the problem";
}

INSTANTIATE_TEST_SUITE_P(Libraries, SizedStructs,
                         ::testing::Values("libassay_cpu.so", "emulator/libassay_emu32.so",
                                           "emulator/libassay_emu64_check.so", "faulty/libassay_faulty.so"));

}  // namespace
}  // namespace assay
