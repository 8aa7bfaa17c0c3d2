// SPDX-License-Identifier: Apache-2.0
// O of a whole step read off the results, where a row's keys are attended in a chain of parts (chunks of the
// context, a prefix of all, context and new keys) and something about one part, about where parts end or
// about how they are joined is another. See explain_step.hpp.
#include <algorithm>
#include <cmath>

#include "harness/explain/stages/chain.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Chunks = std::vector<ChainPart>;

// Which parts there are, and where they end. `whole`: the context is one part; `budget`: keys of the chunks
// that the step is to cut.
std::vector<Departure> cuts(int32_t page, bool whole, int32_t budget) {
  std::vector<Departure> all;
  const auto add = [&](const char* cause, std::string how, std::function<void(Chunks&)> cut) {
    Departure d{cause, std::move(how)};
    d.cut = std::move(cut);
    all.push_back(std::move(d));
  };
  const auto context = [](Chunks& c) { return c.size() - 1; };  // parts before the last
  add("state_missing", "the last part of the context left out", [=](Chunks& c) { c.erase(c.end() - 2); });
  add("state_missing", "a last part of the context that is not full left out", [=](Chunks& c) {
    const ChainPart &first = c.front(), &last = c[context(c) - 1];
    if (context(c) > 1 && last.end - last.begin < first.end - first.begin) c.erase(c.end() - 2);
  });
  add("state_missing", "the first part of the context left out", [=](Chunks& c) { c.erase(c.begin()); });
  add("state_missing", "the last part of the context and the new keys alone",
      [=](Chunks& c) { c.erase(c.begin(), c.end() - 2); });
  add("state_missing", "the first part of the context and the new keys alone",
      [=](Chunks& c) { c.erase(c.begin() + 1, c.end() - 1); });
  add("state_missing", "every other part of the context", [=](Chunks& c) {
    for (size_t q = context(c); q-- > 0;)
      if (q % 2 == 1) c.erase(c.begin() + static_cast<std::ptrdiff_t>(q));
  });
  add("new_keys_missing", "the context alone", [=](Chunks& c) { c.pop_back(); });
  add("context_missing", "the new keys alone", [=](Chunks& c) { c.erase(c.begin(), c.end() - 1); });
  add("lengths_with_new", "the context goes on over the new keys, which the last part holds too",
      [=](Chunks& c) { c[context(c) - 1].end = c.back().end; });
  add("state_twice", "the first part of the context once more",
      [=](Chunks& c) { c.insert(c.begin(), ChainPart(c.front())); });
  add("state_twice", "the last part of the context once more",
      [=](Chunks& c) { c.insert(c.end() - 1, ChainPart(c[context(c) - 1])); });
  add("state_twice", "the last part holds what the parts before hold too",
      [=](Chunks& c) { c.back().begin = 0; });
  add("state_twice", "the last part once more", [=](Chunks& c) { c.push_back(ChainPart(c.back())); });
  for (const int32_t by : {1, 2}) {
    add("keys.one_doubled", fmt::format("every part but the first begins {} keys early", by), [=](Chunks& c) {
      for (size_t q = 1; q < c.size(); ++q) c[q].begin = std::max(0, c[q].begin - by);
    });
    add("keys.one_doubled", fmt::format("every part of the context but the first begins {} keys early", by),
        [=](Chunks& c) {
          for (size_t q = 1; q < context(c); ++q) c[q].begin -= by;
        });
    add("keys.one_doubled", fmt::format("every part of the context ends {} keys late", by), [=](Chunks& c) {
      for (size_t q = 0; q < context(c); ++q) c[q].end += by;
    });
    add("keys.one_dropped", fmt::format("every part but the first begins {} keys late", by), [=](Chunks& c) {
      for (size_t q = 1; q < c.size(); ++q) c[q].begin = std::min(c[q].begin + by, c[q].end);
    });
    add("keys.one_dropped", fmt::format("every part of the context but the first begins {} keys late", by),
        [=](Chunks& c) {
          for (size_t q = 1; q < context(c); ++q) c[q].begin = std::min(c[q].begin + by, c[q].end);
        });
    add("keys.one_dropped", fmt::format("every part of the context ends {} keys early", by), [=](Chunks& c) {
      for (size_t q = 0; q < context(c); ++q) c[q].end = std::max(c[q].end - by, c[q].begin);
    });
    add("keys.one_dropped", fmt::format("the last {} keys of the context in no part", by), [=](Chunks& c) {
      ChainPart& last = c[context(c) - 1];
      last.end = std::max(last.end - by, last.begin);
    });
  }
  for (const int32_t unit : {page, 16, 32, 64})
    if (unit > 1) {
      add("keys.one_doubled",
          fmt::format("the context, or the prefix, goes on to the end of its run of {} keys", unit),
          [=](Chunks& c) {
            ChainPart& last = c[context(c) - 1];
            last.end = std::min((last.end + unit - 1) / unit * unit, c.back().end);
          });
      add("keys.one_doubled", fmt::format("the last part begins where its run of {} keys does", unit),
          [=](Chunks& c) { c.back().begin = c.back().begin / unit * unit; });
    }
  for (const int32_t unit : {page, 4, 8, 16, 32, 64})
    if (unit > 1) {
      if (whole && unit == budget)
        add("state_missing", fmt::format("a last part of the context of less than {} keys left out", unit),
            [=](Chunks& c) {
              for (size_t q = 0; q < context(c); ++q)
                c[q].end = c[q].begin + (c[q].end - c[q].begin) / unit * unit;
            });
      add(whole ? "keys.tail_dropped" : "keys.one_dropped",
          fmt::format("of every part of the context whole runs of {} keys", unit), [=](Chunks& c) {
            for (size_t q = 0; q < context(c); ++q)
              c[q].end = c[q].begin + (c[q].end - c[q].begin) / unit * unit;
          });
      add("keys.one_doubled", fmt::format("parts of the context begin at whole runs of {} keys", unit),
          [=](Chunks& c) {
            for (size_t q = 0; q < context(c); ++q) c[q].begin = c[q].begin / unit * unit;
          });
      add("keys.wrong_start",
          fmt::format("parts of the context as long as they are, from whole runs of {} keys on", unit),
          [=](Chunks& c) {
            for (size_t q = 0; q < context(c); ++q) c[q].shift = c[q].begin / unit * unit - c[q].begin;
          });
    }
  add("starts_zero", "every part of the context holds its first keys", [=](Chunks& c) {
    for (size_t q = 0; q < context(c); ++q) c[q].shift = -c[q].begin;
  });
  add("starts_other", "every part of the context holds the keys of the one before", [=](Chunks& c) {
    for (size_t q = 1; q < context(c); ++q) c[q].shift = c[q - 1].begin - c[q].begin;
  });
  add("keys.wrong_start", "the last part holds the first keys",
      [=](Chunks& c) { c.back().shift = -c.back().begin; });
  add("chunk_stale", "behind a short part of the context stand the keys of the one before", [=](Chunks& c) {
    const int32_t size = c.front().end - c.front().begin;
    for (size_t q = 1; q < context(c); ++q)
      if (c[q].end - c[q].begin < size)
        c[q].stale_from = c[q].end, c[q].stale_by = size, c[q].end = c[q].begin + size;
  });
  return all;
}

