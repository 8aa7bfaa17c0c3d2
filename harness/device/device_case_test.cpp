// SPDX-License-Identifier: Apache-2.0
// Buffers on a device: what is uploaded comes back, views point to the same elements as on the host, poison
// stands in outputs and workspace, and every stray write is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "harness/device/backend.hpp"
#include "harness/device/staging.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeviceCaseTest : public ::testing::Test {
 protected:
  Backend backend_ = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_fake.so");
};

TEST_F(DeviceCaseTest, UploadsEveryOperandAndKeepsNullNull) {
  const Inputs inputs = build_inputs(testkit::small_problem());
  const DeviceCase device(backend_, inputs, {0});
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    const assay_tensor& on_host = tensor_of(inputs.tensors, op);
    const assay_tensor& on_device = tensor_of(*device.tensors(), op);
    SCOPED_TRACE(operand_name(op));
    ASSERT_EQ(on_host.data == nullptr, on_device.data == nullptr);
    if (on_host.data == nullptr) {
      EXPECT_THAT(device.download(op), IsEmpty());
      continue;
    }
    EXPECT_NE(on_host.data, on_device.data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(on_host.data) % 4096,
              reinterpret_cast<uintptr_t>(on_device.data) % 4096);
    for (int axis = 0; axis < on_host.rank; ++axis) EXPECT_EQ(on_host.stride[axis], on_device.stride[axis]);
    const GuardedBuffer& buffer = inputs.buffers[i];
    const std::vector<std::byte> raw = device.download(op);
    ASSERT_EQ(static_cast<int64_t>(raw.size()), buffer.raw_bytes());
    EXPECT_EQ(std::memcmp(raw.data(), buffer.raw(), raw.size()), 0);
  }
  EXPECT_THAT(device.changed_inputs(), IsEmpty());
  EXPECT_THAT(device.broken_guards(), IsEmpty());
}

TEST_F(DeviceCaseTest, ViewsIntoOneAllocationStayTogether) {
  Problem problem = testkit::small_problem();
  problem.storage = Storage::kInterleaved;
  const Inputs inputs = build_inputs(problem);
  const DeviceCase device(backend_, inputs, {0});
  const auto distance = [](const assay_tensors& t) {
    return static_cast<const std::byte*>(t.v.data) - static_cast<const std::byte*>(t.k.data);
  };
  EXPECT_EQ(distance(*device.tensors()), distance(inputs.tensors));
}

TEST_F(DeviceCaseTest, OutputsAndWorkspaceArePoisonedAgain) {
  const Inputs inputs = build_inputs(testkit::small_problem());
  DeviceCase device(backend_, inputs, {100});
  const assay_tensors& t = *device.tensors();
  ASSERT_NE(t.workspace.data, nullptr);
  EXPECT_EQ(t.workspace.shape[0], 100);
  const auto check = [&] {
    EXPECT_TRUE(std::isnan(load(t.o.format, t.o.data, 0)));
    EXPECT_TRUE(std::isnan(static_cast<const float*>(t.lse.data)[0]));
    EXPECT_TRUE(std::isnan(static_cast<const float*>(t.workspace.data)[24]));
  };
  check();
  store(t.o.format, t.o.data, 0, 1.0);
  static_cast<float*>(t.lse.data)[0] = 1;
  static_cast<float*>(t.workspace.data)[24] = 1;
  device.poison_outputs();
  check();
}

TEST_F(DeviceCaseTest, PoisonOfTheWorkspaceFollowsTheInputs) {
  Inputs inputs = build_inputs(testkit::small_problem());
  repoison(inputs, Poison::kLow);
  DeviceCase device(backend_, inputs, {64});
  const float held = static_cast<const float*>(device.tensors()->workspace.data)[3];
  const float unwritten = static_cast<const float*>(inputs.tensors.lse.data)[0];
  EXPECT_FLOAT_EQ(held, unwritten);
  EXPECT_NE(held, unwritten) << "what is copied from the workspace was written";
  EXPECT_TRUE(std::isfinite(held));
}

