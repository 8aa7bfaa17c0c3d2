// SPDX-License-Identifier: Apache-2.0
// From what a stage read to the problem it is then about: lengths, trees and tables as they stand in memory.
// Whatever leads out of what was given is a contradiction, and nothing that is followed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/explain/stages/stage_case.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int32_t kMostTokens = 1 << 22;  // of a request that is looked at; more is no length

int32_t int_at(const assay_tensor& t, int64_t i) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0]];
}

bool is_list(const assay_tensor& t, int64_t count) {
  return t.data != nullptr && t.rank == 1 && t.shape[0] >= count;
}

// Whether an operand's bytes were copied and lie where the view says.
template <class... Text>
void demand(bool fine, fmt::format_string<Text...> text, Text&&... values) {
  if (!fine) throw CheckError(fmt::format(text, std::forward<Text>(values)...));
}

// Lists and rows of a captured call are as many as it was captured for; what a batch lacks is padding.
void pad_to(Problem& p, const std::vector<int32_t>& q_len, const std::vector<int32_t>& kv_len) {
  const Op& op = op_of(p);
  if (!takes(op, "pad")) return;
  Problem captured = p;
  captured.requests.clear(), captured.pages.clear();
  for (size_t i = 0; i < q_len.size(); ++i) {
    captured.requests.push_back({q_len[i], kv_len[i], -1, 0});
    captured.pages.emplace_back(static_cast<size_t>((kv_len[i] + p.page_size - 1) / p.page_size), 0);
  }
  const auto needed = [&](const Problem& of) {
    return op.entries == nullptr ? of.total_q() : op.entries(of);
  };
  p.padded_rows = static_cast<int32_t>(std::max<int64_t>(0, needed(captured) - needed(p)));
}

// Lists of pages that an op on lists follows: no further than they go.
void check_listed(const Problem& p, const assay_tensors& t) {
  const bool rows = t.block_table.data != nullptr, csr = t.indices.data != nullptr;
  if (op_of(p).attends_rows || (!rows && !csr)) return;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const auto r = static_cast<int64_t>(i);
    const int64_t before = t.encoder_len.data == nullptr ? 0 : int_at(t.encoder_len, r);
    const int64_t pages_before = (before + p.page_size - 1) / p.page_size;
    const auto pages = static_cast<int64_t>(p.pages[i].size());
    for (int64_t page = 0; page < pages; ++page) {
      int64_t listed = 0;
      if (p.table == ASSAY_TABLE_CSR) {
        const int64_t at = int_at(t.indptr, r) + page;
        demand(at >= 0 && at < t.indices.shape[0], "page {} of request {} lies outside of indices", page, i);
        listed = int_at(t.indices, at);
      } else {
        const int64_t column =
            p.table == ASSAY_TABLE_TOKEN ? before + page * p.page_size : pages_before + page;
        demand(r < t.block_table.shape[0] && column < t.block_table.shape[1],
               "entry {} of request {} lies outside of the table", column, i);
        listed = static_cast<const int32_t*>(
                     t.block_table.data)[r * t.block_table.stride[0] + column * t.block_table.stride[1]] /
                 (p.table == ASSAY_TABLE_TOKEN ? p.page_size : 1);
      }
      demand(t.slot_map.data == nullptr || (listed >= 0 && listed * p.page_size < t.slot_map.shape[0]),
             "page {} of request {} is {}, outside of the map", page, i, listed);
    }
  }
}

}  // namespace

