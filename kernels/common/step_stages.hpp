// SPDX-License-Identifier: Apache-2.0
// Stages that steps of several pipelines share: how a part of a step's operands becomes those of a stage.
#pragma once

#include <string>

#include "kernels/common/stages.hpp"

namespace assay_kernels {

// Requests and rows of a group, which follow each other.
struct Part {
  int32_t first = 0, count = 0;
  int64_t row = 0, rows = 0;
  assay_tensor starts{};  // int32 [count + 1] rows of the group, from 0
};

// All of a step.
Part everything(const Calls&);

// "decodes, 3 of 8 requests, 5 rows"
std::string requests_text(const assay_problem&, int32_t first, int32_t count, const char* what);

// Refuses whatever attends otherwise than by a causal mask; `caps`: soft caps are all right.
void only_causal(const assay_problem&, bool caps = false);

// Stage "write": every new key, of cross attention those of the encoders, to its slot; none where the keys
// are there already.
void add_write(Calls&);

// Requests first .. first + count - 1 become those of the call: their lengths.
void take_lengths(const Calls&, StageCall&, int32_t first, int32_t count);
// The same with their keys in the cache: K, V, scales and page table too.
void take_cache(const Calls&, StageCall&, int32_t first, int32_t count);
// The page table and lengths of a step, for metadata.
void read_tables(const Calls&, StageCall&);
// Requests of a stage's own making, `count` at most, with their keys in the cache by a table of its own: none
// of more than so many rows and keys.
void take_made(const Calls&, StageCall&, int64_t count, int32_t rows, int32_t keys, int32_t kind,
               const assay_tensor& starts, const assay_tensor& lengths, const assay_tensor& table);
// No LSE for whom that is all the same: null where the stage's kernel promises to do without, else one in the
// workspace that nobody reads.
void ask_no_lse(Calls&, StageCall&);
// The rows of a part of Q, with what their scores need; scales per request or row are the part's.
void take_rows(const Calls&, StageCall&, const Part&);

}  // namespace assay_kernels
