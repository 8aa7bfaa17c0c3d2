// SPDX-License-Identifier: Apache-2.0
// Continuous-batching replay: which requests, with which lengths, one engine step would hold. The rules
// are listed at replay() in trace.hpp; they follow the order of vLLM V1's scheduler (running before
// waiting, chunked prefill, prefix cache on), without memory pressure. A step costs O(running requests),
// so steps far into a trace are reached at once.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "harness/base/random.hpp"
#include "harness/trace/trace.hpp"

namespace assay {
namespace {

// Every distinct leading run of block ids is one node of a tree, so "equal leading blocks" is equality of
// node numbers: exact, unlike a hash of the run.
class PrefixTree {
 public:
  explicit PrefixTree(const std::vector<TraceRequest>& trace) {
    paths_.resize(trace.size());
    for (size_t r = 0; r < trace.size(); ++r) {
      int32_t node = 0;
      // The id of a block that the prompt only begins to fill is not shared: its pages are not full.
      const size_t full =
          std::min(trace[r].blocks.size(), static_cast<size_t>(trace[r].input_tokens / kTraceBlockTokens));
      for (size_t b = 0; b < full; ++b) {
        node = child(node, trace[r].blocks[b]);
        paths_[r].push_back(node);
      }
    }
  }
  const std::vector<int32_t>& path(int32_t request) const { return paths_[request]; }
  int32_t nodes() const { return count_; }

 private:
  struct Key {
    int32_t parent;
    int64_t id;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const {
      uint64_t x = static_cast<uint64_t>(k.id) * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(k.parent);
      x ^= x >> 32;
      return static_cast<size_t>(x * 0xd6e8feb86659fd93ull);
    }
  };
  int32_t child(int32_t parent, int64_t id) {
    const auto [it, added] = children_.try_emplace({parent, id}, count_);
    if (added) ++count_;
    return it->second;
  }
  std::unordered_map<Key, int32_t, Hash> children_;
  std::vector<std::vector<int32_t>> paths_;
  int32_t count_ = 1;  // node 0 is the empty run
};

void check_options(const ReplayOptions& o) {
  const auto need = [](bool ok, const char* what, const char* accepted) {
    if (!ok) throw InputError(fmt::format("trace replay: bad {}; expected {}", what, accepted));
  };
  need(o.step >= 0, "step", "0 or more");
  need(o.max_tokens >= 1, "tokens", "1 or more");
  need(o.max_requests >= 1, "seqs", "1 or more");
  need(o.draft >= 0 && o.draft < kTraceMaxTokens, "draft", "0 or more");
  need(std::isfinite(o.rate) && o.rate > 0, "rate", "a number above 0");
  need(std::isfinite(o.step_fixed_s) && o.step_fixed_s >= 0 && std::isfinite(o.step_per_token_s) &&
           o.step_per_token_s >= 0,
       "step duration", "seconds, 0 or more");
}

class Replay {
 public:
  Replay(const std::vector<TraceRequest>& trace, const ReplayOptions& options)
      : trace_(trace), options_(options), tree_(trace), cached_(tree_.nodes(), false) {}

  // Schedules the next step; false when every request has finished.
  bool advance() {
    finish_step();
    if (running_.empty() && next_waiting_ == arrived_) {
      if (arrived_ == trace_.size()) return false;
      clock_s_ = std::max(clock_s_, arrival_s(arrived_));
    }
    while (arrived_ < trace_.size() && arrival_s(arrived_) <= clock_s_) ++arrived_;
    ++step_;
    budget_ = options_.max_tokens;
    for (Running& r : running_) schedule(r);
    while (budget_ > 0 && next_waiting_ < arrived_ &&
           running_.size() < static_cast<size_t>(options_.max_requests)) {
      const auto source = static_cast<int32_t>(next_waiting_++);
      running_.push_back({source, cached_tokens(source), 0});
      schedule(running_.back());
    }
    return true;
  }

  int64_t step() const { return step_; }

  ReplayStep batch() const {
    ReplayStep out;
    out.step = step_;
    out.start_s = clock_s_;
    int32_t scheduled = 0;
    const auto take = [&](auto wanted) {
      int32_t count = 0;
      for (const Running& r : running_)
        if (r.now > 0 && wanted(r)) {
          out.requests.push_back({r.now, r.done + r.now, -1, 0});
          out.sources.push_back(r.source);
          ++count;
        }
      scheduled += count;
      return count;
    };
    const int32_t most = 1 + options_.draft;
    out.decodes = take([&](const Running& r) { return r.now <= most; });
    out.extends = take([&](const Running& r) { return r.now > most && r.done > 0; });
    out.prefills = take([&](const Running& r) { return r.now > most && r.done == 0; });
    out.waiting = static_cast<int32_t>(arrived_ - next_waiting_ + running_.size()) - scheduled;
    share_prefixes(&out);
    return out;
  }

