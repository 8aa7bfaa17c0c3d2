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

// What a kernel does to those around it.
TEST(Child, ParentAndGroupAreNotTheCallers) {
  EXPECT_EQ(run([](const Report&) { kill(0, SIGKILL); }).end.signal, SIGKILL);
  EXPECT_EQ(run([](const Report&) { kill(getppid(), SIGKILL), pause(); }).end.signal, SIGKILL);
  const Heard stopped = run([](const Report& say) { kill(getppid(), SIGSTOP), say("done"); });
  EXPECT_TRUE(stopped.end.fine()) << stopped.end.text();
  EXPECT_EQ(stopped.heard, std::vector<json>{"done"});
  EXPECT_TRUE(run(
                  [](const Report&) {
                    for (;;) kill(getppid(), SIGSTOP);
                  },
                  0.2)
                  .end.timed_out);
}

// In a session of its own, and holding the pipe.
TEST(Child, NobodyOutlivesIt) {
  for (const bool crashes : {false, true}) {
    const Heard r = run([&](const Report& say) {
      const pid_t left = fork();
      if (left == 0) {
        setsid();
        for (;;) pause();
      }
      say(left);
      if (crashes) raise(SIGSEGV);
    });
    EXPECT_EQ(r.end.signal, crashes ? SIGSEGV : 0);
    ASSERT_EQ(r.heard.size(), 1u);
    EXPECT_NE(kill(r.heard[0].get<pid_t>(), 0), 0) << "lives on";
  }
}

// Whoever finds the pipe.
TEST(Child, NonsenseIsNoReport) {
  const auto everywhere = [](const std::string& text) {
    return run([&](const Report&) {
      for (int fd = 3; fd < 64; ++fd)
        if (write(fd, text.data(), text.size()) < 0) continue;
      pause();
    });
  };
  for (const std::string& text : {std::string("\1\0\0\0\0\0\0\0\xff", 9), std::string(8, '\xff')}) {
    const Heard r = everywhere(text);
    EXPECT_EQ(r.end.text(), "it said what is no report");
    EXPECT_FALSE(r.end.fine());
  }
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
