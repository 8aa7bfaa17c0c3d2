// SPDX-License-Identifier: Apache-2.0
// The batch= field: how the lengths of the requests come about.
//
//   64q1s4k_2q512s2k          groups COUNT q QLEN [s KVLEN] [p SHARED]; s defaults to q (no past);
//                             k = 1024 (vLLM's notation), m = 1024^2; p: the group's requests share
//                             their first SHARED keys (same physical pages)
//   uniform(n=64,q=1,s=1k:8k) n requests, lengths uniform in [a, b]
//   zipf(n=64,q=1,s=128:32k,a=1.2)   rank-frequency power law with exponent a over [a, b]
//   trace(FILE,step=500,tokens=8192,seqs=256,rate=1)   the batch of one step of a continuous-batching
//                             replay of a request trace; draft=3: so many drafts in every decode
//
// q may be a range too: uniform(n=8,q=1:16,s=64:4k). A drawn kv_len is never below its q_len.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

struct BatchGroup {
  int32_t count = 1;
  int32_t q_len = 1;
  int32_t kv_len = 1;
  int32_t shared = 0;
  bool operator==(const BatchGroup&) const = default;
};

struct LengthRange {
  int32_t low = 1, high = 1;  // inclusive
  bool operator==(const LengthRange&) const = default;
};

struct BatchSpec {
  enum class Kind { kMix, kUniform, kZipf, kTrace };
  Kind kind = Kind::kMix;
  std::vector<BatchGroup> groups;  // kMix
  int32_t n = 0;                   // kUniform, kZipf
  LengthRange q, s;                // kUniform, kZipf; kTrace: q of a decode, 1 and its drafts
  double exponent = 1.2;           // kZipf
  std::string file;                // kTrace
  int64_t step = 0;                // kTrace: index of the engine step, from 0
  int32_t tokens = 8192;           // kTrace: most tokens per step
  int32_t seqs = 256;              // kTrace: most requests per step
  double rate = 1;                 // kTrace: arrival-rate factor, 2 = twice as fast
  bool operator==(const BatchSpec&) const = default;
};

// `place` is the place of text[0].
BatchSpec parse_batch(std::string_view text, const SourcePlace& place);
std::string print(const BatchSpec&);  // canonical, no spaces
// The requests, in batch order; draws from `seed`. Trace files resolve relative to the current folder,
// then to the folders of ASSAY_TRACE_PATH (colon separated).
std::vector<Request> draw_requests(const BatchSpec&, uint64_t seed);

}  // namespace assay
