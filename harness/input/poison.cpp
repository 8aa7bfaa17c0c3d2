// SPDX-License-Identifier: Apache-2.0
// Writes poison into every byte that is not an input value: what the layout leaves between rows, slots
// behind the last key of a page, blocks nobody owns, tails of page tables, all outputs. It never touches
// a value, so one set of inputs serves runs under all three poisons. A new operand with holes: a case
// in `poison_holes`.
#include "harness/input/poison.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/input/data_op_inputs.hpp"
#include "harness/input/spans.hpp"
#include "harness/input/tables.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// `count` times one code of `bytes` bytes, little-endian like every machine this runs on.
void fill(std::byte* to, int bytes, int64_t count, uint32_t code) {
  if (bytes == 1) {
    std::memset(to, static_cast<int>(code & 0xff), static_cast<size_t>(count));
  } else if (bytes == 2) {
    const auto half = static_cast<uint16_t>(code);
    for (int64_t i = 0; i < count; ++i) std::memcpy(to + 2 * i, &half, 2);
  } else {
    for (int64_t i = 0; i < count * (bytes / 4); ++i) std::memcpy(to + 4 * i, &code, 4);
  }
}

// Tokens of each block that are there before a run, or after it: always the first ones of its page, because
// only full pages are shared. New keys of a step that writes are not there yet.
std::vector<int32_t> used_slots(const Problem& p, bool before = true) {
  std::vector<int32_t> used(p.num_blocks, 0);
  const bool grows = before && role_of(p, Operand::kK) == Role::kInOut;
  for (size_t r = 0; r < p.pages.size(); ++r) {
    const PageRange keep = resident_pages(p, static_cast<int>(r));
    const int32_t there = !grows                       ? p.requests[r].kv_len
                          : p.mask == ASSAY_MASK_CROSS ? 0  // all of the encoder's are new
                                                       : p.requests[r].context_len();
    for (int32_t page = keep.first; page < keep.last; ++page)
      used[p.pages[r][page]] = std::clamp(there - page * p.page_size, 0, p.page_size);
  }
  return used;
}

// One plane of the cache, K or V, through its offsets. Head heads_kv is the spare one of a head slice.
template <class Offset>
void poison_plane(const Problem& p, const Offset& offset, int32_t format, int32_t dims,
                  const std::vector<int32_t>& used, std::byte* payload, Poison poison) {
  const int bytes = format_bytes(format);
  const uint32_t code = poison_code(format, poison);
  const int32_t run = contiguous_run([&](int32_t d) { return offset(0, 0, 0, d); }, dims);
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  const int64_t elements = int64_t{p.num_blocks} * p.page_size * p.heads_kv * dims;
  const int32_t heads = p.heads_kv + (p.strided.kv && !latent ? 1 : 0);
  const std::vector<int32_t> blocks = kept_blocks(p);
  // Behind every dimension lies a gap, that of an unused token too.
  const int64_t gap = p.strided.last ? kLastStride - 1 : 0;
#pragma omp parallel for schedule(dynamic, 16) if (elements > kParallelElements)
  for (size_t i = 0; i < blocks.size(); ++i)
    for (int32_t head = 0; head < heads; ++head)
      for (int32_t token = 0; token < p.page_size; ++token) {
        const int32_t block = blocks[i], slot = slot_of(p, block, token);
        const bool unused = head >= p.heads_kv || token >= used[block];
        if (!unused && gap == 0) continue;
        for (int32_t dim = 0; dim < dims; dim += run) {
          std::byte* const at = payload + offset(block, slot, head, dim) * bytes;
          if (unused) fill(at, bytes, std::min(run, dims - dim), code);
          if (gap > 0) fill(at + bytes, bytes, gap, code);
        }
      }
  if (!latent || !p.strided.kv) return;
    // The spare head of a latent row is a second row of the same length behind it.
#pragma omp parallel for schedule(static) if (elements > kParallelElements)
  for (size_t i = 0; i < blocks.size(); ++i)
    for (int32_t slot = 0; slot < p.page_size; ++slot)
      fill(payload + (offset(blocks[i], slot, 0, 0) + dims * (gap + 1)) * bytes, bytes, dims * (gap + 1),
           code);
}

// A block that no request keeps; 0 where there is none (a hand-made problem may use every block, and any is
// then as wrong as another).
int32_t unused_block(const std::vector<int32_t>& used) {
  const auto spare = std::find(used.begin(), used.end(), 0);
  return spare == used.end() ? 0 : static_cast<int32_t>(spare - used.begin());
}

