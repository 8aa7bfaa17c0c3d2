// SPDX-License-Identifier: Apache-2.0
// Which numbers a case brings before a kernel, see coverage.hpp: a kernel that is right in one format, at one
// scale or one height of its scores may hide behind another. A row of results of 16 bits hides what its own
// rounding covers, and a feature beside a format may be what a simple kernel refuses: cases with nothing else
// are counted.
#include <cmath>

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/coverage_tables.hpp"
#include "harness/scenario/score_level.hpp"

namespace assay {
namespace {

using Limits = std::vector<int64_t>;

bool nothing_else(const Scenario& s) {
  return s.mask == ASSAY_MASK_CAUSAL && s.window_left < 0 && s.window_right < 0 && s.chunk == 0 &&
         s.softcap == 0 && s.alibi == ASSAY_ALIBI_NONE && !s.sinks && s.first_key == kNoPositions &&
         s.positions == kNoPositions && !s.swa_index && s.strided == StridedOperands{} &&
         s.layout == ASSAY_LAYOUT_NHD && s.storage == Storage::kSplit && s.table == ASSAY_TABLE_BLOCK;
}
bool plain(const Scenario& s) { return nothing_else(s) && s.recipe == InputRecipe::kNormal; }
bool as_q(const Scenario& s) { return s.k.format == s.q.format && s.v.format == s.q.format; }

int64_t keys(const Problem& p) { return longest(p, &Request::kv_len); }

int64_t position_of_last_key(const Problem& p) {
  int64_t most = 0;
  for (size_t r = 0; r < p.requests.size(); ++r)
    if (p.requests[r].kv_len > 0 && p.requests[r].q_len > 0)
      most = std::max(most, key_position(p, static_cast<int>(r), p.requests[r].kv_len - 1));
  return most;
}

// From a row to the nearest key that it sees, the farthest of all rows.
int64_t distance_of_nearest_key(const Scenario& s, const Problem& p) {
  if (s.positions == kNoPositions) return 0;
  int64_t most = 0;
  for (size_t r = 0; r < p.requests.size(); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len && p.requests[r].kv_len > 0; ++i) {
      const auto request = static_cast<int>(r);
      const int64_t apart = row_position(p, request, i) - key_position(p, request, p.requests[r].kv_len - 1);
      most = std::max(most, apart);
    }
  return most;
}

void formats(std::vector<CoverBoundary>& all) {
  const int32_t wide[] = {ASSAY_BF16, ASSAY_FP16, ASSAY_FP32};
  for (const int32_t q : wide)
    for (const int32_t out : wide)
      all.push_back({fmt::format("keys, nothing else, q={} out={}", name_of(format_names(), q),
                                 name_of(format_names(), out)),
                     out == ASSAY_FP32 ? Limits{64, 512, 4096, 32768} : Limits{64, 512},
                     [=](const Scenario& s, const Problem& p) {
                       return plain(s) && as_q(s) && s.q.format == q && s.o_format == out ? keys(p) : -1;
                     }});
  for (const int32_t code : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_INT8})
    for (const bool both : {false, true})
      all.push_back({fmt::format("keys, nothing else, {}={} out=fp32", both ? "q and kv" : "kv",
                                 name_of(format_names(), code)),
                     {64, 512, 4096},
                     [=](const Scenario& s, const Problem& p) {
                       return plain(s) && s.k.format == code && s.v.format == code &&
                                      (s.q.format == code) == both && s.o_format == ASSAY_FP32
                                  ? keys(p)
                                  : -1;
                     }});
  // Results of every size down to the smallest code: 16 bits of O or a larger neighbour in its channel hide
  // them.
  for (const int32_t code : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_INT8})
    all.push_back({fmt::format("keys, every kind of code, kv={} out=fp32", name_of(format_names(), code)),
                   {64},
                   [=](const Scenario& s, const Problem& p) {
                     return nothing_else(s) && s.recipe == InputRecipe::kCodes && s.k.format == code &&
                                    s.v.format == code && s.o_format == ASSAY_FP32
                                ? keys(p)
                                : -1;
                   }});
  for (const int32_t q : wide)
    all.push_back(
        {fmt::format("keys, nothing else, q={} out=fp32, scale no power of two", name_of(format_names(), q)),
         {64, 512, 4096},
         [=](const Scenario& s, const Problem& p) {
           return plain(s) && as_q(s) && s.q.format == q && s.o_format == ASSAY_FP32 && scale_is_inexact(s)
                      ? keys(p)
                      : -1;
         }});
  for (const int32_t q : wide)
    all.push_back({fmt::format("dimensions, nothing else, q={} out=fp32, scale no power of two",
                               name_of(format_names(), q)),
                   {64, 95, 111, 127, 191},
                   [=](const Scenario& s, const Problem&) {
                     return plain(s) && as_q(s) && s.q.format == q && s.o_format == ASSAY_FP32 &&
                                    scale_is_inexact(s)
                                ? int64_t{s.head_dim_qk}
                                : -1;
                   }});
}

