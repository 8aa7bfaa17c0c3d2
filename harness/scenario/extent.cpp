// SPDX-License-Identifier: Apache-2.0
// See extent.hpp. All arithmetic is in double: the sums of hostile inputs overflow int64, and a bound
// needs no exact bytes.
#include "harness/scenario/extent.hpp"

#include <algorithm>

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/limits.hpp"

namespace assay {
namespace {

void add(Extent& e, double count, double q_len, double kv_len) {
  e.requests += count;
  e.total_q += count * q_len;
  e.total_kv += count * kv_len;
  e.max_kv = std::max(e.max_kv, kv_len);
  e.tree_entries += count * q_len * q_len;
}

struct Size {
  double slots = 0;  // tokens the cache holds, or total_kv
  double bytes = 0;
};

// Partial results of a row; with parts of a fixed size the longest request says how many.
double states_of(const Scenario& s, const Extent& e) {
  if (takes(op_of(s.op), "tile")) return 0;  // those of tiles: Op::bytes
  return takes(op_of(s.op), "part") && s.part_tokens > 0 ? e.max_kv / s.part_tokens + 1
                                                         : double{1} * s.states;
}

// About the bytes of an operand as the op takes it; small ones count nothing.
double operand_bytes(const Scenario& s, const Extent& e, double slots, const OperandUse& use) {
  const auto tensor = [](double tokens, double heads, double dim, const Quantization& q) {
    const double scale = q.scale == ASSAY_SCALE_TOKEN_HEAD ? 4 : 0;
    return tokens * heads * (dim * format_bytes(q.format) + scale);
  };
  const double rows = e.total_q + s.padded_rows;
  const double keys = (s.mask == ASSAY_MASK_CROSS ? e.total_kv : e.total_q) + s.padded_rows;
  // What is written is of out=, what is read of from=.
  const bool codes = s.source_format == ASSAY_FORMAT_NONE;
  const double element = format_bytes(use.role != Role::kIn ? s.o_format
                                      : codes               ? s.k.format
                                                            : s.source_format);
  switch (use.operand) {
    case Operand::kQ:
      return tensor(e.total_q, s.heads_q, s.head_dim_qk, s.q);
    case Operand::kK:
      return s.layers * tensor(slots, s.heads_kv, s.head_dim_qk, s.k);
    case Operand::kV:
      return s.layers * tensor(slots, s.heads_kv, s.head_dim_v, s.v);
    case Operand::kO:
      return e.total_q * s.heads_q * s.head_dim_v * format_bytes(s.o_format);
    case Operand::kLse:
      return e.total_q * s.heads_q * 4;
    case Operand::kBlockTable: {  // or its CSR form
      const double most = e.max_kv + s.encoder_tokens;
      const double row = s.table == ASSAY_TABLE_TOKEN ? most : most / s.page_size + 2;
      return 4 * (s.table == ASSAY_TABLE_CSR ? e.total_kv / s.page_size + e.requests : e.requests * row);
    }
    case Operand::kPartialO:
      return states_of(s, e) * e.total_q * s.heads_q * s.head_dim_v * element;
    case Operand::kPartialLse:
      return states_of(s, e) * e.total_q * s.heads_q * 4;
    case Operand::kDenseK:
      return keys * s.heads_kv * s.head_dim_qk * element;
    case Operand::kDenseV:
      return keys * s.heads_kv * s.head_dim_v * element;
    case Operand::kSlotMapping:
      return keys * 8;
    case Operand::kSlotMap:
      return s.full_pool ? 5 * slots : 0;
    case Operand::kTokenToBatch:
      return rows * 4;
    case Operand::kSource:
      return rows * s.heads_q * s.head_dim_qk * format_bytes(s.source_format);
    default:  // small ones, scales with their codes, and the tree, which has a limit of its own
      return 0;
  }
}

Size size_of(const Scenario& s, const Extent& e) {
  const Op& op = op_of(s.op);
  Size size;
  size.slots = e.total_kv;
  if (op.has_cache) {
    // Every request may end in a partly filled page; about one block in eight stays unused.
    const double pages = e.total_kv / s.page_size + e.requests;
    size.slots = std::max(pages * 8 / 7 + 1, double{1} * s.min_blocks) * s.page_size;
  }
  for (const OperandUse& use : op.operands) size.bytes += operand_bytes(s, e, size.slots, use);
  if (op.bytes != nullptr) {
    Problem p;
    p.page_size = s.page_size, p.chunk = s.chunk, p.window_left = s.window_left,
    p.padded_rows = s.padded_rows;
    p.ranks = s.ranks, p.token_budget = s.token_budget, p.prefix_tokens = s.prefix_tokens;
    p.heads_q = s.heads_q, p.heads_kv = s.heads_kv, p.head_dim_v = s.head_dim_v;
    p.workers = s.workers, p.tile_rows = s.tile_rows, p.flat_tree = s.flat_tree;
    size.bytes +=
        op.bytes(p, {e.requests, e.total_q, e.total_kv, e.max_kv, e.tree_entries * (s.drafted + 1)});
  }
  return size;
}

}  // namespace

Extent extent_of(const BatchSpec& batch) {
  Extent e;
  switch (batch.kind) {
    case BatchSpec::Kind::kMix:
      for (const BatchGroup& g : batch.groups) add(e, g.count, g.q_len, g.kv_len);
      break;
    case BatchSpec::Kind::kUniform:
    case BatchSpec::Kind::kZipf:
      add(e, batch.n, batch.q.high, std::max(batch.q.high, batch.s.high));
      break;
    case BatchSpec::Kind::kTrace:
      break;  // known once the trace is read
  }
  return e;
}

Extent extent_of(std::span<const Request> requests) {
  Extent e;
  for (const Request& r : requests) add(e, 1, r.q_len, r.kv_len);
  return e;
}

double case_bytes(const Scenario& s, const Extent& e) { return size_of(s, e).bytes; }

bool case_fits(const Scenario& s, const Extent& e) { return case_size_message(s, e).empty(); }

std::string case_size_message(const Scenario& s, const Extent& e) {
  if (e.requests > static_cast<double>(kMaxRequests))
    return fmt::format("batch= asks for {:.0f} requests; the limit is {}", e.requests, kMaxRequests);
  const Size size = size_of(s, e);
  if (e.total_q + s.padded_rows > static_cast<double>(kMaxTokens) ||
      size.slots > static_cast<double>(kMaxTokens))
    return fmt::format(
        "batch= asks for {:.0f} new and {:.0f} cached tokens; the limit is {} each (the kernel interface "
        "counts in int32); make batch or page smaller",
        e.total_q, size.slots, kMaxTokens);
  if ((s.mask == ASSAY_MASK_TREE || is_about_trees(op_of(s.op))) &&
      e.tree_entries * (s.drafted + 1) > static_cast<double>(kMaxTreeEntries))
    return fmt::format("the tree masks take {:.0f} entries; the limit is {}; make q of the groups smaller",
                       e.tree_entries * (s.drafted + 1), kMaxTreeEntries);
  const double gib = size.bytes / (1024.0 * 1024 * 1024);
  if (gib > static_cast<double>(kMaxCaseGiB))
    return fmt::format(
        "the case needs about {:.0f} GiB; the limit is {} GiB; make batch, h, d or page smaller", gib,
        kMaxCaseGiB);
  return "";
}

}  // namespace assay
