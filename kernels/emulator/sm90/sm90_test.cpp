// SPDX-License-Identifier: Apache-2.0
// The emulation of Hopper's machinery on small kernels: right ones, and one with each of the faults of
// testing/pipeline.hpp. Built twice, without and with the checker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/formats.hpp"
#include "kernels/emulator/check.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/sm90/testing/pipeline.hpp"

namespace gpu::emulator {
namespace {

using pipeline::ClusterFault;
using pipeline::Fault;
using pipeline::kSide;
using pipeline::kTiles;
using ::testing::HasSubstr;

// Operands of small whole numbers, so that every sum is exact.
class Memory {
 public:
  Memory()
      : a_(kTiles * kSide * kSide + kRoom),
        b_(a_.size()),
        v_(kSide * kSide + kRoom),
        out_(v_.size()),
        bias_(512 + kRoom),
        flag_(4 + kRoom) {
    std::mt19937 random(5);
    for (auto* list : {&a_, &b_, &v_})
      for (uint16_t& x : *list)
        x = assay_kernels::bf16_from_float(static_cast<float>(static_cast<int>(random() % 3) - 1));
    for (int i = 0; i < 512; ++i) aligned(bias_)[i] = static_cast<float>(i % 64);
  }
  pipeline::Data data() {
    return {aligned(a_), aligned(b_), aligned(v_), aligned(bias_), aligned(out_), aligned(flag_)};
  }
  template <class Run>
  std::string run(const Run& launch) {
    const pipeline::Data d = data();
    std::fill(flag_.begin(), flag_.end(), 0.0f);
    if constexpr (kChecked) {
      const auto region = [](const auto* at, size_t count, check::Role role, const char* name) {
        return check::Region{reinterpret_cast<const unsigned char*>(at), count * sizeof *at, role, sizeof *at,
                             name};
      };
      constexpr size_t kTile = kSide * kSide;
      check::begin_call({region(d.a, kTiles * kTile, check::Role::kInput, "a"),
                         region(d.b, kTiles * kTile, check::Role::kInput, "b"),
                         region(d.v, kTile, check::Role::kInput, "v"),
                         region(d.bias, 512, check::Role::kInput, "bias"),
                         region(d.out, kTile, check::Role::kOutput, "out"),
                         region(d.flag, 4, check::Role::kUpdated, "flag")});
    }
    const Status status = launch(d);
    if constexpr (kChecked) check::end_call();
    return status == emulatorSuccess ? "clean" : last_error();
  }
  std::string run(Fault fault) {
    return run([&](const pipeline::Data& d) { return pipeline::run(d, fault); });
  }
  // Operands of any size instead, with signs and exponents that make sums lose bits.
  void draw(uint32_t seed, bool half) {
    std::mt19937 random(seed);
    for (auto* list : {&a_, &b_})
      for (uint16_t& x : *list)
        x = static_cast<uint16_t>(half ? (random() & 0xbfffu) % 0x7c00u | (random() & 0x8000u)
                                       : (random() & 0x83ffu) | 0x3c00u);
    for (float& x : bias_)
      x = std::ldexp(static_cast<float>(static_cast<int>(random() % 4001) - 2000),
                     static_cast<int>(random() % 30) - 20);
  }
  float expected(int row, int column) {
    const pipeline::Data d = data();
    float sum = static_cast<float>(column);
    for (int k = 0; k < kSide; ++k) {
      float s = 0;
      for (int t = 0; t < kTiles; ++t)
        for (int i = 0; i < kSide; ++i)
          s += value(d.a, (t * kSide + row) * kSide + i) * value(d.b, (t * kSide + k) * kSide + i);
      sum += s * value(d.v, k * kSide + column);
    }
    return sum;
  }

 private:
  static constexpr size_t kRoom = 64;
  static float value(const uint16_t* at, int i) { return assay_kernels::float_from_bf16(at[i]); }
  template <class T>
  static T* aligned(std::vector<T>& list) {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(list.data()) + 63) / 64 * 64);
  }
  std::vector<uint16_t> a_, b_, v_, out_;
  std::vector<float> bias_, flag_;
};

TEST(Pipeline, IsRightInEveryOrder) {
  Memory m;
  for (int i = 0; i < 12; ++i) {  // launches differ in their order of warps, copies late or at random times
    ASSERT_EQ(m.run(Fault::kNone), "clean") << i;
    const pipeline::Data d = m.data();
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column)
        ASSERT_EQ(d.out[row * kSide + column], assay_kernels::bf16_from_float(m.expected(row, column)))
            << i << ": " << row << ", " << column;
    std::fill(d.out, d.out + kSide * kSide, uint16_t{0});
  }
}

