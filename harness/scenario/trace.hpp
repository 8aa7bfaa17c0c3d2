// SPDX-License-Identifier: Apache-2.0
// Request traces and their replay through a continuous-batching scheduler (the way vLLM V1 schedules:
// running requests first, then waiting ones in arrival order, chunked prefill under a token budget).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

struct TraceRequest {
  double arrival_s = 0;         // seconds after the first request
  int32_t input_tokens = 0;     // > 0
  int32_t output_tokens = 0;    // >= 1
  std::vector<int64_t> blocks;  // ids of 512-token prefix blocks; empty when the trace has none
};

inline constexpr int32_t kTraceBlockTokens = 512;  // Mooncake hash_ids granularity

// CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure LLM inference traces 2023/2024), or
// JSON lines with timestamp (ms), input_length, output_length, hash_ids (Mooncake). The format follows
// from the extension (.csv, .jsonl). InputError with file, line and column on a broken row.
std::vector<TraceRequest> read_trace(const std::string& path);

struct ReplayOptions {
  int64_t step = 0;
  int32_t max_tokens = 8192;
  int32_t max_requests = 256;
  double rate = 1;
  // Model of one engine step's duration in seconds, so that arrivals meet steps: fixed + per token.
  double step_fixed_s = 0.010;
  double step_per_token_s = 0.000020;
};

struct ReplayStep {
  double start_s = 0;
  std::vector<Request> requests;  // decode first, then extend, then prefill
  int32_t decodes = 0, extends = 0, prefills = 0;  // extend: chunked prefill with a past
  int32_t waiting = 0;            // requests arrived but not scheduled
};

// The batch of one step. InputError (with the last step that exists) when the trace ends before.
ReplayStep replay(const std::vector<TraceRequest>&, const ReplayOptions&);
// Every `every`-th step until the trace ends (for the batch-mix profile), at most max_steps of them.
std::vector<ReplayStep> replay_profile(const std::vector<TraceRequest>&, ReplayOptions, int64_t every, int64_t max_steps);

}  // namespace assay
