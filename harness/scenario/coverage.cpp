// SPDX-License-Identifier: Apache-2.0
// See coverage.hpp. A combination can be when the language takes a line with the words of all its values; a
// value that other values decide (a scale needs its format) brings them in its words.
#include "harness/scenario/coverage.hpp"

#include <algorithm>
#include <set>

#include "harness/problem/names.hpp"

namespace assay {
namespace {

bool windowed(const Scenario& s) { return s.window_left >= 0; }
bool windowed_right(const Scenario& s) { return s.window_right >= 0; }

constexpr CoverValue kValues[] = {
    {"mask", "causal", "mask=causal", [](const Scenario& s) { return s.mask == ASSAY_MASK_CAUSAL; }},
    {"mask", "full", "mask=full", [](const Scenario& s) { return s.mask == ASSAY_MASK_FULL; }},
    {"mask", "cross", "mask=cross", [](const Scenario& s) { return s.mask == ASSAY_MASK_CROSS; }},
    {"mask", "tree", "mask=tree", [](const Scenario& s) { return s.mask == ASSAY_MASK_TREE; }},
    {"window", "none", "", [](const Scenario& s) { return !windowed(s) && !windowed_right(s); }},
    {"window", "left", "window=7", [](const Scenario& s) { return windowed(s) && !windowed_right(s); }},
    {"window", "right", "window=-1/3", [](const Scenario& s) { return !windowed(s) && windowed_right(s); }},
    {"window", "both", "window=7/3", [](const Scenario& s) { return windowed(s) && windowed_right(s); }},
    {"chunk", "off", "", [](const Scenario& s) { return s.chunk == 0; }},
    {"chunk", "on", "chunk=16", [](const Scenario& s) { return s.chunk > 0; }},
    {"cap", "off", "", [](const Scenario& s) { return s.softcap == 0; }},
    {"cap", "on", "cap=30", [](const Scenario& s) { return s.softcap > 0; }},
    {"alibi", "none", "", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_NONE; }},
    {"alibi", "linear", "alibi=linear", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_LINEAR; }},
    {"alibi", "sqrt", "alibi=sqrt", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_SQRT; }},
    {"sinks", "off", "", [](const Scenario& s) { return !s.sinks; }},
    {"sinks", "on", "sinks=on", [](const Scenario& s) { return s.sinks; }},
    {"first", "none", "", [](const Scenario& s) { return s.first_key == kNoPositions; }},
    {"first", "given", "first=drawn", [](const Scenario& s) { return s.first_key != kNoPositions; }},
    {"q", "bf16", "q=bf16", [](const Scenario& s) { return s.q.format == ASSAY_BF16; }},
    {"q", "fp16", "q=fp16", [](const Scenario& s) { return s.q.format == ASSAY_FP16; }},
    {"q", "fp32", "q=fp32", [](const Scenario& s) { return s.q.format == ASSAY_FP32; }},
    {"q", "fp8", "q=fp8_e4m3",
     [](const Scenario& s) { return s.q.format == ASSAY_FP8_E4M3 || s.q.format == ASSAY_FP8_E4M3FNUZ; }},
    {"q", "int8", "q=int8:token_head", [](const Scenario& s) { return s.q.format == ASSAY_INT8; }},
    {"k", "as q", "", [](const Scenario& s) { return s.k.format == s.q.format; }},
    {"k", "fp8_e4m3", "kv=fp8_e4m3", [](const Scenario& s) { return s.k.format == ASSAY_FP8_E4M3; }},
    {"k", "fp8_e5m2", "kv=fp8_e5m2", [](const Scenario& s) { return s.k.format == ASSAY_FP8_E5M2; }},
    {"k", "fp8_e4m3fnuz", "kv=fp8_e4m3fnuz",
     [](const Scenario& s) { return s.k.format == ASSAY_FP8_E4M3FNUZ; }},
    {"k", "int8", "kv=int8", [](const Scenario& s) { return s.k.format == ASSAY_INT8; }},
    {"k scale", "head", "kv=fp8_e4m3:head", [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_HEAD; }},
    {"k scale", "request_head", "kv=fp8_e4m3:request_head",
     [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_REQUEST_HEAD; }},
    {"k scale", "token_head", "kv=int8:token_head",
     [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_TOKEN_HEAD; }},
    {"v scale", "channel", "kv=int8:token_head/int8:channel",
     [](const Scenario& s) { return s.v.scale == ASSAY_SCALE_CHANNEL; }},
    {"out", "16 bits", "", [](const Scenario& s) { return s.o_format != ASSAY_FP32; }},
    {"out", "fp32", "out=fp32", [](const Scenario& s) { return s.o_format == ASSAY_FP32; }},
    {"d", "to 64", "d=64", [](const Scenario& s) { return s.head_dim_qk <= 64 && s.head_dim_qk % 16 == 0; }},
    {"d", "no multiple of 16", "d=40", [](const Scenario& s) { return s.head_dim_qk % 16 != 0; }},
    {"d", "65 to 128", "d=128",
     [](const Scenario& s) { return s.head_dim_qk > 64 && s.head_dim_qk <= 128 && s.head_dim_qk % 16 == 0; }},
    {"d", "beyond 128", "d=256", [](const Scenario& s) { return s.head_dim_qk > 128; }},
    {"group", "1", "h=2", [](const Scenario& s) { return s.heads_q == s.heads_kv; }},
    {"group", "2 to 8", "h=4/2",
     [](const Scenario& s) { return s.heads_q > s.heads_kv && s.heads_q <= 8 * s.heads_kv; }},
    {"group", "beyond 8", "h=16/1", [](const Scenario& s) { return s.heads_q > 8 * s.heads_kv; }},
    {"strides", "q", "strides=q", [](const Scenario& s) { return s.strided.q; }},
    {"strides", "kv", "strides=kv", [](const Scenario& s) { return s.strided.kv; }},
    {"strides", "out", "strides=out", [](const Scenario& s) { return s.strided.out; }},
    {"strides", "last", "strides=last", [](const Scenario& s) { return s.strided.last; }},
    {"page", "1", "page=1", [](const Scenario& s) { return s.page_size == 1; }},
    {"page", "2 to 16", "page=16", [](const Scenario& s) { return s.page_size > 1 && s.page_size <= 16; }},
    {"page", "17 to 128", "page=64",
     [](const Scenario& s) { return s.page_size > 16 && s.page_size <= 128; }},
    {"page", "beyond 128", "page=256", [](const Scenario& s) { return s.page_size > 128; }},
    {"layout", "nhd", "layout=nhd", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_NHD; }},
    {"layout", "hnd", "layout=hnd", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_HND; }},
    {"layout", "x", "layout=x", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_X; }},
    {"layout", "shuffled", "layout=shuffled",
     [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_SHUFFLED; }},
    {"layout", "mla", "layout=mla h=4/1 d=576/512",
     [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_MLA; }},
    {"table", "block", "table=block", [](const Scenario& s) { return s.table == ASSAY_TABLE_BLOCK; }},
    {"table", "csr", "table=csr", [](const Scenario& s) { return s.table == ASSAY_TABLE_CSR; }},
    {"table", "token", "table=token", [](const Scenario& s) { return s.table == ASSAY_TABLE_TOKEN; }},
    {"slots", "drawn", "table=token slots=drawn", [](const Scenario& s) { return s.drawn_slots; }},
    {"storage", "split", "", [](const Scenario& s) { return s.storage == Storage::kSplit; }},
    {"storage", "stacked", "storage=stacked",
     [](const Scenario& s) { return s.storage == Storage::kStacked; }},
    {"storage", "interleaved", "storage=interleaved",
     [](const Scenario& s) { return s.storage == Storage::kInterleaved; }},
};