Problem StageCase::problem_of(Reading& r) const {
  const assay_problem& v = r.problem;
  Problem p;
  p.op = v.op, p.mask = v.mask;
  p.heads_q = v.heads_q, p.heads_kv = v.heads_kv, p.head_dim_qk = v.head_dim_qk, p.head_dim_v = v.head_dim_v;
  p.window_left = v.window_left, p.window_right = v.window_right, p.chunk = v.chunk;
  p.softcap = v.softcap, p.softmax_scale = v.softmax_scale, p.alibi = v.alibi, p.sinks = v.has_sinks != 0;
  p.q_format = v.q_format, p.k_format = v.k_format, p.v_format = v.v_format, p.o_format = v.o_format;
  p.q_scale = v.q_scale_kind, p.k_scale = v.k_scale_kind, p.v_scale = v.v_scale_kind;
  p.layout = v.layout, p.page_size = std::max(1, v.page_size), p.table = v.table;
  p.source_format = v.source_format, p.states = v.states, p.part_tokens = v.part_tokens;
  p.ranks = v.ranks, p.interleave = v.interleave, p.threshold = v.threshold;
  p.token_budget = v.token_budget, p.prefix_tokens = v.prefix_tokens, p.workers = v.workers;
  p.tile_rows = v.tile_rows, p.tile_keys = v.tile_keys, p.flat_tree = v.flat_tree != 0;
  p.drafted = v.drafted, p.no_write = v.no_write != 0, p.full_pool = v.full_pool != 0;
  p.computed_scales = v.computed_scales != 0;
  p.split_latent = v.op == ASSAY_OP_CACHE_WRITE && v.layout == ASSAY_LAYOUT_MLA && r.has(Operand::kDenseV);
  p.only_keys = r.only_keys;
  assay_tensors& t = r.tensors;
  if (v.op == ASSAY_OP_CACHE_WRITE) {
    p.requests.push_back({static_cast<int32_t>(v.rows), static_cast<int32_t>(v.rows), -1, 0});
    return p;
  }
  int64_t rows = 0;
  for (int32_t i = 0; i < v.requests; ++i) {
    int32_t q = v.q_len[i], kv = v.kv_len[i];
    if (is_list(t.cu_q, v.requests + 1)) q = int_at(t.cu_q, i + 1) - int_at(t.cu_q, i);
    if (v.op == ASSAY_OP_PREFILL || v.op == ASSAY_OP_PERSISTENT_PREFILL) {
      if (is_list(t.cu_kv, v.requests + 1)) kv = int_at(t.cu_kv, i + 1) - int_at(t.cu_kv, i);
    } else if (is_list(t.kv_len, v.requests)) {
      kv = int_at(t.kv_len, i);
    }
    if (v.op == ASSAY_OP_DECODE_METADATA && is_list(t.context_len, v.requests))
      kv = int_at(t.context_len, i) + q;
    demand(q >= 0 && kv >= 0 && q <= kMostTokens && kv <= kMostTokens, "request {} has {} rows and {} keys",
           i, q, kv);
    p.requests.push_back({q, kv, -1, 0});
    p.pages.emplace_back(static_cast<size_t>((kv + p.page_size - 1) / p.page_size), 0);
    rows += q;
  }
  for (const Operand o : {Operand::kQ, Operand::kO, Operand::kDenseK, Operand::kSource}) {
    const assay_tensor& of_rows = tensor_of(t, o);
    const bool its = o == Operand::kDenseK ? v.op == ASSAY_OP_CACHE_GATHER : true;
    if (of_rows.data != nullptr && of_rows.rank == 3 && its)
      demand(rows <= of_rows.shape[0], "{} has {} rows, the starts say {}", operand_name(o), of_rows.shape[0],
             rows);
  }
  // What the host says of a captured call is of another batch.
  const auto listed = [&](const int32_t* host, const assay_tensor& list, std::vector<int32_t>& to) {
    if (host == nullptr) return;
    for (int32_t i = 0; i < v.requests; ++i)
      to.push_back(run_.replayed && is_list(list, v.requests) ? int_at(list, i) : host[i]);
  };
  listed(v.encoder_len, t.encoder_len, p.encoder_len);
  listed(v.first_key, t.first_key, p.first_key);
  if (run_.replayed) pad_to(p, run_.q_len, run_.kv_len);
  if (v.positions != nullptr && t.positions.data != nullptr) {
    int64_t row = 0;
    for (const Request& request : p.requests) {
      std::vector<int32_t>& own = p.positions.emplace_back();
      for (int32_t n = 0; n < request.q_len; ++n) own.push_back(int_at(t.positions, row++));
    }
  }
  const bool trees = v.op == ASSAY_OP_TREE_TABLES || v.op == ASSAY_OP_SWA_TREE_TABLE;
  if ((p.mask == ASSAY_MASK_TREE || trees) && t.tree_mask.data != nullptr) {
    // Where the starts lead, as a mask without gaps.
    int64_t from = 0;
    for (size_t i = 0; i < p.requests.size(); ++i) {
      const Request& request = p.requests[i];
      const int64_t columns = p.flat_tree ? request.kv_len : p.drafts(request);
      if (t.tree_indptr.data != nullptr)
        from = static_cast<const int64_t*>(
            t.tree_indptr.data)[static_cast<int64_t>(i) * t.tree_indptr.stride[0]];
      for (int64_t n = 0; n < request.q_len * columns; ++n, ++from) {
        demand(from >= 0 && from < t.tree_mask.shape[0], "the tree of request {} lies outside its mask", i);
        p.tree_mask.push_back(static_cast<const uint8_t*>(t.tree_mask.data)[from * t.tree_mask.stride[0]]);
      }
      demand(p.first_draft(request) >= 0, "request {} has {} keys, and more drafts", i, request.kv_len);
    }
    if (trees) {
      r.lists->emplace_back(p.tree_mask.size() + 64);
      std::memcpy(r.lists->back().data(), p.tree_mask.data(), p.tree_mask.size());
      t.tree_mask.data = r.lists->back().data(), t.tree_mask.stride[0] = 1;
      t.tree_mask.shape[0] = static_cast<int64_t>(p.tree_mask.size());
      t.tree_indptr = assay_tensor{};
    }
  }
  if (t.k.data != nullptr) p.num_blocks = static_cast<int32_t>(t.k.shape[0]);
  const bool reads_pages = v.op == ASSAY_OP_PAGED || v.op == ASSAY_OP_DECODE_SPLITKV ||
                           v.op == ASSAY_OP_CACHE_GATHER || v.op == ASSAY_OP_PERSISTENT_PAGED;
  if (!reads_pages) {
    check_listed(p, t);
    if (v.op == ASSAY_OP_PREFILL && t.k.data != nullptr)
      demand(p.total_kv() <= t.k.shape[0], "there are {} keys, the starts say {}", t.k.shape[0],
             p.total_kv());
    return p;
  }
  if (p.table == ASSAY_TABLE_CSR) {  // as a table of rows, for the lengths there are
    int64_t columns = 1;
    for (const auto& pages : p.pages) columns = std::max(columns, static_cast<int64_t>(pages.size()));
    std::vector<int32_t> table(p.pages.size() * static_cast<size_t>(columns), 0);
    for (size_t i = 0; i < p.pages.size(); ++i)
      for (size_t page = 0; page < p.pages[i].size(); ++page) {
        const int64_t at = int_at(t.indptr, static_cast<int64_t>(i)) + static_cast<int64_t>(page);
        demand(at >= 0 && at < t.indices.shape[0], "page {} of request {} lies outside of indices", page, i);
        table[i * static_cast<size_t>(columns) + page] = int_at(t.indices, at);
      }
    t.block_table = t.indices;
    t.block_table.rank = 2, t.block_table.shape[0] = static_cast<int64_t>(p.pages.size());
    t.block_table.shape[1] = columns;
    r.put(Operand::kBlockTable, table);
    p.table = r.problem.table = ASSAY_TABLE_BLOCK;
    t.indptr = t.indices = t.last_page_len = assay_tensor{};
  }
  const assay_tensor& table = t.block_table;
  // Tables of the full pool name its blocks.
  const int64_t blocks = t.slot_map.data != nullptr ? t.slot_map.shape[0] / p.page_size : t.k.shape[0];
  demand(table.data != nullptr && table.rank == 2, "there is no page table");
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const int64_t wanted =
        p.table == ASSAY_TABLE_TOKEN ? p.requests[i].kv_len : static_cast<int64_t>(p.pages[i].size());
    demand(wanted == 0 || (static_cast<int64_t>(i) < table.shape[0] && wanted <= table.shape[1]),
           "the table of request {} has {} entries, its keys need {}", i, table.shape[1], wanted);
    for (int64_t j = 0; j < wanted; ++j) {
      const int32_t entry = static_cast<const int32_t*>(
          table.data)[static_cast<int64_t>(i) * table.stride[0] + j * table.stride[1]];
      const int64_t block = p.table == ASSAY_TABLE_TOKEN ? entry / p.page_size : entry;
      if (run_.replayed && (entry < 0 || block >= blocks)) {
        // What a batch leaves over of a table is anything: who follows it reads anything.
        r.nowhere.resize(p.requests.size(), 0), r.nowhere[i] = 1;
        break;
      }
      demand(entry >= 0 && block < blocks,
             "entry {} of the table of request {} is {}, and there are {} "
             "blocks",
             j, i, entry, blocks);
    }
  }
  return p;
}

}  // namespace assay
