// SPDX-License-Identifier: Apache-2.0
// A child's reports arrive whatever becomes of the child, and every way it ends is told apart.
#include "harness/explain/child.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace assay {
namespace {

using nlohmann::json;

struct Heard {
  std::vector<json> heard;
  ChildEnd end;
};

Heard run(const std::function<void(const Report&)>& body, double timeout_s = 20) {
  Heard r;
  r.end = run_in_child(
      body, [&](const json& j) { r.heard.push_back(j); }, timeout_s);
  return r;
}

TEST(Child, ReportsArriveInOrderAndWhole) {
  const std::vector<uint8_t> large(3 << 20, 7);
  const Heard r = run([&](const Report& say) {
    say(1);
    say(json::binary(large));
    say("end");
  });
  EXPECT_TRUE(r.end.fine()) << r.end.text();
  ASSERT_EQ(r.heard.size(), 3u);
  EXPECT_EQ(r.heard[0], 1);
  EXPECT_EQ(r.heard[1].get_binary(), json::binary_t(large));
  EXPECT_EQ(r.heard[2], "end");
}

TEST(Child, CrashKeepsWhatWasSaidBefore) {
  const Heard r = run([](const Report& say) {
    say("before");
    raise(SIGSEGV);
  });
  EXPECT_EQ(r.heard, std::vector<json>{"before"});
  EXPECT_FALSE(r.end.fine());
  EXPECT_EQ(r.end.signal, SIGSEGV);
  EXPECT_EQ(r.end.text(), "died of SIGSEGV");
}

TEST(Child, HangIsEnded) {
  const Heard r = run([](const Report&) { pause(); }, 0.2);
  EXPECT_TRUE(r.end.timed_out);
  EXPECT_FALSE(r.end.fine());
}

TEST(Child, ExceptionIsItsText) {
  const Heard r = run([](const Report&) { throw std::runtime_error("no such thing"); });
  EXPECT_EQ(r.end.text(), "no such thing");
}

TEST(Child, QuietExitIsNoCleanEnd) {
  EXPECT_FALSE(run([](const Report&) { std::_Exit(0); }).end.fine());
  EXPECT_EQ(run([](const Report&) { std::_Exit(3); }).end.exit_code, 3);
}

}  // namespace
}  // namespace assay
