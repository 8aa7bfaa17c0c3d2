// SPDX-License-Identifier: Apache-2.0
// A Row: everything known about one case with one kernel, flat. Fields are declared once, in
// row_fields(): the CSV header, the table, JSON, and the documentation of the columns come from there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace assay {

// Missing numbers are NaN (double) or -1 (int64) and print as an empty CSV cell.
// Kernel of a row of a case whose op no kernel has.
inline constexpr std::string_view kNoKernel = "none";

struct Row {
  std::string scenario, kernel, backend, device, device_uuid, outcome, reason;
  std::string op, suite_place;
  int64_t requests = -1, tokens = -1, max_kv_len = -1, decodes = -1, extends = -1, prefills = -1;
  double time_us, time_q1_us, time_q3_us, time_low_us, time_high_us, plan_us, refresh_us, total_us;
  int64_t samples = -1, throttled = -1;
  double sm_clock_mhz;
  double load, steal_percent, others_percent;
  // hot | cold | dirty; eager | graph; confident | max_samples | max_seconds; yes | no | empty
  std::string cache, launch, stop, steady;
  double tflops, gbytes_per_s, tokens_per_s, limit_percent;
  std::string limit;        // "read" or "matrix": whichever the case is nearer to; "copy" for data ops
  std::string calibration;  // "defaults", or the fingerprint of the file bounds and limits come from
  double o_max_error, o_ratio, lse_max_error, lse_ratio;
  std::string o_where, lse_where;  // request/row/head/dim
  std::string check;               // Verdict::check
  double o_median_ratio, lse_median_ratio;
  double o_ratio_unrounded, o_median_unrounded;
  int64_t p_declined = -1, r_applied = -1;
  std::string o_mostly, lse_mostly;  // of Verdict
  double aggregate_ratio;
  std::string aggregate_where;
  double class_gate;
  std::string class_note;  // "useless" or empty
  double quantization_rms, quantization_max;
  std::string repeatable;       // two runs gave the same bits: yes, no, or empty: it did not get so far
  std::string batch_invariant;  // yes, no, or empty: not measured
  std::string declaration;      // of Verdict
  std::string contract;         // what the kernel declares to leave out or do its own way (contracts_text)
  std::string repeat;           // shell command that runs the case with this kernel again (run/repeat.hpp)
  int64_t rows_checked = -1, rows_total = -1, rows_surveyed = -1;
  double reference_s, case_s;  // wall seconds
  Row();
  // scenario | kernel | backend | mode: identifies a case when resuming and merging.
  std::string key() const;
  // What was timed, one word: cold, dirty, hot or graph (hot caches, a replayed graph); empty for a row of no
  // timing.
  std::string mode() const { return launch == "graph" ? launch : cache; }
  void set_mode(const std::string& mode);
};

using RowMember = std::variant<std::string Row::*, int64_t Row::*, double Row::*>;
struct RowField {
  std::string_view name;     // CSV column
  std::string_view unit;     // "us", "TFLOP/s", "" ...
  std::string_view meaning;  // one sentence
  RowMember member;
};
std::span<const RowField> row_fields();

std::string csv_header();
std::string csv_line(const Row&);  // RFC 4180 quoting, no newline

}  // namespace assay
