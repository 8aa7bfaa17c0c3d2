// SPDX-License-Identifier: Apache-2.0
// The file round trip, what is taken over into declared arithmetic, and a device that fails in the middle.
#include "harness/calibrate/calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

Calibration sample() {
  Calibration c;
  c.backend = "cuda", c.device = "NVIDIA H200", c.arch = "sm_90", c.date = "2026-01-02T03:04:05Z";
  c.limits = {.read_bytes_per_s = 4e12 / 3, .matrix_flops_bf16 = 8e14, .matrix_flops_fp8 = 1.5e15};
  CalibratedProducts p{"wgmma fp8_e4m3", ASSAY_FP8_E4M3, 32, {}, 1.5e15};
  p.findings.accumulator = {ASSAY_ACC_BLOCK, 32, 13, 13};
  p.findings.groups = {{0, 1, 2}};
  p.findings.alignment = p.findings.rounding = "toward zero";
  p.findings.tried = 2000, p.findings.explained = 1999;
  c.products.push_back(p);
  c.functions.push_back({"exp2f", ASSAY_FUNCTION_EXP2, {0x1.1p-23, 0, 1.5f, 0, 1000}});
  c.functions.push_back({"log2f", ASSAY_FUNCTION_LOG2, {0.5, 0x1p-22, 1.5f, 0.7f, 1000}});
  c.missing = {"rate of x: why"};
  return c;
}

class File : public ::testing::Test {
 protected:
  // ctest runs the tests of a suite at the same time, each in its process.
  const std::string path = ::testing::TempDir() + fmt::format("assay_calibration_test_{}.json", getpid());
  void write(const std::string& text) const { std::ofstream(path) << text; }
  void TearDown() override { std::remove(path.c_str()); }
  std::string error() const {
    try {
      read_calibration(path);
    } catch (const InputError& e) {
      return e.what();
    }
    return "read";
  }
};

TEST_F(File, ReadsBackWhatWasWritten) {
  write(json_of(sample()).dump(2));
  const Calibration c = read_calibration(path);
  EXPECT_EQ(json_of(c), json_of(sample()));
  EXPECT_EQ(c.products[0].findings.accumulator.fraction_bits, 13);
  EXPECT_EQ(c.limits.read_bytes_per_s, 4e12 / 3);
}

TEST_F(File, NonsenseIsRefusedByKey) {
  EXPECT_THAT(error(), HasSubstr("cannot be opened"));
  write("{}");
  EXPECT_THAT(error(), HasSubstr("field 'assay_calibration' is missing"));
  nlohmann::json j = json_of(sample());
  j["assay_calibration"] = 9;
  write(j.dump());
  EXPECT_THAT(error(), HasSubstr("version 9"));
  j = json_of(sample());
  j["instructions"][0]["fraction_bits"] = 0;
  write(j.dump());
  EXPECT_THAT(error(), HasSubstr("impossible accumulator"));
  j = json_of(sample());
  j["functions"][0]["relative_error"] = -1;
  write(j.dump());
  EXPECT_THAT(error(), HasSubstr("impossible error"));
  j = json_of(sample());
  j["limits"].erase("matrix_flops_fp8");
  write(j.dump());
  EXPECT_THAT(error(), HasSubstr("matrix_flops_fp8"));
}

TEST(Calibration, ReplacesNamedInstructionsOnly) {
  const MeasuredArithmetic m = measured_arithmetic(sample());
  assay_arithmetic a{};
  a.qk = a.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  a.exp_relative_error = a.tanh_relative_error = 0x1p-10;
  a.pv_instruction = "wgmma fp8_e4m3", a.qk_instruction = "unheard of", a.exp_instruction = "exp2f";
  m.apply(a);
  EXPECT_EQ(a.pv.mantissa_bits, 13);
  EXPECT_EQ(a.qk.mantissa_bits, 23);
  EXPECT_EQ(a.exp_relative_error, 0x1.1p-23);
  EXPECT_EQ(a.tanh_relative_error, 0x1p-10);
  EXPECT_EQ(m.relative_errors.count("log2f"), 0u) << "its relative error near 1 bounds nothing";
}

TEST(Calibration, FitsOneKindOfDevice) {
  assay_device d{};
  std::snprintf(d.name, sizeof d.name, "NVIDIA H200");
  std::snprintf(d.arch, sizeof d.arch, "sm_90");
  EXPECT_TRUE(fits(sample(), "cuda", d));
  EXPECT_FALSE(fits(sample(), "hip", d));
  std::snprintf(d.name, sizeof d.name, "NVIDIA H100");
  EXPECT_FALSE(fits(sample(), "cuda", d));
  EXPECT_EQ(device_slug("NVIDIA H200"), "nvidia-h200");
  EXPECT_EQ(device_slug("Intel(R) Xeon(R) @ 2.7GHz "), "intel-r-xeon-r-2-7ghz");
}

TEST(Calibration, TheProcessorsTileProductAndItsLimits) {
  Backend cpu = Backend::load("cpu");
  char error[256] = "";
  ASSERT_EQ(cpu.table()->use_device(0, error, sizeof error), ASSAY_OK) << error;
  const assay_instruction* const* list = nullptr;
  int32_t count = 0;
  ASSERT_EQ(cpu.table()->instructions(&list, &count, error, sizeof error), ASSAY_OK) << error;
  bool tiles = false;
  for (int32_t i = 0; i < count; ++i) tiles |= std::string(list[i]->name) == "tdpbf16ps";
  if (!tiles) GTEST_SKIP() << "this processor has no AMX";
  std::vector<std::string> said;
  const Calibration c = calibrate(
      cpu, cpu.device(0), [](const std::string& name) { return name == "tdpbf16ps"; },
      [&](const std::string& s) { said.push_back(s); });
  EXPECT_THAT(said, ::testing::ElementsAre(HasSubstr("limits"), "tdpbf16ps"));
  ASSERT_EQ(c.products.size(), 1u) << ::testing::PrintToString(c.missing);
  EXPECT_EQ(c.products[0].findings.accumulator.kind, ASSAY_ACC_FMA);
  EXPECT_FALSE(c.products[0].findings.keeps_subnormal_operands) << "Intel SDM: denormals are zeros";
  EXPECT_GT(c.limits.matrix_flops_bf16, 1e9);
  EXPECT_GT(c.limits.write_bytes_per_s, 1e8);
  EXPECT_THROW(calibrate(
                   cpu, cpu.device(0), [](const std::string&) { return false; }, [](const std::string&) {}),
               InfrastructureError);
}

}  // namespace
}  // namespace assay
