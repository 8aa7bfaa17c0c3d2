// SPDX-License-Identifier: Apache-2.0
// See layouts.hpp.
#include "harness/ops/layouts.hpp"

#include <algorithm>

namespace assay {
namespace {

// Strides and allocation of a dense layout whose last axis is stretched.
void stretch(const Problem& p, TensorLayout& t) {
  if (!p.strided.last) return;
  for (int axis = 0; axis < t.rank; ++axis) t.stride[axis] *= kLastStride;
  t.allocation *= kLastStride;
}

// rows x heads x dim where a row has room for `spare` more heads than the view shows.
TensorLayout head_slice(const Problem& p, int32_t format, int64_t rows, int64_t heads, int64_t dim,
                        int64_t spare) {
  TensorLayout t = dense_layout(format, {rows, heads, dim});
  t.stride[0] = (heads + spare) * dim;
  t.allocation = rows * t.stride[0];
  stretch(p, t);
  return t;
}

// Two axes stored the other way round.
TensorLayout transposed(int32_t format, int64_t rows, int64_t columns) {
  TensorLayout t = dense_layout(format, {rows, columns});
  t.stride[0] = 1;
  t.stride[1] = rows;
  return t;
}

int64_t requests(const Problem& p) { return static_cast<int64_t>(p.requests.size()); }

// Scales of every kind but those of one token, which lie beside their rows; rank 0 for those.
TensorLayout scale_of_more(const Problem& p, int32_t kind, int64_t heads, int64_t dim) {
  switch (static_cast<assay_scale>(kind)) {
    case ASSAY_SCALE_TENSOR:
      return dense_layout(ASSAY_FP32, {1});
    case ASSAY_SCALE_HEAD:
      return dense_layout(ASSAY_FP32, {heads});
    case ASSAY_SCALE_REQUEST_HEAD:
      return dense_layout(ASSAY_FP32, {requests(p), p.heads_kv});
    case ASSAY_SCALE_CHANNEL:
      return dense_layout(ASSAY_FP32, {heads, dim});
    case ASSAY_SCALE_NONE:
    case ASSAY_SCALE_HOST:
    case ASSAY_SCALE_TOKEN_HEAD:
      break;
  }
  return {};
}

TensorLayout scale_ragged(const Problem& p, int32_t kind, int64_t heads, int64_t dim, int64_t tokens) {
  if (kind != ASSAY_SCALE_TOKEN_HEAD) return scale_of_more(p, kind, heads, dim);
  return p.strided.scales ? transposed(ASSAY_FP32, tokens, heads) : dense_layout(ASSAY_FP32, {tokens, heads});
}

TensorLayout scale_paged(const Problem& p, int32_t kind, int64_t dim) {
  if (kind != ASSAY_SCALE_TOKEN_HEAD) return scale_of_more(p, kind, p.heads_kv, dim);
  TensorLayout t = dense_layout(ASSAY_FP32, {p.num_blocks, p.heads_kv, p.page_size});
  if (p.strided.scales) {
    t.stride[0] = p.page_size;
    t.stride[1] = int64_t{p.num_blocks} * p.page_size;
  }
  return t;
}

// Of codes that are made already, where each row and head has a scale.
TensorLayout ready_scale(const Problem& p, int32_t kind) {
  if (p.source_format != ASSAY_FORMAT_NONE || kind != ASSAY_SCALE_TOKEN_HEAD) return {};
  return p.strided.scales ? transposed(ASSAY_FP32, p.rows(), p.heads_kv)
                          : dense_layout(ASSAY_FP32, {p.rows(), p.heads_kv});
}

// Results [states, rows, heads (, dim)] of which a row was split; transposed: heads x rows.
TensorLayout results_lse(int64_t states, int64_t rows, int64_t heads, bool strided) {
  TensorLayout t = dense_layout(ASSAY_FP32, {states, rows, heads});
  if (strided) t.stride[1] = 1, t.stride[2] = rows;
  return t;
}
TensorLayout results_o(const Problem& p, int32_t format, int64_t states, int64_t rows, int64_t heads,
                       bool strided) {
  TensorLayout t = dense_layout(format, {states, rows, heads, p.head_dim_v});
  if (strided) {
    t.stride[1] = (heads + 1) * p.head_dim_v;
    t.stride[0] = rows * t.stride[1];
    t.allocation = states * t.stride[0];
  }
  stretch(p, t);
  return t;
}

TensorLayout partial_lse(const Problem& p, bool strided) {
  return results_lse(p.states, p.rows(), p.heads_q, strided);
}
TensorLayout partial_o(const Problem& p, int32_t format, bool strided) {
  return results_o(p, format, p.states, p.rows(), p.heads_q, strided);
}

// Partial results of tiles, of which a worker cuts two at most.
TensorLayout tile_lse(const Problem& p, bool strided) {
  return results_lse(2 * int64_t{p.workers}, p.tile_rows, p.group(), strided);
}
TensorLayout tile_o(const Problem& p, bool strided) {
  return results_o(p, ASSAY_FP32, 2 * int64_t{p.workers}, p.tile_rows, p.group(), strided);
}

// Rows a cache is written from (slices of a fused QKV projection), and rows it is gathered into.
TensorLayout dense_read(const Problem& p, int32_t dim, int32_t stored) {
  const int32_t format = p.source_format == ASSAY_FORMAT_NONE ? stored : p.source_format;
  return head_slice(p, format, p.key_rows(), p.heads_kv, dim, p.strided.q ? p.heads_q + p.heads_kv : 0);
}
TensorLayout dense_written(const Problem& p, int32_t dim) {
  return head_slice(p, p.o_format, p.rows(), p.heads_kv, dim, p.strided.out ? 1 : 0);
}

bool latent(const Problem& p) { return p.layout == ASSAY_LAYOUT_MLA; }
// K without its rope part and V as the halves of each head of one up-projection.
bool in_halves(const Problem& p) { return p.split_latent && !latent(p); }
TensorLayout half_of_projection(const Problem& p, int32_t format) {
  const int64_t heads = p.heads_kv, both = 2 * int64_t{p.head_dim_v};
  TensorLayout t = dense_layout(format, {p.rows(), heads, p.head_dim_v});
  t.stride[1] = both, t.stride[0] = (heads + (p.strided.q ? p.heads_q : 0)) * both;
  t.allocation = p.rows() * t.stride[0];
  stretch(p, t);
  return t;
}
bool csr(const Problem& p) { return p.table == ASSAY_TABLE_CSR; }

TensorLayout when(bool used, const TensorLayout& t) { return used ? t : TensorLayout{}; }
// Keys of an encoder that lie in the cache already come in no other way.
bool has_new_keys(const Problem& p) { return p.mask != ASSAY_MASK_CROSS || !p.no_write; }

}  // namespace

bool has_scale_tensor(int32_t kind) { return kind != ASSAY_SCALE_NONE && kind != ASSAY_SCALE_HOST; }

namespace layouts {

TensorLayout q_read(const Problem& p) {
  return head_slice(p, p.q_format, p.rows(), p.heads_q,
                    p.split_latent && latent(p) ? p.head_dim_v : p.head_dim_qk,
                    p.strided.q ? 2 * p.heads_kv : 0);
}
TensorLayout rope(const Problem& p) {
  if (!p.split_latent) return {};
  const int32_t dims = p.head_dim_qk - p.head_dim_v;
  return latent(p) ? head_slice(p, p.q_format, p.rows(), p.heads_q, dims, p.strided.q ? 2 * p.heads_kv : 0)
                   : head_slice(p, p.source_format, p.rows(), 1, dims, p.strided.q ? 1 : 0);
}
TensorLayout q_written(const Problem& p) {
  return head_slice(p, p.q_format, p.rows(), p.heads_q, p.head_dim_qk, p.strided.out ? 1 : 0);
}
TensorLayout source(const Problem& p) {
  return head_slice(p, p.source_format, p.rows(), p.heads_q, p.head_dim_qk, p.strided.q ? 2 * p.heads_kv : 0);
}
TensorLayout o(const Problem& p) {
  return head_slice(p, p.o_format, p.rows(), p.heads_q, p.head_dim_v, p.strided.out ? 1 : 0);
}
TensorLayout lse(const Problem& p) {
  return p.strided.out ? transposed(ASSAY_FP32, p.rows(), p.heads_q)
                       : dense_layout(ASSAY_FP32, {p.rows(), p.heads_q});
}
TensorLayout dense_k_read(const Problem& p) {
  if (in_halves(p)) return half_of_projection(p, p.source_format);
  return when(has_new_keys(p), dense_read(p, p.split_latent ? p.head_dim_v : p.head_dim_qk, p.k_format));
}
TensorLayout dense_v_read(const Problem& p) {
  if (in_halves(p)) return half_of_projection(p, p.source_format);
  if (p.split_latent) return dense_read(p, p.head_dim_qk - p.head_dim_v, p.k_format);
  return when(!latent(p) && has_new_keys(p), dense_read(p, p.head_dim_v, p.v_format));
}
TensorLayout dense_k_scale(const Problem& p) { return ready_scale(p, p.k_scale); }
TensorLayout dense_v_scale(const Problem& p) { return when(!latent(p), ready_scale(p, p.v_scale)); }
TensorLayout dense_k_written(const Problem& p) { return dense_written(p, p.head_dim_qk); }
TensorLayout dense_v_written(const Problem& p) { return when(!latent(p), dense_written(p, p.head_dim_v)); }

TensorLayout partial_o_read(const Problem& p) { return partial_o(p, p.source_format, p.strided.q); }
TensorLayout partial_o_written(const Problem& p) { return partial_o(p, p.o_format, p.strided.out); }
TensorLayout partial_lse_read(const Problem& p) { return partial_lse(p, p.strided.q); }
TensorLayout partial_lse_written(const Problem& p) { return partial_lse(p, p.strided.out); }

TensorLayout tile_o_read(const Problem& p) { return tile_o(p, p.strided.q); }
TensorLayout tile_o_written(const Problem& p) { return tile_o(p, p.strided.out); }
TensorLayout tile_lse_read(const Problem& p) { return tile_lse(p, p.strided.q); }
TensorLayout tile_lse_written(const Problem& p) { return tile_lse(p, p.strided.out); }

TensorLayout k_ragged(const Problem& p) {
  return head_slice(p, p.k_format, p.total_kv(), p.heads_kv, p.head_dim_qk, p.strided.kv ? 1 : 0);
}
TensorLayout v_ragged(const Problem& p) {
  return head_slice(p, p.v_format, p.total_kv(), p.heads_kv, p.head_dim_v, p.strided.kv ? 1 : 0);
}
TensorLayout k_scale_ragged(const Problem& p) {
  return scale_ragged(p, p.k_scale, p.heads_kv, p.head_dim_qk, p.total_kv());
}
TensorLayout v_scale_ragged(const Problem& p) {
  return scale_ragged(p, p.v_scale, p.heads_kv, p.head_dim_v, p.total_kv());
}
TensorLayout k_paged(const Problem& p) { return PagedCache(p).k(); }
TensorLayout v_paged(const Problem& p) { return PagedCache(p).v(); }
TensorLayout k_scale_paged(const Problem& p) { return scale_paged(p, p.k_scale, p.head_dim_qk); }
TensorLayout v_scale_paged(const Problem& p) { return scale_paged(p, p.v_scale, p.head_dim_v); }
TensorLayout v_scale_paged_unless_latent(const Problem& p) { return when(!latent(p), v_scale_paged(p)); }
TensorLayout q_scale(const Problem& p) {
  return scale_ragged(p, p.q_scale, p.heads_q, p.head_dim_qk, p.rows());
}

TensorLayout per_request(const Problem& p) { return dense_layout(ASSAY_INT32, {requests(p)}); }
TensorLayout request_starts(const Problem& p) { return dense_layout(ASSAY_INT32, {requests(p) + 1}); }
int64_t encoder_columns(const Problem& p, size_t request) {
  if (p.encoder_len.empty()) return 0;
  const int64_t tokens = p.encoder_len[request];
  return p.table == ASSAY_TABLE_TOKEN ? tokens : (tokens + p.page_size - 1) / p.page_size;
}
TensorLayout block_table(const Problem& p) { return block_table_before(p, 0); }
TensorLayout block_table_before(const Problem& p, int32_t tokens) {
  if (csr(p)) return {};
  int64_t columns = 0;
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int64_t own =
        p.table == ASSAY_TABLE_TOKEN ? p.requests[r].kv_len : static_cast<int64_t>(p.pages[r].size());
    columns = std::max(columns, encoder_columns(p, r) + own);
  }
  columns += p.table == ASSAY_TABLE_TOKEN ? tokens : (tokens + p.page_size - 1) / p.page_size;
  TensorLayout t = dense_layout(ASSAY_INT32, {requests(p), columns});
  if (p.strided.table) {
    t.stride[0] = columns + kTablePadding;
    t.allocation = t.shape[0] * t.stride[0];
  }
  return t;
}
TensorLayout csr_indptr(const Problem& p) { return when(csr(p), request_starts(p)); }
TensorLayout csr_indices(const Problem& p) {
  int64_t entries = 0;
  for (const auto& list : p.pages) entries += static_cast<int64_t>(list.size());
  return when(csr(p), dense_layout(ASSAY_INT32, {entries}));
}
TensorLayout csr_last_page_len(const Problem& p) { return when(csr(p), per_request(p)); }
TensorLayout slot_mapping(const Problem& p) {
  return when(!p.no_write, dense_layout(ASSAY_INT64, {p.key_rows()}));
}
TensorLayout token_to_batch(const Problem& p) { return dense_layout(ASSAY_INT32, {p.rows()}); }

TensorLayout alibi_slopes(const Problem& p) {
  return when(p.alibi != ASSAY_ALIBI_NONE, dense_layout(ASSAY_FP32, {p.heads_q}));
}
TensorLayout sinks(const Problem& p) { return when(p.sinks, dense_layout(ASSAY_FP32, {p.heads_q})); }
std::vector<int64_t> tree_starts(const Problem& p) {
  if (!p.flat_tree) return p.tree_indptr();
  std::vector<int64_t> starts = {0};
  for (const Request& r : p.requests) starts.push_back(starts.back() + int64_t{r.q_len} * r.kv_len);
  return starts;
}
TensorLayout tree_mask(const Problem& p) {
  return when(p.mask == ASSAY_MASK_TREE, dense_layout(ASSAY_UINT8, {tree_starts(p).back()}));
}
TensorLayout tree_indptr(const Problem& p) {
  return when(p.mask == ASSAY_MASK_TREE, dense_layout(ASSAY_INT64, {requests(p) + 1}));
}
TensorLayout first_key(const Problem& p) { return when(!p.first_key.empty(), per_request(p)); }
TensorLayout encoder_len(const Problem& p) { return when(!p.encoder_len.empty(), per_request(p)); }
TensorLayout slot_map(const Problem& p) {
  return when(p.full_pool, dense_layout(ASSAY_INT32, {full_blocks(p) * p.page_size}));
}
TensorLayout context_len(const Problem& p) { return when(p.mask != ASSAY_MASK_CROSS, per_request(p)); }
TensorLayout positions(const Problem& p) {
  return when(!p.positions.empty(), dense_layout(ASSAY_INT32, {p.total_q()}));
}

TensorLayout list(int64_t entries) { return dense_layout(ASSAY_INT32, {entries}); }
TensorLayout table_out(const Problem& p, int64_t rows, int64_t columns) {
  TensorLayout t = dense_layout(ASSAY_INT32, {rows, columns});
  if (p.strided.out) t.stride[0] = columns + kTablePadding, t.allocation = rows * t.stride[0];
  return t;
}

}  // namespace layouts
}  // namespace assay
