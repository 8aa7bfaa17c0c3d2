// SPDX-License-Identifier: Apache-2.0
// Backends that run only when named, and whose times mean nothing: the emulators. They are checked like any
// other, and no command makes a time of them.
#include <cmath>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NamedBackend : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    for (const std::string lanes : {"64", "32"})
      if (std::filesystem::exists(ASSAY_BINARY_DIR "/emulator/libassay_emu" + lanes + ".so"))
        lanes_ = lanes, name_ = "emu" + lanes;
    if (name_.empty()) GTEST_SKIP() << "this build has emulators of neither number of lanes";
  }

  std::string lanes_, name_;  // one that this build has
};

TEST_F(NamedBackend, IsFoundByNameAndLeftAloneOtherwise) {
  const Output named = run({"kernels", "--op", "prefill", "--backend", name_});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_THAT(named.out,
              AllOf(HasSubstr("SIMT emulator, " + lanes_ + " lanes"), HasSubstr("prefill_simple_gpu")));
  EXPECT_THAT(run({"kernels", "--op", "prefill"}).out, Not(HasSubstr("emulator")));
  const Output wrong = run({"check", kLine, "--backend", "emu33"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("installed are: "), HasSubstr(name_)));
}

TEST_F(NamedBackend, IsCheckedAndNeverTimed) {
  for (const std::string command : {"run", "bench"}) {
    const std::string folder = path(command);
    const Output o = run({command, kLine, "--backend", name_, "--kernel", "paged_simple_gpu", "--cache",
                          "both", "--out", folder, "--quiet"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.out, AllOf(HasSubstr("1 passed"),
                             HasSubstr("checked, not timed: backend " + name_ + ": times of an emulator"),
                             Not(HasSubstr("measured limits"))));
    const std::vector<Row> rows = read_rows(folder + "/rows.csv").rows;
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].cache, "");
    EXPECT_TRUE(std::isnan(rows[0].time_us) && std::isnan(rows[0].gbytes_per_s) &&
                std::isnan(rows[0].limit_percent));
    // Nothing is left to do: an untimed row stands for all modes.
    EXPECT_THAT(run({command, "--resume", folder, "--quiet"}).out, HasSubstr("1 passed"));
    EXPECT_EQ(read_rows(folder + "/rows.csv").rows.size(), 1u);
  }
}

TEST_F(NamedBackend, IsRefusedByGoogleBenchmark) {
  const std::string program = ASSAY_BINARY_DIR "/assay-gbench";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "built without Google Benchmark";
  const Output o = run_shell(shell_quote(program) + " " + shell_quote(kLine) + " --backend " + name_);
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("times of an emulator say nothing about a GPU"));
}

}  // namespace
}  // namespace assay
