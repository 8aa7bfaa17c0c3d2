// SPDX-License-Identifier: Apache-2.0
// Exhaustive: in every layout x storage x stride x format, all (block, slot, head, dim) of K and V fall on
// different elements inside the allocation (V on K's where it is a view of K), where a nested array of
// the documented shape puts them. Then placement: shuffle, spare blocks, shared prefixes, hybrid cache.
// A new layout: a case in `nested_offset`, written from its documented shape alone.
#include "harness/problem/paged_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

// Row-major offset of `index` in a nested array of `shape`.
int64_t nested(const std::vector<int64_t>& shape, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    EXPECT_LT(index[i], shape[i]);
    offset = offset * shape[i] + index[i];
  }
  return offset;
}

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Offset from the documented array shape of the whole allocation, with no strides in between.
int64_t nested_offset(const Problem& p, bool v, int64_t block, int64_t slot, int64_t head, int64_t dim) {
  const int64_t heads = p.heads_kv + (p.strided.kv ? 1 : 0), page = p.page_size;
  const int64_t d = v ? p.head_dim_v : p.head_dim_qk, x = 16 / format_bytes(p.k_format);
  std::vector<int64_t> shape, index;
  switch (p.layout) {
    case ASSAY_LAYOUT_NHD:
      shape = {page, heads, d};
      index = {slot, head, dim};
      break;
    case ASSAY_LAYOUT_HND:
      shape = {heads, page, d};
      index = {head, slot, dim};
      break;
    case ASSAY_LAYOUT_X:
      if (v) {
        shape = {heads, d, page};
        index = {head, dim, slot};
      } else {
        shape = {heads, d / x, page, x};
        index = {head, dim / x, slot, dim % x};
      }
      break;
    case ASSAY_LAYOUT_SHUFFLED:
      if (v) {
        shape = {heads, page / x, d, x};
        index = {head, slot / x, dim, slot % x};
      } else {
        shape = {heads, d / x, page, x};
        index = {head, dim / x, slot, dim % x};
      }
      break;
    default:  // MLA: V reads K's row
      shape = {page, heads * p.head_dim_qk};
      index = {slot, dim};
      break;
  }
  const int64_t blocks = p.num_blocks;
  std::vector<int64_t> outer_shape = {blocks}, outer_index = {block};
  if (p.layout != ASSAY_LAYOUT_MLA && p.storage == Storage::kStacked) {
    outer_shape = {2, blocks};
    outer_index = {v ? 1 : 0, block};
  }
  if (p.layout != ASSAY_LAYOUT_MLA && p.storage == Storage::kInterleaved) {
    outer_shape = {blocks, 2};
    outer_index = {block, v ? 1 : 0};
  }
  return nested(outer_shape, outer_index) * product(shape) + nested(shape, index);
}

TEST(PagedCache, EveryElementOfEveryLayoutHasItsOwnPlace) {
  int layouts = 0;
  for (int layout :
       {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED, ASSAY_LAYOUT_MLA})
    for (Storage storage : {Storage::kSplit, Storage::kStacked, Storage::kInterleaved})
      for (bool strided : {false, true})
        for (int format : {ASSAY_BF16, ASSAY_INT8, ASSAY_FP32})
          for (int dim_v : {32, 16}) {
            const bool mla = layout == ASSAY_LAYOUT_MLA;
            if (storage != Storage::kSplit && (mla || dim_v != 32)) continue;
            Problem p;
            p.layout = layout;
            p.storage = storage;
            p.strided.kv = strided;
            p.k_format = p.v_format = format;
            p.head_dim_qk = 32;
            p.head_dim_v = dim_v;
            p.heads_kv = mla ? 1 : 3;
            p.page_size = 16;
            p.num_blocks = 3;
            const PagedCache cache(p);
            const std::string name =
                fmt::format("{} storage {} strided {} format {} dim_v {}", name_of(layout_names(), layout),
                            int(storage), strided, format, dim_v);
            EXPECT_EQ(cache.shared_allocation(), mla || storage != Storage::kSplit) << name;
            std::vector<char> used_k(cache.k().allocation, 0), used_v(cache.v().allocation, 0);
            std::vector<char>& second = cache.shared_allocation() && !mla ? used_k : used_v;
            for (int b = 0; b < 3; ++b)
              for (int s = 0; s < 16; ++s)
                for (int h = 0; h < p.heads_kv; ++h)
                  for (int d = 0; d < 32; ++d) {
                    const int64_t k = cache.k_offset(b, s, h, d);
                    ASSERT_EQ(k, nested_offset(p, false, b, s, h, d)) << name;
                    ASSERT_TRUE(k >= 0 && k < cache.k().allocation) << name;
                    ASSERT_FALSE(used_k[k]++) << name;
                    if (d >= dim_v) continue;
                    const int64_t v = cache.v_offset(b, s, h, d);
                    ASSERT_EQ(v, nested_offset(p, true, b, s, h, d)) << name;
                    ASSERT_TRUE(v >= 0 && v < cache.v().allocation) << name;
                    ASSERT_FALSE(second[v]++) << name;
                  }
            // Nothing is allocated that no element, padding aside, needs.
            const int64_t heads = p.heads_kv + (strided ? 1 : 0);
            const int64_t planes = cache.shared_allocation() && !mla ? 2 : 1;
            EXPECT_EQ(cache.k().allocation, planes * 3 * 16 * heads * 32) << name;
            ++layouts;
          }
  EXPECT_EQ(layouts, 4 * (2 + 1 + 1) * 6 + 2 * 6);
}

