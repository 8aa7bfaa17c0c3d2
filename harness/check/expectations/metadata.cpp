// SPDX-License-Identifier: Apache-2.0
// The metadata ops: integers that follow from the lengths, tables and trees in memory (reference/data_ops),
// so each must be exactly what it is, and what stands behind the live part of a list too. Entries that nobody
// reads (tables behind a row's last page, starts of empty pieces) may hold anything. A new op: its function
// with what it writes, and a line at the end.
#include "reference/data_ops/metadata.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "harness/check/expectations/lists.hpp"
#include "harness/problem/names.hpp"
#include "reference/data_ops/dcp.hpp"
#include "reference/data_ops/local_batches.hpp"

namespace assay {
namespace {

using All = std::vector<Wanted>;

// Cumulative lists end in their last value.
Wanted sums(const ListFacts& f, Operand operand, const List& list) {
  return Wanted(f, operand, list.back()).row(0, list);
}
Wanted tables(const ListFacts& f, const Pages& rows) {
  Wanted out(f, Operand::kOutTable, Wanted::kAnything);
  for (size_t r = 0; r < rows.size(); ++r) out.row(static_cast<int64_t>(r), rows[r]);
  return out;
}

All expand_pages_of(const ListFacts& f) {
  const ExpandedPages e = expand_pages(f.kv_len, f.pages, f.p.page_size);
  return {sums(f, Operand::kOutCuKv, e.cu_kv), Wanted(f, Operand::kOutIndices, -1).row(0, e.indices)};
}

All dcp_lengths_of(const ListFacts& f) {
  Wanted out(f, Operand::kOutLen, 0);
  for (int32_t rank = 0; rank < f.p.ranks; ++rank) {
    List lengths;
    for (const int32_t m : f.kv_len) lengths.push_back(dcp_local_length(m, f.p.ranks, f.p.interleave, rank));
    out.row(rank, lengths);
  }
  return {out};
}

All local_batches_of(const ListFacts& f) {
  const int32_t uncut = (std::max(f.p.max_kv_len(), 1) + f.p.page_size - 1) / f.p.page_size * f.p.page_size;
  const int32_t chunk = f.p.chunk > 0 ? f.p.chunk : uncut;
  const LocalBatches b = local_batches(f.q_len, f.kv_len, chunk, f.p.page_size, f.pages);
  Pages live = b.table;
  for (size_t i = 0; i < live.size(); ++i)  // the rest repeats the last entry and is never read
    live[i].resize(static_cast<size_t>((b.k_lens[i] + f.p.page_size - 1) / f.p.page_size));
  return {Wanted(f, Operand::kOutLen, 0).row(0, b.k_lens),
          sums(f, Operand::kOutCuQ, b.cu_q),
          sums(f, Operand::kOutCuKv, cumulative(b.k_lens)),
          tables(f, live),
          Wanted(f, Operand::kOutRequest, -1).row(0, b.request),
          Wanted(f, Operand::kOutCounts, static_cast<int64_t>(b.q_lens.size()))};
}

All split_batch_of(const ListFacts& f) {
  List lengths, starts, keys, order;
  Wanted counts(f, Operand::kOutCounts, 0);
  int64_t group = 0;
  for (const BatchGroup3& g : split_batch(f.q_len, f.kv_len, f.p.threshold)) {
    for (const int32_t r : g.requests) lengths.push_back(f.kv_len[static_cast<size_t>(r)]);
    order.insert(order.end(), g.requests.begin(), g.requests.end());
    starts.insert(starts.end(), g.cu_q.begin(), g.cu_q.end());
    keys.insert(keys.end(), g.cu_kv.begin(), g.cu_kv.end());
    counts.row(group++,
               {static_cast<int32_t>(g.requests.size()), g.rows, g.largest_q, g.smallest_q, g.largest_kv});
  }
  return {Wanted(f, Operand::kOutLen, 0).row(0, lengths), Wanted(f, Operand::kOutCuQ, 0).row(0, starts),
          Wanted(f, Operand::kOutCuKv, 0).row(0, keys), Wanted(f, Operand::kOutRequest, -1).row(0, order),
          counts};
}

All chunk_metadata_of(const ListFacts& f) {
  const ContextSteps c = chunk_metadata(f.q_len, f.kv_len, f.p.token_budget);
  Wanted starts(f, Operand::kOutStarts, Wanted::kAnything), lengths(f, Operand::kOutLen, 0);
  Wanted cu_kv(f, Operand::kOutCuKv, 0), request(f, Operand::kOutRequest, -1);
  List counts = {static_cast<int32_t>(c.steps.size()), c.tokens};
  for (size_t i = 0; i < c.steps.size(); ++i) {
    const ContextSteps::Step& s = c.steps[i];
    const auto step = static_cast<int64_t>(i);
    starts.row(step, s.starts);
    for (size_t r = 0; r < s.lengths.size() && step < starts.rows; ++r)
      if (s.lengths[r] == 0) starts.values[i * s.lengths.size() + r] = Wanted::kAnything;
    counts.push_back(*std::max_element(s.lengths.begin(), s.lengths.end()));
    lengths.row(step, s.lengths), cu_kv.row(step, s.cu_kv), request.row(step, s.request);
  }
  return {starts, lengths, cu_kv, request, Wanted(f, Operand::kOutCounts, 0).row(0, counts)};
}

All decode_metadata_of(const ListFacts& f) {
  const auto read = [](const assay_tensor& t, int64_t i, int64_t j = 0) {
    return static_cast<const int32_t*>(t.data)[i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0)];
  };
  List context, encoder;
  for (size_t r = 0; r < f.q_len.size(); ++r) {
    const auto request = static_cast<int64_t>(r);
    context.push_back(read(f.t.context_len, request));
    if (f.t.encoder_len.data != nullptr) encoder.push_back(read(f.t.encoder_len, request));
  }
  const auto entry = [&](size_t r, int64_t i) {
    const auto request = static_cast<int64_t>(r);
    return f.p.table == ASSAY_TABLE_CSR ? read(f.t.indices, read(f.t.indptr, request) + i)
                                        : read(f.t.block_table, request, i);
  };
  const DecodeMetadata d =
      decode_metadata(f.q_len, context, {entry, f.p.table == ASSAY_TABLE_TOKEN, encoder}, f.p.page_size);
  return {Wanted(f, Operand::kOutLen, 0).row(0, d.lengths), sums(f, Operand::kOutCuQ, d.cu_q),
          sums(f, Operand::kOutCuKv, d.cu_kv), tables(f, d.pages)};
}

All cascade_metadata_of(const ListFacts& f) {
  const CascadeMetadata c = cascade_metadata(f.kv_len, f.pages, f.p.page_size, f.p.prefix_tokens);
  const bool plain = f.p.alibi == ASSAY_ALIBI_NONE && f.p.window_left < 0 && f.p.chunk == 0;
  const bool pays = plain && cascade_pays(c.prefix, f.q_len, {f.p.heads_q, f.p.heads_kv, f.p.workers});
  List lengths = {c.prefix};
  lengths.insert(lengths.end(), c.suffix.begin(), c.suffix.end());
  return {Wanted(f, Operand::kOutLen, 0).row(0, lengths),
          Wanted(f, Operand::kOutCuQ, 0).row(0, {0, cumulative(f.q_len).back()}), tables(f, c.pages),
          Wanted(f, Operand::kOutIndices, -1).row(0, c.prefix_pages),
          Wanted(f, Operand::kOutCounts, pays ? 1 : 0)};
}

All window_metadata_of(const ListFacts& f) {
  const WindowKeys w = window_metadata(f.q_len, f.kv_len, f.p.window_left);
  return {Wanted(f, Operand::kOutLen, 0).row(0, w.lengths).row(1, f.q_len),
          Wanted(f, Operand::kOutStarts, 0).row(0, w.starts), sums(f, Operand::kOutCuKv, w.cu_kv),
          Wanted(f, Operand::kOutRequest, -1).row(0, w.request)};
}

All trees_of(const ListFacts& f, bool context) {
  const Pages rows =
      tree_tables(f.q_len, f.kv_len, f.pages, f.p.page_size, f.tree, context, f.p.flat_tree, f.p.drafted);
  List lengths;
  for (const List& row : rows) lengths.push_back(static_cast<int32_t>(row.size()));
  return {Wanted(f, Operand::kOutLen, 0).row(0, lengths),
          sums(f, Operand::kOutCuQ, cumulative(List(rows.size(), 1))),
          sums(f, Operand::kOutCuKv, cumulative(lengths)), tables(f, rows)};
}
All tree_tables_of(const ListFacts& f) { return trees_of(f, false); }
All swa_tree_table_of(const ListFacts& f) { return trees_of(f, true); }

#define ASSAY_METADATA_OPS(X) \
  X(expand_pages)             \
  X(dcp_lengths)              \
  X(local_batches)            \
  X(split_batch)              \
  X(chunk_metadata)           \
  X(decode_metadata)          \
  X(cascade_metadata)         \
  X(tree_tables)              \
  X(swa_tree_table)           \
  X(window_metadata)

class MetadataExpectation final : public ListExpectation {
 public:
  MetadataExpectation(const Inputs& inputs, All (*of)(const ListFacts&))
      : ListExpectation(inputs), all_(of(read_facts(inputs))) {}