void places(std::vector<CoverBoundary>& all) {
  const struct {
    const char* what;
    bool (*of)(const Scenario&);
  } beside[] = {
      {"position of a key, nothing else",
       [](const Scenario& s) {
         Scenario t = s;
         t.first_key = kNoPositions;
         return plain(t);
       }},
      {"position of a key, linear position bias",
       [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_LINEAR; }},
      {"position of a key, square roots as bias",
       [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_SQRT; }},
      {"position of a key, chunks", [](const Scenario& s) { return s.chunk > 0; }},
      {"position of a key, window", [](const Scenario& s) { return s.window_left >= 0; }},
      {"position of a key, draft tree", [](const Scenario& s) { return s.mask == ASSAY_MASK_TREE; }},
      {"position of a key, full mask", [](const Scenario& s) { return s.mask == ASSAY_MASK_FULL; }},
  };
  // What 16 bits hold, a table for the longest context of a server, and fp32.
  const Limits far = {1 << 16, 1 << 20, 1 << 24};
  for (const auto& b : beside)
    all.push_back({b.what, far, [of = b.of](const Scenario& s, const Problem& p) {
                     return of(s) ? position_of_last_key(p) : -1;
                   }});
  all.push_back({"tokens to the nearest key, linear position bias",
                 {16, 1024, 1 << 20},
                 [](const Scenario& s, const Problem& p) {
                   return s.alibi == ASSAY_ALIBI_LINEAR ? distance_of_nearest_key(s, p) : -1;
                 }});
}

// Beyond what 16 bits of an exponential hold, what fp32's does (88.7; below, with its subnormals, 103.9), and
// far out.
void levels(std::vector<CoverBoundary>& all) {
  const auto lse = [](const Scenario& s, const Problem& p) {
    const std::optional<ScoreLevel> level = score_level(s);
    return level ? expected_lse(*level, static_cast<double>(keys(p))) : 0.0;
  };
  const struct {
    const char* what;
    std::string_view op;  // empty: prefill and paged
    bool (*of)(const Scenario&);
  } beside[] = {
      {"nothing else, fp32 results", "",
       [](const Scenario& s) { return nothing_else(s) && s.o_format == ASSAY_FP32; }},
      {"a sink", "", [](const Scenario& s) { return s.sinks; }},
      {"a window", "", [](const Scenario& s) { return s.window_left >= 0; }},
      {"quantised K", "", [](const Scenario& s) { return s.k.scale != ASSAY_SCALE_NONE; }},
      {"latent cache", "", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_MLA; }},
      {"parts", "decode_splitkv", [](const Scenario&) { return true; }},
      {"a whole step", "step", [](const Scenario&) { return true; }},
  };
  for (const auto& b : beside) {
    const int32_t op = b.op.empty() ? kWholeContext : *value_of(op_names(), b.op);
    all.push_back({fmt::format("LSE, {}", b.what),
                   {16, 89, 400},
                   [=, of = b.of](const Scenario& s, const Problem& p) {
                     return of(s) ? static_cast<int64_t>(lse(s, p)) : -1;
                   },
                   op});
    all.push_back({fmt::format("minus the LSE of the keys, {}", b.what),
                   {60, 104},
                   [=, of = b.of](const Scenario& s, const Problem& p) {
                     return of(s) ? static_cast<int64_t>(-lse(s, p)) : -1;
                   },
                   op});
  }
}

void shapes_of_weights(std::vector<CoverBoundary>& all) {
  all.push_back({"soft cap", {1, 100, 10000}, [](const Scenario& s, const Problem&) {
                   return s.softcap > 0 ? static_cast<int64_t>(std::ceil(s.softcap)) : -1;
                 }});
  all.push_back({"1 / soft cap", {2, 100}, [](const Scenario& s, const Problem&) {
                   return s.softcap > 0 ? static_cast<int64_t>(std::ceil(1 / s.softcap)) : -1;
                 }});
  // An 8-bit P without an offset loses them.
  for (const int64_t many : {512, 8192})
    all.push_back({fmt::format("percent of weight below 2^-10, fp32 results, > {} keys", many),
                   many == 512 ? Limits{1} : Limits{1, 10}, [=](const Scenario& s, const Problem& p) {
                     const std::optional<ScoreLevel> level = score_level(s);
                     if (!level || !nothing_else(s) || s.o_format != ASSAY_FP32 || keys(p) <= many)
                       return int64_t{-1};
                     return static_cast<int64_t>(100 * share_below(*level, static_cast<double>(keys(p)), 10));
                   }});
  // Sums that grow with every key and are cut at every step lean; sums of both signs hide it.
  all.push_back(
      {"keys, V of one sign mostly, fp32 results", {4096, 32768}, [](const Scenario& s, const Problem& p) {
         return nothing_else(s) && s.recipe == InputRecipe::kNarrow && s.o_format == ASSAY_FP32 ? keys(p)
                                                                                                : -1;
       }});
  all.push_back({"keys, V cancels, fp32 results", {512, 4096}, [](const Scenario& s, const Problem& p) {
                   return nothing_else(s) && s.recipe == InputRecipe::kCancelling && s.o_format == ASSAY_FP32
                              ? keys(p)
                              : -1;
                 }});
  all.push_back({"rows times heads of one case", {65535}, [](const Scenario& s, const Problem& p) {
                   return nothing_else(s) ? p.total_q() * s.heads_q : -1;
                 }});
}

}  // namespace

std::vector<CoverBoundary> number_boundaries() {
  std::vector<CoverBoundary> all;
  formats(all);
  places(all);
  levels(all);
  shapes_of_weights(all);
  return all;
}

}  // namespace assay
