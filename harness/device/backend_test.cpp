// SPDX-License-Identifier: Apache-2.0
// Loading of backends: the good one, and one per way of being unusable, each with a message that names
// the file and what to do; calls through the door whose exceptions must not escape.
#include "harness/device/backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/device/testing/small_problem.hpp"

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
  EXPECT_THAT(load_error(test_library("bad_1")), HasSubstr("does not serve interface version 1"));
  EXPECT_THAT(load_error(test_library("bad_2")),
              HasSubstr("says interface version 8, this program speaks 1"));
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
  const Problem problem = testing::small_problem();
  const Inputs inputs = build_inputs(problem);
  DeviceCase device(backend, inputs, 0);
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
  const Problem problem = testing::small_problem();
  const ProblemView view(problem);
  const assay_device device = backend.device(0);
  EXPECT_TRUE(call_supports(*backend.find("paged_ok_fake"), view.get(), device).ok());
  const CallResult refusal = call_supports(*backend.find("paged_refuse_fake"), view.get(), device);
  EXPECT_EQ(refusal.status, ASSAY_UNSUPPORTED);
  EXPECT_THAT(refusal.error, HasSubstr("missing everything"));
  assay_arithmetic a{};
  EXPECT_TRUE(call_arithmetic(backend, *backend.find("paged_ok_fake"), view.get(), a));
  EXPECT_EQ(a.p_format, ASSAY_FP32);
  EXPECT_FALSE(call_arithmetic(backend, *backend.find("paged_undeclared_fake"), view.get(), a));
  EXPECT_EQ(call_workspace_bytes(*backend.find("paged_ok_fake"), view.get()), 0);
}

}  // namespace
}  // namespace assay
