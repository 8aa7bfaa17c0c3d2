// SPDX-License-Identifier: Apache-2.0
// Fills the C struct. What an op does not take is neutral there, so that two equal cases are equal.
#include "harness/ops/problem_view.hpp"

#include "harness/ops/op.hpp"

namespace assay {

ProblemView::ProblemView(const Problem& p, float q_scale_host, float k_scale_host, float v_scale_host)
    : q_len_(p.q_lens()), kv_len_(p.kv_lens()), first_key_(p.first_key), encoder_len_(p.encoder_len) {
  for (const std::vector<int32_t>& rows : p.positions)
    positions_.insert(positions_.end(), rows.begin(), rows.end());
  const Op& op = op_of(p);
  const bool paged = op.has_cache;
  c_.struct_size = sizeof(c_);
  c_.op = p.op;
  c_.mask = p.mask;
  c_.heads_q = p.heads_q;
  c_.heads_kv = p.heads_kv;
  c_.head_dim_qk = p.head_dim_qk;
  c_.head_dim_v = p.head_dim_v;
  c_.q_format = p.q_format;
  c_.k_format = p.k_format;
  c_.v_format = p.v_format;
  c_.o_format = p.o_format;
  c_.q_scale_kind = p.q_scale;
  c_.k_scale_kind = p.k_scale;
  c_.v_scale_kind = p.v_scale;
  c_.q_scale_host = p.q_scale == ASSAY_SCALE_HOST ? q_scale_host : 1.0f;
  c_.k_scale_host = p.k_scale == ASSAY_SCALE_HOST ? k_scale_host : 1.0f;
  c_.v_scale_host = p.v_scale == ASSAY_SCALE_HOST ? v_scale_host : 1.0f;
  c_.softmax_scale = p.softmax_scale;
  c_.softcap = p.softcap;
  c_.window_left = p.window_left;
  c_.window_right = p.window_right;
  c_.chunk = p.chunk;
  c_.alibi = p.alibi;
  c_.has_sinks = p.sinks ? 1 : 0;
  // Storage fields mean nothing without a cache; neutral values keep two equal cases equal.
  c_.layout = paged ? p.layout : ASSAY_LAYOUT_NHD;
  c_.page_size = paged || takes(op, "page") ? p.page_size : 0;
  c_.table = paged ? p.table : ASSAY_TABLE_NONE;
  c_.requests = static_cast<int32_t>(p.requests.size());
  c_.max_q_len = p.max_q_len();
  c_.max_kv_len = p.max_kv_len();
  c_.total_q = p.total_q();
  c_.total_kv = p.total_kv();
  c_.q_len = q_len_.data();
  c_.kv_len = kv_len_.data();
  c_.first_key = p.first_key.empty() ? nullptr : first_key_.data();
  c_.positions = p.positions.empty() ? nullptr : positions_.data();
  c_.rows = p.rows();
  c_.states = takes(op, "states") ? p.states : 0;
  c_.part_tokens = takes(op, "part") ? p.part_tokens : 0;
  c_.ranks = takes(op, "ranks") ? p.ranks : 0;
  c_.interleave = takes(op, "interleave") ? p.interleave : 0;
  c_.threshold = takes(op, "threshold") ? p.threshold : 0;
  c_.token_budget = takes(op, "budget") ? p.token_budget : 0;
  c_.prefix_tokens = takes(op, "prefix") ? p.prefix_tokens : 0;
  c_.workers = takes(op, "workers") ? p.workers : 0;
  c_.tile_rows = takes(op, "tile") ? p.tile_rows : 0;
  c_.tile_keys = takes(op, "tile") ? p.tile_keys : 0;
  c_.flat_tree = p.flat_tree ? 1 : 0;
  c_.drafted = p.drafted;
  c_.no_write = p.no_write ? 1 : 0;
  c_.full_pool = p.full_pool ? 1 : 0;
  c_.encoder_len = p.encoder_len.empty() ? nullptr : encoder_len_.data();
  c_.computed_scales = p.computed_scales ? 1 : 0;
  c_.two_sources = op.attends_rows && p.split_latent ? 1 : 0;
  c_.source_format = op.attends_rows && !takes(op, "from") ? int32_t{ASSAY_FORMAT_NONE} : p.source_format;
}

}  // namespace assay
