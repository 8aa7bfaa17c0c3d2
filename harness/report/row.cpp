// SPDX-License-Identifier: Apache-2.0
// The columns of rows.csv, declared once. To add one: a member in row.hpp and a row here, then run the
// report tests (one of them says how to renew COLUMNS.md).
#include "harness/report/row.hpp"

#include <limits>

#include "harness/report/text.hpp"

namespace assay {
namespace {

constexpr RowField kFields[] = {
    {"scenario", "", "The canonical scenario line: what was tested, and the text that repeats it.",
     &Row::scenario},
    {"kernel", "",
     "Name of the kernel, the same as its source file; none: no kernel that was chosen is of the case's op.",
     &Row::kernel},
    {"backend", "", "Backend the kernel came from.", &Row::backend},
    {"device", "", "Device it ran on.", &Row::device},
    {"device_uuid", "", "Its own identity among devices of one name; empty where it has none.",
     &Row::device_uuid},
    {"outcome", "",
     "passed, wrong, unsupported, untrusted, crashed, timed_out, invalid; of timed "
     "rows also implausible (faster than can be) and noisy (right, its time means little).",
     &Row::outcome},
    {"reason", "", "Why the outcome is not passed; empty when it is.", &Row::reason},
    {"op", "", "Operation: prefill, paged or a data op.", &Row::op},
    {"suite_place", "", "File, line and column of the suite line the case came from.", &Row::suite_place},
    {"requests", "", "Requests in the batch.", &Row::requests},
    {"tokens", "tokens", "New tokens of the batch: the sum of the query lengths.", &Row::tokens},
    {"max_kv_len", "tokens", "Longest visible context of any request.", &Row::max_kv_len},
    {"decodes", "", "Requests with one new token and a past.", &Row::decodes},
    {"extends", "", "Requests with several new tokens and a past.", &Row::extends},
    {"prefills", "", "Requests without a past.", &Row::prefills},
    {"time_us", "us", "Median time of one call.", &Row::time_us},
    {"time_q1_us", "us", "Lower quartile of the time.", &Row::time_q1_us},
    {"time_q3_us", "us", "Upper quartile of the time.", &Row::time_q3_us},
    {"time_low_us", "us", "Lower end of where 95 % of the medians of other measurements lie.",
     &Row::time_low_us},
    {"time_high_us", "us", "Upper end of where 95 % of the medians of other measurements lie.",
     &Row::time_high_us},
    {"plan_us", "us", "Host planning time, done once per batch shape and not part of time_us.",
     &Row::plan_us},
    {"refresh_us", "us",
     "Metadata work before a run whose lengths or tables changed, by the host's clock; empty: part of run.",
     &Row::refresh_us},
    {"total_us", "us",
     "A call of a batch whose shape is new: time_us, plan_us and refresh_us together; time_us where a kernel "
     "has neither.",
     &Row::total_us},
    {"samples", "", "Timed calls that count.", &Row::samples},
    {"throttled", "",
     "Timed calls left out because the device had slowed itself down; empty: it does not say.",
     &Row::throttled},
    {"sm_clock_mhz", "MHz", "Median clock of the multiprocessors after the timed calls; empty: not known.",
     &Row::sm_clock_mhz},
    {"load", "", "Runnable processes of the machine while it was timed, mean of the last minute.",
     &Row::load},
    {"steal_percent", "%", "Processor time given to other virtual machines meanwhile.", &Row::steal_percent},
    {"others_percent", "%", "Processor time that other processes and interrupts used meanwhile.",
     &Row::others_percent},
    {"cache", "",
     "hot: called back to back; cold: caches flushed before every call; dirty: caches full of what others "
     "wrote.",
     &Row::cache},
    {"launch", "", "eager: the kernel was called; graph: a captured call was replayed.", &Row::launch},
    {"stop", "", "What ended the measurement: confident, max_samples or max_seconds.", &Row::stop},
    {"steady", "", "Whether times and clock had become steady before measuring began; empty: not waited for.",
     &Row::steady},
    {"tflops", "TFLOP/s", "Useful operations per second: 2 (d_qk + d_v) per visible row, key and query head.",
     &Row::tflops},
    {"gbytes_per_s", "GB/s", "Useful bytes per second: every operand byte the mask lets a row see, once.",
     &Row::gbytes_per_s},
    {"tokens_per_s", "tokens/s", "New tokens per second.", &Row::tokens_per_s},
    {"limit_percent", "%", "Throughput as a share of the measured limit named in column limit.",
     &Row::limit_percent},
    {"limit", "",
     "The measured limit the case is nearer to: read (memory), matrix (arithmetic) or copy (data "
     "ops).",
     &Row::limit},
    {"calibration", "",
     "Where bounds and limits come from: defaults (declared, measured at the start) or the fingerprint of a "
     "calibration file.",
     &Row::calibration},
    {"o_max_error", "", "Largest absolute error of an output element against the double reference.",
     &Row::o_max_error},
    {"o_ratio", "",
     "Largest error of an output element over its own bound (all tiers together); above 1 is wrong.",
     &Row::o_ratio},
    {"lse_max_error", "", "Largest absolute error of what lse_ratio is of.", &Row::lse_max_error},
    {"lse_ratio", "",
     "Largest error over its own bound of a log-sum-exp value; of a scale in ops that write scales, of an "
     "element of the written cache in op step, which has no log-sum-exp. Above 1 is wrong.",
     &Row::lse_ratio},
    {"o_where", "", "Where o_ratio sits: request/row/head/dim.", &Row::o_where},
    {"lse_where", "", "Where lse_ratio sits: request/row/head, in op step with the dimension.",
     &Row::lse_where},
    {"check", "",
     "The check that decided an outcome other than passed, such as tier R, lse D, guards, repeatable.",
     &Row::check},
    {"o_median_ratio", "", "Median error of an output element over its own bound.", &Row::o_median_ratio},
    {"o_ratio_unrounded", "",
     "As o_ratio without the output's own rounding, which is most of that in 16 bits: the least error before "
     "it that explains an element, over its bound.",
     &Row::o_ratio_unrounded},
    {"o_median_unrounded", "", "Median of the same; 0 where rounding alone explains most elements.",
     &Row::o_median_unrounded},
    {"lse_median_ratio", "", "Median error over its own bound of what lse_ratio is of.",
     &Row::lse_median_ratio},
    {"p_declined", "", "Rows x heads where the probabilistic bound found that it does not apply.",
     &Row::p_declined},
    {"r_applied", "", "Rows x heads where the rounding of P was replayed.", &Row::r_applied},
    {"o_mostly", "",
     "What the bounds of the output mostly consist of: scores, exponentials, merge of parts, row sum, "
     "rounding of P, accumulation of P V, rounding of V, weights that may round otherwise than replayed, or "
     "worst cases where the deterministic bound alone applies.",
     &Row::o_mostly},
    {"lse_mostly", "",
     "The same of the log-sum-exp values, which op step has inside only: scores, exponentials, merge of "
     "parts, row sum, rounding of P, "
     "logarithm, or worst cases.",
     &Row::lse_mostly},
    {"aggregate_ratio", "",
     "Largest statistic over many elements over its threshold; above 1 is looked at again.",
     &Row::aggregate_ratio},
    {"aggregate_where", "", "Which statistic aggregate_ratio is of, and over which rows.",
     &Row::aggregate_where},
    {"class_gate", "", "Largest error the declared arithmetic allows over the rms of its output row.",
     &Row::class_gate},
    {"class_note", "", "useless: correct for its arithmetic, which is too coarse for this case.",
     &Row::class_note},
    {"quantization_rms", "",
     "Rms difference between the answers of the stored and the unquantised cache over the rms of the answer.",
     &Row::quantization_rms},
    {"quantization_max", "", "Largest such difference over the rms of the answer.", &Row::quantization_max},
    {"repeatable", "",
     "Whether two runs on the same memory gave the same bits: yes, no, empty when not known.",
     &Row::repeatable},
    {"batch_invariant", "",
     "Whether requests gave the same bits alone and in other batches: yes, no, empty when not measured.",
     &Row::batch_invariant},
    {"contract", "",
     "What the kernel declares to leave out or do its own way, such as finite_unused, no_lse, lse_base_2.",
     &Row::contract},
    {"declaration", "",
     "The arithmetic it was judged by, as the kernel declares it, what is measured in place of what is "
     "named: none, "
     "defaults, or what differs from these; `assay kernels --arithmetic --json` prints the same text.",
     &Row::declaration},
    {"repeat", "", "Shell command that runs this case with this kernel again, with the options of the run.",
     &Row::repeat},
    {"rows_checked", "rows", "Query rows compared with the reference.", &Row::rows_checked},
    {"rows_total", "rows",
     "Query rows of the case, without padding; more than rows_checked when rows were sampled.",
     &Row::rows_total},
    {"rows_surveyed", "rows",
     "Of the rows beyond rows_checked, those compared in the heads of one KV head; what stood out was "
     "judged.",
     &Row::rows_surveyed},
    {"reference_s", "s", "Wall time of the reference.", &Row::reference_s},
    {"case_s", "s", "Wall time of the whole case: inputs, reference, kernel and timing.", &Row::case_s},
};

std::string cell(const Row& row, const RowMember& member) {
  if (auto text = std::get_if<std::string Row::*>(&member)) {
    std::string clean = guard_formula(clean_text(row.**text));
    if (clean.find_first_of(",\"") == std::string::npos) return clean;
    std::string quoted = "\"";
    for (char c : clean) {
      if (c == '"') quoted += '"';
      quoted += c;
    }
    return quoted + '"';
  }
  if (auto integer = std::get_if<int64_t Row::*>(&member))
    return row.**integer == -1 ? "" : std::to_string(row.**integer);
  return shortest(row.*std::get<double Row::*>(member));
}

}  // namespace

std::span<const RowField> row_fields() { return kFields; }

Row::Row() {
  for (const RowField& field : kFields)
    if (auto number = std::get_if<double Row::*>(&field.member))
      this->** number = std::numeric_limits<double>::quiet_NaN();
}

std::string Row::key() const { return scenario + "|" + kernel + "|" + backend + "|" + mode(); }

void Row::set_mode(const std::string& mode) {
  cache = mode == "graph" ? "hot" : mode;
  launch = mode.empty() ? "" : mode == "graph" ? "graph" : "eager";
}

std::string csv_header() {
  std::string line;
  for (const RowField& field : kFields) {
    if (!line.empty()) line += ',';
    line += field.name;
  }
  return line;
}

// One line whatever the text holds (clean_text): a half-written line is then always the last one.
std::string csv_line(const Row& row) {
  std::string line;
  for (size_t i = 0; i < std::size(kFields); i++) {
    if (i > 0) line += ',';
    line += cell(row, kFields[i].member);
  }
  return line;
}

}  // namespace assay
