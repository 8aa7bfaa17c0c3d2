// SPDX-License-Identifier: Apache-2.0
// Replay: small cases whose steps were worked out by hand from the rules in trace.hpp, conservation of
// tokens on random traces, and the two public traces when they are there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "harness/trace/trace.hpp"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceRequest request(double arrival_s, int32_t input, int32_t output, std::vector<int64_t> blocks = {}) {
  return {arrival_s, input, output, std::move(blocks)};
}

ReplayOptions options(int32_t tokens, int32_t seqs) {
  ReplayOptions o;
  o.max_tokens = tokens;
  o.max_requests = seqs;
  o.step_fixed_s = 1;
  o.step_per_token_s = 0;
  return o;
}

std::vector<ReplayStep> all_steps(const std::vector<TraceRequest>& trace, const ReplayOptions& o) {
  return replay_profile(trace, o, 1, 1000);
}

// Lengths as "q/kv" in batch order, e.g. "1/7 1/3".
std::string lengths(const ReplayStep& s) {
  std::string out;
  for (const Request& r : s.requests)
    out += fmt::format("{}{}/{}", out.empty() ? "" : " ", r.q_len, r.kv_len);
  return out;
}

std::string mix(const ReplayStep& s) { return fmt::format("{}:{}:{}", s.decodes, s.extends, s.prefills); }

TEST(Replay, ChunkedPrefillDecodeAndJump) {
  // A 6 in 3 out at 0 s, B 3 in 1 out at 0.5 s, C 2 in 2 out at 10 s; 4 tokens and 1 s per step.
  const std::vector<TraceRequest> trace{request(0, 6, 3), request(0.5, 3, 1), request(10, 2, 2)};
  const auto steps = all_steps(trace, options(4, 8));
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(lengths(steps[0]), "4/4");  // first chunk of A
  EXPECT_EQ(mix(steps[0]), "0:0:1");
  EXPECT_EQ(lengths(steps[1]), "2/6 2/2");  // A ends its prompt (first token), B gets what is left
  EXPECT_EQ(mix(steps[1]), "0:1:1");
  EXPECT_EQ(lengths(steps[2]), "1/7 1/3");  // A decodes; B's last chunk is one token: a decode by length
  EXPECT_EQ(mix(steps[2]), "2:0:0");
  EXPECT_EQ(lengths(steps[3]), "1/8");  // third and last token of A; B had only one to make
  EXPECT_EQ(steps[3].start_s, 3);
  EXPECT_EQ(lengths(steps[4]), "2/2");  // nothing to do until C comes
  EXPECT_EQ(steps[4].start_s, 10);
  EXPECT_EQ(lengths(steps[5]), "1/3");
  EXPECT_THAT(steps[2].sources, ElementsAre(0, 1));
  for (size_t i = 0; i < steps.size(); ++i) {
    ReplayOptions o = options(4, 8);
    o.step = static_cast<int64_t>(i);
    EXPECT_EQ(replay(trace, o).requests, steps[i].requests);
    EXPECT_EQ(steps[i].step, static_cast<int64_t>(i));
  }
}

TEST(Replay, DraftsAreVerifiedAndSomeOfThemStay) {
  const std::vector<TraceRequest> trace{request(0, 6, 200), request(0, 2, 40)};
  ReplayOptions o = options(12, 8);
  o.draft = 3;
  const auto steps = all_steps(trace, o);
  EXPECT_EQ(lengths(steps[0]), "2/2 6/6");  // a prompt of four rows at most is a decode by length
  EXPECT_EQ(mix(steps[0]), "1:0:1");
  std::vector<int32_t> kept{6, 2}, seen(4);  // tokens that stay of each request; how often 1 to 4 of a step
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].decodes, static_cast<int32_t>(steps[i].requests.size()));
    for (size_t r = 0; r < steps[i].requests.size(); ++r) {
      const Request& now = steps[i].requests[r];
      int32_t& before = kept[static_cast<size_t>(steps[i].sources[r])];
      EXPECT_EQ(now.q_len, 4);
      const int32_t stayed = now.kv_len - now.q_len - before;
      if (i > 1) {
        ASSERT_TRUE(stayed >= 1 && stayed <= 4) << i << ' ' << stayed;
        ++seen[static_cast<size_t>(stayed - 1)];
      }
      before = now.kv_len - now.q_len;
    }
  }
  for (const int32_t count : seen) EXPECT_GT(count, 10);
  EXPECT_TRUE(kept[0] > 205 - 4 && kept[0] < 205) << kept[0];  // 6 + 200 - 1 keys when it ends
  o.draft = 0;
  EXPECT_EQ(all_steps(trace, o).size(), 200u);
  o.max_tokens = 3, o.draft = 7;  // the budget cuts drafts, too
  EXPECT_EQ(lengths(all_steps(trace, o)[2]), "3/9");
}