 private:
  void check_lists(RunOutputs& out) override {
    for (const Wanted& wanted : all_) check_operand(out, wanted);
  }

  void check_operand(RunOutputs& out, const Wanted& wanted) {
    const assay_tensor& t = tensor_of(inputs_.tensors, wanted.operand);
    const bool table = t.rank > 1;
    for (int64_t i = 0; i < wanted.rows; ++i)
      for (int64_t j = 0; j < wanted.columns; ++j) {
        const int64_t at = table ? i * t.stride[0] + j * t.stride[1] : j * t.stride[0];
        const int64_t value = wanted.values[static_cast<size_t>(i * wanted.columns + j)];
        if (value == Wanted::kAnything) {
          out.allow(wanted.operand, at);
          continue;
        }
        const int64_t got = static_cast<int64_t>(out.value(wanted.operand, at));
        if (got != value && blameless())
          name_ = table ? fmt::format("entry (first {}[{}][{}]: {} for {})", operand_name(wanted.operand), i,
                                      j, got, value)
                        : fmt::format("entry (first {}[{}]: {} for {})", operand_name(wanted.operand), j, got,
                                      value);
        out.expect_bits(wanted.operand, at, static_cast<uint32_t>(value),
                        table ? entry_of_table(i, j) : entry_of_list(j));
      }
  }

