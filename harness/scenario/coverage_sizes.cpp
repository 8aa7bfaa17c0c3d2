// SPDX-License-Identifier: Apache-2.0
// Sizes that code may be made for up to some number, see coverage.hpp.
#include <algorithm>
#include <set>

#include "harness/ops/op.hpp"
#include "harness/scenario/coverage_tables.hpp"

namespace assay {
namespace {

int64_t bytes_of_k(const Problem& p) {
  const TensorLayout k = operand_layout(p, Operand::kK);
  return k.allocation * format_bytes(k.format);
}

// What changes a row's sum, beside how long its request is.
bool capped(const Scenario& s) { return s.softcap > 0; }
bool sunk(const Scenario& s) { return s.sinks; }
bool biased(const Scenario& s) { return s.alibi != ASSAY_ALIBI_NONE; }
bool chunked(const Scenario& s) { return s.chunk > 0; }
bool placed(const Scenario& s) { return s.first_key != kNoPositions; }
bool drafted(const Scenario& s) { return s.mask == ASSAY_MASK_TREE; }
bool unmasked(const Scenario& s) { return s.mask == ASSAY_MASK_FULL || s.mask == ASSAY_MASK_CROSS; }
bool hybrid(const Scenario& s) { return s.swa_index; }
bool spread_out(const Scenario& s) { return s.strided.kv; }
bool spread_rows(const Scenario& s) { return s.strided.out; }
bool coded(const Scenario& s) { return s.k.scale != ASSAY_SCALE_NONE; }
bool latent(const Scenario& s) { return s.layout == ASSAY_LAYOUT_MLA && op_of(s.op).has_cache; }

template <bool (*has)(const Scenario&)>
int64_t keys_with(const Scenario& s, const Problem& p) {
  return has(s) ? longest(p, &Request::kv_len) : -1;
}
template <bool (*has)(const Scenario&)>
int64_t rows_with(const Scenario& s, const Problem& p) {
  return has(s) ? longest(p, &Request::q_len) : -1;
}

}  // namespace

std::vector<CoverBoundary> size_boundaries() {
  return {
      {"keys, soft cap", {4096}, keys_with<capped>},
      {"keys, sinks", {4096}, keys_with<sunk>},
      {"keys, position bias", {4096, 32768}, keys_with<biased>},
      {"keys, window", {4096, 8192, 32768}, keys_with<windowed>},
      {"keys, chunks", {4096, 8192}, keys_with<chunked>},
      {"keys, first key given", {4096}, keys_with<placed>},
      {"keys, draft tree", {4096}, keys_with<drafted>},
      {"keys, full or cross mask", {4096}, keys_with<unmasked>},
      {"keys, hybrid cache", {4096}, keys_with<hybrid>},
      {"keys, strided cache", {4096}, keys_with<spread_out>},
      {"keys, quantised K", {4096, 32768}, keys_with<coded>},
      {"keys, latent cache", {8192, 32768}, keys_with<latent>},
      {"rows, window", {512}, rows_with<windowed>},
      {"rows, chunks", {512}, rows_with<chunked>},
      {"rows, soft cap", {512}, rows_with<capped>},
      {"rows, sinks", {512}, rows_with<sunk>},
      {"rows, draft tree", {64, 128}, rows_with<drafted>},
      {"rows, full or cross mask", {128}, rows_with<unmasked>},
      {"rows, strided O", {512}, rows_with<spread_rows>},
      {"rows, latent cache", {64}, rows_with<latent>},
      {"query heads, sinks or position bias",
       {64, 128},
       [](const Scenario& s, const Problem&) { return sunk(s) || biased(s) ? int64_t{s.heads_q} : -1; }},
      {"KV heads with scales of their own",
       {8, 16},
       [](const Scenario& s, const Problem&) {
         return s.k.scale == ASSAY_SCALE_HEAD ? int64_t{s.heads_kv} : -1;
       }},
      {"requests with scales of their own",
       {64, 256},
       [](const Scenario& s, const Problem& p) {
         return s.k.scale == ASSAY_SCALE_REQUEST_HEAD ? static_cast<int64_t>(p.requests.size()) : -1;
       }},
      {"requests, an empty one among them",
       {256},
       [](const Scenario&, const Problem& p) {
         const bool empty = std::any_of(p.requests.begin(), p.requests.end(),
                                        [](const Request& r) { return r.q_len == 0 || r.kv_len == 0; });
         return empty ? static_cast<int64_t>(p.requests.size()) : -1;
       }},
      {"tokens of a page, an odd number",
       {1},
       [](const Scenario& s, const Problem&) {
         return op_of(s.op).has_cache && s.page_size % 2 != 0 ? int64_t{s.page_size} : -1;
       }},
      {"rows of a request, causal",
       {64, 128, 512, 1024},
       [](const Scenario& s, const Problem& p) {
         return s.mask == ASSAY_MASK_CAUSAL ? longest(p, &Request::q_len) : -1;
       }},
      {"keys of a request",
       {512, 4096, 32768, 65536, 131072},
       [](const Scenario&, const Problem& p) { return longest(p, &Request::kv_len); }},
      {"requests",
       {64, 256, 1024, 2048, 65535},
       [](const Scenario&, const Problem& p) { return static_cast<int64_t>(p.requests.size()); }},
      {"requests of different lengths, with more than 64 keys",
       {16, 64, 128},
       [](const Scenario&, const Problem& p) {
         std::set<int32_t> lengths;
         int64_t many = 0;
         for (const Request& r : p.requests) lengths.insert(r.kv_len), many += r.kv_len > 64;
         return lengths.size() > 1 ? many : -1;
       }},
      {"rows of a batch",
       {512, 2048, 4096, 32768, 65536},
       [](const Scenario&, const Problem& p) { return static_cast<int64_t>(p.total_q()); }},
      {"query heads", {32, 64, 128}, [](const Scenario& s, const Problem&) { return int64_t{s.heads_q}; }},
      {"KV heads", {8, 32, 128}, [](const Scenario& s, const Problem&) { return int64_t{s.heads_kv}; }},
      {"heads per KV head",
       {8, 16, 64, 128},
       [](const Scenario& s, const Problem&) { return int64_t{s.heads_q / s.heads_kv}; }},
      {"dimensions of K",
       {64, 128, 256, 512},
       [](const Scenario& s, const Problem&) { return int64_t{s.head_dim_qk}; }},
      {"dimensions of V with channel scales",
       {64, 128, 192},
       [](const Scenario& s, const Problem&) {
         return s.v.scale == ASSAY_SCALE_CHANNEL ? int64_t{s.head_dim_v} : -1;
       }},
      {"tokens of a page",
       {64, 128, 256, 528},
       [](const Scenario& s, const Problem&) { return op_of(s.op).has_cache ? int64_t{s.page_size} : -1; }},
      {"pages of a request",
       {64, 256, 2048, 4096},
       [](const Scenario& s, const Problem& p) {
         return op_of(s.op).has_cache ? (longest(p, &Request::kv_len) + s.page_size - 1) / s.page_size : -1;
       }},
      {"heads with a slope that is no power of two",
       {0},
       [](const Scenario& s, const Problem&) {
         return s.alibi != ASSAY_ALIBI_NONE ? std::max<int64_t>(int64_t{s.heads_q} - 8, 0) : -1;
       }},
      {"keys of a right window under a causal mask",
       {0},
       [](const Scenario& s, const Problem&) {
         return s.mask == ASSAY_MASK_CAUSAL ? int64_t{s.window_right} : -1;
       }},
      {"bytes of K",
       {int64_t{1} << 16, int64_t{1} << 24, int64_t{1} << 31, int64_t{1} << 32},
       [](const Scenario&, const Problem& p) { return bytes_of_k(p); }},
      {"elements of K",
       {int64_t{1} << 31, int64_t{1} << 32},
       [](const Scenario&, const Problem& p) { return operand_layout(p, Operand::kK).allocation; }},
  };
}

}  // namespace assay
