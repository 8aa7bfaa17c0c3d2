// SPDX-License-Identifier: Apache-2.0
// Where every element of a paged cache lies. A layout is an order of axes; a storage says how the K and
// the V plane share memory; strided operands pad the head axis by one. All three only change strides,
// so an address is one dot product of (block, head, slot, dim) with steps read off the tensor's strides.
// A new layout: its axes in `plane_shape`, its steps in `steps_of`.
#include "harness/problem/paged_cache.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

// Axes of one block, outermost first, and which of them a kv slice pads (the head axis; the token row of
// MLA, where one head is the whole row).
struct PlaneShape {
  int32_t rank = 0;
  std::array<int64_t, 4> axis{};
  int32_t padded_axis = 0;
  int64_t padding = 0;
};

PlaneShape plane_shape(const Problem& p, bool is_v) {
  const int64_t heads = p.heads_kv, page = p.page_size;
  const int64_t dim = is_v ? p.head_dim_v : p.head_dim_qk;
  const int64_t x = pack_width(p.k_format);
  ASSAY_CHECK(name_of(layout_names(), p.layout) != "?", "page layout {} is not one of {}", p.layout,
              accepted(layout_names()));
  switch (static_cast<assay_layout>(p.layout)) {
    case ASSAY_LAYOUT_NHD:
      return {3, {page, heads, dim}, 1, 1};
    case ASSAY_LAYOUT_HND:
      return {3, {heads, page, dim}, 0, 1};
    case ASSAY_LAYOUT_X:
      if (is_v) return {3, {heads, dim, page}, 0, 1};
      return {4, {heads, dim / x, page, x}, 0, 1};
    case ASSAY_LAYOUT_SHUFFLED:
      if (is_v) return {4, {heads, page / x, dim, x}, 0, 1};
      return {4, {heads, dim / x, page, x}, 0, 1};
    case ASSAY_LAYOUT_MLA:
      return {2, {page, dim}, 1, dim};
  }
  return {};
}

// Blocks of one plane, one after the other, elements `step` apart. Gives the elements from one block to the
// next through `plane_elements`.
TensorLayout plane_layout(int32_t format, int64_t blocks, const PlaneShape& plane, bool padded, int64_t step,
                          int64_t* plane_elements) {
  TensorLayout t;
  t.format = format;
  t.rank = plane.rank + 1;
  for (int axis = plane.rank - 1; axis >= 0; --axis) {
    t.shape[axis + 1] = plane.axis[axis];
    t.stride[axis + 1] = step;
    step *= plane.axis[axis] + (padded && axis == plane.padded_axis ? plane.padding : 0);
  }
  t.shape[0] = blocks;
  t.stride[0] = step;
  t.allocation = blocks * step;
  *plane_elements = step;
  return t;
}

}  // namespace

int64_t TensorLayout::elements() const {
  int64_t n = rank > 0 ? 1 : 0;
  for (int i = 0; i < rank; ++i) n *= shape[i];
  return n;
}

int64_t TensorLayout::at(std::initializer_list<int64_t> index) const {
  int64_t result = offset;
  int axis = 0;
  for (int64_t i : index) result += i * stride[axis++];
  return result;
}

TensorLayout dense_layout(int32_t format, std::initializer_list<int64_t> shape) {
  TensorLayout t;
  t.format = format;
  t.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  int64_t step = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.stride[axis] = step;
    step *= t.shape[axis];
  }
  t.allocation = t.elements();
  return t;
}

int32_t pack_width(int32_t format) {
  const int bytes = format_bytes(format);
  return bytes > 0 ? 16 / bytes : 0;
}