TEST_F(DeviceCaseTest, TensorsSayWhatAKernelMayDo) {
  const Inputs attention = build_inputs(testkit::small_problem());
  const DeviceCase device(backend_, attention, {16});
  const assay_tensors& t = *device.tensors();
  EXPECT_EQ(t.q.role, ASSAY_ROLE_IN);
  EXPECT_EQ(t.k.role, ASSAY_ROLE_IN);
  EXPECT_EQ(t.o.role, ASSAY_ROLE_OUT);
  EXPECT_EQ(t.lse.role, ASSAY_ROLE_OUT);
  EXPECT_EQ(t.workspace.role, ASSAY_ROLE_OUT);
  EXPECT_EQ(t.sinks.role, ASSAY_ROLE_NONE);
  Problem write = testkit::small_problem();
  write.op = ASSAY_OP_CACHE_WRITE;
  write.k_format = write.v_format = ASSAY_INT8;
  write.k_scale = ASSAY_SCALE_TOKEN_HEAD, write.v_scale = ASSAY_SCALE_HEAD;
  const Inputs updated = build_inputs(write);
  EXPECT_EQ(updated.tensors.k.role, ASSAY_ROLE_IN_OUT);
  EXPECT_EQ(updated.tensors.v.role, ASSAY_ROLE_IN_OUT);
  EXPECT_EQ(updated.tensors.k_scale.role, ASSAY_ROLE_IN_OUT) << "one per token: written with the code";
  EXPECT_EQ(updated.tensors.v_scale.role, ASSAY_ROLE_IN) << "given";
  EXPECT_EQ(updated.tensors.dense_k.role, ASSAY_ROLE_IN);
}

TEST_F(DeviceCaseTest, NamesChangedOutputsOtherThanTheWorkspace) {
  const Inputs inputs = build_inputs(testkit::small_problem());
  DeviceCase device(backend_, inputs, {16});
  static_cast<char*>(device.tensors()->workspace.data)[3] ^= 1;
  EXPECT_THAT(device.changed_outputs(), IsEmpty());
  static_cast<char*>(device.tensors()->o.data)[2] ^= 1;
  EXPECT_THAT(device.changed_outputs(), ElementsAre(HasSubstr("o (first at byte 2 of")));
  EXPECT_THAT(device.changed_inputs(), IsEmpty());
}

TEST_F(DeviceCaseTest, NamesChangedInputsAndBrokenGuards) {
  const Inputs inputs = build_inputs(testkit::small_problem());
  DeviceCase device(backend_, inputs, {16});
  const assay_tensors& t = *device.tensors();
  static_cast<char*>(t.v.data)[5] ^= 1;
  EXPECT_THAT(device.changed_inputs(), ElementsAre(AllOf(HasSubstr("v (first at byte 5 of"),
                                                         HasSubstr(": v block 0 slot 0 head 0 dim 2 ("))));
  static_cast<char*>(t.workspace.data)[16] = 0;
  EXPECT_THAT(device.broken_guards(), ElementsAre("workspace (byte 1 past its end)"));
  static_cast<char*>(t.q.data)[-1] = 0;
  EXPECT_EQ(device.broken_guards().size(), 2u);
  EXPECT_THAT(device.broken_guards()[0], HasSubstr("q (byte 1 before its start)"));
  device.upload();  // repairs operands with their guards
  EXPECT_THAT(device.changed_inputs(), IsEmpty());
  EXPECT_THAT(device.broken_guards(), IsEmpty());
}

TEST_F(DeviceCaseTest, LargeBuffersTravelInPieces) {
  Problem problem = testkit::small_problem();
  problem.requests = {{1, 250000}};  // K and V: 34 MiB each
  place_pages(problem);
  const Inputs inputs = build_inputs(problem);
  const int64_t bytes = inputs.buffers[static_cast<int>(Operand::kK)].bytes();
  ASSERT_GT(bytes, Staging::kBytes + 5);
  for (const bool staging : {true, false}) {
    std::optional<Staging::Unlocked> staged;
    if (staging) staged.emplace();
    DeviceCase device(backend_, inputs, {0});
    EXPECT_THAT(device.changed_inputs(), IsEmpty());
    auto* const k = static_cast<char*>(device.tensors()->k.data);
    for (const int64_t at : {bytes - 1, Staging::kBytes + 5, (int64_t{128} << 10) - 1, int64_t{7}}) {
      k[at] ^= 1;
      EXPECT_THAT(device.changed_inputs(), ElementsAre(HasSubstr(fmt::format("k (first at byte {} of", at))));
    }
    device.upload();
    EXPECT_THAT(device.changed_inputs(), IsEmpty());
  }
}

TEST_F(DeviceCaseTest, UploadTakesTheCurrentContents) {
  Inputs inputs = build_inputs(testkit::small_problem());
  DeviceCase device(backend_, inputs, {0});
  inputs.buffers[static_cast<int>(Operand::kQ)].payload()[0] ^= std::byte{1};
  EXPECT_THAT(device.changed_inputs(), ElementsAre(AllOf(HasSubstr("q (first at byte 0"),
                                                         HasSubstr(": q request 0 row 0 head 0 dim 0)"))));
  device.upload();
  EXPECT_THAT(device.changed_inputs(), IsEmpty());
}

}  // namespace
}  // namespace assay
