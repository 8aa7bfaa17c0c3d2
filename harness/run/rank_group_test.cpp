// SPDX-License-Identifier: Apache-2.0
// Steps on several ranks, each a process: right on every line that is taken, one fault at a time rejected,
// and a rank that ends, hangs, fails or never joins named in the reason, with the next group as good as new.
#include "harness/run/rank_group.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "harness/check/verdict.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/run/rank_operands.hpp"
#include "harness/run/rank_rows.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Backend& cpu() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/libassay_cpu.so");
  return backend;
}
const Backend& faults() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_rank_faults.so");
  return backend;
}

Verdict judge(const Backend& backend, const std::string& line, const std::string& kernel,
              double limit_s = 60) {
  const assay_kernel* found = backend.find(kernel);
  if (found == nullptr) throw std::runtime_error("no kernel " + kernel);
  RankGroup group(backend, *found, {ASSAY_BINARY_DIR "/assay", limit_s});
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  return judge.judge(backend, group.kernel(), backend.device(0));
}

const std::string kDcp = "step_ixformer_dcp_cpu";
// Requests of one key, of none on most ranks, of whole turns and of parts, prefills among them.
const std::string kMixed = "batch=2q1s33_1q5s40_1q3s4_1q1s1_1q9s9";

TEST(KeyOwner, TurnsGoRound) {
  for (const int32_t ranks : {1, 2, 3, 5})
    for (const int32_t turn : {1, 4, 16}) {
      std::vector<int32_t> held(static_cast<size_t>(ranks), 0);
      for (int32_t key = 0; key < 200; ++key) {
        const KeyOwner owner = owner_of(key, ranks, turn);
        EXPECT_EQ(owner.rank, key / turn % ranks);
        EXPECT_EQ(owner.index, held[static_cast<size_t>(owner.rank)]++)
            << "keys of a rank lie close together";
      }
    }
}

TEST(RankGroup, StepsAreRight) {
  for (const std::string& line :
       {"step h=4/2 d=32 ranks=2 page=4 " + kMixed + " seed=1",
        "step h=6/3 d=32/16 ranks=3 interleave=4 page=4 " + kMixed + " seed=2",
        "step h=4/1 d=32 ranks=2 interleave=16 layout=x table=csr cap=3 " + kMixed + " seed=3",
        "step h=6/1 d=32 kv=fp8_e4m3:head ranks=3 interleave=3 layout=shuffled table=token sinks=on " +
            kMixed + " seed=4",
        "step h=4/4 d=32 kv=int8:channel ranks=2 interleave=2 layout=hnd pad=3 strides=q+kv+out " + kMixed +
            " seed=5",
        std::string("step h=4/2 d=32 ranks=2 interleave=64 batch=3q1s40_1q4s60 seed=6"),  // one rank has all
        std::string("step h=4/2 d=32 ranks=4 batch=3q5s5 seed=7"),                        // no context
        std::string("step h=4/2 d=32 ranks=2 batch=2q0s9 seed=8")}) {
    const Verdict v = judge(cpu(), line, kDcp);
    EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << v.reason;
  }
}

TEST(RankGroup, DrawnStepsAreRight) {
  std::mt19937 random(12);
  const auto one_of = [&](auto... all) {
    const std::string list[] = {std::string(all)...};
    return list[random() % (sizeof...(all))];
  };
  const char* more = std::getenv("ASSAY_TEST_RANK_LINES");  // by hand: more than a build can wait for
  for (int i = 0; i < (more != nullptr ? std::atoi(more) : 8); ++i) {
    const std::string line =
        "step h=" + one_of("12/6", "6/6", "12/2", "6/1", "12/12") + " d=" + one_of("32", "48/16", "16/64") +
        " kv=" + one_of("bf16", "fp16", "fp8_e4m3:tensor", "fp8_e5m2:head", "int8:channel", "fp32") +
        " ranks=" + one_of("2", "3", "6") + " interleave=" + one_of("1", "2", "5", "16", "64") +
        " page=" + one_of("1", "4", "16") + " layout=" + one_of("nhd", "hnd") +
        " table=" + one_of("block", "csr", "token") + " sinks=" + one_of("on", "off") +
        " cap=" + one_of("0", "5") +
        " batch=" + one_of("3q1s50_1q2s3", "1q1s1_1q7s30", "4q1s17_1q6s6", "1q3s100_1q1s64_1q0s5") +
        " seed=" + std::to_string(random() % 1000);
    const Verdict v = judge(cpu(), line, kDcp);
    EXPECT_TRUE(v.outcome == Outcome::kPassed ||
                (v.outcome == Outcome::kUnsupported && v.reason.find("within a group") != std::string::npos))
        << line << ": " << v.reason;
  }
}

