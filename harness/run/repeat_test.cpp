// SPDX-License-Identifier: Apache-2.0
// The command of a row names everything its result depends on, and nothing else.
#include "harness/run/repeat.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

Row row_of(const std::string& kernel, const std::string& backend) {
  Row r;
  r.scenario = "paged d=64 batch=1q1s4";
  r.kernel = kernel;
  r.backend = backend;
  return r;
}

TEST(Repeat, CheckOfAnInstalledBackend) {
  EXPECT_EQ(repeat_command(row_of("k", "cpu"), {}),
            "assay check 'paged d=64 batch=1q1s4' --kernel k --backend cpu");
  RunOptions o;
  o.suites = {"smoke"};  // what chose the case is no part of it
  o.kernels = {"*"};
  o.filter = "d=64";
  o.seed = 7;
  o.limit = 3;
  o.shard = {2, 5};
  o.program = "build/assay";
  EXPECT_EQ(repeat_command(row_of("k", "./my libs/libmine.so"), o),
            "build/assay check 'paged d=64 batch=1q1s4' --kernel k --backend './my libs/libmine.so'");
}

TEST(Repeat, WhatTheResultDependsOn) {
  RunOptions o;
  o.graphs = true;
  o.walk = 20;
  o.calibrations = {"a.json", "b c.json"};
  o.rows_budget = 1e6;
  o.timeout_s = 2.5;
  o.worker_memory_bytes = 1 << 30;
  EXPECT_EQ(
      repeat_command(row_of("k", "cpu"), o),
      "assay check 'paged d=64 batch=1q1s4' --kernel k --backend cpu --calibration a.json --calibration "
      "'b c.json' --graphs --walk 20 --rows-budget 1000000 --timeout 2.5 --worker-memory 1073741824");
}

TEST(Repeat, TimedRows) {
  RunOptions o;
  o.timed = true;
  o.caches = {"cold", "hot", "graph"};
  o.rule.relative_width = 0.5;
  o.rule.max_samples = 20;
  Row row = row_of("k", "cpu");
  const std::string begin = "assay bench 'paged d=64 batch=1q1s4' --kernel k --backend cpu",
                    end = " --precision 0.5 --max-samples 20";
  EXPECT_EQ(repeat_command(row, o), begin + " --cache all" + end);  // failed: in which mode is not known
  row.set_mode("hot");
  EXPECT_EQ(repeat_command(row, o), begin + end);
  row.set_mode("graph");
  EXPECT_EQ(repeat_command(row, o), begin + " --cache graph" + end);
  o.caches = {"cold", "hot"};
  row.set_mode("");
  EXPECT_EQ(repeat_command(row, o), begin + " --cache both" + end);
}

TEST(Repeat, DevicesAndCasesWithoutAKernel) {
  RunOptions o;
  o.backends = {"cuda"};
  o.devices = {"all"};
  EXPECT_EQ(repeat_command(row_of("k", "cuda:3"), o),
            "assay check 'paged d=64 batch=1q1s4' --kernel k --backend cuda --devices 3");
  o.devices.clear();
  o.backends = {"cuda", "./b.so"};
  EXPECT_EQ(repeat_command(row_of("none", "any"), o),
            "assay check 'paged d=64 batch=1q1s4' --backend cuda --backend ./b.so");
}

TEST(Repeat, NamesOfKernelsStayOneCleanLine) {
  EXPECT_EQ(repeat_command(row_of("evil\033[2J", "cpu"), {}),
            "assay check 'paged d=64 batch=1q1s4' --kernel \"$(printf 'evil\\033[2J')\" --backend cpu");
}

}  // namespace
}  // namespace assay
