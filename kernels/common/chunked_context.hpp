// SPDX-License-Identifier: Apache-2.0
// Stages that attend rows of a part of a batch to dense keys: its new ones as they came, and its context,
// gathered from the cache whole or in chunks of a token budget, each attended without a mask and merged into
// what was there, one after the other. What is passed on between them has Q's format.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/step_stages.hpp"

namespace assay_kernels {

// A format without codes.
bool plain(int32_t format);
// What a gather writes: a cache of one 16-bit format as it is, codes in the model's format, mixtures in fp32.
int32_t gathered_format(const assay_problem&);

// Attention of the rows of a part over dense keys [keys, heads, dim].
StageCall& attend_dense(Calls& c, const char* stage, const std::string& what, const Part& part,
                        std::vector<int32_t> kv_len, const assay_tensor& k, const assay_tensor& v,
                        const assay_tensor& cu_kv, const assay_tensor& lengths);

// Cached tokens of a part's requests to dense rows.
StageCall& gather(Calls& c, const std::string& what, const Part& part, const std::vector<int32_t>& tokens,
                  const assay_tensor& cu, const assay_tensor& starts, const assay_tensor& request,
                  const assay_tensor& k, const assay_tensor& v);

// Partial results of rows: planes of O and LSE that lie one behind the other.
struct Planes {
  assay_tensor o, lse;  // [planes, rows, heads, dim], [planes, rows, heads]
};

// States first and first + step into `o`.
void merge(Calls& c, const std::string& what, const Part& part, const Planes& planes, int64_t first,
           int64_t step, int32_t states, const assay_tensor& o, const assay_tensor& lse);

// Lengths, starts and requests of the keys that a window shows the rows of a part, `keys` of them.
StageCall& list_keys(Calls& c, const char* stage, const std::string& what, const Part& part, int32_t window,
                     int64_t keys);

// Names of the places: new keys among themselves, and what lists their lengths; chunks, gather, context and
// merge have one name everywhere. `who` they are, for people: "extends".
struct ChunkStages {
  const char *fresh, *lengths, *who;
};
inline constexpr StagePlace kChunkPlaces[] = {{"chunks", {ASSAY_OP_CHUNK_METADATA}},
                                              {"gather", {ASSAY_OP_CACHE_GATHER}},
                                              {"context", {ASSAY_OP_PREFILL}},
                                              {"merge", {ASSAY_OP_MERGE_STATES}}};
// New keys, then the context in chunks, into O. Requests without context among them have empty chunks, and
// where no request has any there are none.
void attend_in_chunks(Calls&, const Part&, const ChunkStages&);

// The same for all of a step with heads unfolded, behind its write.
inline constexpr StagePlace kNewPlaces[] = {{"new", {ASSAY_OP_PREFILL}},
                                            {"lengths", {ASSAY_OP_WINDOW_METADATA}}};
void attend_all_in_chunks(Calls&);

}  // namespace assay_kernels