  All all_;
};

}  // namespace

#define ASSAY_METADATA(NAME)                                                      \
  std::unique_ptr<Expectation> expectations::NAME(const Inputs& inputs, double) { \
    return std::make_unique<MetadataExpectation>(inputs, NAME##_of);              \
  }
ASSAY_METADATA_OPS(ASSAY_METADATA)
#undef ASSAY_METADATA

std::vector<Wanted> wanted_lists(const Inputs& inputs) {
#define ASSAY_WANTED(NAME) \
  if (op_of(inputs.problem).name == #NAME) return NAME##_of(read_facts(inputs));
  ASSAY_METADATA_OPS(ASSAY_WANTED)
#undef ASSAY_WANTED
  return {};
}

Wanted::Wanted(const ListFacts& f, Operand o, int64_t rest) : operand(o) {
  const assay_tensor& t = tensor_of(f.t, o);
  rows = t.rank > 1 ? t.shape[0] : 1, columns = t.shape[t.rank > 1 ? 1 : 0];
  values.assign(static_cast<size_t>(rows * columns), rest);
}

Wanted& Wanted::row(int64_t r, const List& list) {
  if (r >= rows) return *this;
  const auto count = std::min(static_cast<int64_t>(list.size()), columns);
  std::copy_n(list.begin(), count, values.begin() + r * columns);
  return *this;
}

}  // namespace assay
