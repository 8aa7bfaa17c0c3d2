// SPDX-License-Identifier: Apache-2.0
// Loading of backends: the good one, and one per way of being unusable, each with a message that names
// the file and what to do; calls through the door whose exceptions must not escape.
#include "harness/device/backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/ops/problem_view.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string test_library(const std::string& name) {
  return ASSAY_BINARY_DIR "/testing/libassay_" + name + ".so";
}

std::string load_error(const std::string& name) {
  try {
    Backend::load(name);
  } catch (const InfrastructureError& e) {
    return e.what();
  }
  return "loaded";
}

TEST(Backend, LoadsAndListsKernels) {
  const Backend backend = Backend::load(test_library("fake"));
  EXPECT_EQ(backend.name(), "fake");
  EXPECT_EQ(backend.path(), test_library("fake"));
  EXPECT_EQ(backend.kernels().size() % 2, 0u);
  ASSERT_NE(backend.find("paged_ok_fake"), nullptr);
  EXPECT_EQ(backend.find("paged_ok_fake")->op, ASSAY_OP_PAGED);
  EXPECT_EQ(backend.find("prefill_ok_fake")->op, ASSAY_OP_PREFILL);
  EXPECT_EQ(backend.find("paged_ok"), nullptr);
  EXPECT_STREQ(backend.device(0).name, "fake device");
}

TEST(Backend, DeviceOutOfRange) {
  const Backend backend = Backend::load(test_library("fake"));
  EXPECT_THROW(
      {
        try {
          backend.device(1);
        } catch (const InfrastructureError& e) {
          EXPECT_THAT(e.what(), HasSubstr("no device 1; it has 1"));
          throw;
        }
      },
      InfrastructureError);
  EXPECT_THROW(backend.device(-1), InfrastructureError);
}

TEST(Backend, ErrorsSayWhatToDo) {
  EXPECT_THAT(load_error("nonesuch"),
              AllOf(HasSubstr("libassay_nonesuch.so does not exist"), HasSubstr("installed:")));
  EXPECT_THAT(load_error("./nonesuch.so"), AllOf(HasSubstr("./nonesuch.so"), HasSubstr("no such file")));
  EXPECT_THAT(load_error(""), HasSubstr("empty name"));
  const auto text = std::filesystem::temp_directory_path() / "assay_not_a_library.so";
  std::ofstream(text) << "hello";
  EXPECT_THAT(load_error(text.string()), HasSubstr("cannot be loaded"));
  std::filesystem::remove(text);
  EXPECT_THAT(load_error(test_library("bad_1")), HasSubstr("does not serve interface version 2"));
  EXPECT_THAT(load_error(test_library("bad_6")),
              AllOf(HasSubstr("serves interface version 1, this program speaks 2; rebuild it against"),
                    HasSubstr("get the kernel itself first")));
  EXPECT_THAT(load_error(test_library("bad_2")),
              HasSubstr("says interface version 9, this program speaks 2"));
  EXPECT_THAT(load_error(test_library("bad_3")), HasSubstr("a function pointer of its table is null"));
  EXPECT_THAT(load_error(test_library("bad_4")), HasSubstr("kernel 0 is null"));
}

TEST(Backend, LibraryWithoutEntryPoint) {
  // Any other library will do; the C library is always there.
  EXPECT_THAT(load_error("/lib/x86_64-linux-gnu/libm.so.6"), HasSubstr("exports no assay_backend_open"));
}

TEST(Backend, WithoutADeviceSaysSo) {
  const Backend backend = Backend::load(test_library("bad_5"));
  try {
    backend.device(0);
    FAIL() << "a device that is not there";
  } catch (const NoDevice& e) {
    EXPECT_THAT(e.what(), HasSubstr("backend bad: this machine has no device for it"));
  }
}

TEST(Call, TheDevicesClockIsAsked) {
  const Backend backend = Backend::load(test_library("bad_5"));
  double us = 0;
  EXPECT_TRUE(call_time_run(backend, assay_kernel{}, nullptr, nullptr, nullptr, 4096, &us).ok());
  EXPECT_EQ(us, 4096);
}

TEST(Backend, TestBackendsAreNotInstalled) {
  for (const std::string& name : installed_backends()) {
    EXPECT_NE(name, "fake");
    EXPECT_EQ(load_error(name), "loaded");
  }
}

