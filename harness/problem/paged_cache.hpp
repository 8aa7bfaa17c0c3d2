// SPDX-License-Identifier: Apache-2.0
// Pure index arithmetic of a paged KV cache: (request, position) -> (block, slot) -> element offset,
// for every layout, storage and stride. Defined once; the reference, the input builder, the poison
// and the host code of kernels all use it. Holds no data.
#pragma once

#include <cstdint>

#include "harness/problem/problem.hpp"

namespace assay {

// Where a tensor lives inside an allocation: a shape with strides, all in elements of its format.
struct TensorLayout {
  int32_t format = ASSAY_FORMAT_NONE;
  int32_t rank = 0;
  int64_t shape[ASSAY_MAX_RANK] = {};
  int64_t stride[ASSAY_MAX_RANK] = {};
  int64_t offset = 0;      // of element [0,...,0] from the start of the allocation
  int64_t allocation = 0;  // elements of the whole allocation (>= span)
  int64_t elements() const;
  int64_t at(std::initializer_list<int64_t> index) const;  // offset + sum index*stride
};

// Elements from one dimension of a row to the next where StridedOperands::last says so.
inline constexpr int64_t kLastStride = 2;

TensorLayout dense_layout(int32_t format, std::initializer_list<int64_t> shape);

// x of the x-packed layouts: 16 bytes / element size. Both K and V use the x of K's format.
int32_t pack_width(int32_t format);

class PagedCache {
 public:
  explicit PagedCache(const Problem&);  // CheckError without pages

  const TensorLayout& k() const { return k_; }
  const TensorLayout& v() const { return v_; }
  // True when V shares K's allocation (storage stacked or interleaved, MLA).
  bool shared_allocation() const { return shared_; }
  int32_t page_size() const { return page_size_; }
  int32_t num_blocks() const { return num_blocks_; }

  // Element offsets from the start of the allocation. slot in [0, page_size).
  int64_t k_offset(int64_t block, int32_t slot, int32_t head, int32_t dim) const;
  int64_t v_offset(int64_t block, int32_t slot, int32_t head, int32_t dim) const;

 private:
  // Stride of one axis of (block, slot, head, dim), where the two packed axes take a quotient and a
  // remainder: offset = block*b + head*h + slot/sx*s1 + slot%sx*s0 + dim/dx*d1 + dim%dx*d0.
  struct Steps {
    int64_t block = 0, head = 0, slot_outer = 0, slot_inner = 0, dim_outer = 0, dim_inner = 0;
    int32_t slot_pack = 1, dim_pack = 1;
  };
  static Steps steps_of(int32_t layout, const TensorLayout&, bool is_v);
  static int64_t offset(const Steps&, const TensorLayout&, int64_t block, int32_t slot, int32_t head,
                        int32_t dim);

  int32_t page_size_, num_blocks_;
  bool shared_ = false;
  Steps k_steps_, v_steps_;
  TensorLayout k_, v_;
};

struct Slot {
  int32_t block = 0;
  int32_t slot = 0;
};
// Slot of the token that is number `in_page` of its page, in the block that holds the page.
int32_t slot_of(const Problem&, int32_t block, int32_t in_page);
// Position -> physical slot through Problem::pages.
Slot locate(const Problem&, int request, int32_t position);

// Of a table of another pool (Problem::full_pool): its blocks, and which of them each block of the cache is.
// Drawn from the seed; pages that only the other pool has lie between.
int64_t full_blocks(const Problem&);
std::vector<int32_t> full_ids(const Problem&);  // [num_blocks]

// The request that owns a logical page: follows shared prefixes over full pages only, since a partly
// shared page holds other tokens in its tail and must be a page of its own.
int page_owner(const Problem&, int request, int32_t page);

// Logical pages [first, last) of a request that a row can see some key of; all pages without swa_index.
// Outside it a hybrid cache keeps nothing: the table points at a poison block.
struct PageRange {
  int32_t first = 0, last = 0;
};
PageRange resident_pages(const Problem&, int request);

// Fills Problem::pages and num_blocks from the requests, the shared prefixes, swa_index and the seed:
// a shuffle of the blocks in which about one in eight (at least one) stays unused. With swa_index every
// entry of a page that is not resident is the same unused block.
void place_pages(Problem&);

}  // namespace assay
