// SPDX-License-Identifier: Apache-2.0
// See where.hpp. Packed layouts are searched through the cache's own offsets, one block of them; everything
// else is taken apart by its strides.
#include "harness/input/where.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "harness/ops/layouts.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

// Which token lies in a slot: a key, one that is not there, or nobody's.
std::string token_in(const Problem& p, int32_t block, int32_t slot) {
  for (size_t r = 0; r < p.pages.size(); ++r)
    for (size_t page = 0; page < p.pages[r].size(); ++page) {
      if (p.pages[r][page] != block) continue;
      int32_t in_page = 0;
      while (in_page + 1 < p.page_size && slot_of(p, block, in_page) != slot) ++in_page;
      const int64_t key = static_cast<int64_t>(page) * p.page_size + in_page;
      const PageRange keep = resident_pages(p, static_cast<int>(r));
      if (static_cast<int32_t>(page) < keep.first || static_cast<int32_t>(page) >= keep.last)
        return fmt::format("of no request: what request {} no longer keeps", r);
      if (key >= p.requests[r].kv_len) return fmt::format("behind the last key of request {}", r);
      const bool fresh = role_of(p, Operand::kK) == Role::kInOut && holds_values(p, Operand::kK) &&
                         (p.mask == ASSAY_MASK_CROSS || key >= p.requests[r].context_len());
      return fmt::format("{}key {} of request {}", fresh ? "new " : "", key, r);
    }
  return "of no request";
}

struct CachePlace {
  bool found = false;
  int32_t block = 0, slot = 0, head = 0, dim = 0;
};

// The token's dimension at an element, or the last one before it in its block.
template <class Offset>
CachePlace place_in(const Problem& p, const TensorLayout& t, int32_t dims, const Offset& offset,
                    int64_t element, int64_t& before) {
  CachePlace best;
  const int64_t first = p.layers > 1 ? 0 : t.offset;
  if (element < first || t.stride[0] <= 0) return best;
  const int64_t block = (element - first) / t.stride[0];
  if (block >= p.num_blocks) return best;
  for (int32_t slot = 0; slot < p.page_size; ++slot)
    for (int32_t head = 0; head < p.heads_kv; ++head)
      for (int32_t dim = 0; dim < dims; ++dim)
        if (const int64_t at = offset(block, slot, head, dim); at <= element && element - at < before) {
          before = element - at;
          best = {true, static_cast<int32_t>(block), slot, head, dim};
        }
  return best;
}

std::string in_cache(const Problem& p, Operand operand, int64_t element) {
  int64_t before = std::numeric_limits<int64_t>::max();
  CachePlace best;
  std::string name(operand_name(operand));
  int32_t layer = p.layer;
  Problem each = p;
  for (each.layer = 0; each.layer < p.layers; ++each.layer) {
    const PagedCache cache(each);
    const auto see = [&](const char* plane, const CachePlace& place) {
      if (place.found) best = place, name = plane, layer = each.layer;
    };
    const bool latent = p.layout == ASSAY_LAYOUT_MLA;
    if (operand == Operand::kK || latent)
      see("k", place_in(
                   p, cache.k(), p.head_dim_qk,
                   [&](int64_t b, int32_t s, int32_t h, int32_t d) { return cache.k_offset(b, s, h, d); },
                   element, before));
    if (!latent && (operand == Operand::kV || cache.shared_allocation()))
      see("v", place_in(
                   p, cache.v(), p.head_dim_v,
                   [&](int64_t b, int32_t s, int32_t h, int32_t d) { return cache.v_offset(b, s, h, d); },
                   element, before));
  }
  if (!best.found) return fmt::format("{} element {}, before or behind its blocks", name, element);
  return fmt::format("{}{} block {} slot {} head {} dim {} ({})", name, before > 0 ? ", a gap behind" : "",
                     best.block, best.slot, best.head, best.dim,
                     layer != p.layer ? fmt::format("layer {}, which is another's", layer)
                                      : token_in(p, best.block, best.slot));
}

std::string row_words(const std::vector<PackedRow>& rows, int64_t row) {
  if (row >= static_cast<int64_t>(rows.size()) || rows[static_cast<size_t>(row)].request < 0)
    return fmt::format("row {} (padding)", row);
  return fmt::format("request {} row {}", rows[static_cast<size_t>(row)].request,
                     rows[static_cast<size_t>(row)].row);
}