// An int8 K with a 16-bit V: planes of bytes, of which V has two.
TEST(PagedCache, TwoFormatsInOneStorageShareNoByte) {
  for (int layout : {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED})
    for (Storage storage : {Storage::kStacked, Storage::kInterleaved})
      for (bool strided : {false, true})
        for (const auto& [k, v] :
             {std::pair{ASSAY_INT8, ASSAY_BF16}, {ASSAY_FP32, ASSAY_INT8}, {ASSAY_FP8_E4M3, ASSAY_FP32}}) {
          Problem p;
          p.layout = layout, p.storage = storage, p.strided.kv = strided;
          p.k_format = k, p.v_format = v;
          p.head_dim_qk = p.head_dim_v = 32, p.heads_kv = 3, p.page_size = 16, p.num_blocks = 3;
          const PagedCache cache(p);
          const int64_t of_k = format_bytes(k), of_v = format_bytes(v), bytes = cache.k().allocation * of_k;
          EXPECT_EQ(cache.v().allocation * of_v, bytes);
          EXPECT_EQ(bytes, 3 * 16 * (strided ? 4 : 3) * 32 * (of_k + of_v));
          EXPECT_EQ(cache.v().offset * of_v,
                    (storage == Storage::kStacked ? 3 : 1) * 16 * (strided ? 4 : 3) * 32 * of_k);
          std::vector<char> used(bytes, 0);
          const auto take = [&](int64_t first, int64_t count) {
            for (int64_t i = first; i < first + count; ++i) {
              ASSERT_TRUE(i >= 0 && i < bytes);
              ASSERT_FALSE(used[i]++) << name_of(layout_names(), layout) << " storage " << int(storage);
            }
          };
          for (int b = 0; b < 3; ++b)
            for (int s = 0; s < 16; ++s)
              for (int h = 0; h < 3; ++h)
                for (int d = 0; d < 32; ++d) {
                  take(cache.k_offset(b, s, h, d) * of_k, of_k);
                  take(cache.v_offset(b, s, h, d) * of_v, of_v);
                }
        }
}

// Layers between each other: [blocks, layers, 2, page, heads, dim] and [blocks, heads, layers, 2, page, dim],
// of one and of two formats; all layers together fill the allocation, padding aside.
TEST(PagedCache, LayersBetweenBlocksAndPlanes) {
  for (int layout : {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND})
    for (bool strided : {false, true})
      for (const auto& [k, v] : {std::pair{ASSAY_BF16, ASSAY_BF16}, {ASSAY_INT8, ASSAY_BF16}}) {
        Problem p;
        p.layout = layout, p.storage = Storage::kInterleaved, p.strided.kv = strided;
        p.k_format = k, p.v_format = v, p.layers = 3;
        p.head_dim_qk = p.head_dim_v = 32, p.heads_kv = 2, p.page_size = 16, p.num_blocks = 3;
        const int64_t of_k = format_bytes(k), of_v = format_bytes(v), heads = strided ? 3 : 2,
                      plane = 16 * 32;
        std::vector<char> used(static_cast<size_t>(3 * 3 * heads * plane * (of_k + of_v)), 0);
        for (p.layer = 0; p.layer < 3; ++p.layer) {
          const PagedCache cache(p);
          ASSERT_EQ(cache.k().allocation * of_k, static_cast<int64_t>(used.size()));
          ASSERT_EQ(cache.v().allocation * of_v, static_cast<int64_t>(used.size()));
          for (int b = 0; b < 3; ++b)
            for (int h = 0; h < 2; ++h)
              for (int s = 0; s < 16; ++s)
                for (int d = 0; d < 32; ++d) {
                  const bool hnd = layout == ASSAY_LAYOUT_HND;
                  const int64_t pair = plane * (of_k + of_v) * (hnd ? 1 : heads);
                  const int64_t first =
                      hnd ? ((b * heads + h) * 3 + p.layer) * pair : (b * 3 + p.layer) * pair;
                  const int64_t at = hnd ? s * 32 + d : (s * heads + h) * 32 + d;
                  const int64_t k_byte = cache.k_offset(b, s, h, d) * of_k,
                                v_byte = cache.v_offset(b, s, h, d) * of_v;
                  ASSERT_EQ(k_byte, first + at * of_k);
                  ASSERT_EQ(v_byte, first + plane * of_k * (hnd ? 1 : heads) + at * of_v);
                  for (int64_t i = 0; i < of_k; ++i) ASSERT_FALSE(used[static_cast<size_t>(k_byte + i)]++);
                  for (int64_t i = 0; i < of_v; ++i) ASSERT_FALSE(used[static_cast<size_t>(v_byte + i)]++);
                }
        }
      }
}

