// SPDX-License-Identifier: Apache-2.0
// What one does with results every day: repeat a failure, run failures again, compare runs and kernels.
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Everyday : public Program {};

// The command of a row is run by a shell, from the same folder, and comes to the same outcome: with the
// library given by its path, and with graphs, without which this kernel passes.
TEST_F(Everyday, RepeatCommandsRepeat) {
  ASSERT_EQ(fake({"check", kLine, "--graphs", "--kernel", "paged_frozen_fake", "--kernel", "paged_nan_fake",
                  "--out", path("out"), "--quiet"})
                .code,
            1);
  const auto rows = by(path("out"), &Row::kernel);
  for (const char* kernel : {"paged_frozen_fake", "paged_nan_fake"}) {
    const Row& row = rows.at(kernel);
    ASSERT_EQ(row.outcome, "wrong") << row.reason;
    EXPECT_THAT(row.repeat, AllOf(HasSubstr("--graphs"), HasSubstr("--backend " + kFake)));
    const Output again = run_shell(row.repeat + " --quiet --out " + shell_quote(path(kernel)));
    EXPECT_EQ(again.code, 1) << again.err;
    EXPECT_EQ(by(path(kernel), &Row::kernel).at(kernel).reason, row.reason);
    EXPECT_THAT(again.out, HasSubstr("repeat: " + row.repeat)) << "the same again";
    EXPECT_THAT(read_text(path("out/failures.txt")), HasSubstr(row.repeat + "\n"));
  }
  EXPECT_THAT(read_text(path("out/junit.xml")), HasSubstr("--graphs"));
}

}  // namespace
}  // namespace assay
