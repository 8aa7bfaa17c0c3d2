// SPDX-License-Identifier: Apache-2.0
// The answer of `assay explain`: what is wrong, where, in which pattern, and why, the likeliest cause first.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/explain/attribution.hpp"
#include "harness/explain/evidence.hpp"
#include "harness/explain/rank.hpp"

namespace assay {

struct BadElement {
  Cell cell;
  int32_t dim = -1;  // -1: LSE
  double got = 0, expected = 0, low = 0, high = 0;
};

struct Explanation {
  std::string line, kernel;
  Outcome outcome = Outcome::kInvalid;
  std::string reason;      // the judge's
  bool explained = false;  // there was something to explain

  int64_t cells = 0, bad_cells = 0, bad_in_o = 0, bad_in_lse = 0;
  std::vector<BadElement> first;     // first wrong element, in order of request, row, head; at most one
  std::vector<std::string> pattern;  // in words
  std::vector<std::string> facts;    // what the calls showed
  Ranking ranking;
  std::string left_out_again;  // where equal calls differ: the work that the wrong one skipped, if it is that
  std::vector<Attribution> picture;
  Call pictured = Call::kFirst;
  std::vector<int32_t> split_edges;  // first keys of the splits of the pictured request
  double seconds = 0;
};

// Evidence of a line beside the one that is asked about, complete; null where there is none.
// The last: with values of the usual size, where the line has others.
enum class BesideLine { kSecond, kSeparating, kSamePage, kUsual };
using Beside = std::function<const Evidence*(BesideLine)>;
// The kernel's calls on these lines, made at once: children come before this process uses OpenMP.
class LinesBeside {
 public:
  LinesBeside(const std::string& line, const std::string& backend, const std::string& kernel,
              const CaptureOptions&);
  const Evidence* operator()(BesideLine);
  // What calls on their lengths did not show of the order of keys is taken to be as on this line.
  void take_order(const Evidence&);

 private:
  CaptureOptions options_;
  Evidence second_, separating_, same_page_;  // the last: as separating_, with the pages of the line
  Evidence usual_;
};

// `without`: causes that are taken not to be known (to see what is said when the true one is missing).
Explanation explain(const Evidence&, const std::vector<std::string>& without = {}, const Beside& = {});

// ---- parts of it
// Cells and elements outside their intervals in one call, with the words.
void describe_pattern(const Evidence&, Call, Predictor&, Explanation&);
// What differs between calls: observations in words, and causes that need no fitting (appended to the
// ranking, those that are certain first).
void add_facts(const Evidence&, Explanation&);

// ---- forms of it
std::string explanation_text(const Explanation&, const Problem&, size_t top, bool color);
nlohmann::json explanation_json(const Explanation&, const Problem&);

}  // namespace assay