PagedCache::PagedCache(const Problem& p) : page_size_(p.page_size), num_blocks_(p.num_blocks) {
  ASSAY_CHECK(p.num_blocks > 0, "a problem without blocks has no cache, op is {}", p.op);
  const bool padded = p.strided.kv;
  const int64_t step = p.strided.last ? kLastStride : 1;
  int64_t k_plane = 0, v_plane = 0;
  k_ = plane_layout(p.k_format, num_blocks_, plane_shape(p, false), padded, step, &k_plane);
  if (p.layout == ASSAY_LAYOUT_MLA) {
    // V is a narrower view of K's rows.
    shared_ = true;
    v_ = k_;
    v_.format = p.v_format;
    v_.shape[2] = p.head_dim_v;
  } else {
    v_ = plane_layout(p.v_format, num_blocks_, plane_shape(p, true), padded, step, &v_plane);
    shared_ = p.storage != Storage::kSplit;
    if (shared_) {
      ASSAY_CHECK(k_plane == v_plane,
                  "K and V share one allocation but a block of K has {} elements, of V {}", k_plane, v_plane);
      // Formats may differ: an int8 K and a 16-bit V are three planes of int8, V in two of them.
      const int64_t k_bytes = k_plane * format_bytes(p.k_format),
                    v_bytes = v_plane * format_bytes(p.v_format);
      const auto in = [](int32_t format, int64_t bytes) {
        ASSAY_CHECK(bytes % format_bytes(format) == 0, "{} bytes hold no whole number of {}", bytes,
                    name_of(format_names(), format));
        return bytes / format_bytes(format);
      };
      k_.allocation = in(p.k_format, num_blocks_ * p.layers * (k_bytes + v_bytes));
      v_.allocation = in(p.v_format, num_blocks_ * p.layers * (k_bytes + v_bytes));
      if (p.storage == Storage::kStacked) {
        v_.offset = in(p.v_format, num_blocks_ * k_bytes);
      } else if (p.layers > 1 && p.layout == ASSAY_LAYOUT_HND) {
        // A head's pages of all layers, K and V of each, lie together.
        const int64_t heads = k_plane / k_.stride[1], k_head = k_bytes / heads, v_head = v_bytes / heads;
        const int64_t layer = k_head + v_head, head = p.layers * layer;
        k_.offset = in(p.k_format, p.layer * layer), v_.offset = in(p.v_format, p.layer * layer + k_head);
        k_.stride[1] = in(p.k_format, head), v_.stride[1] = in(p.v_format, head);
        k_.stride[0] = in(p.k_format, heads * head), v_.stride[0] = in(p.v_format, heads * head);
      } else if (p.layers > 1) {
        const int64_t layer = k_bytes + v_bytes, block = p.layers * layer;
        k_.offset = in(p.k_format, p.layer * layer), v_.offset = in(p.v_format, p.layer * layer + k_bytes);
        k_.stride[0] = in(p.k_format, block), v_.stride[0] = in(p.v_format, block);
      } else {
        v_.offset = in(p.v_format, k_bytes);
        k_.stride[0] = in(p.k_format, k_bytes + v_bytes), v_.stride[0] = in(p.v_format, k_bytes + v_bytes);
      }
    }
  }
  k_steps_ = steps_of(p.layout, k_, false);
  v_steps_ = steps_of(p.layout, v_, true);
}

PagedCache::Steps PagedCache::steps_of(int32_t layout, const TensorLayout& t, bool is_v) {
  Steps s;
  s.block = t.stride[0];
  switch (static_cast<assay_layout>(layout)) {
    case ASSAY_LAYOUT_NHD:
      s.slot_outer = t.stride[1];
      s.head = t.stride[2];
      s.dim_outer = t.stride[3];
      break;
    case ASSAY_LAYOUT_HND:
      s.head = t.stride[1];
      s.slot_outer = t.stride[2];
      s.dim_outer = t.stride[3];
      break;
    case ASSAY_LAYOUT_MLA:
      s.slot_outer = t.stride[1];
      s.dim_outer = t.stride[2];
      break;
    case ASSAY_LAYOUT_X:
    case ASSAY_LAYOUT_SHUFFLED:
      s.head = t.stride[1];
      if (!is_v) {
        s.dim_outer = t.stride[2];
        s.slot_outer = t.stride[3];
        s.dim_inner = t.stride[4];
        s.dim_pack = static_cast<int32_t>(t.shape[4]);
      } else if (layout == ASSAY_LAYOUT_X) {
        s.dim_outer = t.stride[2];
        s.slot_outer = t.stride[3];
      } else {
        s.slot_outer = t.stride[2];
        s.dim_outer = t.stride[3];
        s.slot_inner = t.stride[4];
        s.slot_pack = static_cast<int32_t>(t.shape[4]);
      }
  }
  return s;
}

int64_t PagedCache::offset(const Steps& s, const TensorLayout& t, int64_t block, int32_t slot, int32_t head,
                           int32_t dim) {
  // Called for every token: most layouts pack nothing, and need no division.
  int64_t at = t.offset + block * s.block + head * s.head;
  at += s.slot_pack == 1 ? slot * s.slot_outer
                         : slot / s.slot_pack * s.slot_outer + slot % s.slot_pack * s.slot_inner;
  return at + (s.dim_pack == 1 ? dim * s.dim_outer
                               : dim / s.dim_pack * s.dim_outer + dim % s.dim_pack * s.dim_inner);
}

int64_t PagedCache::k_offset(int64_t block, int32_t slot, int32_t head, int32_t dim) const {
  return offset(k_steps_, k_, block, slot, head, dim);
}

int64_t PagedCache::v_offset(int64_t block, int32_t slot, int32_t head, int32_t dim) const {
  return offset(v_steps_, v_, block, slot, head, dim);
}