// How parts are joined. `last`: with the last one.
std::vector<Departure> joins() {
  std::vector<Departure> all;
  using Join = std::function<void(const ChainJoin&, double&, double&, double&)>;
  const auto add = [&](const char* cause, std::string how, Join join) {
    for (const int which : {0, 1, 2}) {
      const char* of[] = {"", ", of chunks of the context alone", ", of context and new keys alone"};
      Departure d{cause, how + of[which]};
      d.join = [=](const ChainJoin& j, double& wa, double& wb, double& lse) {
        if (which == 0 || (which == 2) == j.last) join(j, wa, wb, lse);
      };
      all.push_back(std::move(d));
    }
  };
  add("merge_unweighted", "with equal weights",
      [](const ChainJoin&, double& wa, double& wb, double&) { wa = wb = 1; });
  add("merge_unweighted", "the mean of all parts so far",
      [](const ChainJoin& j, double& wa, double& wb, double&) {
        wa = static_cast<double>(j.so_far), wb = 1;
      });
  add("merge_largest", "the one of the larger LSE alone",
      [](const ChainJoin& j, double& wa, double& wb, double&) { wa = j.a >= j.b ? 1 : 0, wb = 1 - wa; });
  add("states_exchanged", "with each other's weights",
      [](const ChainJoin&, double& wa, double& wb, double&) { std::swap(wa, wb); });
  add("merge_base2", "weights of base 2 for natural LSE",
      [](const ChainJoin& j, double& wa, double& wb, double&) {
        const double top = std::max(j.a, j.b);
        wa = std::exp2(j.a - top), wb = std::exp2(j.b - top);
      });
  add("merge_base2", "weights of e for LSE of base 2",
      [](const ChainJoin& j, double& wa, double& wb, double&) {
        const double top = std::max(j.a, j.b);
        wa = std::exp((j.a - top) * M_LOG2E), wb = std::exp((j.b - top) * M_LOG2E);
      });
  add("merge_base2", "the LSE of the first of the two in base 2",
      [](const ChainJoin& j, double& wa, double& wb, double&) {
        const double top = std::max(j.a * M_LOG2E, j.b);
        wa = std::exp(j.a * M_LOG2E - top), wb = std::exp(j.b - top);
      });
  add("merge_base2", "the LSE of the second of the two in base 2",
      [](const ChainJoin& j, double& wa, double& wb, double&) {
        const double top = std::max(j.a, j.b * M_LOG2E);
        wa = std::exp(j.a - top), wb = std::exp(j.b * M_LOG2E - top);
      });
  add("state_twice", "the second of the two weighed twice",
      [](const ChainJoin&, double&, double& wb, double&) { wb *= 2; });
  add("state_twice", "the weight of the second squared",
      [](const ChainJoin&, double&, double& wb, double&) { wb *= wb; });
  add("state_twice", "the first of the two weighed twice",
      [](const ChainJoin&, double& wa, double&, double&) { wa *= 2; });
  add("merge.lse_wrong", "the joined LSE is that of the first",
      [](const ChainJoin& j, double&, double&, double& lse) { lse = j.a; });
  add("merge.lse_wrong", "the joined LSE is that of the second",
      [](const ChainJoin& j, double&, double&, double& lse) { lse = j.b; });
  add("merge.lse_wrong", "the joined LSE is the larger of both",
      [](const ChainJoin& j, double&, double&, double& lse) { lse = std::max(j.a, j.b); });
  add("merge.lse_wrong", "the joined LSE is the mean of both",
      [](const ChainJoin& j, double&, double&, double& lse) { lse = (j.a + j.b) / 2; });
  add("merge.lse_wrong", "the joined LSE is the sum of both",
      [](const ChainJoin& j, double&, double&, double& lse) { lse = j.a + j.b; });
  add("merge.lse_wrong", "the joined LSE is the logarithm of the sum alone, without the larger one",
      [](const ChainJoin& j, double&, double&, double& lse) { lse -= std::max(j.a, j.b); });
  Departure empty{"empty_as_zero", "a part without keys counts with an LSE of 0 and zeros"};
  empty.empty_counts = true;
  all.push_back(empty);
  for (const int32_t format : {int32_t{ASSAY_BF16}, int32_t{ASSAY_FP16}}) {
    Departure d{"precision.partial_lse",
                fmt::format("the LSE of parts in {}", format == ASSAY_BF16 ? "bf16" : "fp16")};
    d.lse = [=](const ChainAt&, double own) { return round_to(format, own); };
    all.push_back(std::move(d));
  }
  return all;
}

}  // namespace

std::vector<StepRanked> StepChain::all() {
  if (rows_.empty()) return {};
  queries();
  coarse_distances();
  caps();
  int32_t longest = 0;
  for (const Request& request : p_.requests) longest = std::max(longest, request.context_len());
  for (const Cut& cut : cuts_of_rows()) {
    cut_ = cut;
    for (const Departure& d : cuts(p_.page_size, cut.chunk >= longest, p_.token_budget)) try_out(d);
    for (const Departure& d : joins()) try_out(d);
    sinks();
    lses();
    for (const bool context : {true, false}) masks(context), scores(context);
  }
  return std::move(list_);
}

std::vector<StepRanked> chain_patterns(const StageCase& c, const StageVerdict& nothing) {
  if (c.kernel().op != ASSAY_OP_PAGED) return {};
  return StepChain(c, nothing).all();
}

}  // namespace assay