struct Planted {
  const char* name;
  Fault fault;
  Kind kind;
};
const Planted kPlanted[] = {
#define PIPELINE_ROW(name, kind, what) {#name, Fault::name, Kind::kind},
    PIPELINE_FAULTS(PIPELINE_ROW)
#undef PIPELINE_ROW
};

// What needs no checker: the emulator itself sees it.
bool seen_by_all(const Planted& p) {
  switch (p.kind) {
    case Kind::kRace:
    case Kind::kProxy:
    case Kind::kRegisters:
    case Kind::kProductFence:
    case Kind::kUninitialised:
      return false;
    default:
      return p.fault != Fault::barrier_overwritten && p.fault != Fault::other_swizzle;
  }
}

class Faults : public ::testing::TestWithParam<Planted> {};
TEST_P(Faults, IsFoundInEveryOrder) {
  const Planted& p = GetParam();
  Memory m;
  for (int i = 0; i < 4; ++i) {
    const std::string text = m.run(p.fault);
    if constexpr (kChecked) {
      // What is found besides may come first in some orders. A wrong parity is passed at once or never.
      const std::string kind =
          p.fault == Fault::wrong_parity_of_full ? "(race|deadlock)" : std::string(name_of(p.kind));
      EXPECT_THAT(text,
                  ::testing::ContainsRegex("(^|also |, )" + kind + " (in pipeline_kernel )?at pipeline.cu:"))
          << i;
    } else if (seen_by_all(p)) {
      EXPECT_NE(text, "clean") << i;
    }
  }
  EXPECT_EQ(m.run(Fault::kNone), "clean");  // the emulator is as good as new
}
INSTANTIATE_TEST_SUITE_P(Every, Faults, ::testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Faults, AreManyKinds) { EXPECT_GE(std::size(kPlanted), 40u); }

// The same instruction's sums, written down twice: here rows of a warpgroup, in matrix.cpp those of a warp.
TEST(Products, AreFormedAsThoseOfMmaSync) {
  for (const bool half : {false, true}) {
    int rounded = 0;
    for (uint32_t seed = 1; seed <= 6; ++seed) {
      Memory m;
      m.draw(seed, half);
      ASSERT_EQ(m.run([&](const pipeline::Data& d) { return pipeline::run_products(d, half); }), "clean");
      const auto* const out = reinterpret_cast<const float*>(m.data().out);
      const pipeline::Data d = m.data();
      const auto value = [&](uint16_t x) {
        return half ? assay_kernels::float_from_fp16(x) : assay_kernels::float_from_bf16(x);
      };
      for (int i = 0; i < 1024; ++i) {
        ASSERT_EQ(out[i], out[1024 + i]) << half << ", " << seed << ", " << i;
        double exact = d.bias[i % 512], size = std::abs(exact);
        for (int k = 0; k < 16; ++k) {
          const double x =
              static_cast<double>(value(d.a[i / 16 * kSide + k])) * value(d.b[i % 16 * kSide + k]);
          exact += x, size += std::abs(x);
        }
        rounded += static_cast<float>(exact) != out[i];
        ASSERT_NEAR(out[i], exact, size * 0x1p-19) << half << ", " << i;
      }
    }
    EXPECT_GT(rounded, 100);
  }
}

std::string run_cluster(Memory& m, ClusterFault fault) {
  return m.run([&](const pipeline::Data& d) { return pipeline::run_cluster(d, fault); });
}

TEST(Cluster, IsRightInEveryOrder) {
  Memory m;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(run_cluster(m, ClusterFault::kNone), "clean") << i;
    const pipeline::Data d = m.data();
    for (int row = 0; row < kSide; ++row)
      ASSERT_EQ(d.out[row], static_cast<uint16_t>(d.b[row * kSide] + d.b[(kSide + row) * kSide])) << row;
  }
}
TEST(Cluster, ArrivalAtABlockThatHasEnded) {
  Memory m;
  EXPECT_THAT(run_cluster(m, ClusterFault::left_early), HasSubstr("misused barrier"));
}
TEST(Cluster, BytesOfOneBlockOnly) {
  Memory m;
  EXPECT_THAT(run_cluster(m, ClusterFault::half_expected), HasSubstr("wrong transaction bytes"));
}
TEST(Cluster, OverwrittenWhileTheOtherBlockReads) {
  if constexpr (!kChecked) GTEST_SKIP() << "needs the checker";
  Memory m;
  EXPECT_THAT(run_cluster(m, ClusterFault::other_blocks_unread),
              ::testing::StartsWith("race in cluster_kernel"));
}