 private:
  struct Running {
    int32_t source;  // index into the trace
    int32_t done;    // tokens whose keys are in the cache
    int32_t now;     // tokens of this step
  };

  double arrival_s(size_t i) const { return trace_[i].arrival_s / options_.rate; }
  // Keys the request has once it is finished: the last output token is never fed back.
  int32_t last_length(int32_t source) const {
    return trace_[source].input_tokens + trace_[source].output_tokens - 1;
  }

  void schedule(Running& r) {
    const int32_t prompt = trace_[r.source].input_tokens;
    r.now = std::min(r.done < prompt ? prompt - r.done : 1 + options_.draft, budget_);
    budget_ -= r.now;
    // Mark the blocks this step fills, so that later requests, also of this step, hit them.
    const auto& path = tree_.path(r.source);
    const size_t full = std::min(path.size(), static_cast<size_t>((r.done + r.now) / kTraceBlockTokens));
    for (size_t b = r.done / kTraceBlockTokens; b < full; ++b) cached_[path[b]] = true;
  }

  // Tokens of this step that stay: of a decode the new one and the drafts that are accepted.
  int32_t kept(const Running& r) const {
    if (r.now <= 1 || r.done < trace_[r.source].input_tokens) return r.now;
    const CounterRng rng(static_cast<uint64_t>(r.source), kStreamLengths);
    return 1 + static_cast<int32_t>(rng.below(static_cast<uint64_t>(r.done), static_cast<uint64_t>(r.now)));
  }

  int32_t cached_tokens(int32_t source) const {
    const auto& path = tree_.path(source);
    size_t hit = 0;
    while (hit < path.size() && cached_[path[hit]]) ++hit;
    // The last prompt token is computed even on a full hit: its output is the first new token.
    const int32_t most = (trace_[source].input_tokens - 1) / kTraceBlockTokens;
    return std::min(static_cast<int32_t>(hit), most) * kTraceBlockTokens;
  }

  void finish_step() {
    if (step_ < 0) return;
    clock_s_ += options_.step_fixed_s + options_.step_per_token_s * (options_.max_tokens - budget_);
    for (Running& r : running_) {
      r.done += kept(r);
      r.now = 0;
    }
    std::erase_if(running_, [&](const Running& r) { return r.done >= last_length(r.source); });
  }

  void share_prefixes(ReplayStep* out) const {
    std::unordered_map<int32_t, int32_t> holder;  // tree node -> first request of the batch that has it
    for (size_t i = 0; i < out->requests.size(); ++i) {
      Request& request = out->requests[i];
      const auto& path = tree_.path(out->sources[i]);
      const size_t full = std::min(path.size(), static_cast<size_t>(request.kv_len / kTraceBlockTokens));
      for (size_t b = 0; b < full; ++b) {
        const auto [it, added] = holder.try_emplace(path[b], static_cast<int32_t>(i));
        if (added) continue;
        request.shared_with = it->second;
        request.shared_tokens = static_cast<int32_t>(b + 1) * kTraceBlockTokens;
      }
    }
  }

  const std::vector<TraceRequest>& trace_;
  ReplayOptions options_;
  PrefixTree tree_;
  std::vector<bool> cached_;      // per tree node
  std::vector<Running> running_;  // in the order they started
  size_t arrived_ = 0, next_waiting_ = 0;
  int64_t step_ = -1;
  int32_t budget_ = 0;
  double clock_s_ = 0;
};

}  // namespace

ReplayStep replay(const std::vector<TraceRequest>& trace, const ReplayOptions& options) {
  check_options(options);
  Replay run(trace, options);
  while (run.advance())
    if (run.step() == options.step) return run.batch();
  if (run.step() < 0) throw InputError("trace replay: the trace has no requests");
  throw InputError(
      fmt::format("trace replay: step {} is past the end; the last step of this trace with tokens={}, "
                  "seqs={}, rate={} is {}",
                  options.step, options.max_tokens, options.max_requests, options.rate, run.step()));
}

std::vector<ReplayStep> replay_profile(const std::vector<TraceRequest>& trace, ReplayOptions options,
                                       int64_t every, int64_t max_steps) {
  check_options(options);
  if (every < 1) throw InputError("trace replay: bad step distance; expected 1 or more");
  std::vector<ReplayStep> out;
  Replay run(trace, options);
  while (static_cast<int64_t>(out.size()) < max_steps && run.advance())
    if (run.step() >= options.step && (run.step() - options.step) % every == 0) out.push_back(run.batch());
  return out;
}

}  // namespace assay
