// SPDX-License-Identifier: Apache-2.0
// Evidence of a kernel that does not exist: what a right one would have written with mistakes in it, so that
// the truth is known exactly.
#pragma once

#include <omp.h>

#include <algorithm>
#include <functional>
#include <string>

#include "harness/explain/explanation.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {

using Mistakes = std::function<void(const Problem&, Rules&)>;
using Declares = std::function<void(assay_arithmetic&)>;

inline const std::string kFake = ASSAY_BINARY_DIR "/testing/libassay_fake.so";  // the misbehaving backend

// By a kernel that is right, of the misbehaving backend (its path) or of one that takes more lines.
inline Evidence fabricated(const std::string& line, const std::string& backend, const Mistakes& make,
                           const Declares& declare = {}, const std::string& kernel = "paged_ok_fake") {
  omp_set_num_threads(1);  // children of this process inherit no threads
  CaptureOptions options;
  options.threads = 1;
  options.timeout_s = 30;
  const Problem problem = make_problem(parse_scenario(line));
  Evidence evidence = capture(line, problem, backend, kernel, options);
  if (declare) declare(evidence.declared);
  Predictor predictor(evidence.problem, evidence.operands(false), evidence.declared);
  Rules rules = predictor.right();
  make(evidence.problem, rules);
  for (CallResultCopy& call : evidence.calls)
    for (const RowId& row : evidence.bounded.value.rows)
      for (int32_t h = 0; call.made && h < problem.heads_q; ++h) {
        const Cell cell{row.request, row.row, h};
        const Prediction p = predictor.predict(rules, cell);
        const int64_t at = evidence.packed_row(cell) * problem.heads_q + h;
        call.lse[at] = p.lse;
        std::copy(p.o.begin(), p.o.end(), call.o.begin() + at * problem.head_dim_v);
      }
  return evidence;
}

inline std::string first_cause(const Explanation& x) {
  return x.ranking.list.empty() ? "none" : std::string(x.ranking.list.front().cause);
}

}  // namespace assay