// What a table tail holds, by request: an absurd id, an unused block, or a block of another request.
std::vector<int32_t> tail_blocks(const Problem& p, Poison poison) {
  std::vector<int32_t> tails(p.requests.size(), kAbsurdBlock);
  if (poison == Poison::kNaN) return tails;
  const std::vector<int32_t> used = used_slots(p);
  const int32_t unused = unused_block(used);
  // First resident block of each request, -1 for none.
  std::vector<int32_t> own(p.requests.size(), -1);
  for (size_t r = 0; r < own.size(); ++r) {
    const PageRange keep = resident_pages(p, static_cast<int>(r));
    if (keep.first < keep.last) own[r] = p.pages[r][keep.first];
  }
  for (size_t r = 0; r < tails.size(); ++r) {
    tails[r] = unused;
    if (poison == Poison::kLow) continue;
    for (size_t step = 1; step < own.size(); ++step) {
      const int32_t other = own[(r + step) % own.size()];
      const auto& mine = p.pages[r];  // a shared page is not another's
      if (other >= 0 && std::find(mine.begin(), mine.end(), other) == mine.end()) {
        tails[r] = other;
        break;
      }
    }
  }
  return tails;
}

}  // namespace

bool is_far_apart(const Problem& p) {
  if (!op_of(p).has_cache || role_of(p, Operand::kK) != Role::kIn) return false;
  int64_t pages = 0, bytes = 0;
  for (const auto& list : p.pages) pages += static_cast<int64_t>(list.size());
  for (const Operand operand : {Operand::kK, Operand::kV})
    if (const TensorLayout t = operand_layout(p, operand); t.rank > 0)
      bytes += t.allocation * format_bytes(t.format);
  return 4 * pages < p.num_blocks && bytes > kMostWholeBytes;
}

std::vector<int32_t> kept_blocks(const Problem& p) {
  std::vector<int32_t> blocks;
  if (!is_far_apart(p)) {
    for (int32_t block = 0; block < p.num_blocks; ++block) blocks.push_back(block);
    return blocks;
  }
  const auto add = [&](int32_t block) {
    for (const int32_t b : {block - 1, block, block + 1})
      if (b >= 0 && b < p.num_blocks) blocks.push_back(b);
  };
  for (const auto& list : p.pages)
    for (const int32_t block : list) add(block);
  add(0), add(p.num_blocks - 1), add(unused_block(used_slots(p)));
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

double laid_out_bytes(const Problem& p) {
  const double kept = is_far_apart(p) ? static_cast<double>(kept_blocks(p).size()) / p.num_blocks : 1;
  double bytes = 0;
  for (const OperandUse& use : op_of(p).operands) {
    const TensorLayout t = use.layout(p);
    if (t.rank == 0) continue;
    if (use.operand == Operand::kV && op_of(p).has_cache && PagedCache(p).shared_allocation())
      continue;  // with K
    const bool cache = use.operand == Operand::kK || use.operand == Operand::kV;
    bytes += (cache ? kept : 1) * static_cast<double>(t.allocation * format_bytes(t.format));
  }
  return bytes;
}

std::vector<ByteRange> bytes_of_blocks(const Problem& p, Operand operand,
                                       const std::vector<int32_t>& blocks) {
  const PagedCache cache(p);
  std::vector<ByteRange> ranges;
  // Planes that share an allocation lie in turns or one behind the other.
  const auto add = [&](const TensorLayout& t) {
    const int64_t bytes = format_bytes(t.format);
    for (const int32_t block : blocks) {
      const int64_t begin = (p.layers > 1 ? 0 : t.offset) + block * t.stride[0];
      ranges.push_back({begin * bytes, std::min(begin + t.stride[0], t.allocation) * bytes});
    }
  };
  add(operand == Operand::kV ? cache.v() : cache.k());
  if (operand == Operand::kK && p.storage == Storage::kStacked) add(cache.v());
  return ranges;
}

void poison_all(Inputs& inputs, Operand operand, Poison poison) {
  GuardedBuffer& buffer = inputs.buffers[static_cast<int>(operand)];
  if (buffer.empty()) return;
  const int32_t format = operand_layout(inputs.problem, operand).format;  // the view of an absent LSE is null
  const int bytes = format_bytes(format);
  fill(buffer.payload(), bytes, buffer.bytes() / bytes, unwritten_code(format, poison));
}

void poison_row_padding(Inputs& inputs, Operand operand, Poison poison) {
  const TensorLayout t = operand_layout(inputs.problem, operand);
  if (t.rank == 0) return;
  // Rows are the axis before heads and dimensions; states before it lie one behind the other. Heads may be
  // halves of something larger.
  const int64_t row_axis = t.rank - 3, stride = t.stride[row_axis];
  const int64_t heads = t.shape[row_axis + 1], dims = t.shape[row_axis + 2], values = heads * dims;
  const int64_t step = t.stride[row_axis + 2], apart = t.stride[row_axis + 1], own = dims * step;
  const int64_t used = heads * apart, rows = t.shape[row_axis] * (row_axis > 0 ? t.shape[0] : 1);
  if (stride == values) return;
  const int bytes = format_bytes(t.format);
  const uint32_t code = poison_code(t.format, poison);
  GuardedBuffer& buffer = inputs.buffers[static_cast<int>(operand)];
#pragma omp parallel for schedule(static) if (t.allocation > kParallelElements)
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* const first = buffer.payload() + (t.offset + row * stride) * bytes;
    for (int64_t i = 0; step > 1 && i < values; ++i)
      fill(first + (i / dims * apart + i % dims * step + 1) * bytes, bytes, step - 1, code);
    for (int64_t head = 0; apart > own && head < heads; ++head)
      fill(first + (head * apart + own) * bytes, bytes, apart - own, code);
    fill(first + used * bytes, bytes, stride - used, code);
  }
}

