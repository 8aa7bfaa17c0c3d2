// SPDX-License-Identifier: Apache-2.0
// Findings of the aggregates in words: which statistic, its value and threshold, where. One line each,
// because they become the reason of a verdict.
#include "harness/base/error.hpp"
#include "harness/check/aggregates/aggregates.hpp"

namespace assay {

std::string_view statistic_name(Statistic s) {
  switch (s) {
    case Statistic::kSlope:
      return "slope";
    case Statistic::kRms:
      return "rms";
    case Statistic::kMismatch:
      return "mismatch";
    case Statistic::kMatchedKey:
      return "matched key";
    case Statistic::kLseMean:
      return "lse mean";
    case Statistic::kLseRms:
      return "lse rms";
  }
  return "?";
}

std::string place_of(const Finding& f) {
  if (f.request < 0 && f.head < 0) return "the whole case";
  if (f.request < 0) return fmt::format("head {} over the batch", f.head);
  if (f.row < 0) return fmt::format("request {} head {}", f.request, f.head);
  return fmt::format("request {} row {} head {}", f.request, f.row, f.head);
}

std::string text_of(const Finding& f) {
  std::string what;
  switch (f.statistic) {
    case Statistic::kSlope:
      what = fmt::format("the errors of O lean along O by {:+.2g} %", 100 * f.detail);
      break;
    case Statistic::kRms:
      what = fmt::format("the errors of O are {:.3g} times the declared ones", f.detail);
      break;
    case Statistic::kMismatch:
      what = fmt::format("{:.2g} % of O differs from the rounded replay", 100 * f.detail);
      break;
    case Statistic::kMatchedKey:
      what = fmt::format("key {} looks {}", f.key, f.detail < 0 ? "dropped" : "counted twice");
      break;
    case Statistic::kLseMean:
      what = fmt::format("the LSE leans by {:+.2g} declared standard deviations a row", f.detail);
      break;
    case Statistic::kLseRms:
      what = fmt::format("the errors of the LSE are {:.3g} times the declared ones", f.detail);
      break;
  }
  return fmt::format("{}: {}, {:.3g} sd where {:g} are allowed, {}", statistic_name(f.statistic), what,
                     f.value, f.threshold, place_of(f));
}

bool same_place(const Finding& a, const Finding& b) {
  if (a.statistic != b.statistic) return false;
  return a.statistic == Statistic::kMatchedKey || (a.request == b.request && a.head == b.head);
}

}  // namespace assay