// A step through the page that is prime to its size reaches every slot once; drawn for each block, so that
// no formula over pages serves.
int32_t slot_of(const Problem& p, int32_t block, int32_t in_page) {
  if (!p.drawn_slots) return in_page;
  const CounterRng rng(p.seed, kStreamSlots);
  const auto at = static_cast<uint64_t>(block) * 2, size = static_cast<uint64_t>(p.page_size);
  uint64_t step = 1 + rng.below(at, size);
  while (std::gcd(step, size) != 1) ++step;
  return static_cast<int32_t>((rng.below(at + 1, size) + step * static_cast<uint64_t>(in_page)) % size);
}

Slot locate(const Problem& p, int request, int32_t position) {
  const int32_t block = p.pages[request][position / p.page_size];
  return {block, slot_of(p, block, position % p.page_size)};
}

int page_owner(const Problem& p, int request, int32_t page) {
  const int64_t end = (int64_t{page} + 1) * p.page_size;
  while (p.requests[request].shared_with >= 0 && end <= p.requests[request].shared_tokens)
    request = p.requests[request].shared_with;
  return request;
}

PageRange resident_pages(const Problem& p, int request) {
  const Request& r = p.requests[request];
  if (!p.swa_index) return {0, (r.kv_len + p.page_size - 1) / p.page_size};
  int32_t begin = r.kv_len, end = 0;
  for (int32_t row = 0; row < r.q_len; ++row) {
    const KeyRange range = visible_range(p, request, row);
    if (range.begin >= range.end) continue;
    begin = std::min(begin, range.begin);
    end = std::max(end, range.end);
  }
  if (begin >= end) return {};
  return {begin / p.page_size, (end + p.page_size - 1) / p.page_size};
}

namespace {

// Block ids in the order in which pages get them. A cache larger than needed is shuffled only as far as
// it is used (and one block further, the poison block of a hybrid cache), and its last block is in use.
std::vector<int32_t> shuffle_blocks(const Problem& p, int32_t used) {
  std::vector<int32_t> shuffled(p.num_blocks);
  for (int32_t i = 0; i < p.num_blocks; ++i) shuffled[i] = i;
  const CounterRng rng(p.seed, kStreamPages);
  if (p.min_blocks < p.num_blocks || p.min_blocks == 0) {
    for (int32_t i = p.num_blocks - 1; i > 0; --i) std::swap(shuffled[i], shuffled[rng.below(i, i + 1)]);
    return shuffled;
  }
  if (used > 0) std::swap(shuffled[rng.below(0, used)], shuffled[p.num_blocks - 1]);
  for (int32_t i = 0; i <= used && i < p.num_blocks - 1; ++i) {
    if (shuffled[i] == p.num_blocks - 1) continue;
    std::swap(shuffled[i], shuffled[i + rng.below(i + 1, p.num_blocks - 1 - i)]);
  }
  return shuffled;
}

}  // namespace

int64_t full_blocks(const Problem& p) { return int64_t{p.num_blocks} + p.num_blocks / 4 + 3; }
std::vector<int32_t> full_ids(const Problem& p) {
  std::vector<int32_t> ids(static_cast<size_t>(full_blocks(p)));
  std::iota(ids.begin(), ids.end(), 0);
  const CounterRng rng(p.seed, kStreamPool);
  for (size_t i = ids.size() - 1; i > 0; --i) std::swap(ids[i], ids[rng.below(i, i + 1)]);
  ids.resize(static_cast<size_t>(p.num_blocks));
  return ids;
}

void place_pages(Problem& p) {
  const int count = static_cast<int>(p.requests.size());
  p.pages.assign(count, {});
  // First pass: identities. A page gets a number when the first resident request meets it; -1 where no
  // request keeps it so far. A sharer may keep a page that its owner dropped, so numbers live with the
  // owner and tables are filled afterwards.
  std::vector<std::vector<int32_t>> identity(count);
  int32_t used = 0;
  for (int r = 0; r < count; ++r) {
    identity[r].assign((int64_t{p.requests[r].kv_len} + p.page_size - 1) / p.page_size, -1);
    const PageRange keep = resident_pages(p, r);
    for (int32_t page = keep.first; page < keep.last; ++page) {
      int32_t& number = identity[page_owner(p, r, page)][page];
      if (number < 0) number = used++;
    }
  }
  p.num_blocks = std::max(used + std::max(1, used / 8), p.min_blocks);
  const std::vector<int32_t> shuffled = shuffle_blocks(p, used);

  const int32_t poison_block = shuffled[used];
  for (int r = 0; r < count; ++r) {
    const PageRange keep = resident_pages(p, r);
    for (int32_t page = 0; page < static_cast<int32_t>(identity[r].size()); ++page) {
      const bool resident = page >= keep.first && page < keep.last;
      p.pages[r].push_back(resident ? shuffled[identity[page_owner(p, r, page)][page]] : poison_block);
    }
  }
}

}  // namespace assay