void poison_cache(Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  const std::vector<int32_t> used = used_slots(p);
  auto& k = inputs.buffers[static_cast<int>(Operand::kK)];
  auto& v = inputs.buffers[static_cast<int>(Operand::kV)];
  // Of the layers that lie between each other, all but one are somebody else's.
  Problem each = p;
  for (each.layer = 0; each.layer < p.layers; ++each.layer) {
    const PagedCache cache(each);
    const std::vector<int32_t> own = each.layer == p.layer ? used : std::vector<int32_t>(used.size(), 0);
    const auto k_offset = [&](int64_t b, int32_t s, int32_t h, int32_t d) {
      return cache.k_offset(b, s, h, d);
    };
    const auto v_offset = [&](int64_t b, int32_t s, int32_t h, int32_t d) {
      return cache.v_offset(b, s, h, d);
    };
    poison_plane(p, k_offset, p.k_format, p.head_dim_qk, own, k.payload(), poison);
    if (p.layout != ASSAY_LAYOUT_MLA)
      poison_plane(p, v_offset, p.v_format, p.head_dim_v, own, v.payload(), poison);
  }

  for (Operand scale : {Operand::kKScale, Operand::kVScale}) {
    const int32_t kind = scale == Operand::kKScale ? p.k_scale : p.v_scale;
    if (kind != ASSAY_SCALE_TOKEN_HEAD) continue;
    const TensorLayout t = operand_layout(p, scale);
    if (t.rank == 0) continue;  // V of a latent cache in a cache_gather
    auto* data = reinterpret_cast<uint32_t*>(inputs.buffers[static_cast<int>(scale)].payload());
    for (int32_t block = 0; block < p.num_blocks; ++block)
      for (int32_t head = 0; head < p.heads_kv; ++head)
        for (int32_t token = used[block]; token < p.page_size; ++token)
          data[t.at({block, head, slot_of(p, block, token)})] = poison_code(ASSAY_FP32, poison);
  }
}

void poison_table(Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  const TensorLayout t = operand_layout(p, Operand::kBlockTable);
  if (t.rank == 0) return;
  auto* data = reinterpret_cast<int32_t*>(inputs.buffers[static_cast<int>(Operand::kBlockTable)].payload());
  const bool tokens = p.table == ASSAY_TABLE_TOKEN;
  const std::vector<int32_t> tails = tail_blocks(p, poison);
  // An encoder's tokens are there, and nobody's who attends here: a layer of the decoder never wrote them.
  const int32_t encoder = p.encoder_len.empty() ? 0 : spare_block(p);
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int64_t first = layouts::encoder_columns(p, r);
    const int64_t used = first + (tokens ? p.requests[r].kv_len : static_cast<int64_t>(p.pages[r].size()));
    int32_t* const row = data + static_cast<int64_t>(r) * t.stride[0];
    std::fill(row, row + first, tokens ? encoder * p.page_size : encoder);
    const int32_t entry = tokens && poison != Poison::kNaN ? tails[r] * p.page_size : tails[r];
    std::fill(row + used, row + t.stride[0], entry);
  }
}

bool poison_new_keys(Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  if (!op_of(p).has_cache || role_of(p, Operand::kK) != Role::kInOut || !holds_values(p, Operand::kK))
    return false;
  const std::vector<int32_t> before = used_slots(p), after = used_slots(p, false);
  const PagedCache cache(p);
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  const auto put = [&](Operand operand, int64_t at, int32_t format) {
    const int bytes = format_bytes(format);
    fill(inputs.buffers[static_cast<int>(operand)].payload() + at * bytes, bytes, 1,
         poison_code(format, poison));
  };
  for (int32_t block = 0; block < p.num_blocks; ++block)
    for (int32_t token = before[block]; token < after[block]; ++token)
      for (int32_t head = 0; head < p.heads_kv; ++head) {
        const int32_t slot = slot_of(p, block, token);
        for (int32_t d = 0; d < p.head_dim_qk; ++d)
          put(Operand::kK, cache.k_offset(block, slot, head, d), p.k_format);
        for (int32_t d = 0; !latent && d < p.head_dim_v; ++d)
          put(Operand::kV, cache.v_offset(block, slot, head, d), p.v_format);
        for (const auto& [scale, kind] :
             {std::pair{Operand::kKScale, p.k_scale}, {Operand::kVScale, p.v_scale}})
          if (kind == ASSAY_SCALE_TOKEN_HEAD)
            put(scale, operand_layout(p, scale).at({block, head, slot}), ASSAY_FP32);
      }
  return before != after;
}

