// SPDX-License-Identifier: Apache-2.0
// See kv_store.hpp. An entry of a page table that names no block (poison in a table tail) gives NaN rows: a
// kernel that follows it reads memory nobody can predict.
#include "harness/explain/kv_store.hpp"

#include <algorithm>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

KvStore::KvStore(const Problem& problem, const OperandReader& reader, const assay_tensors& tensors,
                 int32_t request, int32_t kv_head, int32_t dequant_format)
    : problem_(problem),
      reader_(reader),
      tensors_(tensors),
      request_(request),
      kv_head_(kv_head),
      keys_(problem.requests[request].kv_len),
      dequant_format_(dequant_format),
      rows_(keys_),
      nowhere_(std::max(problem.head_dim_qk, problem.head_dim_v), std::numeric_limits<double>::quiet_NaN()) {
  for (int32_t j = 0; j < keys_; ++j) {
    Row& row = rows_[j];
    row.request = request;
    row.kv_head = kv_head;
    row.readable = place(request, j, &row.place.block, &row.place.slot);
  }
}

bool KvStore::place(int32_t request, int32_t position, int64_t* block, int64_t* slot) const {
  // Behind the last key, but in its page: the page is known, whatever the table says further on.
  const int32_t length = problem_.requests[request].kv_len, page = std::max(1, problem_.page_size);
  if (op_of(problem_).has_cache && length > 0 && position >= length &&
      position / page == (length - 1) / page) {
    if (!this->place(request, length - 1, block, slot)) return false;
    *slot = position % page;
    return true;
  }
  // Hypotheses ask for places behind the table, or for the same ones thousands of times, and a refusal is
  // thrown.
  const assay_tensor& table = tensors_.block_table;
  if (table.data != nullptr && problem_.table != ASSAY_TABLE_CSR &&
      position / (problem_.table == ASSAY_TABLE_TOKEN ? 1 : page) >= table.shape[1])
    return false;
  const auto [at, fresh] = places_.try_emplace({request, position});
  if (fresh) try {
      at->second = reader_.place(request, position);
    } catch (const CheckError&) {  // the table's tail, or its end
    }
  if (!at->second) return false;
  *block = at->second->block;
  *slot = at->second->slot;
  return *block < blocks();
}

int64_t KvStore::table_entry_behind() const {
  if (!op_of(problem_).has_cache) return -1;
  const int64_t pages = (keys_ + problem_.page_size - 1) / problem_.page_size;
  if (problem_.table == ASSAY_TABLE_CSR) {
    const assay_tensor& t = tensors_.indices;
    const auto first = static_cast<int64_t>(
        assay::load(ASSAY_INT32, tensors_.indptr.data, request_ * tensors_.indptr.stride[0]));
    if (first + pages >= t.shape[0]) return -1;
    return static_cast<int64_t>(assay::load(ASSAY_INT32, t.data, (first + pages) * t.stride[0]));
  }
  const assay_tensor& t = tensors_.block_table;
  const bool tokens = problem_.table == ASSAY_TABLE_TOKEN;
  const int64_t behind = tokens ? keys_ : pages;
  // Padding of a strided table counts: it lies in the row.
  if (behind >= std::max(t.stride[0], t.shape[1])) return -1;
  const auto entry =
      static_cast<int64_t>(assay::load(ASSAY_INT32, t.data, request_ * t.stride[0] + behind * t.stride[1]));
  return tokens ? entry / problem_.page_size : entry;
}

int32_t KvStore::through_table_of(int32_t request, int64_t column, int32_t slot) {
  const bool csr = problem_.table == ASSAY_TABLE_CSR;
  const assay_tensor& t = csr ? tensors_.indices : tensors_.block_table;
  int64_t at = 0, last = 0;
  if (csr) {
    at = static_cast<int64_t>(
             assay::load(ASSAY_INT32, tensors_.indptr.data, request * tensors_.indptr.stride[0])) +
         column;
    last = t.shape[0] - 1;
  } else {
    at = request * t.stride[0] + column * t.stride[1];
    last = (t.shape[0] - 1) * t.stride[0] + (t.shape[1] - 1) * t.stride[1];
  }
  const auto entry = static_cast<int64_t>(assay::load(ASSAY_INT32, t.data, std::clamp<int64_t>(at, 0, last)));
  const int64_t block = problem_.table == ASSAY_TABLE_TOKEN ? entry / problem_.page_size : entry;
  const int64_t n = blocks();
  return extra(((block % n) + n) % n, slot);
}

