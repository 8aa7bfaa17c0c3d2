// SPDX-License-Identifier: Apache-2.0
// The dequantised keys and values of one request and KV head, read when first needed, plus any other place
// of memory a hypothesis wants: a slot behind the last key, another block, another request's token. What
// stands there is what the kernel would have read, poison included.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/problem/problem.hpp"
#include "reference/attention/operands.hpp"

namespace assay {

class KvStore {
 public:
  // dequant_format: K and V are rounded to it after code * scale; NONE: kept exact.
  KvStore(const Problem&, const OperandReader&, const assay_tensors&, int32_t request, int32_t kv_head,
          int32_t dequant_format);

  int32_t request() const { return request_; }
  int32_t kv_head() const { return kv_head_; }
  int32_t keys() const { return keys_; }  // kv_len
  bool has(int32_t k_row, int32_t v_row) const {
    return std::min(k_row, v_row) >= 0 && std::max(k_row, v_row) < rows();
  }
  int32_t rows() const { return static_cast<int32_t>(rows_.size()); }

  // NaN where the store has no such row: one rule may read a shorter request where another counts the row's
  // own keys.
  const double* k(int32_t row);  // head_dim_qk values
  const double* v(int32_t row);  // head_dim_v values

  // The row number of any place of memory, as this request would read it (its scales).
  int32_t extra(int64_t block, int64_t slot);
  // A token of another request or head, with that owner's scales.
  int32_t token(int32_t request, int32_t kv_head, int32_t position);
  // The same place under another KV head.
  int32_t of_head(int32_t row, int32_t kv_head);
  // The same place with dimensions d and d xor `mask` exchanged, of K and V.
  int32_t with_dims_exchanged(int32_t row, int32_t mask);
  // Block of a logical page as the page table says; false: the table entry names no block.
  bool place(int32_t request, int32_t position, int64_t* block, int64_t* slot) const;
  // Row of the token at `slot` of the page that column `column` of the request's table names, clamped to the
  // table and wrapped into the cache.
  int32_t through_table(int64_t column, int32_t slot) { return through_table_of(request_, column, slot); }
  int32_t through_table_of(int32_t request, int64_t column, int32_t slot);  // of another request's row
  // What stands in the page table behind the request's last entry; -1: nothing of the table.
  int64_t table_entry_behind() const;
  int64_t blocks() const;  // of the cache; packed rows of a prefill

 private:
  struct Row {
    bool loaded = false, readable = false;
    int32_t request = 0, kv_head = 0, mask = 0;
    OperandReader::Place place;
    std::vector<double> k, v;
  };
  void load(Row&);

  const Problem& problem_;
  const OperandReader& reader_;
  const assay_tensors& tensors_;
  int32_t request_, kv_head_, keys_, dequant_format_;
  std::vector<Row> rows_;
  std::vector<double> nowhere_;
  std::map<std::tuple<int32_t, int32_t, int64_t, int64_t>, int32_t> known_;
  std::map<std::pair<int32_t, int32_t>, int32_t> exchanged_;  // of a row and a mask
  // Of a position of a request; none: its table says no place.
  mutable std::map<std::pair<int32_t, int32_t>, std::optional<OperandReader::Place>> places_;
};

}  // namespace assay
