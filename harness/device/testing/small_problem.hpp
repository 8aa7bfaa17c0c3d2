// SPDX-License-Identifier: Apache-2.0
// A small case within what the fake kernels support, for tests of the device and check stages.
#pragma once

#include <cmath>

#include "harness/problem/paged_cache.hpp"
#include "harness/problem/problem.hpp"

namespace assay::testkit {

// Three requests: a decode in mid-page, a prefill, an extend that ends on a page.
inline Problem small_problem(int32_t op = ASSAY_OP_PAGED) {
  Problem p;
  p.op = op;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = static_cast<float>(1 / std::sqrt(32.0));
  p.requests = {{1, 37}, {9, 9}, {3, 48}};
  p.seed = 5;
  if (op == ASSAY_OP_PAGED) {
    place_pages(p);
  } else {
    p.table = ASSAY_TABLE_NONE;
  }
  return p;
}

}  // namespace assay::testkit