std::string key_words(const Problem& p, int64_t key) {
  for (size_t r = 0; r < p.requests.size(); ++r) {
    if (key < p.requests[r].kv_len) return fmt::format("key {} of request {}", key, r);
    key -= p.requests[r].kv_len;
  }
  return fmt::format("key {} behind the last request", key);
}

std::string table_words(const Problem& p, int64_t request, int64_t entry) {
  std::string text = fmt::format("request {} entry {}", request, entry);
  const auto r = static_cast<size_t>(request);
  if (r >= p.requests.size()) return text;
  const int64_t first = layouts::encoder_columns(p, r);
  const bool tokens = p.table == ASSAY_TABLE_TOKEN;
  const int64_t own = tokens ? p.requests[r].kv_len : static_cast<int64_t>(p.pages[r].size());
  if (entry < first) return text + " (the encoder's)";
  return text + (entry >= first + own ? tokens ? " (behind its last token)" : " (behind its last page)" : "");
}

std::string words_of(const Problem& p, Operand operand, const TensorLayout& t,
                     const int64_t (&at)[ASSAY_MAX_RANK]) {
  const bool cached = op_of(p).has_cache;
  switch (operand) {
    case Operand::kQ:
    case Operand::kO:
      if (t.rank == 3)
        return fmt::format("{} head {} dim {}", row_words(packed_rows(p), at[0]), at[1], at[2]);
      break;
    case Operand::kLse:
      if (t.rank == 2) return fmt::format("{} head {}", row_words(packed_rows(p), at[0]), at[1]);
      break;
    case Operand::kDenseK:
    case Operand::kDenseV:
      if (t.rank == 3)
        return fmt::format("{} head {} dim {}", row_words(new_key_rows(p), at[0]), at[1], at[2]);
      break;
    case Operand::kK:
    case Operand::kV:
      if (t.rank == 3) return fmt::format("{} head {} dim {}", key_words(p, at[0]), at[1], at[2]);
      break;
    case Operand::kKScale:
    case Operand::kVScale:
      if (cached && t.rank == 3)
        return fmt::format("block {} slot {} head {} ({})", at[0], at[2], at[1],
                           token_in(p, static_cast<int32_t>(at[0]), static_cast<int32_t>(at[2])));
      break;
    case Operand::kPartialO:
      if (t.rank == 4) return fmt::format("state {} row {} head {} dim {}", at[0], at[1], at[2], at[3]);
      break;
    case Operand::kPartialLse:
      if (t.rank == 3) return fmt::format("state {} row {} head {}", at[0], at[1], at[2]);
      break;
    case Operand::kBlockTable:
      if (t.rank == 2) return table_words(p, at[0], at[1]);
      break;
    default:
      break;
  }
  return t.rank == 1 ? fmt::format("entry {}", at[0])
                     : fmt::format("index [{}]", fmt::join(at, at + t.rank, ", "));
}

}  // namespace

std::string where_in(const Problem& p, Operand operand, int64_t byte) {
  // A stage of a step is judged by the tensors that it was given: its problem may know no blocks.
  if (op_of(p).has_cache && p.num_blocks <= 0) return fmt::format("{} byte {}", operand_name(operand), byte);
  const TensorLayout t = operand_layout(p, operand);
  if (t.rank == 0 || format_bytes(t.format) == 0)
    return fmt::format("{} byte {}", operand_name(operand), byte);
  const int64_t element = byte / format_bytes(t.format);
  const bool plane = operand == Operand::kK || operand == Operand::kV;
  if (plane && op_of(p).has_cache) return in_cache(p, operand, element);
  int64_t rest = element - t.offset;
  if (rest < 0) return fmt::format("{}, element {} before its first one", operand_name(operand), -rest);
  std::vector<int> axes(static_cast<size_t>(t.rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::sort(axes.begin(), axes.end(), [&](int a, int b) { return t.stride[a] > t.stride[b]; });
  int64_t at[ASSAY_MAX_RANK] = {};
  for (const int axis : axes) {
    if (t.stride[axis] <= 0 || t.shape[axis] <= 0) continue;
    at[axis] = std::min(rest / t.stride[axis], t.shape[axis] - 1);
    rest -= at[axis] * t.stride[axis];
  }
  // A row of a table is as long as its stride: what lies behind its entries belongs to it.
  if (operand == Operand::kBlockTable && t.rank == 2) at[1] += rest, rest = 0;
  return fmt::format("{}{} {}", operand_name(operand), rest > 0 ? ", the gap behind" : "",
                     words_of(p, operand, t, at));
}

}  // namespace assay
