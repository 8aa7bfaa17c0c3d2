// SPDX-License-Identifier: Apache-2.0
// Writes lengths, page tables, slopes, sinks and trees through the strides of their tensors. Entry forms:
// a block id per page (block table, CSR), or a flat slot per key (token table). A new table form: a
// case here, its shape in harness/ops/layouts.cpp, its tail in poison.cpp.
#include "harness/input/tables.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/problem/paged_cache.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

template <class Values>
void write_vector(assay_tensor& t, const Values& values) {
  for (size_t i = 0; i < values.size(); ++i)
    store(t.format, t.data, static_cast<int64_t>(i) * t.stride[0], static_cast<double>(values[i]));
}

// What stands in a table for each block of the cache.
std::vector<int32_t> full_pool_ids(const Problem& p) {
  if (p.full_pool) return full_ids(p);
  std::vector<int32_t> own(static_cast<size_t>(p.num_blocks));
  std::iota(own.begin(), own.end(), 0);
  return own;
}

// Slots of pages that only the full pool has lead to a block that nobody keeps.
void write_slot_map(const Problem& p, assay_tensor& t) {
  std::vector<int32_t> blocks(static_cast<size_t>(full_blocks(p)), spare_block(p)), slots;
  const std::vector<int32_t> ids = full_ids(p);
  for (size_t own = 0; own < ids.size(); ++own)
    blocks[static_cast<size_t>(ids[own])] = static_cast<int32_t>(own);
  for (const int32_t block : blocks)
    for (int32_t slot = 0; slot < p.page_size; ++slot) slots.push_back(block * p.page_size + slot);
  write_vector(t, slots);
}

void write_page_table(const Problem& p, assay_tensor& t) {
  auto* data = static_cast<int32_t*>(t.data);
  const std::vector<int32_t> ids = full_pool_ids(p);
  for (size_t r = 0; r < p.pages.size(); ++r) {
    int32_t* row =
        data + static_cast<int64_t>(r) * t.stride[0] + layouts::encoder_columns(p, r) * t.stride[1];
    if (p.table == ASSAY_TABLE_TOKEN) {
      for (int32_t key = 0; key < p.requests[r].kv_len; ++key) {
        const Slot slot = locate(p, static_cast<int>(r), key);
        row[key * t.stride[1]] = ids[static_cast<size_t>(slot.block)] * p.page_size + slot.slot;
      }
    } else {
      for (size_t page = 0; page < p.pages[r].size(); ++page)
        row[page * t.stride[1]] = ids[static_cast<size_t>(p.pages[r][page])];
    }
  }
}

// A column for every key. What stands in those of the context means nothing: bits drawn from the seed.
std::vector<uint8_t> flat_tree(const Problem& p) {
  std::vector<uint8_t> flat;
  const CounterRng rng(p.seed, kStreamTree);
  auto bits = p.tree_mask.begin();
  for (const Request& r : p.requests)
    for (int32_t row = 0; row < r.q_len; ++row, bits += r.q_len) {
      for (int32_t key = 0; key < r.context_len(); ++key)
        flat.push_back(static_cast<uint8_t>(rng.below(~flat.size(), 2)));
      flat.insert(flat.end(), bits, bits + r.q_len);
    }
  return flat;
}

}  // namespace

int32_t spare_block(const Problem& p) {
  std::vector<char> kept(static_cast<size_t>(p.num_blocks), 0);
  for (const auto& list : p.pages)
    for (const int32_t block : list) kept[static_cast<size_t>(block)] = 1;
  int32_t spare = p.num_blocks - 1;
  while (spare > 0 && kept[static_cast<size_t>(spare)]) --spare;
  return std::max(spare, 0);
}

std::vector<float> alibi_slopes(int32_t heads) {
  const auto power = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(heads)));
  std::vector<float> slopes(heads);
  for (int32_t h = 0; h < heads; ++h) {
    const double exponent = h < power ? 8.0 * (h + 1) / power : 8.0 * (2 * (h - power) + 1) / (2 * power);
    slopes[h] = static_cast<float>(std::exp2(-exponent));
  }
  return slopes;
}

