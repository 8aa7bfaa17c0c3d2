// SPDX-License-Identifier: Apache-2.0
// Findings of the aggregates in words: which statistic, its value and threshold, where. One line each,
// because they become the reason of a verdict.
#include "harness/base/error.hpp"
#include "harness/check/aggregates.hpp"

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
  const std::string place = place_of(f);
  switch (f.statistic) {
    case Statistic::kSlope:
      return fmt::format(
          "slope: the errors of O lean along O by {:+.2g} %, {:.3g} sd where {:g} are allowed, {}",
          100 * f.detail, f.value, f.threshold, place);
    case Statistic::kRms:
      return fmt::format(
          "rms: the errors of O are {:.3g} of the declared standard deviation, at most {:.3g}, {}", f.value,
          f.threshold, place);
    case Statistic::kMismatch:
      return fmt::format("mismatch: {:.3g} % of O differs from the rounded replay, at most {:.3g} %, {}",
                         100 * f.value, 100 * f.threshold, place);
    case Statistic::kMatchedKey:
      return fmt::format("matched key: key {} looks {}, {:.3g} sd where {:g} are allowed, {}", f.key,
                         f.detail < 0 ? "dropped" : "counted twice", f.value, f.threshold, place);
    case Statistic::kLseMean:
      return fmt::format("lse mean: the LSE leans by {:+.2g} sd a row, {:.3g} sd where {:g} are allowed, {}",
                         f.detail, f.value, f.threshold, place);
    case Statistic::kLseRms:
      return fmt::format(
          "lse rms: the errors of the LSE are {:.3g} of the declared standard deviation, at most "
          "{:.3g}, {}",
          f.value, f.threshold, place);
  }
  return "?";
}

}  // namespace assay
