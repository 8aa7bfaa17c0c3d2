// SPDX-License-Identifier: Apache-2.0
// See parts.hpp.
#include "harness/ops/parts.hpp"

#include <algorithm>

namespace assay {

KeyRange part_keys(const Problem& p, int32_t kv_len, int32_t part) {
  const auto cut = [&](int64_t at) {
    const int64_t pages = (int64_t{kv_len} + p.page_size - 1) / p.page_size;
    const int64_t key = p.part_tokens > 0 ? at * p.part_tokens : pages * at / p.states * p.page_size;
    return static_cast<int32_t>(std::min<int64_t>(key, kv_len));
  };
  return {cut(part), cut(part + 1)};
}

Problem part_of(const Problem& p, int32_t part) {
  Problem d = p;
  d.op = ASSAY_OP_PAGED;
  for (const Request& r : p.requests) d.only_keys.push_back(part_keys(p, r.kv_len, part));
  return d;
}

Problem attention_of(const Problem& p) {
  Problem whole = p;
  whole.op = op_of(p).has_cache ? ASSAY_OP_PAGED : ASSAY_OP_PREFILL;
  whole.padded_rows = 0;
  whole.split_latent = false;
  return whole;
}

bool answers_are_known(const Op& op) { return op.attends_rows && takes(op, InputRecipe::kExact); }

}  // namespace assay
