// SPDX-License-Identifier: Apache-2.0
// Request traces and their replay through a continuous-batching scheduler (the way vLLM V1 schedules:
// running requests first, then waiting ones in arrival order, chunked prefill under a token budget).
// Readers are in trace.cpp, the scheduler in trace_replay.cpp. A new format: one more reader and its
// extension in read_trace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

struct TraceRequest {
  double arrival_s = 0;         // seconds after the first request
  int32_t input_tokens = 0;     // > 0
  int32_t output_tokens = 0;    // >= 1
  std::vector<int64_t> blocks;  // ids of 512-token prefix blocks; empty when the trace has none
  bool operator==(const TraceRequest&) const = default;
};

inline constexpr int32_t kTraceBlockTokens = 512;         // Mooncake hash_ids granularity
inline constexpr int32_t kTraceMaxTokens = 1 << 26;       // of one request, each way; keeps kv_len in int32
inline constexpr int64_t kTraceMaxFileBytes = 1ll << 30;  // a trace is held in memory while it is read

// CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure LLM inference traces 2023/2024), or
// JSON lines with timestamp (ms), input_length, output_length, hash_ids (Mooncake). The format follows
// from the extension (.csv, .jsonl). InputError with file, line and column on a broken row, InputErrors on
// several.
std::vector<TraceRequest> read_trace(const std::string& path);
// The same from text already in memory; `name` stands for the file in messages.
std::vector<TraceRequest> read_trace_csv(std::string_view text, const std::string& name);
std::vector<TraceRequest> read_trace_jsonl(std::string_view text, const std::string& name);

struct ReplayOptions {
  int64_t step = 0;
  int32_t max_tokens = 8192;
  int32_t max_requests = 256;
  double rate = 1;
  int32_t draft = 0;  // tokens guessed and verified beside the new one, in each decode
  // Model of one engine step's duration in seconds, so that arrivals meet steps: fixed + per token.
  double step_fixed_s = 0.010;
  double step_per_token_s = 0.000020;
};

struct ReplayStep {
  int64_t step = 0;
  double start_s = 0;
  // Decode first, then extend, then prefill, by lengths alone as attention back ends sort them:
  // decode: q_len at most 1 + draft (also a prefill's last chunk when that is so short); extend: longer, with
  // a past (a chunk, or the tokens after a prefix-cache hit); prefill: longer, no past.
  std::vector<Request> requests;
  std::vector<int32_t> sources;                    // index into the trace, per request
  int32_t decodes = 0, extends = 0, prefills = 0;  // counts of the three
  int32_t waiting = 0;                             // arrived, unfinished, without a token in this step
};

// The batch of one step. Rules of the model, each tested:
// - A step takes requests already running in the order they started, then waiting ones in arrival order,
//   while tokens and requests are left. A decode takes 1 token; a prefill what is left of its prompt, cut
//   by the budget. Memory is unlimited: nothing is preempted or evicted.
// - The step that ends a prompt yields the first output token, so a request takes output_tokens - 1 decodes
//   where nothing is drafted.
// - With drafts a decode takes 1 + draft tokens, cut by the budget. Of the drafts any number is accepted, all
//   numbers as likely, drawn from the request and its length; the others' keys are overwritten by the next
//   step. What is accepted beyond the last output token ends the request as well.
// - The clock advances by step_fixed_s + step_per_token_s * tokens; with nothing to run it jumps to the next
//   arrival (arrival_s / rate). Only steps with work count.
// - Prefix cache: a starting request skips the leading blocks that any earlier request has had scheduled
//   (blocks filled in the same step count: vLLM registers a block when it allocates it), except that its
//   last token is always computed. Only full blocks are cached. So a hit turns prefill into extend.
// - Requests of the batch with equal leading blocks share their pages, whoever computed them
//   (Request::shared_with is the earliest request with the longest common run of full blocks).
// InputError (with the last step that exists) when the trace ends before, or an option is out of range.
ReplayStep replay(const std::vector<TraceRequest>&, const ReplayOptions&);
// Steps options.step, options.step + every, ... until the trace ends (for the batch-mix profile), at most
// max_steps of them. Empty when the trace ends before options.step.
std::vector<ReplayStep> replay_profile(const std::vector<TraceRequest>&, ReplayOptions, int64_t every,
                                       int64_t max_steps);

}  // namespace assay