TEST(PagedCache, TensorShapesAreTheDocumentedOnes) {
  Problem p;
  p.heads_kv = 3;
  p.head_dim_qk = p.head_dim_v = 32;
  p.page_size = 16;
  p.num_blocks = 5;
  const auto shape = [](const TensorLayout& t) { return std::vector<int64_t>(t.shape, t.shape + t.rank); };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape(PagedCache(p).k()), (Shape{5, 16, 3, 32}));
  p.layout = ASSAY_LAYOUT_HND;
  EXPECT_EQ(shape(PagedCache(p).v()), (Shape{5, 3, 16, 32}));
  p.layout = ASSAY_LAYOUT_X;
  EXPECT_EQ(shape(PagedCache(p).k()), (Shape{5, 3, 4, 16, 8}));
  EXPECT_EQ(shape(PagedCache(p).v()), (Shape{5, 3, 32, 16}));
  p.layout = ASSAY_LAYOUT_SHUFFLED;
  EXPECT_EQ(shape(PagedCache(p).k()), (Shape{5, 3, 4, 16, 8}));
  EXPECT_EQ(shape(PagedCache(p).v()), (Shape{5, 3, 2, 32, 8}));
  p.k_format = ASSAY_INT8;  // x follows K, V being bf16
  EXPECT_EQ(shape(PagedCache(p).k()), (Shape{5, 3, 2, 16, 16}));
  EXPECT_EQ(shape(PagedCache(p).v()), (Shape{5, 3, 1, 32, 16}));
  p.layout = ASSAY_LAYOUT_MLA;
  p.heads_kv = 1;
  p.head_dim_v = 24;
  EXPECT_EQ(shape(PagedCache(p).k()), (Shape{5, 16, 32}));
  EXPECT_EQ(shape(PagedCache(p).v()), (Shape{5, 16, 24}));
  p.num_blocks = 0;
  EXPECT_THROW(PagedCache{p}, CheckError);
}

TEST(TensorLayout, DenseStrides) {
  const TensorLayout t = dense_layout(ASSAY_FP32, {4, 3, 5});
  EXPECT_EQ(t.elements(), 60);
  EXPECT_EQ(t.allocation, 60);
  EXPECT_EQ(t.at({3, 2, 4}), 59);
  EXPECT_EQ(t.at({1, 0, 2}), 17);
}

TEST(PlacePages, ShufflesAndLeavesSpareBlocks) {
  Problem p;
  p.seed = 5;
  p.page_size = 16;
  p.requests = {{1, 1600}, {1, 1601}, {1, 0}, {1, 15}};
  place_pages(p);
  EXPECT_NO_THROW((p.softmax_scale = 1, check_problem(p)));
  EXPECT_EQ(p.pages[0].size(), 100u);
  EXPECT_EQ(p.pages[1].size(), 101u);
  EXPECT_EQ(p.pages[2].size(), 0u);
  EXPECT_EQ(p.num_blocks, 202 + 25);
  std::set<int32_t> used;
  int ascending = 0;
  for (const auto& list : p.pages)
    for (size_t i = 0; i < list.size(); ++i) {
      used.insert(list[i]);
      ascending += i > 0 && list[i] == list[i - 1] + 1;
    }
  EXPECT_EQ(used.size(), 202u);  // no block twice
  EXPECT_LT(ascending, 10);      // not an ordered allocation
  const Slot slot = locate(p, 1, 1600);
  EXPECT_EQ(slot.block, p.pages[1][100]);
  EXPECT_EQ(slot.slot, 0);

  Problem other = p;
  place_pages(other);
  EXPECT_EQ(other.pages, p.pages);  // the seed alone decides
  other.seed = 6;
  place_pages(other);
  EXPECT_NE(other.pages, p.pages);

  Problem tiny;
  tiny.requests = {{1, 3}};
  place_pages(tiny);
  EXPECT_EQ(tiny.num_blocks, 2);  // at least one spare
  tiny.requests = {};
  place_pages(tiny);
  EXPECT_EQ(tiny.num_blocks, 1);
}