uint32_t poison_code(int32_t format, Poison poison) {
  if (format == ASSAY_INT32 || format == ASSAY_INT64)  // each word of an int64
    return poison == Poison::kNaN ? 0x80000000u : poison == Poison::kLow ? 0xc1c1c1c1u : 0x41414141u;
  if (poison == Poison::kNaN) return nan_code(format);
  double size = 0;
  switch (format) {
    case ASSAY_FP32:
    case ASSAY_BF16:
      size = 0x1p100;
      break;
    case ASSAY_INT8:
      size = 127;
      break;
    default:
      size = format_info(format).max_finite / 2;
      break;
  }
  return encode(format, poison == Poison::kLow ? -size : size);
}

uint32_t unwritten_code(int32_t format, Poison poison) {
  const uint32_t code = poison_code(format, poison);
  if (format == ASSAY_INT8 || format == ASSAY_INT32 || format == ASSAY_INT64) return code;
  if (poison != Poison::kNaN) return encode(format, 0.75 * decode(format, code));
  switch (format) {  // bits of the payload that no unit sets by itself
    case ASSAY_FP32:
      return code ^ 0x00255aa5u;
    case ASSAY_BF16:
      return code ^ 0x0025u;
    case ASSAY_FP16:
      return code ^ 0x0125u;
    case ASSAY_FP8_E4M3:
      return code ^ 0x80u;
    case ASSAY_FP8_E5M2:
      return code ^ 0x81u;
    default:
      return code;  // the only NaN of its format
  }
}

namespace {

void poison_workspace(Inputs& inputs, Poison poison) {
  // The workspace has no format; what a kernel keeps there is mostly fp32.
  GuardedBuffer& workspace = inputs.buffers[static_cast<int>(Operand::kWorkspace)];
  if (workspace.empty()) return;
  fill(workspace.payload(), 4, workspace.bytes() / 4, poison_code(ASSAY_FP32, poison));
  const int64_t whole = workspace.bytes() / 4 * 4;
  fill(workspace.payload() + whole, 1, workspace.bytes() - whole, 0xff);
}

// Whether the unused elements of an operand are finite for kernels whose contract asks for that.
bool may_stay_finite(Operand operand) {
  switch (operand) {
    case Operand::kK:
    case Operand::kV:
    case Operand::kKScale:
    case Operand::kVScale:
    case Operand::kPartialO:
      return true;
    default:
      return false;
  }
}

void poison_holes(Inputs& inputs, Operand operand, Poison poison) {
  const bool cached = op_of(inputs.problem).has_cache;
  if (poison == Poison::kNaN && (inputs.contracts & ASSAY_CONTRACT_FINITE_UNUSED) != 0 &&
      may_stay_finite(operand))
    poison = Poison::kLow;
  switch (holes_of(operand)) {
    case Holes::kNone:
      return;
    case Holes::kRows:
      return poison_row_padding(inputs, operand, poison);
    case Holes::kCache:
      if (!cached) return poison_row_padding(inputs, operand, poison);
      if (operand == Operand::kK) poison_cache(inputs, poison);  // and V with it
      return;
    case Holes::kStates:
      poison_row_padding(inputs, operand, poison);
      return poison_empty_states(inputs, poison);
    case Holes::kTable:
      return poison_table(inputs, poison);
  }
}

}  // namespace

void repoison(Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  inputs.poison = poison;
  for (const OperandUse& use : op_of(p).operands) {
    const GuardedBuffer& buffer = inputs.buffers[static_cast<int>(use.operand)];
    if (buffer.empty()) continue;
    switch (role_of(p, use.operand)) {
      case Role::kIn:
        poison_holes(inputs, use.operand, poison);
        break;
      case Role::kOut:
        poison_all(inputs, use.operand, poison);
        break;
      case Role::kInOut:
        if (holds_values(p, use.operand)) {
          poison_holes(inputs, use.operand, poison);
          break;
        }
        // V of a shared allocation is K's buffer, and filled with it.
        if (use.operand != Operand::kV || buffer.raw() != inputs.buffers[static_cast<int>(Operand::kK)].raw())
          hold_bytes(inputs, use.operand, poison);
        break;
      case Role::kWorkspace:
      case Role::kNone:
        break;
    }
  }
  poison_workspace(inputs, poison);
}

}  // namespace assay
