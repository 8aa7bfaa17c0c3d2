// SPDX-License-Identifier: Apache-2.0
// Fibers that switch in a ring keep their registers and their stacks. Built twice: with this machine's
// instructions and with ucontext (ASSAY_EMULATOR_UCONTEXT). The aarch64 switch passes it too, compiled by
// g++-aarch64-linux-gnu and run by qemu-aarch64.
#include "kernels/emulator/context.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gpu::emulator {
namespace {

constexpr int kFibers = 3, kRounds = 1000;
Context outside, fibers[kFibers];
int current;
double results[kFibers];
bool aligned[kFibers];

// Enough values alive across the switch to need the preserved registers, whole and floating.
double work(int me, void (*between)(int)) {
  double a = me + 0.5, b = 1.25 * me, c = 3.0 - me;
  int64_t n = me, m = 7 * me, k = 1;
  for (int i = 0; i < kRounds; ++i) {
    a += b * i, n += m, k = k * 31 + i;
    between(me);
    a -= 0.5 * b + c, n -= 3, m ^= k & 0xff;
  }
  return a + static_cast<double>(n + m + k % 1000);
}

void body() {
  const int me = current;
  alignas(16) char local[16];
  aligned[me] = reinterpret_cast<uintptr_t>(local) % 16 == 0;
  results[me] = work(me, [](int self) {
    current = (self + 1) % kFibers;
    switch_context(fibers[self], fibers[current]);
  });
  Context gone;
  current = me + 1;
  switch_context(gone, me + 1 < kFibers ? fibers[me + 1] : outside);
}

TEST(Context, FibersKeepTheirState) {
  constexpr size_t kStack = 64 << 10;
  std::vector<char> stacks(kFibers * kStack);
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int i = 0; i < kFibers; ++i)
      make_context(fibers[i], stacks.data() + static_cast<size_t>(i) * kStack,
                   kStack - static_cast<size_t>(i) * 192, body);
    current = 0;
    switch_context(outside, fibers[0]);
    for (int i = 0; i < kFibers; ++i) {
      EXPECT_EQ(results[i], work(i, [](int) {})) << i;
      EXPECT_TRUE(aligned[i]) << i;
    }
  }
}

}  // namespace
}  // namespace gpu::emulator
