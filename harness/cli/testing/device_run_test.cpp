// SPDX-License-Identifier: Apache-2.0
// What belongs to devices, through the program: calibration files, graphs, several devices, and the same
// times through Google Benchmark. The fake backend stands for a GPU.
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Device : public Program {
 protected:
  std::vector<Row> rows_of(const std::string& folder) const {
    return read_rows(path(folder) + "/rows.csv").rows;
  }
  Output calibrate() const { return run({"calibrate", "--backend", kFake, "--out", path("c.json")}); }
};

TEST_F(Device, CalibrationIsUsedAndNamed) {
  const Output made = calibrate();
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("every product added in fp32"));
  const Output checked =
      run({"run", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--calibration", path("c.json"),
           "--out", path("r"), "--max-seconds", "0.05", "--noise", "1000"});
  ASSERT_EQ(checked.code, 0) << checked.err << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("calibration of"));
  const auto rows = rows_of("r");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].calibration.size(), 16u);
  const auto facts = nlohmann::json::parse(read_text(path("r/run.json")));
  const auto& used = facts.at("backends").at(0).at("calibration");
  EXPECT_EQ(used.at("fingerprint"), rows[0].calibration);
  EXPECT_EQ(facts.at("limits").at("matrix_flops_bf16"), 2e11) << "the rate of the file, not of the start";

  const Output plain =
      run({"check", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--out", path("p")});
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(rows_of("p").at(0).calibration, "defaults");
}

TEST_F(Device, CalibratedAccumulatorReplacesTheDeclaredOne) {
  ASSERT_EQ(calibrate().code, 0);
  auto file = nlohmann::json::parse(read_text(path("c.json")));
  auto& i = file["instructions"][0];
  i["kind"] = "block", i["block"] = 8, i["fraction_bits"] = 13, i["mantissa_bits"] = 13;
  write("coarse.json", file.dump());
  const std::vector<std::string> ask = {"kernels", "--arithmetic", kLine,           "--backend",
                                        kFake,     "--kernel",     "paged_ok_fake", "--json"};
  const auto qk = [&](std::vector<std::string> words) {
    return nlohmann::json::parse(run(words).out).at(0).at("kernels").at(0).at("arithmetic").at("qk");
  };
  EXPECT_EQ(qk(ask).at("kind"), "fma");
  std::vector<std::string> with = ask;
  with.insert(with.end(), {"--calibration", path("coarse.json")});
  EXPECT_EQ(qk(with).at("fraction_bits"), 13);

  // A coarser unit widens the bounds: the same errors are a smaller share of them.
  const auto ratio = [&](const std::string& calibration, const std::string& out) {
    run({"check", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--calibration", path(calibration),
         "--out", path(out)});
    return rows_of(out).at(0).lse_ratio;
  };
  EXPECT_LT(ratio("coarse.json", "a"), 0.1 * ratio("c.json", "b"));
}

TEST_F(Device, CalibrationsOfOtherDevicesOrNoneAreRefused) {
  ASSERT_EQ(calibrate().code, 0);
  auto file = nlohmann::json::parse(read_text(path("c.json")));
  file["device"] = "another";
  write("other.json", file.dump());
  const auto check = [&](const std::string& name) {
    return run(
        {"check", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--calibration", path(name)});
  };
  EXPECT_EQ(check("other.json").code, 2);
  EXPECT_THAT(check("other.json").err, HasSubstr("was made on another"));
  EXPECT_THAT(check("none.json").err, HasSubstr("cannot be opened"));
  EXPECT_EQ(run({"calibrate", "--backend", kFake, "--only", "nothing", "--out", path("x")}).code, 6);
  EXPECT_EQ(run({"calibrate", "--backend", kFake, "--only", "(", "--out", path("x")}).code, 2);
}

TEST_F(Device, ReplaysAreCheckedAndTimed) {
  const Output good = run({"run", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--graphs",
                           "--cache", "all", "--max-seconds", "0.05", "--noise", "1000", "--out", path("g")});
  ASSERT_EQ(good.code, 0) << good.err << good.out;
  std::vector<std::string> modes;
  for (const Row& r : rows_of("g")) modes.push_back(r.cache + " " + r.launch);
  EXPECT_THAT(modes, ::testing::ElementsAre("cold eager", "hot eager", "hot graph"));
  // Lengths in one batch must differ, or every shape is the captured one.
  const std::string line = "paged h=4/2 d=64 batch=1q1s33_1q3s70";
  const Output bad = run({"check", line, "--backend", kFake, "--kernel", "paged_gridbound_fake", "--graphs",
                          "--out", path("b")});
  EXPECT_EQ(bad.code, 1);
  EXPECT_EQ(rows_of("b").at(0).check, "graph");
  EXPECT_THAT(rows_of("b").at(0).reason, HasSubstr("requests in reverse"));
  EXPECT_EQ(run({"check", line, "--backend", kFake, "--kernel", "paged_gridbound_fake"}).code, 0);
  const Output none = run({"check", kLine, "--backend", "cpu", "--graphs", "--out", path("n")});
  EXPECT_EQ(none.code, 1) << "nothing was verified";
  EXPECT_THAT(rows_of("n").at(0).reason, HasSubstr("missing capture and replay in backend cpu"));
}

TEST_F(Device, EveryDeviceHasItsRowsAndTheSlowOneIsNamed) {
  const auto with_devices = [&](const std::string& devices, const std::string& out) {
    return run_shell(
        "ASSAY_FAKE_DEVICES=3 " +
        shell({"run", kLine, "--backend", kFake, "--kernel", "paged_ok_fake", "--devices", devices, "--out",
               path(out), "--max-seconds", "0.2", "--noise", "1000", "--min-samples", "20"}));
  };
  const Output all = with_devices("all", "all");
  ASSERT_EQ(all.code, 0) << all.err << all.out;
  std::map<std::string, std::string> uuids;
  for (const Row& r : rows_of("all")) uuids[r.backend] = r.device_uuid;
  EXPECT_EQ(uuids, (std::map<std::string, std::string>{
                       {kFake + ":0", "FAKE-0"}, {kFake + ":1", "FAKE-1"}, {kFake + ":2", "FAKE-2"}}));
  EXPECT_THAT(all.out, HasSubstr("slow device: " + kFake + ":2 (FAKE-2) takes "));
  EXPECT_THAT(all.out, Not(HasSubstr("slow device: " + kFake + ":0")));
  EXPECT_THAT(read_text(path("all/summary.md")), HasSubstr("Slow device: "));
  EXPECT_EQ(with_devices("0,2", "two").code, 0);
  EXPECT_EQ(rows_of("two").size(), 2u);
  EXPECT_THAT(with_devices("3", "x").err, HasSubstr("has devices 0 to 2"));
  EXPECT_EQ(with_devices("1,1", "y").code, 2);
}

TEST_F(Device, GoogleBenchmarkTakesTheSameCases) {
  const std::string program = ASSAY_BINARY_DIR "/assay-gbench";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "built without Google Benchmark";
  const auto bench = [&](const std::string& kernel) {
    return run_shell(shell_quote(program) + " " + shell_quote(kLine) + " --backend " + shell_quote(kFake) +
                     " --kernel " + kernel + " --benchmark_min_time=0.01 --benchmark_format=json");
  };
  const Output good = bench("paged_ok_fake");
  ASSERT_EQ(good.code, 0) << good.err;
  const auto one = nlohmann::json::parse(good.out).at("benchmarks").at(0);
  EXPECT_THAT(one.at("name").get<std::string>(), HasSubstr("paged_ok_fake/hot/" + kLine));
  EXPECT_GT(one.at("real_time").get<double>(), 0);
  EXPECT_GT(one.at("FLOP/s").get<double>(), 0);
  EXPECT_THAT(bench("paged_droppage_fake").out, HasSubstr("wrong: "));
  EXPECT_EQ(bench("paged_refuse_fake").code, 2) << "nothing to register";
}

TEST_F(Device, GoogleBenchmarkTakesWholeSteps) {
  const std::string program = ASSAY_BINARY_DIR "/assay-gbench";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "built without Google Benchmark";
  const std::string line = "step h=4/2 d=16 batch=2q1s40_1q9s30_1q12";
  const Output good = run_shell(shell_quote(program) + " " + shell_quote(line) +
                                " --backend cpu --kernel step_aiter_fa_cpu --benchmark_min_time=0.01"
                                " --benchmark_format=json");
  ASSERT_EQ(good.code, 0) << good.err;
  const auto one = nlohmann::json::parse(good.out).at("benchmarks").at(0);
  EXPECT_THAT(one.at("name").get<std::string>(), HasSubstr("step_aiter_fa_cpu/hot/step "));
  EXPECT_GT(one.at("real_time").get<double>(), 0);
}

}  // namespace
}  // namespace assay
