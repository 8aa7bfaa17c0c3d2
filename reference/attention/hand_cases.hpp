// SPDX-License-Identifier: Apache-2.0
// Attention worked out by hand: small cases whose answers are closed forms (1/2, ln 3, e/(1+e)). Each states
// the one rule it shows. Together they are the definition a reader can check with a pencil; both
// references must reproduce them. Add a case to mask_cases(), score_cases() or storage_cases() with
// every new rule.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "reference/attention/test_operands.hpp"

namespace assay::test {

inline constexpr double kNone = -std::numeric_limits<double>::infinity();  // LSE of a row that sees nothing

struct Expected {
  RowId row;
  int32_t head = 0;
  std::vector<double> o;
  double lse = 0;
};

struct HandCase {
  std::string name;   // test name
  std::string shows;  // the rule, in words
  Problem problem;
  Values values;
  std::vector<Expected> expected;
};

std::vector<HandCase> mask_cases();     // hand_cases_mask.hpp
std::vector<HandCase> score_cases();    // hand_cases_score.hpp
std::vector<HandCase> storage_cases();  // hand_cases_storage.hpp

// One head of dimension 1 with q = 1 and scale 1, prefill: the score of key j is keys[j], its value
// values[j].
inline HandCase scalar_case(std::string name, std::string shows, std::vector<Request> requests,
                            std::vector<double> keys, std::vector<double> values) {
  HandCase c;
  c.name = std::move(name);
  c.shows = std::move(shows);
  Problem& p = c.problem;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = p.heads_kv = p.head_dim_qk = p.head_dim_v = 1;
  p.q_format = p.k_format = p.v_format = p.o_format = ASSAY_FP32;
  p.softmax_scale = 1;
  p.requests = std::move(requests);
  c.values.q = [](int, int32_t, int32_t, int32_t) { return 1.0; };
  c.values.k = [keys](int, int32_t j, int32_t, int32_t) { return keys.at(j); };
  c.values.v = [values](int, int32_t j, int32_t, int32_t) { return values.at(j); };
  return c;
}

}  // namespace assay::test