bool cached(std::string_view field) {
  return field == "page" || field == "layout" || field == "table" || field == "storage" || field == "slots";
}

int64_t longest(const Problem& p, int32_t Request::*length) {
  int64_t most = 0;
  for (const Request& r : p.requests) most = std::max<int64_t>(most, r.*length);
  return most;
}
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

const std::vector<CoverBoundary>& boundaries() {
  static const std::vector<CoverBoundary> all = {
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
  return all;
}

// Whether the language takes all of them in one line of the op.
bool possible(std::string_view op, std::initializer_list<int> values) {
  std::string line(op);
  std::set<std::string_view> said;
  const auto add = [&](std::string_view words) {
    while (!words.empty()) {
      const size_t end = std::min(words.find(' '), words.size());
      const std::string_view word = words.substr(0, end);
      words.remove_prefix(std::min(end + 1, words.size()));
      if (!said.insert(word.substr(0, word.find('='))).second) return false;
      line += fmt::format(" {}", word);
    }
    return true;
  };
  for (const int v : values)
    if (!add(kValues[v].words)) return false;
  for (const char* plain : {"h=4/2", "d=64"})
    if (!said.contains(std::string_view(plain).substr(0, 1))) line += fmt::format(" {}", plain);
  try {
    const Scenario s = parse_scenario(line + " batch=2q3s20");
    return std::all_of(values.begin(), values.end(), [&](int v) { return kValues[v].in(s); });
  } catch (const InputError&) {
    return false;
  }
}

std::string name_of_value(int v) { return fmt::format("{}={}", kValues[v].field, kValues[v].value); }

}  // namespace