TEST(RankGroup, LinesSayWhatIsShared) {
  const Problem p = make_problem(parse_scenario("step h=6/3 d=32 ranks=3 interleave=16 batch=2q1s40"));
  EXPECT_THAT(op_of(p.op).describe(p),
              HasSubstr("ranks     3: keys in turns of 16 tokens, 2 heads of Q each"));
  for (const auto& [line, why] :
       {std::pair{"step h=6/3 ranks=4 batch=2q1s40",
                  "1:12: ranks=4: ranks share the 6 heads of Q evenly; take 1, 2, 3, 6"},
        std::pair{"step h=6/3 ranks=3 interleave=0 batch=2q1s40", "1:31: interleave: 0 is too small"},
        std::pair{"step h=6/3 ranks=0 batch=2q1s40", "1:18: ranks: 0 is too small"},
        std::pair{"step h=6/1 ranks=3 layout=mla batch=2q1s40", "1:20: ranks=3 share causal attention"}})
    try {
      parse_scenario(line);
      ADD_FAILURE() << line;
    } catch (const std::exception& e) {
      EXPECT_THAT(e.what(), HasSubstr(why)) << line;
    }
}

// Where a step on one rank makes a cascade of a prefix, one on several has none.
TEST(RankGroup, NoCascades) {
  const auto stages = [](const std::string& line, const char* kernel) {
    Problem p = make_problem(parse_scenario("step h=4/2 d=32 page=16 workers=4 batch=8q1s330 seed=5" + line));
    p.prefix_tokens = 256;
    const ProblemView view(p);
    char text[4000] = "";
    const assay_kernel* k = cpu().find(kernel);
    EXPECT_EQ(k->dispatch(k, view.get(), text, sizeof text), ASSAY_OK) << text;
    return std::string(text);
  };
  EXPECT_THAT(stages("", "step_ixformer_fa_cpu"), HasSubstr("cascade: "));
  const std::string ranks = stages(" ranks=2", kDcp.c_str());
  EXPECT_THAT(ranks, AllOf(HasSubstr("context: "), ::testing::Not(HasSubstr("cascade"))));
}

TEST(RankGroup, RefusalsSayWhy) {
  const std::string two = "step h=4/2 d=32 ranks=2 batch=2q1s40";
  for (const auto& [line, why] :
       {std::pair{two + " window=8", "a window"}, std::pair{two + " alibi=linear", "a bias by distance"},
        std::pair{two + " chunk=16", "chunks"},
        std::pair{std::string("step h=6/2 d=32 ranks=3 batch=2q1s40"), "whole groups, or parts of one"},
        std::pair{std::string("step h=128/128 d=16 ranks=128 batch=1q1s4"), "supported up to 64"}}) {
    const Verdict v = judge(cpu(), line, kDcp);
    EXPECT_EQ(v.outcome, Outcome::kUnsupported) << line;
    EXPECT_THAT(v.reason, HasSubstr(why)) << line;
  }
  // Called by somebody who knows nothing of groups.
  Judge alone(make_problem(parse_scenario(two)), 1e9);
  const Verdict v = alone.judge(cpu(), *cpu().find(kDcp), cpu().device(0));
  EXPECT_EQ(v.outcome, Outcome::kUnsupported) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("joined a group"));
  EXPECT_THAT(judge(cpu(), "step h=4/2 d=32 batch=2q1s40", kDcp).reason, HasSubstr("required 1 rank"));
  EXPECT_THAT(judge(cpu(), two, "step_unified_cpu").reason, HasSubstr("required 2 ranks, supported 1"));
}

const std::string kLine = "step h=4/2 d=32 ranks=2 interleave=4 page=4 batch=2q1s33_1q5s40_1q1s3 seed=3";