std::vector<float> drawn_slopes(const Problem& p) {
  constexpr uint64_t kSlopes = uint64_t{1} << 61;  // apart from the draws of scales
  const CounterRng rng(p.seed, kStreamScales);
  std::vector<float> slopes = alibi_slopes(p.heads_q);
  for (size_t h = 0; h < slopes.size(); ++h)
    slopes[h] = static_cast<float>(slopes[h] * (1.05 + 0.3 * rng.uniform(kSlopes + h)));
  return slopes;
}

// A sink draws weight when it stands near the log-sum-exp of the row, which for unit normal logits is
// ln(keys) + 1/2: its share then is visible whatever the length.
std::vector<float> sink_logits(const Problem& p) {
  if (!p.sinks) return {};
  int32_t widest = 0;
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int32_t rows = p.requests[r].q_len;
    if (rows == 0) continue;
    const KeyRange range = visible_range(p, static_cast<int>(r), rows - 1);
    widest = std::max(widest, range.end - range.begin);
  }
  std::vector<float> logits(p.heads_q);
  const CounterRng rng(p.seed, kStreamSinks);
  for (int32_t h = 0; h < p.heads_q; ++h)
    logits[h] = static_cast<float>(std::log1p(widest) - 1 + rng.normal(h));
  return logits;
}

void write_table(Inputs& inputs, Operand operand, const std::vector<float>& sinks) {
  const Problem& p = inputs.problem;
  assay_tensor& t = tensor_of(inputs.tensors, operand);
  switch (operand) {
    case Operand::kCuQ:
      return write_vector(t, p.cu_q());
    case Operand::kCuKv:
      return write_vector(t, p.cu_kv());
    case Operand::kKvLen:
      return write_vector(t, p.kv_lens());
    case Operand::kBlockTable:
      return write_page_table(p, t);
    case Operand::kIndptr: {
      std::vector<int32_t> indptr = {0};
      for (const auto& list : p.pages) indptr.push_back(indptr.back() + static_cast<int32_t>(list.size()));
      return write_vector(t, indptr);
    }
    case Operand::kIndices: {
      std::vector<int32_t> indices;
      const std::vector<int32_t> ids = full_pool_ids(p);
      for (const auto& list : p.pages)
        for (const int32_t block : list) indices.push_back(ids[static_cast<size_t>(block)]);
      return write_vector(t, indices);
    }
    case Operand::kLastPageLen: {
      std::vector<int32_t> last;
      for (const Request& r : p.requests)
        last.push_back(r.kv_len == 0 ? 0 : (r.kv_len - 1) % p.page_size + 1);
      return write_vector(t, last);
    }
    case Operand::kAlibiSlopes:
      return write_vector(t, drawn_slopes(p));
    case Operand::kSinks:
      return write_vector(t, sinks);
    case Operand::kTreeMask:
      return write_vector(t, p.flat_tree ? flat_tree(p) : p.tree_mask);
    case Operand::kTreeIndptr:
      return write_vector(t, layouts::tree_starts(p));
    case Operand::kContextLen: {
      std::vector<int32_t> context;
      for (const Request& r : p.requests) context.push_back(p.first_draft(r));
      return write_vector(t, context);
    }
    case Operand::kFirstKey:
      return write_vector(t, p.first_key);
    case Operand::kSlotMap:
      return write_slot_map(p, t);
    case Operand::kEncoderLen:
      return write_vector(t, p.encoder_len);
    case Operand::kPositions: {
      std::vector<int32_t> positions;
      for (const std::vector<int32_t>& rows : p.positions)
        positions.insert(positions.end(), rows.begin(), rows.end());
      return write_vector(t, positions);
    }
    default:
      ASSAY_CHECK(false, "{} is no table", operand_name(operand));
  }
}

}  // namespace assay