TEST(Call, ExceptionsBecomeStatuses) {
  const Backend backend = Backend::load(test_library("fake"));
  const Problem problem = testkit::small_problem();
  const Inputs inputs = build_inputs(problem);
  DeviceCase device(backend, inputs, {});
  const auto run = [&](const char* kernel) {
    return call_run(backend, *backend.find(kernel), inputs.view->get(), device.tensors(), nullptr);
  };
  EXPECT_TRUE(run("paged_ok_fake").ok());
  EXPECT_EQ(run("paged_throw_fake").status, ASSAY_FAILED);
  EXPECT_THAT(run("paged_throw_fake").error, HasSubstr("exception through the C door: fake kernel threw"));
  EXPECT_THAT(run("paged_throwint_fake").error, HasSubstr("no std::exception"));
  EXPECT_EQ(run("paged_fail_fake").error, "fake kernel failed on purpose");
}

TEST(Call, SupportsAndArithmetic) {
  const Backend backend = Backend::load(test_library("fake"));
  const Problem problem = testkit::small_problem();
  const ProblemView view(problem);
  const assay_device device = backend.device(0);
  EXPECT_TRUE(call_supports(*backend.find("paged_ok_fake"), view.get(), nullptr, device).ok());
  const CallResult refusal = call_supports(*backend.find("paged_refuse_fake"), view.get(), nullptr, device);
  EXPECT_EQ(refusal.status, ASSAY_UNSUPPORTED);
  EXPECT_THAT(refusal.error, HasSubstr("missing everything"));
  assay_arithmetic a{};
  EXPECT_TRUE(call_arithmetic(backend, *backend.find("paged_ok_fake"), view.get(), a));
  EXPECT_EQ(a.p_format, ASSAY_FP32);
  EXPECT_FALSE(call_arithmetic(backend, *backend.find("paged_undeclared_fake"), view.get(), a));
  EXPECT_EQ(call_workspace(*backend.find("paged_ok_fake"), view.get()).bytes, 0);
}

TEST(Call, ADeclarationThatChangesNothingIsTheDefaults) {
  const Backend backend = Backend::load(test_library("fake"));
  const Problem problem = testkit::small_problem();
  const ProblemView view(problem);
  assay_arithmetic a{};
  EXPECT_TRUE(call_arithmetic(backend, *backend.find("paged_defaults_fake"), view.get(), a));
  const assay_arithmetic defaults = assay_default_arithmetic();
  EXPECT_EQ(std::memcmp(&a, &defaults, sizeof a), 0);
  EXPECT_GT(a.exp_relative_error, 0);
}

TEST(Call, SupportsSeesStrides) {
  const Backend backend = Backend::load(test_library("fake"));
  const assay_kernel& kernel = *backend.find("paged_packedonly_fake");
  Problem problem = testkit::small_problem();
  const Inputs packed = build_inputs(problem);
  problem.strided.q = true;
  const Inputs strided = build_inputs(problem);
  const assay_device device = backend.device(0);
  EXPECT_TRUE(call_supports(kernel, strided.view->get(), nullptr, device).ok()) << "some tensors may do";
  EXPECT_TRUE(call_supports(kernel, packed.view->get(), &packed.tensors, device).ok());
  const CallResult refusal = call_supports(kernel, strided.view->get(), &strided.tensors, device);
  EXPECT_TRUE(refusal.refused());
  EXPECT_THAT(refusal.error, HasSubstr("missing strides"));
}

// One kernel on the small case.
struct OneCall {
  explicit OneCall(const std::string& name, const Problem& problem = testkit::small_problem())
      : kernel(*backend.find(name)),
        inputs(build_inputs(problem)),
        device(backend, inputs, call_workspace(kernel, inputs.view->get())) {}
  ~OneCall() { call_free_plan(kernel, plan); }
  CallResult make_plan() {
    call_free_plan(kernel, plan);
    return call_plan(backend, kernel, inputs.view->get(), device.tensors(), &plan);
  }
  CallResult run() { return call_run(backend, kernel, inputs.view->get(), device.tensors(), plan); }
  CallResult run_again() {
    return call_run_again(backend, kernel, inputs.view->get(), device.tensors(), plan);
  }
  CallResult run_on(void* stream) {
    const int status = kernel.run(&kernel, inputs.view->get(), device.tensors(), plan, stream, nullptr, 0);
    return {status, ""};
  }
  bool written() const { return !device.changed_outputs().empty(); }
  int32_t counter() const { return *static_cast<const int32_t*>(device.tensors()->workspace.data); }
  const Backend backend = Backend::load(test_library("fake"));
  const assay_kernel& kernel;
  const Inputs inputs;
  DeviceCase device;
  assay_plan* plan = nullptr;
};