TEST(RankGroup, FaultsAreRejected) {
  EXPECT_EQ(judge(faults(), kLine, "dcp_right").outcome, Outcome::kPassed);
  for (const char* fault :
       {"lse_base_2", "no_correction", "empty_as_zero", "own_total", "heads_turned", "own_heads_for_all",
        "local_causal", "next_rank", "lengths_of_bound", "new_keys_twice", "writes_none", "prefix_apart"}) {
    const Verdict v = judge(faults(), kLine, std::string("dcp_") + fault);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << fault << ": " << v.reason;
  }
  const Verdict window = judge(faults(), kLine + " window=6", "dcp_window_local");
  EXPECT_EQ(window.outcome, Outcome::kWrong) << window.reason;
  const Verdict all = judge(faults(), kLine, "dcp_writes_all");
  EXPECT_NE(all.outcome, Outcome::kPassed);
  EXPECT_THAT(all.reason, AllOf(HasSubstr("rank "), HasSubstr("where none of its new keys lies")));
}

TEST(RankGroup, ARankThatEndsHangsOrFailsIsNamed) {
  for (const auto& [kernel, why] : {std::pair{"dcp_ends", "rank 1 of 2 ended with exit code 7"},
                                    std::pair{"dcp_crashes", "rank 1 of 2 ended with SIGABRT"},
                                    std::pair{"dcp_hangs", "rank 1, which entered 2 exchanges where others"},
                                    std::pair{"dcp_fails", "rank 1 of 2 failed to run: stage merge"}}) {
    const Verdict v = judge(faults(), kLine, kernel, 2);
    EXPECT_EQ(v.outcome, Outcome::kCrashed) << kernel;
    EXPECT_THAT(v.reason, HasSubstr(why)) << kernel;
  }
  setenv("ASSAY_TEST_NEVER_JOINS", "1", 1);
  const Verdict v = judge(faults(), kLine, "dcp_right", 2);
  unsetenv("ASSAY_TEST_NEVER_JOINS");
  EXPECT_EQ(v.outcome, Outcome::kCrashed);
  EXPECT_THAT(v.reason,
              HasSubstr("rank 1, which entered 0 exchanges where others entered 1, did not join within 2 s"));
  EXPECT_EQ(judge(faults(), kLine, "dcp_right").outcome, Outcome::kPassed) << "the sweep goes on";
}

TEST(RankGroup, LibrariesThatConnectThemselvesNeedADeviceEach) {
  const std::string six = "step h=6/6 d=32 ranks=6 batch=2q1s40";
  const Verdict v = judge(faults(), six, "dcp_right");
  EXPECT_EQ(v.outcome, Outcome::kUnsupported);
  EXPECT_THAT(v.reason, HasSubstr("required 6 ranks with a device each, supported 4"));
  setenv("ASSAY_RANKS", "host", 1);
  const Verdict through_host = judge(faults(), six, "dcp_right");
  unsetenv("ASSAY_RANKS");
  EXPECT_EQ(through_host.outcome, Outcome::kPassed) << through_host.reason;
  setenv("ASSAY_TEST_NO_CONNECTION", "1", 1);
  const Verdict missing = judge(faults(), kLine, "dcp_right");
  unsetenv("ASSAY_TEST_NO_CONNECTION");
  EXPECT_EQ(missing.outcome, Outcome::kUnsupported) << missing.reason;
  EXPECT_THAT(missing.reason, HasSubstr("missing libconnection.so"));
}

// A step that was judged, by all ranks again and again.
TEST(RankGroup, TimesOfARankEach) {
  const auto timed = [](const char* kernel, const char* mode, Samples& all) {
    RankGroup group(faults(), *faults().find(kernel), {ASSAY_BINARY_DIR "/assay", 60});
    Judge judge(make_problem(parse_scenario(kLine)), 1e9);
    const Verdict v = judge.judge(faults(), group.kernel(), faults().device(0));
    if (v.outcome != Outcome::kPassed) return v;
    group.prepare(*judge.inputs().view->get(), *judge.device_case().tensors(), mode);
    EXPECT_EQ(group.seats().at(1).uuid, "device-1");
    for (int i = 0; i < 6; ++i) all = group.sample();
    judge.clear_outputs();
    group.show();
    return judge.recheck();
  };
  for (const char* mode : {"hot", "cold"}) {
    Samples all;
    EXPECT_EQ(timed("dcp_right", mode, all).outcome, Outcome::kPassed) << mode;
    ASSERT_EQ(all.size(), 2u);
    for (const TimedSample& s : all) EXPECT_GT(s.us, 0);
  }
  Samples all;
  EXPECT_THROW(timed("dcp_right", "graph", all), ModeRefused);
  const Verdict tired = timed("dcp_tired", "hot", all);
  EXPECT_EQ(tired.outcome, Outcome::kWrong) << "a rank that leaves nothing behind while it is timed";
}

