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

// One operand: row after row, what each element must be.
struct Wanted {
  static constexpr int64_t kAnything = int64_t{1} << 40;
  Operand operand;
  int64_t rows, columns;
  std::vector<int64_t> values;

  // Everything is `rest` until it is said what it is.
  Wanted(const Problem& p, Operand o, int64_t rest) : operand(o) {
    const TensorLayout t = operand_layout(p, o);
    rows = t.rank > 1 ? t.shape[0] : 1, columns = t.shape[t.rank > 1 ? 1 : 0];
    values.assign(static_cast<size_t>(rows * columns), rest);
  }
  Wanted& row(int64_t r, const List& list) {
    std::copy(list.begin(), list.end(), values.begin() + r * columns);
    return *this;
  }
};
using All = std::vector<Wanted>;

// Cumulative lists end in their last value.
Wanted sums(const Problem& p, Operand operand, const List& list) {
  return Wanted(p, operand, list.back()).row(0, list);
}
Wanted tables(const Problem& p, const Pages& rows) {
  Wanted out(p, Operand::kOutTable, Wanted::kAnything);
  for (size_t r = 0; r < rows.size(); ++r) out.row(static_cast<int64_t>(r), rows[r]);
  return out;
}

All expand_pages_of(const ListFacts& f) {
  const ExpandedPages e = expand_pages(f.kv_len, f.pages, f.p.page_size);
  return {sums(f.p, Operand::kOutCuKv, e.cu_kv), Wanted(f.p, Operand::kOutIndices, -1).row(0, e.indices)};
}

All dcp_lengths_of(const ListFacts& f) {
  Wanted out(f.p, Operand::kOutLen, 0);
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
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, b.k_lens),
          sums(f.p, Operand::kOutCuQ, b.cu_q),
          sums(f.p, Operand::kOutCuKv, cumulative(b.k_lens)),
          tables(f.p, live),
          Wanted(f.p, Operand::kOutRequest, -1).row(0, b.request),
          Wanted(f.p, Operand::kOutCounts, static_cast<int64_t>(b.q_lens.size()))};
}

All split_batch_of(const ListFacts& f) {
  List lengths, starts, keys, order;
  Wanted counts(f.p, Operand::kOutCounts, 0);
  int64_t group = 0;
  for (const BatchGroup3& g : split_batch(f.q_len, f.kv_len, f.p.threshold)) {
    for (const int32_t r : g.requests) lengths.push_back(f.kv_len[static_cast<size_t>(r)]);
    order.insert(order.end(), g.requests.begin(), g.requests.end());
    starts.insert(starts.end(), g.cu_q.begin(), g.cu_q.end());
    keys.insert(keys.end(), g.cu_kv.begin(), g.cu_kv.end());
    counts.row(group++,
               {static_cast<int32_t>(g.requests.size()), g.rows, g.largest_q, g.smallest_q, g.largest_kv});
  }
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, lengths), Wanted(f.p, Operand::kOutCuQ, 0).row(0, starts),
          Wanted(f.p, Operand::kOutCuKv, 0).row(0, keys), Wanted(f.p, Operand::kOutRequest, -1).row(0, order),
          counts};
}

All chunk_metadata_of(const ListFacts& f) {
  const ContextSteps c = chunk_metadata(f.q_len, f.kv_len, f.p.token_budget);
  Wanted starts(f.p, Operand::kOutStarts, Wanted::kAnything), lengths(f.p, Operand::kOutLen, 0);
  Wanted cu_kv(f.p, Operand::kOutCuKv, 0), request(f.p, Operand::kOutRequest, -1);
  List counts = {static_cast<int32_t>(c.steps.size()), c.tokens};
  for (size_t i = 0; i < c.steps.size(); ++i) {
    const ContextSteps::Step& s = c.steps[i];
    const auto step = static_cast<int64_t>(i);
    starts.row(step, s.starts);
    for (size_t r = 0; r < s.lengths.size(); ++r)
      if (s.lengths[r] == 0) starts.values[i * s.lengths.size() + r] = Wanted::kAnything;
    counts.push_back(*std::max_element(s.lengths.begin(), s.lengths.end()));
    lengths.row(step, s.lengths), cu_kv.row(step, s.cu_kv), request.row(step, s.request);
  }
  return {starts, lengths, cu_kv, request, Wanted(f.p, Operand::kOutCounts, 0).row(0, counts)};
}

All decode_metadata_of(const ListFacts& f) {
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, f.kv_len), sums(f.p, Operand::kOutCuQ, cumulative(f.q_len)),
          sums(f.p, Operand::kOutCuKv, cumulative(f.kv_len)), tables(f.p, f.pages)};
}

All cascade_metadata_of(const ListFacts& f) {
  const CascadeMetadata c = cascade_metadata(f.kv_len, f.pages, f.p.page_size, f.p.prefix_tokens);
  const bool plain = f.p.alibi == ASSAY_ALIBI_NONE && f.p.window_left < 0 && f.p.chunk == 0;
  const bool pays = plain && cascade_pays(c.prefix, f.q_len, {f.p.heads_q, f.p.heads_kv, f.p.workers});
  List lengths = {c.prefix};
  lengths.insert(lengths.end(), c.suffix.begin(), c.suffix.end());
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, lengths),
          Wanted(f.p, Operand::kOutCuQ, 0).row(0, {0, cumulative(f.q_len).back()}), tables(f.p, c.pages),
          Wanted(f.p, Operand::kOutIndices, -1).row(0, c.prefix_pages),
          Wanted(f.p, Operand::kOutCounts, pays ? 1 : 0)};
}

All window_metadata_of(const ListFacts& f) {
  const WindowKeys w = window_metadata(f.q_len, f.kv_len, f.p.window_left);
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, w.lengths).row(1, f.q_len),
          Wanted(f.p, Operand::kOutStarts, 0).row(0, w.starts), sums(f.p, Operand::kOutCuKv, w.cu_kv),
          Wanted(f.p, Operand::kOutRequest, -1).row(0, w.request)};
}

All trees_of(const ListFacts& f, bool context) {
  const Pages rows =
      tree_tables(f.q_len, f.kv_len, f.pages, f.p.page_size, f.tree, context, f.p.flat_tree, f.p.drafted);
  List lengths;
  for (const List& row : rows) lengths.push_back(static_cast<int32_t>(row.size()));
  return {Wanted(f.p, Operand::kOutLen, 0).row(0, lengths),
          sums(f.p, Operand::kOutCuQ, cumulative(List(rows.size(), 1))),
          sums(f.p, Operand::kOutCuKv, cumulative(lengths)), tables(f.p, rows)};
}
All tree_tables_of(const ListFacts& f) { return trees_of(f, false); }
All swa_tree_table_of(const ListFacts& f) { return trees_of(f, true); }

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
ASSAY_METADATA(expand_pages)
ASSAY_METADATA(dcp_lengths)
ASSAY_METADATA(local_batches)
ASSAY_METADATA(split_batch)
ASSAY_METADATA(chunk_metadata)
ASSAY_METADATA(decode_metadata)
ASSAY_METADATA(cascade_metadata)
ASSAY_METADATA(tree_tables)
ASSAY_METADATA(swa_tree_table)
ASSAY_METADATA(window_metadata)
#undef ASSAY_METADATA

}  // namespace assay