std::span<const CoverValue> cover_values() { return kValues; }

Coverage::Coverage() {
  for (const Op* op : all_ops())
    if (op->whole_context) ops_.push_back({op->id, {}, 0});
  for (const CoverBoundary& b : boundaries()) beyond_.emplace_back(b.limits.size(), 0);
}

void Coverage::add(const Scenario& s) {
  for (OfOp& of : ops_) {
    if (of.op != s.op) continue;
    ++of.count;
    std::vector<uint16_t> values;
    for (size_t v = 0; v < std::size(kValues); ++v)
      if (kValues[v].in(s) && (op_of(s.op).has_cache || !cached(kValues[v].field)))
        values.push_back(static_cast<uint16_t>(v));
    of.cases.push_back(std::move(values));
    const Problem p = make_problem(s);
    for (size_t b = 0; b < boundaries().size(); ++b) {
      const int64_t size = boundaries()[b].of(s, p);
      for (size_t l = 0; l < boundaries()[b].limits.size(); ++l)
        beyond_[b][l] += size > boundaries()[b].limits[l] ? 1 : 0;
    }
  }
}

CoverageReport Coverage::report() const {
  CoverageReport report;
  constexpr int n = static_cast<int>(std::size(kValues));
  for (const OfOp& of : ops_) {
    CoverageOfOp& out = report.ops.emplace_back();
    out.op = std::string(op_of(of.op).name);
    out.cases = of.count;
    std::set<std::vector<uint16_t>> distinct(of.cases.begin(), of.cases.end());
    std::vector<char> one(n, 0), two(n * n, 0), three(static_cast<size_t>(n) * n * n, 0);
    for (const std::vector<uint16_t>& values : distinct)
      for (size_t i = 0; i < values.size(); ++i) {
        one[values[i]] = 1;
        for (size_t j = i + 1; j < values.size(); ++j) {
          two[values[i] * n + values[j]] = 1;
          for (size_t k = j + 1; k < values.size(); ++k)
            three[(static_cast<size_t>(values[i]) * n + values[j]) * n + values[k]] = 1;
        }
      }
    const auto apart = [](int a, int b) { return kValues[a].field != kValues[b].field; };
    std::vector<char> alone(n, 0), together(n * n, 0);
    for (int a = 0; a < n; ++a) {
      if (!op_of(of.op).has_cache && cached(kValues[a].field)) continue;
      alone[a] = possible(out.op, {a});
      if (alone[a] && !one[a]) out.values_missed.push_back(name_of_value(a));
    }
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) {
        if (!alone[a] || !alone[b] || !apart(a, b) || !possible(out.op, {a, b})) continue;
        together[a * n + b] = 1;
        ++out.pairs, out.pairs_met += two[a * n + b];
        if (!two[a * n + b] && one[a] && one[b])
          out.pairs_missed.push_back(fmt::format("{}, {}", name_of_value(a), name_of_value(b)));
      }
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b)
        for (int c = b + 1; together[a * n + b] && c < n; ++c) {
          if (!together[a * n + c] || !together[b * n + c] || !possible(out.op, {a, b, c})) continue;
          ++out.triples, out.triples_met += three[(static_cast<size_t>(a) * n + b) * n + c];
        }
  }
  for (size_t b = 0; b < boundaries().size(); ++b)
    for (size_t l = 0; l < boundaries()[b].limits.size(); ++l)
      report.boundaries.push_back({boundaries()[b].what, boundaries()[b].limits[l], beyond_[b][l]});
  return report;
}

}  // namespace assay