std::string run_sent(Memory& m, pipeline::SendFault fault) {
  return m.run([&](const pipeline::Data& d) { return pipeline::run_sent(d, fault); });
}
TEST(Sent, ArrivesInEveryOrder) {
  Memory m;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(run_sent(m, pipeline::SendFault::kNone), "clean") << i;
    for (int n = 0; n < 64; ++n) ASSERT_EQ(m.data().out[n], n ^ 32) << n;
  }
}
TEST(Sent, MoreBytesExpectedThanCome) {
  Memory m;
  const std::string text = run_sent(m, pipeline::SendFault::too_many_bytes);
  EXPECT_THAT(text, ::testing::StartsWith("wrong transaction bytes in sent_kernel"));
  EXPECT_THAT(text, HasSubstr("16 bytes"));
}
TEST(Sent, ReadBeforeItHasCome) {
  if constexpr (!kChecked) GTEST_SKIP() << "needs the checker";
  Memory m;
  EXPECT_THAT(run_sent(m, pipeline::SendFault::not_awaited),
              ::testing::ContainsRegex("(race|uninitialised read) in sent_kernel"));
}
TEST(Sent, ToABlockThatMayNotHaveBegun) {
  if constexpr (!kChecked) GTEST_SKIP() << "needs the checker";
  Memory m;
  bool found = false;  // in an order in which the other block has initialised its barrier, or has not
  for (int i = 0; i < 4; ++i) {
    const std::string text = run_sent(m, pipeline::SendFault::not_met);
    found |= text.find("nothing orders the initialisation of the barrier") != std::string::npos ||
             text.find("no initialised barrier") != std::string::npos;
  }
  EXPECT_TRUE(found);
}

TEST(Dependent, WaitsForTheLaunchBefore) {
  Memory m;
  ASSERT_EQ(m.run([](const pipeline::Data& d) { return pipeline::run_dependent(d, true); }), "clean");
  EXPECT_EQ(m.data().out[7], 8);
  if constexpr (kChecked) {
    EXPECT_THAT(m.run([](const pipeline::Data& d) { return pipeline::run_dependent(d, false); }),
                ::testing::StartsWith("race in second_kernel"));
  }
}

TEST(NamedBarrier, OrdersThoseWhoDoNotWait) {
  Memory m;
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(m.run([](const pipeline::Data& d) { return pipeline::run_handed(d, false); }), "clean");
    for (int word = 0; word < 4; ++word) ASSERT_EQ(m.data().out[64 * word + 5], word);
  }
  if constexpr (kChecked) {
    const std::string text = m.run([](const pipeline::Data& d) { return pipeline::run_handed(d, true); });
    EXPECT_THAT(text, ::testing::ContainsRegex("(race|uninitialised read) in handed_kernel"));
  }
}

TEST(Polling, SeesWhatAnotherBlockWrites) {
  Memory m;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(m.run([](const pipeline::Data& d) { return pipeline::run_polling(d, true); }), "clean");
    EXPECT_EQ(m.data().out[31], 7);
  }
}
TEST(Polling, EndsWhereNobodyWrites) {
  Memory m;
  const std::string text = m.run([](const pipeline::Data& d) { return pipeline::run_polling(d, false); });
  EXPECT_THAT(text, ::testing::StartsWith("deadlock in polling_kernel at pipeline.cu:"));
  EXPECT_THAT(text, HasSubstr("memory that nobody writes"));
}

TEST(Deadlock, SaysWhoWaitsForWhat) {
  Memory m;
  const std::string text = m.run(Fault::wrong_parity_of_empty);
  EXPECT_THAT(text, HasSubstr("deadlock in pipeline_kernel at pipeline.cu:"));
  EXPECT_THAT(text, HasSubstr("warp 4 lanes 0-31 waits at pipeline.cu:"));
  EXPECT_THAT(text, HasSubstr("parity 0 of the barrier at byte "));
  EXPECT_THAT(text, HasSubstr("lacks 4 of 4 arrivals"));
}

}  // namespace
}  // namespace gpu::emulator
