// SPDX-License-Identifier: Apache-2.0
// Attention of rows with one head each, written twice with the same bits: plain.cpp is the one to read, a
// row at a time and a key at a time, and the one that runs at ASSAY_CPU_ISA=scalar; beside.cpp reads a key
// once for several rows and forms the logits of several keys side by side, with AVX2 or AVX-512 (loops.hpp),
// because a suite of thousands of cases is waiting. Every sum has the order that plain.cpp gives it;
// naive_test.cpp compares their bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/operands.hpp"
#include "kernels/cpu/naive/row_loops.hpp"

namespace assay_cpu {

using namespace assay_kernels;

// A row of a request with one query head, and where its results go.
struct RowOfHead {
  int32_t row;
  int head;
  unsigned char* o;
  int32_t o_format;
  int64_t o_first, o_dim;  // in elements
  float* lse;              // null: none is asked for
};

// fp32 buffers of one thread, reused from call to call. Throws std::bad_alloc.
struct RowBuffers {
  RowBuffers(const assay_problem&, int32_t rows);
  int32_t rows;                     // at most so many stand beside each other
  size_t logits_apart;              // of a row from those of the next
  std::unique_ptr<float[]> logits;  // of each row; not filled, as there are as many as pairs of row and key
  std::vector<float> q, o;          // of each row; o: by lane
  std::vector<float> keys, keys_turned, values;
};

// `own`: only these keys count, of those that a row sees. All rows are of one request and one KV head.
void attend_plainly(const Operands&, int request, KeyInterval own, const RowOfHead&, RowBuffers&);
void attend_beside(const Operands&, int request, KeyInterval own, const RowOfHead* rows, int32_t count,
                   const RowLoops&, RowBuffers&);

// What both need: the row's Q with its channel scales, the other factors of its logits, what it sees.
struct RowStart {
  RowView view;
  KeyInterval keys;
  float row_scale, slope, sink;
};
RowStart start_row(const Operands&, int request, KeyInterval own, const RowOfHead&, float* q);
// One row of K or V of a token and head, dims in their order.
void load_kv_row(const KvView&, int64_t offset, int32_t dims, float* out);
// Position bias of the spec; keys after the row have none.
ASSAY_INLINE float position_bias(int32_t alibi, float slope, int64_t distance) {
  if (distance < 0) return 0.0f;
  const float d = static_cast<float>(distance);
  return -slope * (alibi == ASSAY_ALIBI_SQRT ? std::sqrt(d) : d);
}
// The logit of what Q and a key's K multiply to; `scale`: the row's times the key's.
ASSAY_INLINE float finish_logit(const Operands& a, const RowStart& s, int32_t key, float dot, float scale) {
  const assay_problem& p = a.p;
  float logit = dot * scale;
  if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
  if (p.alibi != ASSAY_ALIBI_NONE) logit += position_bias(p.alibi, s.slope, key_distance(a, s.view, key));
  return logit;
}
// Folds the lanes and writes the row's results. `shift`: the maximum of its logits and its sink;
// `lane`: of so many floats is a lane of o.
void finish_row(const Operands&, int request, const RowOfHead&, const RowStart&, float shift, float* sums,
                float* o, int32_t lane);

}  // namespace assay_cpu
