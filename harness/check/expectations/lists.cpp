// SPDX-License-Identifier: Apache-2.0
// See lists.hpp.
#include "harness/check/expectations/lists.hpp"

namespace assay {

ListFacts read_facts(const Inputs& inputs) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const auto at = [](const assay_tensor& list, int64_t i, int64_t j = 0) {
    return static_cast<const int32_t*>(
        list.data)[i * list.stride[0] + (list.rank > 1 ? j * list.stride[1] : 0)];
  };
  ListFacts f{p, t, p.q_lens(), p.kv_lens(), {}, {}};
  const auto requests = static_cast<int64_t>(p.requests.size());
  for (int64_t r = 0; r < requests; ++r) {
    if (t.cu_q.data != nullptr) f.q_len[r] = at(t.cu_q, r + 1) - at(t.cu_q, r);
    if (t.kv_len.data != nullptr) f.kv_len[r] = at(t.kv_len, r);
    if (t.context_len.data != nullptr) f.kv_len[r] = at(t.context_len, r) + f.q_len[r];
    List& row = f.pages.emplace_back();
    if (t.block_table.data == nullptr && t.indices.data == nullptr) continue;
    const int64_t before = t.encoder_len.data == nullptr ? 0 : at(t.encoder_len, r);  // tokens
    const int64_t pages_before = (before + p.page_size - 1) / p.page_size;
    for (int64_t page = 0; page * p.page_size < f.kv_len[r]; ++page) {
      const int64_t listed = p.table == ASSAY_TABLE_CSR ? at(t.indices, at(t.indptr, r) + page)
                             : p.table == ASSAY_TABLE_TOKEN
                                 ? at(t.block_table, r, before + page * p.page_size) / p.page_size
                                 : at(t.block_table, r, pages_before + page);
      row.push_back(static_cast<int32_t>(
          t.slot_map.data == nullptr ? listed : at(t.slot_map, listed * p.page_size) / p.page_size));
    }
  }
  if (t.tree_mask.data != nullptr)
    for (int64_t i = 0; i < t.tree_mask.shape[0]; ++i)
      f.tree.push_back(static_cast<const uint8_t*>(t.tree_mask.data)[i * t.tree_mask.stride[0]]);
  return f;
}

}  // namespace assay