int64_t KvStore::blocks() const {
  return op_of(problem_).has_cache ? problem_.num_blocks : problem_.total_kv();
}

void KvStore::load(Row& row) {
  row.loaded = true;
  row.k.assign(problem_.head_dim_qk, std::numeric_limits<double>::quiet_NaN());
  row.v.assign(problem_.head_dim_v, std::numeric_limits<double>::quiet_NaN());
  if (!row.readable) return;
  reader_.k_at(row.request, row.place, row.kv_head, row.k.data());
  reader_.v_at(row.request, row.place, row.kv_head, row.v.data());
  for (std::vector<double>* of : {&row.k, &row.v})
    for (size_t d = 0; d < of->size() && row.mask != 0; ++d)
      if (const size_t other = d ^ static_cast<size_t>(row.mask); other > d && other < of->size())
        std::swap((*of)[d], (*of)[other]);
  if (dequant_format_ == ASSAY_FORMAT_NONE) return;
  const auto dequantise = [format = dequant_format_ & ~kCut](std::vector<double>& of, bool cut) {
    for (double& x : of) x = round_step(cut ? format | kCut : format, x);
  };
  dequantise(row.k, (dequant_format_ & kCutK) != 0);
  dequantise(row.v, (dequant_format_ & kCutV) != 0);
}

const double* KvStore::k(int32_t row) {
  if (!has(row, row)) return nowhere_.data();
  if (!rows_[row].loaded) load(rows_[row]);
  return rows_[row].k.data();
}

const double* KvStore::v(int32_t row) {
  if (!has(row, row)) return nowhere_.data();
  if (!rows_[row].loaded) load(rows_[row]);
  return rows_[row].v.data();
}

int32_t KvStore::extra(int64_t block, int64_t slot) {
  const auto [at, fresh] = known_.try_emplace({request_, kv_head_, block, slot}, rows());
  if (fresh) {
    Row row;
    row.request = request_;
    row.kv_head = kv_head_;
    row.place = {block, slot};
    row.readable = block >= 0 && block < blocks();
    rows_.push_back(std::move(row));
  }
  return at->second;
}

int32_t KvStore::of_head(int32_t row, int32_t kv_head) {
  const Row& at = rows_[row];
  if (at.kv_head == kv_head) return row;
  const int32_t request = at.request;
  const OperandReader::Place place = at.place;
  const bool readable = at.readable;
  const auto [known, fresh] = known_.try_emplace({request, kv_head, place.block, place.slot}, rows());
  if (fresh) {
    Row other;
    other.request = request;
    other.kv_head = kv_head;
    other.place = place;
    other.readable = readable;
    rows_.push_back(std::move(other));
  }
  return known->second;
}

int32_t KvStore::with_dims_exchanged(int32_t row, int32_t mask) {
  const auto [at, fresh] = exchanged_.try_emplace({row, mask}, rows());
  if (fresh) {
    Row other = rows_[row];
    other.loaded = false;
    other.mask ^= mask;
    rows_.push_back(std::move(other));
  }
  return at->second;
}

int32_t KvStore::token(int32_t request, int32_t kv_head, int32_t position) {
  int64_t block = -1, slot = 0;
  const bool readable = place(request, position, &block, &slot);
  if (!readable) block = -1;
  const auto [at, fresh] = known_.try_emplace({request, kv_head, block, slot}, rows());
  if (fresh) {
    Row row;
    row.request = request;
    row.kv_head = kv_head;
    row.place = {block, slot};
    row.readable = readable;
    rows_.push_back(std::move(row));
  }
  return at->second;
}

}  // namespace assay
