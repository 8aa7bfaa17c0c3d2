// SPDX-License-Identifier: Apache-2.0
// The emulator and the checker on small kernels, correct ones and ones with a defect each. Built four times:
// 32 and 64 lanes, without and with the checker; what must be found follows from gpu::kWarp and kChecked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <vector>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/testing/planted.hpp"

namespace gpu::emulator {
namespace {

using planted::kThreads;
using ::testing::HasSubstr;

// Memory of a call. Everything lies in one allocation with room between, so that an access that goes astray
// hits memory that is there: it must be found, not crash.
class Memory {
 public:
  explicit Memory(int count) : count_(count), whole_(static_cast<size_t>(3 * count + 4 * kRoom), -1.0f) {
    for (int i = 0; i < count; ++i) in()[i] = static_cast<float>(i % 97) + 0.25f;
  }
  float* in() { return whole_.data() + kRoom; }
  float* out() { return in() + count_ + kRoom; }
  float* scratch() { return out() + count_ + kRoom; }
  planted::Data data() { return {in(), out(), scratch(), count_}; }
  // Runs with the memory declared, as the backend does it.
  Status run(Status (*launch)(const planted::Data&)) {
    if constexpr (kChecked) {
      const auto region = [&](float* at, check::Role role, const char* name) {
        return check::Region{reinterpret_cast<unsigned char*>(at),
                             static_cast<size_t>(count_) * sizeof(float), role, sizeof(float), name};
      };
      check::begin_call({region(in(), check::Role::kInput, "in"), region(out(), check::Role::kOutput, "out"),
                         region(scratch(), check::Role::kOutput, "scratch")});
    }
    const Status status = launch(data());
    if constexpr (kChecked) check::end_call();
    return status;
  }