TEST(Replay, RateDividesArrivalsAndTokensTakeTime) {
  const std::vector<TraceRequest> trace{request(0, 6, 1), request(1, 4, 1), request(100, 2, 1)};
  ReplayOptions o = options(100, 8);
  o.step_fixed_s = 0.25;
  o.step_per_token_s = 0.125;  // step 0: 0.25 + 6 * 0.125 = 1 s
  auto steps = all_steps(trace, o);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].start_s, 1);  // the second request arrives exactly then
  EXPECT_EQ(steps[2].start_s, 100);
  o.rate = 4;
  steps = all_steps(trace, o);
  EXPECT_EQ(steps[1].start_s, 1);  // came at 0.25 s, during step 0
  EXPECT_EQ(steps[2].start_s, 25);
}

TEST(Replay, RequestLimitKeepsTheRestWaiting) {
  const std::vector<TraceRequest> trace{request(0, 2, 3), request(0, 2, 1), request(0, 2, 1)};
  const auto steps = all_steps(trace, options(100, 2));
  // A and B start; B ends with its prompt, so C takes its place beside A's decode.
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(lengths(steps[0]), "2/2 2/2");
  EXPECT_EQ(steps[0].waiting, 1);
  EXPECT_EQ(lengths(steps[1]), "1/3 2/2");
  EXPECT_EQ(mix(steps[1]), "1:0:1");
  EXPECT_EQ(steps[1].waiting, 0);
  EXPECT_EQ(lengths(steps[2]), "1/4");
}

TEST(Replay, RunningRequestsComeFirstAndCanUseTheWholeBudget) {
  const std::vector<TraceRequest> trace{request(0, 1, 3), request(0, 1, 3), request(0, 1, 2),
                                        request(0, 5, 1)};
  const auto steps = all_steps(trace, options(2, 8));
  EXPECT_EQ(lengths(steps[0]), "1/1 1/1");
  EXPECT_EQ(steps[0].waiting, 2);
  EXPECT_EQ(lengths(steps[1]), "1/2 1/2");
  EXPECT_EQ(lengths(steps[2]), "1/3 1/3");
  EXPECT_EQ(lengths(steps[3]), "1/1 1/1");  // C in one, D's first of five: one token, so a decode by length
  EXPECT_THAT(steps[3].sources, ElementsAre(2, 3));
  EXPECT_EQ(lengths(steps[4]), "1/2 1/2");
  EXPECT_EQ(lengths(steps[5]), "2/4");
  EXPECT_EQ(mix(steps[5]), "0:1:0");
  EXPECT_EQ(lengths(steps[6]), "1/5");
  EXPECT_EQ(steps.size(), 7u);
}

TEST(Replay, OrdersDecodeExtendPrefillKeepingStartOrder) {
  // A decodes from step 1; B needs two chunks; C starts fresh in step 1.
  const std::vector<TraceRequest> trace{request(0, 3, 5), request(0, 12, 1), request(0.5, 4, 1)};
  const auto steps = all_steps(trace, options(10, 8));
  EXPECT_EQ(lengths(steps[0]), "3/3 7/7");
  EXPECT_EQ(lengths(steps[1]), "1/4 5/12 4/4");
  EXPECT_EQ(mix(steps[1]), "1:1:1");
}

TEST(Replay, PrefixHitsSkipComputeAndShareThePages) {
  // Full blocks: A 1,2 (276 tokens of block 3 are not full), B 1,2,9, C none.
  const std::vector<TraceRequest> trace{request(0, 1300, 3, {1, 2, 3}), request(0, 1536, 3, {1, 2, 9}),
                                        request(0, 100, 3, {1})};
  const auto steps = all_steps(trace, options(4096, 8));
  // B hits the two blocks A fills in this step: 512 tokens with a past of 1024. It sorts before A.
  EXPECT_EQ(mix(steps[0]), "0:1:2");
  EXPECT_THAT(steps[0].sources, ElementsAre(1, 0, 2));
  EXPECT_THAT(steps[0].requests,
              ElementsAre(Request{512, 1536, -1, 0}, Request{1300, 1300, 0, 1024}, Request{100, 100, -1, 0}));
  // As decodes they keep sharing, in start order again.
  EXPECT_THAT(steps[1].requests,
              ElementsAre(Request{1, 1301, -1, 0}, Request{1, 1537, 0, 1024}, Request{1, 101, -1, 0}));
}