TEST(PlacePages, MoreBlocksThanNeededPutPagesFarApart) {
  Problem p;
  p.softmax_scale = 1;
  p.page_size = 4;
  p.window_left = 20;
  for (const bool hybrid : {false, true})
    for (const int32_t blocks : {1, 40, 43, 44, 45, 200000})
      for (p.seed = 0; p.seed < 20; ++p.seed) {
        p.swa_index = hybrid;
        p.min_blocks = blocks;
        p.requests = {{1, 100}, {1, 61, 0, 30}, {2, 9}};
        place_pages(p);
        check_problem(p);  // no block twice, the poison block of a hybrid cache unused
        if (blocks < 200000) continue;
        EXPECT_EQ(p.num_blocks, blocks);
        int32_t first = blocks, last = 0, beyond_16_bits = 0;
        for (int r = 0; r < 3; ++r)
          for (int32_t page = resident_pages(p, r).first; page < resident_pages(p, r).last; ++page) {
            first = std::min(first, p.pages[r][page]);
            last = std::max(last, p.pages[r][page]);
            beyond_16_bits += p.pages[r][page] > 65535;
          }
        EXPECT_EQ(last, blocks - 1);
        EXPECT_LT(first, blocks / 2);
        EXPECT_GT(beyond_16_bits, 3);
      }
}

TEST(PlacePages, SharesFullPagesOfAPrefixOnly) {
  Problem p;
  p.softmax_scale = 1;
  p.page_size = 8;
  // Request 1 shares one token less than 3 pages, request 2 one token less than 4.
  p.requests = {{1, 40}, {1, 40, 0, 23}, {1, 40, 1, 31}};
  place_pages(p);
  check_problem(p);
  EXPECT_EQ(p.pages[0][0], p.pages[1][0]);
  EXPECT_EQ(p.pages[0][1], p.pages[1][1]);
  EXPECT_NE(p.pages[0][2], p.pages[1][2]);
  EXPECT_EQ(p.pages[2][0], p.pages[0][0]);
  EXPECT_EQ(p.pages[2][1], p.pages[0][1]);
  EXPECT_EQ(p.pages[2][2], p.pages[1][2]);
  EXPECT_NE(p.pages[2][3], p.pages[1][3]);
  EXPECT_EQ(p.num_blocks, 5 + 3 + 2 + 1);
}

TEST(PlacePages, HybridCacheKeepsOnlyTheWindow) {
  Problem p;
  p.softmax_scale = 1;
  p.page_size = 8;
  p.swa_index = true;
  p.window_left = 10;
  p.requests = {{2, 64}, {1, 64, 0, 64}, {20, 64, 0, 64}, {1, 0}};
  place_pages(p);
  check_problem(p);
  // Request 0: rows at 62, 63 see 52..63: pages 6, 7. Request 1: 53..63. Request 2: rows 44.. see 34..:
  // pages 4..7.
  const int32_t poison = p.pages[0][0];
  std::set<int32_t> resident;
  for (int page = 0; page < 8; ++page) {
    EXPECT_EQ(p.pages[0][page] == poison, page < 6) << page;
    EXPECT_EQ(p.pages[1][page] == poison, page < 6) << page;
    EXPECT_EQ(p.pages[2][page] == poison, page < 4) << page;
    if (page >= 6) {
      EXPECT_EQ(p.pages[0][page], p.pages[2][page]);
      EXPECT_EQ(p.pages[0][page], p.pages[1][page]);
    }
    if (page >= 4) resident.insert(p.pages[2][page]);
  }
  EXPECT_EQ(resident.size(), 4u);
  EXPECT_EQ(p.num_blocks, 5);

  // A chunk drops everything before the chunk of the first row.
  p.window_left = -1;
  p.chunk = 16;
  p.requests = {{2, 64}};
  place_pages(p);
  EXPECT_EQ(resident_pages(p, 0).first, 6);
  EXPECT_EQ(resident_pages(p, 0).last, 8);
  // A request without rows keeps nothing.
  p.requests = {{0, 64}};
  place_pages(p);
  EXPECT_EQ(resident_pages(p, 0).first, resident_pages(p, 0).last);
}

}  // namespace
}  // namespace assay
