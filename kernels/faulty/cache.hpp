// SPDX-License-Identifier: Apache-2.0
// From (request, key) to numbers: page and slot, element offsets, decoding, scales. Every block, row and
// table index is wrapped into what exists, so a fault reads the wrong thing but never crashes.
#pragma once

#include "kernels/faulty/call.hpp"

namespace assay_faulty {

// Block and slot of a key; for K and V apart, because faults may confuse one of them only.
KeyPlace place_of(const Call&, int request, int32_t key, bool is_v);

// Lanes that a fault adds behind the last key hold zeros, unless it reads what lies there.
bool behind_last_key_is_zero(const Call&, int request, int32_t key);

// Operands of the products: codes, or dequantised values where the arithmetic says so. Rows of head_dim_qk,
// head_dim_qk and head_dim_v floats.
void load_q(const Call&, int request, int32_t row, int32_t head, float* out);
void load_k(const Call&, int request, int32_t key, int32_t kv_head, float* out);
void load_v(const Call&, int request, int32_t key, int32_t kv_head, float* out);

// V of any place, undequantised: for faults that read where no key is.
void load_v_at(const Call&, KeyPlace, int32_t kv_head, float* out);

// Scales that stay outside the products.
float score_scale(const Call&, int request, int32_t row, int32_t head, int32_t kv_head);
bool scores_scaled_by_key(const Call&);
float key_scale(const Call&, int request, int32_t key, int32_t kv_head);
float value_scale(const Call&, int request, int32_t key, int32_t kv_head);
// Of result dimension `dim` (constant where V's scale is not by channel).
bool results_scaled_by_channel(const Call&);
float result_scale(const Call&, int request, int32_t kv_head, int32_t dim);

// The KV head a query head reads.
int32_t kv_head_of(const Call&, int32_t head);

}  // namespace assay_faulty