TEST(Replay, CacheOutlivesItsRequestAndALastTokenIsAlwaysComputed) {
  const std::vector<TraceRequest> trace{request(0, 1024, 1, {1, 2}), request(50, 1024, 1, {1, 2}),
                                        request(60, 1025, 1, {1, 2, 3}), request(70, 1024, 1, {7, 2})};
  const auto steps = all_steps(trace, options(4096, 8));
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(lengths(steps[0]), "1024/1024");
  EXPECT_EQ(lengths(steps[1]), "512/1024");  // all blocks are cached, the last is computed all the same
  EXPECT_EQ(lengths(steps[2]), "1/1025");
  EXPECT_EQ(lengths(steps[3]), "1024/1024");  // block 2 behind another first block is another block
}

TEST(Replay, OnlyScheduledBlocksAreHits) {
  // A gets 600 of its 1024 tokens: one full block. B, in the next step, hits that one only.
  const std::vector<TraceRequest> trace{request(0, 1024, 1, {1, 2}), request(0.5, 1024, 1, {1, 2})};
  const auto steps = all_steps(trace, options(600, 8));
  EXPECT_EQ(lengths(steps[0]), "600/600");
  // A takes its last 424 tokens and fills block 2 in this step, so B's hit is capped by its last block.
  EXPECT_EQ(lengths(steps[1]), "424/1024 176/688");
  EXPECT_THAT(steps[1].requests[1], (Request{176, 688, 0, 512}));
}

TEST(Replay, SharesTheLongestRunWithTheEarliestHolder) {
  const std::vector<TraceRequest> trace{request(0, 513, 9, {1, 5}), request(0, 1100, 9, {1, 2, 8}),
                                        request(0, 1600, 9, {1, 2, 3, 4})};
  const auto steps = all_steps(trace, options(8192, 8));
  EXPECT_THAT(steps[1].requests,
              ElementsAre(Request{1, 514, -1, 0}, Request{1, 1101, 0, 512}, Request{1, 1601, 1, 1024}));
}

TEST(Replay, PastTheEndNamesTheLastStep) {
  const std::vector<TraceRequest> trace{request(0, 2, 4)};
  ReplayOptions o = options(8, 8);
  o.step = 3;
  EXPECT_EQ(lengths(replay(trace, o)), "1/5");
  o.step = 4;
  try {
    replay(trace, o);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("step 4"));
    EXPECT_THAT(e.what(), HasSubstr("is 3"));
  }
  EXPECT_THROW(replay({}, options(8, 8)), InputError);
}

