// SPDX-License-Identifier: Apache-2.0
// The kernels for compute capability 9.0 (sm_90a) as entries of the C table, and what those entries share.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/common/operands.hpp"

namespace assay_sm90 {

std::vector<const assay_kernel*> sm90_kernels();     // sm90.cpp: all of the below
std::vector<const assay_kernel*> decode_kernels();   // decode.cpp
std::vector<const assay_kernel*> mla_kernels();      // mla.cpp
std::vector<const assay_kernel*> prefill_kernels();  // prefill.cpp

// What `supports` asks first: op, device, groups of heads, no positions. ASSAY_OK, or ASSAY_UNSUPPORTED and
// why.
int common_supports(const assay_kernel*, const assay_problem*, const assay_device*, char* why, size_t size);
// ASSAY_UNSUPPORTED, with "required ..., supported ..., missing ..." in why.
int refuse(char* why, size_t size, const char* required, const char* supported, const char* missing);
// Refusals that several entries share: anything but Q, K, V and O all in bf16 or all in fp16, without scales;
// a page per token.
int refuse_8_bit(const assay_problem&, char* why, size_t size);
int refuse_slots(const assay_problem&, char* why, size_t size);
// ASSAY_INVALID_ARGUMENT with the text.
int invalid(char* error, size_t size, const char* text);
// The last axis is packed, the others are multiples of `elements`, and so is the start of the data.
bool rows_of(const assay_tensor&, int32_t element_bytes, int32_t elements);

// One scale for all keys and dimensions of a request and head, or coarser.
bool scale_per_segment(int32_t kind);
// Where such scales are, strides per request and head: null data means the host's number.
void place_scale(const assay_kernels::ScaleView&, const float*& data, int64_t& request, int64_t& head,
                 float& host);

constexpr double kLog2e = 1.4426950408889634;

// What the calls of all kernels name alike: O and LSE, lengths, page numbers, sinks, mask.
template <class Call>
void place_batch(const assay_problem& p, const assay_tensors& t, const assay_kernels::Operands& a,
                 Call& call) {
  call.o = reinterpret_cast<uint16_t*>(a.o), call.lse = a.lse;
  call.o_row = a.o_stride[0], call.o_head = a.o_stride[1];
  call.lse_row = a.lse_stride[0], call.lse_head = a.lse_stride[1];
  call.cu_q = a.cu_q, call.cu_q_stride = a.cu_q_stride;
  call.kv_len = static_cast<const int32_t*>(t.kv_len.data), call.kv_len_stride = t.kv_len.stride[0];
  if (p.table == ASSAY_TABLE_CSR) {
    call.table = a.indices, call.indptr = a.indptr;
    call.indptr_stride = a.indptr_stride, call.table_stride = a.indices_stride;
  } else {
    call.table = a.block_table;
    call.table_row = a.block_table_stride[0], call.table_stride = a.block_table_stride[1];
  }
  call.page = p.page_size;
  call.sinks = a.sinks, call.sinks_stride = a.sinks_stride;
  call.requests = p.requests;
  call.causal = p.mask == ASSAY_MASK_CAUSAL;
  // A window that reaches over everything is none; so positions and windows add up without overflow.
  call.window_left = p.window_left >= p.max_kv_len ? -1 : p.window_left;
  call.window_right = p.window_right >= p.max_kv_len + p.max_q_len ? -1 : p.window_right;
  call.chunk = p.chunk;
}

}  // namespace assay_sm90
