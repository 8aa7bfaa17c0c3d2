// SPDX-License-Identifier: Apache-2.0
// In which of two orders calls on several streams run, and which captures are none.
#include "kernels/emulator/streams.hpp"

#include <gtest/gtest.h>

#include <string>

#include "kernels/emulator/disorder.hpp"

namespace gpu::emulator {
namespace {

struct Calls {
  std::string ran;
  int marks[4] = {};
  void launch(Stream stream, char name) {
    const auto run = [this, name] { return ran += name, emulatorSuccess; };
    if (Recording* const list = recording(stream))
      list->push_back({run});
    else
      run();
  }
  // a and d on the caller's stream; b beside it from a on, c on a third behind b; d behind b, e behind c.
  void enqueue() {
    launch(lane(0), 'a'), put_mark(&marks[0], lane(0));
    follow(lane(1), &marks[0]), launch(lane(1), 'b'), put_mark(&marks[1], lane(1));
    follow(lane(2), &marks[1]), launch(lane(2), 'c'), put_mark(&marks[2], lane(2));
    launch(lane(0), 'x');
    follow(lane(0), &marks[1]), launch(lane(0), 'd');
    follow(lane(0), &marks[2]), launch(lane(0), 'e');
  }
};

TEST(EmulatedStreams, RunInTheOrderOfTheCallsOrAsLateAsMarksAllow) {
  Calls plain, disturbed;
  plain.enqueue();
  EXPECT_EQ(plain.ran, "abcxde");
  disorder.blocks = 1;
  disturbed.enqueue();
  disorder = {};
  EXPECT_EQ(disturbed.ran, "axbdce");
}

TEST(EmulatedStreams, AreCapturedAsLateAsMarksAllow) {
  Calls calls;
  Recording graph;
  begin_recording(&graph);
  calls.enqueue();
  EXPECT_TRUE(end_recording());
  EXPECT_EQ(calls.ran, "");
  for (int replay = 0; replay < 2; ++replay)
    for (const Recorded& entry : graph) entry.launch();
  EXPECT_EQ(calls.ran, "axbdceaxbdce");
}

TEST(EmulatedStreams, OutsideOfACaptureAndUnawaitedOnesAreFound) {
  Calls calls;
  Recording graph;
  begin_recording(&graph);
  calls.launch(lane(1), 'b');  // follows nothing of the capture
  EXPECT_FALSE(end_recording());

  put_mark(&calls.marks[0], lane(0));  // before the capture
  begin_recording(&graph);
  follow(lane(1), &calls.marks[0]);
  EXPECT_FALSE(end_recording());

  begin_recording(&graph);
  put_mark(&calls.marks[0], lane(0));
  follow(lane(1), &calls.marks[0]);
  calls.launch(lane(1), 'b'), put_mark(&calls.marks[1], lane(1));  // for whom nobody waits
  EXPECT_FALSE(end_recording());
}

}  // namespace
}  // namespace gpu::emulator
