// SPDX-License-Identifier: Apache-2.0
// A backend of metadata kernels that are wrong in one way each, among them what the seeds of the serving
// systems do (marked T in scenarios/SEED_COVERAGE.md), and one of every op that is right: what
// metadata_judge_test.cpp proves the judge with. A fault is the right op over operands it got wrong, or what
// it does to the result. To plant one: a row of kFaults (trees and schedules in files of their own) and its
// line in the test.
#include "harness/check/testing/metadata_faults.hpp"

#include <algorithm>
#include <vector>

#include "harness/check/testing/fault_library.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/common/metadata.hpp"

namespace {

using namespace assay_kernels;
using M = MetadataOperands;

int64_t keys_of_all(const M& m) {
  int64_t sum = 0;
  for (int64_t r = 0; r < m.requests; ++r) sum += m.kv_len.at(r);
  return sum;
}
int32_t longest(const M& m) {
  int32_t most = 0;
  for (int64_t r = 0; r < m.requests; ++r) most = std::max(most, m.kv_len.at(r));
  return most;
}

// Every slot of expand_pages by a rule of its own.
template <class Slot>
void each_slot(const M& m, const Slot& slot) {
  for (int64_t r = 0; r < m.requests; ++r)
    for (int32_t j = 0; j < m.kv_len.at(r); ++j) m.out_indices.at(m.out_cu_kv.at(r) + j) = slot(r, j);
}
template <class Page>
void each_page(const M& m, int64_t rows, const Page& page) {
  for (int64_t r = 0; r < rows; ++r)
    for (int32_t i = 0; i < metadata::pages_of(m, m.out_len.at(r)); ++i) m.out_table.at(r, i) = page(r, i);
}

using Entry = MetadataFault;
constexpr int32_t kExpand = ASSAY_OP_EXPAND_PAGES, kRanks = ASSAY_OP_DCP_LENGTHS,
                  kLocal = ASSAY_OP_LOCAL_BATCHES, kSplit = ASSAY_OP_SPLIT_BATCH,
                  kSteps = ASSAY_OP_CHUNK_METADATA, kDecode = ASSAY_OP_DECODE_METADATA,
                  kCascade = ASSAY_OP_CASCADE_METADATA, kWindow = ASSAY_OP_WINDOW_METADATA;

const Entry kFaults[] = {
    {"expand_right", kExpand, [](M m) { right(m); }},
    {"expand_stale_tail", kExpand,
     [](M m) {
       m.out_indices.columns = keys_of_all(m);
       right(m);
     }},
    {"expand_tail_zero", kExpand,
     [](M m) {
       right(m);
       for (int64_t i = keys_of_all(m); i < m.out_indices.columns; ++i) m.out_indices.at(i) = 0;
     }},
    {"expand_page_ids", kExpand,
     [](M m) {
       right(m);
       each_slot(m, [&](int64_t r, int32_t j) { return metadata::page_of(m, r, j / m.page_size); });
     }},
    {"expand_no_offset", kExpand,
     [](M m) {
       right(m);
       each_slot(
           m, [&](int64_t r, int32_t j) { return metadata::page_of(m, r, j / m.page_size) * m.page_size; });
     }},
    {"expand_first_table", kExpand,
     [](M m) {
       right(m);
       each_slot(
           m, [&](int64_t, int32_t j) { return metadata::slot_of(m, 0, std::min(j, m.kv_len.at(0) - 1)); });
     }},
    {"expand_short_starts", kExpand,  // the last start of a list one entry short
     [](M m) {
       const int32_t before = m.out_cu_kv.at(m.requests);
       right(m);
       m.out_cu_kv.at(m.requests) = before;
     }},
    {"expand_arange", kExpand,  // one key each
     [](M m) {
       right(m);
       for (int32_t r = 0; r <= m.requests; ++r) m.out_cu_kv.at(r) = r;
     }},
    {"ranks_right", kRanks, [](M m) { right(m); }},
    {"ranks_even", kRanks,
     [](M m) {
       for (int32_t rank = 0; rank < m.ranks; ++rank)
         for (int64_t r = 0; r < m.requests; ++r)
           m.out_len.at(rank, r) = (m.kv_len.at(r) + m.ranks - 1 - rank) / m.ranks;
     }},
    {"ranks_of_bound", kRanks,  // the bound that needs no synchronisation: ceil(m / (N I)) I
     [](M m) {
       const int32_t turn = m.ranks * m.interleave;
       for (int32_t rank = 0; rank < m.ranks; ++rank)
         for (int64_t r = 0; r < m.requests; ++r)
           m.out_len.at(rank, r) = (m.kv_len.at(r) + turn - 1) / turn * m.interleave;
     }},
    {"ranks_rest_unclamped", kRanks,
     [](M m) {
       for (int32_t rank = 0; rank < m.ranks; ++rank)
         for (int64_t r = 0; r < m.requests; ++r) {
           const int32_t whole = m.kv_len.at(r) / (m.ranks * m.interleave) * m.interleave;
           m.out_len.at(rank, r) =
               whole + std::max(0, m.kv_len.at(r) - whole * m.ranks - rank * m.interleave);
         }
     }},
    {"ranks_next", kRanks,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r)
         for (int32_t rank = 0; rank + 1 < m.ranks; ++rank)
           std::swap(m.out_len.at(rank, r), m.out_len.at(rank + 1, r));
     }},
    {"local_right", kLocal, [](M m) { right(m); }},
    {"local_chunk_cut", kLocal,  // T: cut to the longest request, then down to whole pages
     [](M m) {
       m.chunk = std::max(std::min(m.chunk, longest(m)) / m.page_size * m.page_size, m.page_size);
       right(m);
     }},
    {"local_starts_fall", kLocal,  // T: starts of 0 behind the live part
     [](M m) {
       right(m);
       for (int64_t i = m.out_counts.at(0) + 1; i < m.out_cu_q.columns; ++i) m.out_cu_q.at(i) = 0;
     }},
    {"local_per_token", kLocal,  // T: cut from the table of slots before it becomes pages
     [](M m) {
       right(m);
       for (int64_t b = 0; b < m.out_counts.at(0); ++b)
         for (int32_t i = 0; i < metadata::pages_of(m, m.out_len.at(b)); ++i)
           m.out_table.at(b, i) *= m.page_size;
     }},
    {"local_first_pages", kLocal,  // the pages of the request instead of those of the chunk
     [](M m) {
       right(m);
       each_page(m, m.out_counts.at(0),
                 [&](int64_t b, int32_t i) { return metadata::page_of(m, m.out_request.at(b), i); });
     }},
    {"local_whole_chunks", kLocal,  // the last chunk of a request is taken for whole
     [](M m) {
       right(m);
       for (int64_t b = 0; b < m.out_counts.at(0); ++b)
         if (m.out_len.at(b) > 0) m.out_len.at(b) = m.chunk;
     }},
    {"local_stale_lengths", kLocal,
     [](M m) {
       m.out_len.columns = 0;
       for (int64_t r = 0; r < m.requests; ++r)
         m.out_len.columns += metadata::cut_of(m, r).pieces + (metadata::cut_of(m, r).blind > 0 ? 1 : 0);
       right(m);
     }},
    {"split_right", kSplit, [](M m) { right(m); }},
    {"split_below_threshold", kSplit,
     [](M m) {
       --m.threshold;
       right(m);
     }},
    {"split_short_starts", kSplit,  // T: query_start_loc[:num_decodes]
     [](M m) {
       int64_t end = 0;
       for (int64_t r = 0; r < m.requests; ++r) end += rows_of(m, r) <= m.threshold ? 1 : 0;
       const int32_t before = m.out_cu_q.at(end);
       right(m);
       m.out_cu_q.at(end) = before;
     }},
    {"split_arange", kSplit,  // T: qo_indptr 0, 1, 2, ... although requests have more rows
     [](M m) {
       right(m);
       for (int32_t i = 0; i <= m.out_counts.at(0, 0); ++i) m.out_cu_q.at(i) = i;
     }},
    {"split_not_rebased", kSplit,
     [](M m) {
       right(m);
       const int32_t first = m.out_counts.at(0, 0) + 1, count = m.out_counts.at(1, 0) + 1;
       for (int32_t i = first; i < first + count; ++i) m.out_cu_q.at(i) += m.out_counts.at(0, 1);
     }},
    {"split_unstable", kSplit,
     [](M m) {
       right(m);
       const int32_t count = m.out_counts.at(0, 0);
       for (int32_t i = 0; i < count / 2; ++i)
         std::swap(m.out_request.at(i), m.out_request.at(count - 1 - i));
     }},
    {"split_all_extend", kSplit,  // keys are taken for context
     [](M m) {
       right(m);
       m.out_counts.at(1, 0) += m.out_counts.at(2, 0);
       m.out_counts.at(2, 0) = 0;
     }},
    {"split_longest_key_is_query", kSplit,  // T: max_seqlen_k = longest query
     [](M m) {
       right(m);
       for (int32_t g = 0; g < 3; ++g) m.out_counts.at(g, 4) = m.out_counts.at(g, 2);
     }},
    {"split_keys_not_rebased", kSplit,
     [](M m) {
       right(m);
       const int32_t first = m.out_counts.at(0, 0) + 1, count = m.out_counts.at(1, 0) + 1;
       for (int32_t i = first; i < first + count; ++i) m.out_cu_kv.at(i) += m.out_cu_kv.at(first - 1);
     }},
    {"steps_right", kSteps, [](M m) { right(m); }},
    {"steps_of_requests", kSteps,  // the budget shared by requests without context too
     [](M m) {
       int32_t extends = 0;
       for (int64_t r = 0; r < m.requests; ++r) extends += metadata::context_of(m, r) > 0 ? 1 : 0;
       m.token_budget = m.token_budget * extends / m.requests;
       right(m);
     }},
    {"steps_of_no_tokens", kSteps,  // T: more extends than the budget has tokens, 0 for each
     [](M m) {
       right(m);
       int32_t extends = 0;
       for (int64_t r = 0; r < m.requests; ++r) extends += metadata::context_of(m, r) > 0 ? 1 : 0;
       if (m.token_budget >= extends) return;
       m.out_counts.at(1) = 0;
       for (int64_t i = 0; i < m.out_len.rows; ++i)
         for (int64_t r = 0; r < m.requests; ++r) m.out_len.at(i, r) = 0, m.out_cu_kv.at(i, r + 1) = 0;
     }},
    {"steps_not_clamped", kSteps,  // lengths below 0 where a context has ended
     [](M m) {
       right(m);
       for (int64_t i = 0; i < m.out_len.rows; ++i)
         for (int64_t r = 0; r < m.requests; ++r)
           m.out_len.at(i, r) = std::min<int32_t>(
               m.out_counts.at(1), metadata::context_of(m, r) - static_cast<int32_t>(i) * m.out_counts.at(1));
     }},
    {"steps_from_zero", kSteps,
     [](M m) {
       right(m);
       for (int64_t i = 0; i < m.out_len.rows; ++i)
         for (int64_t r = 0; r < m.requests; ++r) m.out_starts.at(i, r) = 0;
     }},
    {"steps_skip_empty", kSteps,  // token_to_batch counts requests that have tokens
     [](M m) {
       right(m);
       for (int64_t i = 0; i < m.out_len.rows; ++i) {
         int32_t full = 0;
         for (int64_t r = 0; r < m.requests; ++r) {
           for (int32_t at = m.out_cu_kv.at(i, r); at < m.out_cu_kv.at(i, r + 1); ++at)
             m.out_request.at(i, at) = full;
           full += m.out_len.at(i, r) > 0 ? 1 : 0;
         }
       }
     }},
    {"steps_stale_tail", kSteps,
     [](M m) {
       M narrow = m;
       narrow.out_request.columns = 0;
       right(narrow);
       for (int64_t i = 0; i < m.out_len.rows; ++i)
         for (int32_t r = 0; r < m.requests; ++r)
           for (int32_t at = m.out_cu_kv.at(i, r); at < m.out_cu_kv.at(i, r + 1); ++at)
             m.out_request.at(i, at) = r;
     }},
    {"steps_longest_of_first", kSteps,  // every step is taken for as long as the first
     [](M m) {
       right(m);
       for (int32_t i = 0; i < m.out_counts.at(0); ++i) m.out_counts.at(2 + i) = m.out_counts.at(1);
     }},
    {"decode_right", kDecode, [](M m) { right(m); }},
    {"decode_from_encoder", kDecode,  // tables that begin with the encoder's tokens
     [](M m) {
       m.encoder_len = {};
       right(m);
     }},
    {"decode_encoder_in_pages", kDecode,  // its tokens taken for as many pages less
     [](M m) {
       std::vector<int32_t> pages;
       for (int64_t r = 0; r < m.requests; ++r) pages.push_back(m.encoder_len.at(r) / m.page_size);
       if (!pages.empty()) m.encoder_len.data = pages.data(), m.encoder_len.column = 1;
       right(m);
     }},
    {"local_own_pool", kLocal,  // entries of the full pool taken for the cache's
     [](M m) {
       m.slot_map = {};
       right(m);
     }},
    {"decode_length_of_context", kDecode,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r) m.out_len.at(r) = m.context_len.at(r);
     }},
    {"decode_one_row", kDecode,  // every request has one new token, padding too
     [](M m) {
       right(m);
       int32_t sum = 0;
       for (int64_t r = 0; r < m.requests; ++r) {
         m.out_len.at(r) = m.context_len.at(r) + 1;
         m.out_cu_kv.at(r) = sum;
         m.out_cu_kv.at(r + 1) = sum += m.out_len.at(r);
       }
     }},
    {"decode_per_token", kDecode,  // T: left per token at page > 1
     [](M m) {
       right(m);
       each_page(m, m.requests, [&](int64_t r, int32_t i) { return metadata::slot_of(m, r, i); });
     }},
    {"decode_not_divided", kDecode,  // strided, but still slots
     [](M m) {
       right(m);
       each_page(m, m.requests,
                 [&](int64_t r, int32_t i) { return metadata::slot_of(m, r, int64_t{i} * m.page_size); });
     }},
    {"decode_last_page_forgotten", kDecode,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r)
         if (m.out_len.at(r) % m.page_size != 0) m.out_table.at(r, m.out_len.at(r) / m.page_size) = -1;
     }},
    {"decode_stale_starts", kDecode,  // tails of starts that nobody fills
     [](M m) {
       right(m);
       for (int64_t i = m.requests + 1; i < m.out_cu_q.columns; ++i) m.out_cu_q.at(i) = 0;
     }},
    {"cascade_right", kCascade, [](M m) { right(m); }},
    {"cascade_suffix_whole", kCascade,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r) m.out_len.at(r + 1) = m.kv_len.at(r);
     }},
    {"cascade_first_column", kCascade,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r)
         for (int32_t i = 0; i < metadata::pages_of(m, m.out_len.at(r + 1)); ++i)
           m.out_table.at(r, i) = metadata::page_of(m, r, i);
     }},
    {"cascade_cut_pages", kCascade,  // a prefix that ends inside a page
     [](M m) {
       right(m);
       m.out_len.at(0) = m.prefix_tokens;
     }},
    {"cascade_rows_of_one", kCascade,  // the prefix as rows of the first request
     [](M m) {
       right(m);
       m.out_cu_q.at(1) = rows_of(m, 0);
     }},
    {"cascade_below_zero", kCascade,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r) m.out_len.at(r + 1) = m.kv_len.at(r) - m.out_len.at(0);
     }},
    {"cascade_always", kCascade,
     [](M m) {
       right(m);
       m.out_counts.at(0) = 1;
     }},
    {"cascade_with_bias", kCascade,  // pays where it is not even right
     [](M m) {
       m.plain = true;
       right(m);
     }},
    {"window_right", kWindow, [](M m) { right(m); }},
    {"window_one_short", kWindow,  // the window without the row itself
     [](M m) {
       --m.window_left;
       right(m);
     }},
    {"window_of_context", kWindow,  // new keys forgotten
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r) m.out_len.at(0, r) -= rows_of(m, r);
     }},
    {"window_from_zero", kWindow,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r) m.out_starts.at(r) = 0;
     }},
    {"window_unclamped", kWindow,
     [](M m) {
       right(m);
       for (int64_t r = 0; r < m.requests; ++r)
         if (rows_of(m, r) > 0) m.out_starts.at(r) = m.kv_len.at(r) - rows_of(m, r) - m.window_left - 1;
     }},
    {"window_stale_tail", kWindow,
     [](M m) {
       m.out_request.columns = m.out_cu_kv.columns;
       right(m);
     }},
};
int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char*, size_t) {
  return p->op == self->op ? ASSAY_OK : ASSAY_UNSUPPORTED;
}
int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  return fill_struct(out, assay_arithmetic{}), ASSAY_OK;
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  M m;
  if (!make_metadata_operands(p, t, &m, error, size)) return ASSAY_INVALID_ARGUMENT;
  static_cast<const Entry*>(self->context)->run(m);
  return ASSAY_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  static const assay_backend* const backend = [] {
    std::vector<Entry> all(std::begin(kFaults), std::end(kFaults));
    for (const auto& more : {tree_faults(), schedule_faults()})
      all.insert(all.end(), more.begin(), more.end());
    return fault_library::backend_of(
        std::move(all), "metadata_faults", [](assay_kernel& k, const Entry& entry) {
          k.op = entry.op, k.supports = supports, k.arithmetic = arithmetic, k.run = run;
        });
  }();
  return version == ASSAY_ABI_VERSION ? backend : nullptr;
}