 private:
  static constexpr int kRoom = 64;
  int count_;
  std::vector<float> whole_;
};

std::string text_after(Status status) { return status == emulatorSuccess ? "clean" : last_error(); }

TEST(Clean, BlockSum) {
  Memory m(4 * kThreads);
  ASSERT_EQ(text_after(m.run(planted::block_sum)), "clean");
  for (int b = 0; b < 4; ++b)
    EXPECT_EQ(m.out()[b], std::accumulate(m.in() + b * kThreads, m.in() + (b + 1) * kThreads, 0.0f)) << b;
}

TEST(Clean, EveryCoordinateOfGridAndBlock) {
  Memory m(24 * 24);
  ASSERT_EQ(text_after(m.run(planted::coordinates)), "clean");
  for (int block = 0; block < 24; ++block)
    for (int thread = 0; thread < 24; ++thread)
      ASSERT_EQ(m.out()[block * 24 + thread], static_cast<float>(block * 1000 + thread));
}

TEST(Clean, CollectivesHaveTheWidthOfTheWarp) {
  Memory m(64);
  ASSERT_EQ(text_after(m.run(planted::collectives)), "clean");
  for (int lane = 0; lane < kWarp; ++lane) {
    const float* in = m.in();
    EXPECT_EQ(m.out()[lane],
              in[(lane + 1) % kWarp] + 100 * in[lane ^ (kWarp / 2)] + 10000 * (kWarp / 2.0f) + 5e6f);
  }
}

TEST(Clean, DynamicSharedMemory) {
  Memory m(3 * kThreads);
  ASSERT_EQ(text_after(m.run(planted::dynamic_reverse)), "clean");
  for (int b = 0; b < 3; ++b)
    for (int i = 0; i < kThreads; ++i)
      ASSERT_EQ(m.out()[b * kThreads + i], m.in()[(b + 1) * kThreads - 1 - i]);
}

TEST(Clean, Atomics) {
  Memory m(kThreads);
  ASSERT_EQ(text_after(m.run(planted::atomics)), "clean");
  uint32_t whole[4];
  std::memcpy(whole, m.out(), sizeof whole);
  EXPECT_THAT(whole, ::testing::ElementsAre(3u * 4 * kThreads, 4u * kThreads - 1, 7u, 9u));
  EXPECT_EQ(m.out()[4], 0.5f * 4 * kThreads);
}

// device.hpp has them in place: every pair of these, bit by bit, as the C library has it.
TEST(Clean, MaximaAndMinimaAreTheLibrarys) {
  float (*volatile larger)(float, float) = &::fmaxf;
  float (*volatile smaller)(float, float) = &::fminf;
  const uint32_t words[] = {0,          0x80000000, 1,          0x80000001, 0x3f800000, 0xbf800000,
                            0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001};
  for (const uint32_t a : words)
    for (const uint32_t b : words) {
      const auto x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
      EXPECT_EQ(std::bit_cast<uint32_t>(fmaxf(x, y)), std::bit_cast<uint32_t>(larger(x, y))) << a << " " << b;
      EXPECT_EQ(std::bit_cast<uint32_t>(fminf(x, y)), std::bit_cast<uint32_t>(smaller(x, y)))
          << a << " " << b;
    }
}

TEST(Clean, WarpBarriersOrderAWarp) {
  Memory m(kThreads);
  ASSERT_EQ(text_after(m.run(planted::warp_exchange)), "clean");
  for (int i = 0; i < kThreads; ++i) ASSERT_EQ(m.out()[i], m.in()[i / kWarp * kWarp + (i + 3) % kWarp]);
}

TEST(Clean, LaunchesOrderEverything) {
  Memory m(16);
  ASSERT_EQ(text_after(m.run(planted::two_launches)), "clean");
  for (int i = 0; i < 16; ++i) ASSERT_EQ(m.out()[i], m.in()[15 - i]);
}

TEST(Clean, WarpsThatLeftBlockNoBarrier) {
  Memory m(kThreads);
  ASSERT_EQ(text_after(m.run(planted::whole_warps_leave)), "clean");
  EXPECT_EQ(m.out()[0], static_cast<float>(kWarp));
}

// A kernel written for 32 lanes: no rule is broken at 64, but the sums are those of half warps.
TEST(Clean, SumOfThirtyTwoLanesIsWrongAtSixtyFour) {
  Memory m(kThreads);
  ASSERT_EQ(text_after(m.run(planted::butterfly_32)), "clean");
  const float warp = std::accumulate(m.in(), m.in() + kWarp, 0.0f);
  const float half = std::accumulate(m.in(), m.in() + 32, 0.0f);
  EXPECT_EQ(m.out()[0], half);
  EXPECT_EQ(m.out()[0] == warp, kWarp == 32);
}

TEST(Clean, RepeatedCallsStartAfresh) {
  Memory m(4 * kThreads);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(text_after(m.run(planted::block_sum)), "clean");
  if constexpr (kChecked) {  // what an earlier call wrote does not count
    ASSERT_THAT(text_after(m.run(planted::output_unwritten)), HasSubstr("uninitialised read"));
  }
}

// ---- defects

struct Defect {
  const char* name;
  Status (*launch)(const planted::Data&);
  Kind kind;
  bool needs_checker;
  int only_at = 0;  // lanes; 0: both
};

#define ASSAY_DEFECT(name, ...) \
  Defect { #name, planted::name, __VA_ARGS__ }
const Defect kDefects[] = {
    ASSAY_DEFECT(missing_barrier, Kind::kUninitialised, true),  // the other threads have not run yet
    ASSAY_DEFECT(missing_second_barrier, Kind::kRace, true),
    ASSAY_DEFECT(written_after_second_read, Kind::kRace, true),
    ASSAY_DEFECT(written_after_second_read_of_warp, Kind::kRace, true),
    ASSAY_DEFECT(written_by_first_reader, Kind::kRace, true),
    ASSAY_DEFECT(missing_warp_barrier, Kind::kRace, true),
    ASSAY_DEFECT(warp_of_64, Kind::kUninitialised, true, 32),
    ASSAY_DEFECT(blocks_share_element, Kind::kRace, true),
    ASSAY_DEFECT(block_reads_other, Kind::kRace, true),
    ASSAY_DEFECT(atomic_and_plain, Kind::kRace, true),
    ASSAY_DEFECT(read_past_end, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(read_before_start, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(write_past_end, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(shared_past_end, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(shared_past_end_of_read, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(dynamic_past_end, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(other_threads_local, Kind::kOutOfBounds, true),
    ASSAY_DEFECT(shared_unwritten, Kind::kUninitialised, true),
    ASSAY_DEFECT(output_unwritten, Kind::kUninitialised, true),
    ASSAY_DEFECT(scratch_unwritten, Kind::kUninitialised, true),
    ASSAY_DEFECT(input_written, Kind::kInputWritten, true),
    ASSAY_DEFECT(misaligned_cast, Kind::kMisaligned, true),
    ASSAY_DEFECT(misaligned_load, Kind::kMisaligned, false),
    ASSAY_DEFECT(half_warp_shuffles, Kind::kExitedLane, false),
    ASSAY_DEFECT(different_shuffles, Kind::kDivergence, false),
    ASSAY_DEFECT(barrier_against_shuffle, Kind::kDivergence, false),
    ASSAY_DEFECT(shuffle_against_barrier, Kind::kDivergence, false),
    ASSAY_DEFECT(lane_left_before, Kind::kExitedLane, false),
    ASSAY_DEFECT(lane_leaves_during, Kind::kExitedLane, false),
    ASSAY_DEFECT(two_barriers, Kind::kBarrierMix, false),
    ASSAY_DEFECT(lane_before, Kind::kBadLane, false),
    ASSAY_DEFECT(lane_40, Kind::kBadLane, false, 32),
    ASSAY_DEFECT(matrix_against_shuffle, Kind::kDivergence, false),
    ASSAY_DEFECT(matrix_lane_leaves, Kind::kExitedLane, false),
    ASSAY_DEFECT(matrix_of_half_a_warp, Kind::kBadLane, false),
    ASSAY_DEFECT(static_shared_50k, Kind::kSharedOverflow, false, 32),
    ASSAY_DEFECT(static_shared_66k, Kind::kSharedOverflow, false),
    ASSAY_DEFECT(static_and_dynamic, Kind::kSharedOverflow, false, 64),
    ASSAY_DEFECT(trapped, Kind::kTrap, false),
    ASSAY_DEFECT(block_too_large, Kind::kLaunch, false),
    ASSAY_DEFECT(grid_too_large, Kind::kLaunch, false),
};

// Line of "planted: NAME" in the file of the kernels; 0 when there is none.
int planted_line(const std::string& name) {
  std::ifstream file(ASSAY_SOURCE_DIR "/kernels/emulator/testing/planted_defects.cu");
  std::string line;
  for (int n = 1; std::getline(file, line); ++n)
    if (line.ends_with("// planted: " + name)) return n;
  return 0;
}

class Defects : public ::testing::TestWithParam<Defect> {};

TEST_P(Defects, IsFoundAndNamed) {
  const Defect& d = GetParam();
  Memory m(2 * kThreads);
  const std::string text = text_after(m.run(d.launch));
  const bool expected = (d.only_at == 0 || d.only_at == kWarp) && (kChecked || !d.needs_checker);
  if (!expected) {
    EXPECT_EQ(text, "clean");
    return;
  }
  EXPECT_THAT(text, ::testing::StartsWith(std::string(name_of(d.kind)) + " in "));
  if (const int line = planted_line(d.name); line > 0) {
    EXPECT_THAT(text, HasSubstr("planted_defects.cu:" + std::to_string(line)));
    EXPECT_THAT(text, HasSubstr(std::string(d.name) + "_kernel"));
  }
  // The emulator is as good as new.
  EXPECT_EQ(text_after(m.run(planted::block_sum)), "clean");
}

INSTANTIATE_TEST_SUITE_P(Every, Defects, ::testing::ValuesIn(kDefects),
                         [](const auto& info) { return std::string(info.param.name); });

#ifdef ASSAY_EMULATOR_CHECK
TEST(Findings, NameWhatAndWhere) {
  Memory m(2 * kThreads);
  EXPECT_THAT(text_after(m.run(planted::read_past_end)),
              HasSubstr("4 bytes read 0 bytes past the end of in; block (0,0,0) thread (255,0,0)"));
  EXPECT_THAT(text_after(m.run(planted::shared_past_end)),
              HasSubstr("4 bytes at byte 512 of first, which has 512; block (0,0,0) thread (127,0,0)"));
  EXPECT_THAT(text_after(m.run(planted::block_reads_other)),
              HasSubstr("written by thread 0 of block (0,0,0)"));
}
#endif

// The same text every time: what is found does not depend on a schedule.
TEST(Findings, AreRepeatable) {
  Memory m(2 * kThreads);
  for (const Defect& d : kDefects) {
    const std::string first = text_after(m.run(d.launch));
    EXPECT_EQ(text_after(m.run(d.launch)), first) << d.name;
  }
}

}  // namespace
}  // namespace gpu::emulator