TEST(Replay, RejectsBadOptions) {
  const std::vector<TraceRequest> trace{request(0, 2, 4)};
  const auto broken = [&](auto change) {
    ReplayOptions o = options(8, 8);
    change(o);
    EXPECT_THROW(replay(trace, o), InputError);
  };
  broken([](auto& o) { o.step = -1; });
  broken([](auto& o) { o.max_tokens = 0; });
  broken([](auto& o) { o.max_requests = 0; });
  broken([](auto& o) { o.rate = 0; });
  broken([](auto& o) { o.rate = std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_THROW(replay_profile(trace, options(8, 8), 0, 10), InputError);
}

TEST(Replay, ProfileTakesEveryNthStep) {
  const std::vector<TraceRequest> trace{request(0, 2, 20)};
  ReplayOptions o = options(8, 8);
  o.step = 2;
  const auto picked = replay_profile(trace, o, 5, 3);
  ASSERT_EQ(picked.size(), 3u);
  EXPECT_EQ(picked[0].step, 2);
  EXPECT_EQ(picked[2].step, 12);
  EXPECT_EQ(replay_profile(trace, o, 5, 100).size(), 4u);  // 2, 7, 12, 17; the trace ends at 19
}

// Every token of the trace is scheduled exactly once, and no step breaks a limit.
void check_conservation(const std::vector<TraceRequest>& trace, ReplayOptions o) {
  std::vector<int64_t> done(trace.size(), -1);
  int64_t steps = 0;
  for (const ReplayStep& s : replay_profile(trace, o, 1, INT64_MAX)) {
    ++steps;
    int64_t tokens = 0;
    ASSERT_LE(static_cast<int64_t>(s.requests.size()), o.max_requests);
    ASSERT_EQ(static_cast<int64_t>(s.requests.size()), s.decodes + s.extends + s.prefills);
    for (size_t i = 0; i < s.requests.size(); ++i) {
      const Request& r = s.requests[i];
      tokens += r.q_len;
      int64_t& before = done[s.sources[i]];
      if (before < 0) before = r.context_len();  // a prefix hit
      ASSERT_EQ(r.context_len(), before);
      before = r.kv_len;
      if (r.shared_with >= 0) {
        ASSERT_LT(r.shared_with, static_cast<int32_t>(i));
        ASSERT_LE(r.shared_tokens, r.kv_len);
        ASSERT_LE(r.shared_tokens, s.requests[r.shared_with].kv_len);
      }
    }
    ASSERT_GT(tokens, 0);
    ASSERT_LE(tokens, o.max_tokens);
  }
  for (size_t i = 0; i < trace.size(); ++i)
    ASSERT_EQ(done[i], trace[i].input_tokens + trace[i].output_tokens - 1) << "request " << i;
  EXPECT_GT(steps, 0);
}

std::string public_trace(const char* file) {
  std::vector<std::string> folders{ASSAY_SOURCE_DIR "/../shared/traces"};
  if (const char* path = std::getenv("ASSAY_TRACE_PATH")) folders.insert(folders.begin(), path);
  for (const auto& folder : folders)
    if (std::filesystem::exists(folder + "/" + file)) return folder + "/" + file;
  return {};
}

std::vector<TraceRequest> head(const std::vector<TraceRequest>& t, size_t n) {
  return {t.begin(), t.begin() + static_cast<std::ptrdiff_t>(std::min(n, t.size()))};
}

TEST(PublicTrace, Azure2023Conversation) {
  const std::string path = public_trace("AzureLLMInferenceTrace_conv.csv");
  if (path.empty()) GTEST_SKIP() << "AzureLLMInferenceTrace_conv.csv is not in a folder of ASSAY_TRACE_PATH";
  const auto t = read_trace(path);
  ASSERT_EQ(t.size(), 19366u);  // lines of the file less the header
  EXPECT_EQ(t[0].input_tokens, 374);
  EXPECT_EQ(t[1].output_tokens, 109);
  EXPECT_NEAR(t[1].arrival_s, 4.314579, 1e-9);  // 50.9951690 - 46.6805900
  ReplayOptions o;
  o.step = 5000;
  o.rate = 5;
  const ReplayStep s = replay(t, o);
  EXPECT_EQ(s.requests.size(), 256u);
  EXPECT_GT(s.decodes, 0);
  check_conservation(head(t, 600), o = ReplayOptions{});
}

TEST(PublicTrace, MooncakeConversation) {
  const std::string path = public_trace("mooncake_conversation_trace.jsonl");
  if (path.empty())
    GTEST_SKIP() << "mooncake_conversation_trace.jsonl is not in a folder of ASSAY_TRACE_PATH";
  const auto t = read_trace(path);
  ASSERT_EQ(t.size(), 12031u);
  EXPECT_EQ(t[0].input_tokens, 6758);
  EXPECT_EQ(t[0].blocks.size(), 14u);
  ReplayOptions o;
  o.step = 0;
  const ReplayStep s = replay(t, o);
  // Requests 0 and 1 arrive together and share block 0 (the system prompt): 6758 tokens of the first, then
  // 8192 - 6758 of the second behind 512 cached ones.
  EXPECT_THAT(s.requests, ElementsAre(Request{1434, 1946, -1, 0}, Request{6758, 6758, 0, 512}));
  check_conservation(head(t, 200), ReplayOptions{});
}

TEST(Replay, ConservesTokensOnARandomTrace) {
  uint64_t state = 7;
  const auto below = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int32_t>((state >> 33) % n);
  };
  std::vector<TraceRequest> t;
  double clock = 0;
  for (int i = 0; i < 60; ++i) {
    clock += below(40) * 0.05;
    TraceRequest r = request(clock, 1 + below(3000), 1 + below(30));
    for (int b = 0; b < (r.input_tokens + 511) / 512; ++b) r.blocks.push_back(below(2));
    t.push_back(r);
  }
  for (const int32_t tokens : {1, 7, 512, 700, 8192})
    for (const int32_t seqs : {1, 5, 64}) {
      ReplayOptions o;
      o.max_tokens = tokens;
      o.max_requests = seqs;
      check_conservation(t, o);
    }
}

}  // namespace
}  // namespace assay