TEST(Call, ZeroedWorkspaceBelongsToTheKernelFromItsPlanOn) {
  OneCall one("paged_semaphore_fake");
  EXPECT_EQ(one.device.tensors()->workspace.role, ASSAY_ROLE_IN_OUT);
  EXPECT_NE(one.counter(), 0) << "poison until there is a plan";
  ASSERT_TRUE(one.make_plan().ok());
  EXPECT_EQ(one.counter(), 0);
  for (int i = 0; i < 3; ++i) {
    one.device.upload();
    EXPECT_NE(static_cast<const int32_t*>(one.device.tensors()->workspace.data)[1], 0)
        << "the rest is poison";
    EXPECT_TRUE(one.run().ok());
    EXPECT_TRUE(one.written());
  }
  OneCall dirty("paged_dirty_fake");
  ASSERT_TRUE(dirty.make_plan().ok());
  EXPECT_TRUE(dirty.run().ok());
  EXPECT_TRUE(dirty.written());
  dirty.device.upload();
  EXPECT_EQ(dirty.counter(), 1) << "nobody cleans up behind a kernel";
  EXPECT_TRUE(dirty.run().ok());
  EXPECT_FALSE(dirty.written());
  ASSERT_TRUE(dirty.make_plan().ok());
  EXPECT_EQ(dirty.counter(), 0) << "a new plan begins anew";
  EXPECT_THAT(OneCall("paged_greedy_fake").make_plan().error,
              HasSubstr("wants 1048576 zeroed bytes in a workspace of 28"));
}

TEST(Call, RunIsPrecededByARefresh) {
  OneCall one("paged_refreshed_fake");
  EXPECT_EQ(one.device.tensors()->workspace.role, ASSAY_ROLE_IN_OUT);
  ASSERT_TRUE(one.make_plan().ok());
  EXPECT_TRUE(one.run().ok());
  EXPECT_TRUE(one.run_again().ok()) << "what refresh left is still there";
  EXPECT_TRUE(one.written());
  EXPECT_EQ(static_cast<const int32_t*>(one.device.tensors()->workspace.data)[1], 1) << "second row start";
}

TEST(Call, SeveralCallsMakeOneGraph) {
  OneCall first("paged_ok_fake"), second("paged_lse2_fake");
  const assay_backend& table = *first.backend.table();
  char error[256] = "";
  void* stream = nullptr;
  assay_graph* graph = nullptr;
  ASSERT_EQ(table.begin_capture(&stream, error, sizeof error), ASSAY_OK) << error;
  EXPECT_EQ(table.begin_capture(&stream, error, sizeof error), ASSAY_FAILED) << "one at a time";
  EXPECT_TRUE(first.run_on(stream).ok());
  EXPECT_TRUE(second.run_on(stream).ok());
  ASSERT_EQ(table.end_capture(&graph, error, sizeof error), ASSAY_OK) << error;
  EXPECT_FALSE(first.written());
  EXPECT_FALSE(second.written());
  EXPECT_TRUE(call_replay(first.backend, graph).ok());
  EXPECT_TRUE(first.written());
  EXPECT_TRUE(second.written());
  call_free_graph(first.backend, graph);
  ASSERT_EQ(table.begin_capture(&stream, error, sizeof error), ASSAY_OK);
  EXPECT_TRUE(first.run_on(stream).ok());
  EXPECT_EQ(table.end_capture(nullptr, error, sizeof error), ASSAY_OK) << "discarded";
  EXPECT_EQ(table.end_capture(&graph, error, sizeof error), ASSAY_FAILED) << "nothing to end";
}

TEST(Call, ACaptureThatFailsLeavesNoneBehind) {
  OneCall refusing("paged_refuserun_fake"), right("paged_ok_fake");
  assay_kernel kernel = refusing.kernel;
  kernel.run = [](const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void*, char*,
                  size_t) -> int { return ASSAY_UNSUPPORTED; };
  assay_graph* graph = nullptr;
  const auto capture = [&](const assay_kernel& of) {
    return call_capture(right.backend, of, right.inputs.view->get(), right.device.tensors(), nullptr, &graph);
  };
  EXPECT_TRUE(capture(kernel).refused());
  EXPECT_EQ(graph, nullptr);
  EXPECT_TRUE(capture(right.kernel).ok());
  call_free_graph(right.backend, graph);
}

}  // namespace
}  // namespace assay
