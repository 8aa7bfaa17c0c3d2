// SPDX-License-Identifier: Apache-2.0
// Partial results of the parts of one row joined to its result, and both written out.
#pragma once

#include <vector>

#include "kernels/faulty/stream.hpp"

namespace assay_faulty {

// Partial results of a block of streams. Never cleared: what a part does not write is what another row left.
struct Partials {
  std::vector<float> o, lse;  // [streams][parts][padded head_dim_v], [streams][parts]
  int parts = 0, stride = 0;
  float* o_of(int stream, int part) { return o.data() + (int64_t{stream} * parts + part) * stride; }
  // What stands `gap` further on per part than the part itself.
  float* displaced(int stream, int part, int gap) {
    const int64_t at = (int64_t{stream} * parts + part) * (stride + gap),
                  room = static_cast<int64_t>(o.size()) - stride + 1;
    return o.data() + (at % room + room) % room;
  }
  float& lse_of(int stream, int part) { return lse[int64_t{stream} * parts + part]; }
};

// Rounds a finished part to the formats between parts and keeps it. o: its normalised result.
void keep_part(const Call&, Partials&, int stream, int part, const float* o, float lse);

// Result of the row in `o` (padded head_dim_v floats); returns its LSE, -infinity where nothing is visible.
float merge_parts(const Call&, Partials&, int stream, const Stream&, float* o);

// Writes a result row; nothing else touches the outputs.
void write_result(const Call&, int request, const Stream&, const float* o, float lse);

}  // namespace assay_faulty
