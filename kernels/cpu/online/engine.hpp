// SPDX-License-Identifier: Apache-2.0
// The door between the fast kernels' driver (online.cpp, plain x86-64) and the code compiled once per
// instruction set (isa_*.cpp). An Engine is a table of function pointers, chosen at run time; the driver
// cuts the work into tasks whose shape depends on one request only, so neither the batch nor the number of
// threads can change a row's bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/operands.hpp"
#include "kernels/cpu/isa.hpp"

namespace assay_cpu {

using namespace assay_kernels;

// Sizes that decide a row's bits; all are per request.
constexpr int kPartitionKeys = 1024;  // long contexts with few rows are cut here and merged
constexpr int kSplitRows = 128;       // at most this many stacked rows: partitions instead of one pass
constexpr int kStreamRows = 16;       // at most this many: keys are streamed once for all heads
constexpr int kBlockRows = 512;       // stacked rows that share one packed copy of the keys
constexpr int kChunkKeys = 256;       // keys packed at a time, and per softmax step
constexpr int kStreamKeys = 32;       // keys per softmax step while streaming
constexpr int kTileStreamKeys = 32;   // the same with bf16 tiles

// Rows of one KV head are stacked: row s is query row s / group with head kv_head * group + s % group.
// Results are unnormalised: o = sum_j 2^(x_j - m) v_j, l = sum_j 2^(x_j - m), m in base-2 units (log2 e
// times the logit), -inf where no key is visible.
struct BlockTask {
  int32_t request, kv_head;
  int32_t row_begin, rows;  // stacked
  int32_t key_begin, key_end;
};
struct BlockResult {
  float* o;  // [rows][o_stride]
  int64_t o_stride;
  float *m, *l;  // [rows]
};

// One request's few rows against a range of keys, all KV heads. Results [heads_kv][rows].
struct StreamTask {
  int32_t request;
  int32_t rows;  // q_len * group
  int32_t key_begin, key_end;
};

struct Engine {
  const char* name;
  // Scratch of one thread for this problem; the largest of both paths.
  int64_t (*scratch_bytes)(const assay_problem*);
  // Both return where in `scratch` the results are; they stay there until the next call.
  BlockResult (*attend_block)(const Operands&, const BlockTask&, void* scratch);
  BlockResult (*stream)(const Operands&, const StreamTask&, void* scratch);
  // out[d] = row[d] / divisor * scale[d] in the output format; out_stride in elements.
  void (*store_row)(const float* row, float divisor, const float* scale, int dims, unsigned char* out,
                    int64_t out_stride, int32_t format);
  // Element-wise functions of the softmax, for the tests.
  void (*exp2_array)(const float* in, float* out, int64_t n);
  void (*tanh_array)(const float* in, float* out, int64_t n);
  // Measured limits: OR of all bytes read with the widest loads; FLOP done by `rounds` register-only steps.
  uint64_t (*read_bytes)(const void* data, int64_t bytes);
  double (*fp32_flops)(int64_t rounds, float* sink);
  double (*bf16_flops)(int64_t rounds, float* sink);  // null: no bf16 matrix unit at this level
  // c + sum of 32 products of bf16 codes as that unit forms it; null where there is none.
  float (*bf16_dot)(const uint16_t* a, const uint16_t* b, float c);
};

// True when the AMX engine multiplies this problem in bf16 tiles (all codes exact in bf16, and no
// per-channel scale that would have to be folded into Q); otherwise it uses the fp32 path.
bool uses_bf16_tiles(const assay_problem&);

const Engine& scalar_engine();
const Engine& avx2_engine();
const Engine& avx512_engine();
const Engine& amx_engine();
const Engine& engine_for(Isa);

}  // namespace assay_cpu