// A rank that waits within its call for one that was away has a time that its host's clock does not explain.
// Were it to call once more by itself, it would wait for ever, and the next order with it.
TEST(RankGroup, RanksRepeatACallTogether) {
  const auto timed = [](const char* clock) {
    setenv("ASSAY_TEST_CLOCK", clock, 1);
    setenv("OMP_NUM_THREADS", "1", 1);  // threads of ranks that wait for each other's take long
    RankGroup group(faults(), *faults().find("dcp_right"), {ASSAY_BINARY_DIR "/assay", 10});
    Judge judge(make_problem(parse_scenario(kLine)), 1e9);
    Verdict v = judge.judge(faults(), group.kernel(), faults().device(0));
    unsetenv("ASSAY_TEST_CLOCK"), unsetenv("OMP_NUM_THREADS");
    if (v.outcome != Outcome::kPassed) return v;
    group.prepare(*judge.inputs().view->get(), *judge.device_case().tensors(), "hot");
    for (int i = 0; i < 12; ++i) EXPECT_EQ(group.sample().size(), 2u);
    judge.clear_outputs();
    group.show();
    return judge.recheck();
  };
  try {
    const Verdict v = timed("late");
    EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
  } catch (const TimedCallFailed& failed) {
    ADD_FAILURE() << failed.text;
  }
  try {
    timed("tenth");
    ADD_FAILURE() << "ranks whose clocks all say a tenth were believed";
  } catch (const TimeImplausible& time) {
    EXPECT_THAT(time.text, AllOf(HasSubstr("the backend's clock said"), HasSubstr("by the host's")));
  }
}

TEST(RankGroup, WorkOfRanksIsThatOfTheStep) {
  const Problem p = make_problem(parse_scenario("step h=6/3 d=32 ranks=3 interleave=16 batch=2q1s40_1q9s50"));
  const Work whole = work_of(p);
  Work sum{};
  const std::vector<Work> parts = work_of_ranks(p, whole);
  for (const Work& w : parts) sum.flops += w.flops, sum.total_bytes += w.total_bytes;
  EXPECT_NEAR(sum.flops, whole.flops, 1e-9 * whole.flops);
  EXPECT_NEAR(sum.total_bytes, whole.total_bytes, 1e-9 * whole.total_bytes);
  // Of 40 keys rank 0 has 16, rank 1 as many and rank 2 the last 8.
  EXPECT_NEAR(parts[0].kv_bytes / whole.kv_bytes, (2 * 16 + 18) / 130.0, 1e-9);
  EXPECT_GT(parts[1].flops, parts[2].flops);
}

// Of libraries that were built here; neither needs a device to look for what it lacks.
TEST(RankGroup, WithoutALibraryOfExchangesSaysWhatToInstall) {
  int looked = 0;
  ::setenv("ASSAY_NCCL", "/nowhere/libexchanges.so", 1);
  for (const auto& [file, words] :
       {std::pair{ASSAY_BINARY_DIR "/libassay_cuda.so", std::pair{"required NCCL", "package libnccl2"}},
        std::pair{ASSAY_BINARY_DIR "/libassay_hip.so", std::pair{"required RCCL", "package rccl of ROCm"}}}) {
    void* library = std::filesystem::exists(file) ? ::dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) continue;
    ++looked;
    const auto id =
        reinterpret_cast<int (*)(unsigned char*, char*, size_t)>(::dlsym(library, "assay_backend_group_id"));
    ASSERT_NE(id, nullptr) << file;
    unsigned char made[128];
    char why[1000] = "";
    EXPECT_EQ(id(made, why, sizeof why), ASSAY_UNSUPPORTED) << file;
    EXPECT_THAT(why, AllOf(HasSubstr(words.first), HasSubstr("missing /nowhere/libexchanges.so"),
                           HasSubstr(words.second), HasSubstr("ASSAY_RANKS=host")));
  }
  ::unsetenv("ASSAY_NCCL");
  if (looked == 0) GTEST_SKIP() << "no library of a GPU is part of this build";
}

TEST(SharedMemory, OfAnySize) {
  const SharedMemory memory((int64_t{300} << 20) + 5);
  memory.data()[memory.bytes() - 1] = 7;
  memory.data()[int64_t{128} << 20] = 8;
  const SharedMemory other(memory.path());
  EXPECT_EQ(other.bytes(), memory.bytes());
  EXPECT_EQ(other.data()[memory.bytes() - 1], 7);
  EXPECT_EQ(other.data()[int64_t{128} << 20], 8);
}

}  // namespace
}  // namespace assay
