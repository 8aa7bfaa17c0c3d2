// SPDX-License-Identifier: Apache-2.0
// Rows for the tests of this folder: a small fixed run with every outcome, and random rows for round
// trips. Header only, so that no test library is needed.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay::sample {

inline Row row(std::string scenario, std::string kernel, std::string outcome, std::string reason = "") {
  Row r;
  r.scenario = std::move(scenario);
  r.kernel = std::move(kernel);
  r.backend = "cpu";
  r.outcome = std::move(outcome);
  r.reason = std::move(reason);
  r.op = r.scenario.substr(0, r.scenario.find(' '));
  r.case_s = 0.25;
  return r;
}

inline std::vector<Row> run() {
  const std::string a = "paged d=64 batch=4q1s1k seed=1", b = "prefill window=127 batch=2q512 seed=1";
  std::vector<Row> rows = {
      row(a, "paged_naive", "passed"),
      row(a, "paged_fast", "wrong", "14 of 8192 elements of O out of bounds"),
      row(b, "prefill_naive", "unsupported", "required window, supported none, missing window"),
      row(b, "prefill_fast", "crashed", "signal 11 (\"segmentation fault\")"),
  };
  rows[0].o_max_error = 0.00048828125;
  rows[0].o_ratio = 0.421875;
  rows[0].lse_ratio = 0.125;
  rows[0].time_us = 1234.5;
  rows[0].time_q1_us = 1200;
  rows[0].time_q3_us = 1300.25;
  rows[0].tflops = 0.0471;
  rows[0].gbytes_per_s = 12.5;
  rows[0].tokens_per_s = 3240;
  rows[0].limit_percent = 81.25;
  rows[0].limit = "read";
  rows[0].cache = "cold";
  rows[0].samples = 41;
  rows[0].suite_place = "scenarios/smoke.suite:12:1";
  rows[1].repeat = "assay check 'paged d=64 batch=4q1s1k seed=1' --kernel paged_fast --backend cpu";
  rows[3].repeat = "assay check 'prefill window=127 batch=2q512 seed=1' --kernel prefill_fast --backend cpu";
  rows[1].o_max_error = 1.5;
  rows[1].o_ratio = std::numeric_limits<double>::infinity();
  rows[1].lse_ratio = 0.5;
  rows[1].o_where = "3/0/7/12";
  rows[1].suite_place = "scenarios/smoke.suite:12:1";
  return rows;
}

// Any text csv_line can carry unchanged, any bit pattern of a number.
inline Row random(std::mt19937_64& g) {
  const std::vector<std::string> words = {
      "",        "=",      "-1",       "a", "b c", ",",  "\"",
      "\"\"x\"", "h=32/8", "\xC3\xA9", "'", " x ", "\\", "\xF0\x9F\x98\x80"};
  Row r;
  for (const RowField& field : row_fields()) {
    const uint64_t bits = g();
    if (auto text = std::get_if<std::string Row::*>(&field.member)) {
      for (int n = static_cast<int>(bits % 4); n > 0; n--) r.** text += words[g() % words.size()];
    } else if (auto integer = std::get_if<int64_t Row::*>(&field.member)) {
      r.** integer = bits % 4 == 0 ? -1 : static_cast<int64_t>(g() >> (g() % 64));
    } else {
      double& x = r.*std::get<double Row::*>(field.member);
      std::memcpy(&x, &bits, sizeof x);
    }
  }
  return r;
}

// Equal with NaN == NaN, whatever its bits; -0 differs from 0.
inline bool same(const Row& a, const Row& b) {
  for (const RowField& field : row_fields()) {
    bool equal = true;
    if (auto text = std::get_if<std::string Row::*>(&field.member)) {
      equal = a.**text == b.**text;
    } else if (auto integer = std::get_if<int64_t Row::*>(&field.member)) {
      equal = a.**integer == b.**integer;
    } else {
      const double x = a.*std::get<double Row::*>(field.member), y = b.*std::get<double Row::*>(field.member);
      equal = (x != x && y != y) || std::memcmp(&x, &y, sizeof x) == 0;
    }
    if (!equal) return false;
  }
  return true;
}

}  // namespace assay::sample
