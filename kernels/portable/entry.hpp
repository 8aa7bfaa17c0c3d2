// SPDX-License-Identifier: Apache-2.0
// What the entries of the portable kernels in the C table share: the call as data for the device, answers,
// parts of a split, what attention in fp32 and the data ops take, declare and begin run() with. The entries
// of a family lie beside its device code: x.hpp, x.cu (launch), x_entry.cpp.
#pragma once

#include "harness/abi/assay_kernel.h"
#include "kernels/common/data_op_operands.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/device/status.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

// Operands and device lengths of a call with one split; false and a text when the tensors contradict the
// problem.
bool make_call(const assay_problem*, const assay_tensors*, Call*, char* error, size_t size,
               bool lse_optional = false);
// Eight elements of any key, from a multiple of eight on, are neighbours in memory and start at a multiple of
// their size (16 bytes at most are read at once); chunks of one key lie at even distances
// (split_keys.hpp steps over 64 dimensions or more).
bool whole_chunks(const assay_kernels::KvView&, int32_t dims);

// Parts of equal size, at most 64 of at least least_keys keys each: as many as let the blocks (tile_rows
// packed rows, of which a multiprocessor holds `resident` at a time) finish first.
int32_t even_parts(const assay_problem&, int32_t tile_rows, int32_t resident, int32_t least_keys);

// Bytes of O and LSE of all parts, fp32.
int64_t partial_bytes(const assay_problem&, int32_t parts);

// Points the partial results of call->splits parts into the workspace; false and a text when it is too small.
bool place_parts(const assay_tensors&, Call*, char* error, size_t size);

// An entry that repeats its bits and may be captured; its functions are left to the caller.
constexpr assay_kernel entry(int32_t op, uint32_t promises, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "any";
  k.op = op, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH | promises;
  return k;
}

// ---- attention in fp32
// supports() of kernels that take all the common list of instances has; kPositions: the kernel looks at
// first_key and positions.
template <bool kPositions>
int every_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                   const assay_device*, char* why, size_t size) {
  return assay_kernels::find_instance(p, self->op, why, size, kPositions) != nullptr ? ASSAY_OK
                                                                                     : ASSAY_UNSUPPORTED;
}
// The width compiled for K and V of a problem.
int32_t dims_of(const assay_problem&);
// fp32 throughout, tiles of `tile` keys from key 0 on, the running maximum of a row once per tile.
assay_arithmetic fp32_arithmetic(const assay_problem&, int32_t tile);
// That of a row and head which one block goes through (simple.hpp), tiles of 128 keys, one after the other.
int one_block_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);
// That of rows in tiles, keys through shared memory (tiled.hpp).
int tiled_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);
// Tiles of the longest request.
inline int32_t tiles_of(const assay_problem& p, int32_t tile) { return (p.max_kv_len + tile - 1) / tile; }

// What run() of these kernels begins with; `enqueue` gets the call when there is something to do.
template <class Enqueue>
int run_call(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, char* error,
             size_t size, const Enqueue& enqueue) {
  if (self->supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  Call call{};
  const bool lse_optional = (self->promises & ASSAY_PROMISE_LSE_OPTIONAL) != 0;
  if (!make_call(p, t, &call, error, size, lse_optional)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  return enqueue(call);
}

// ---- data ops (merge_states, cache_write, cache_gather, quantize_int8): kernels take all that the ops
// allow, and launch grids that depend on shapes alone.
using assay_kernels::DataOpOperands;

int rows_supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                  char* why, size_t size);

template <gpu::Status (*kLaunch)(const DataOpOperands&, gpu::Stream)>
int run_rows(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
             void* stream, char* error, size_t size) {
  if (rows_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  DataOpOperands b;
  if (!assay_kernels::make_data_op_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->rows == 0) return ASSAY_OK;
  return answer(kLaunch(b, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

}  // namespace assay_gpu
