// SPDX-License-Identifier: Apache-2.0
// See rank_rows.hpp.
#include "harness/run/rank_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/measure/host_load.hpp"
#include "harness/run/rank_operands.hpp"
#include "harness/run/stage_rows.hpp"

namespace assay {
namespace {

// All that was sampled, by rank.
class RankSeries {
 public:
  explicit RankSeries(RankGroup& group) : group_(group) {}
  TimedSample sample() {
    const Samples now = group_.sample();
    TimedSample longest = now[0];
    of_.resize(now.size());
    for (size_t rank = 0; rank < now.size(); ++rank) {
      of_[rank].push_back(now[rank]);
      longest.us = std::max(longest.us, now[rank].us);
      longest.dropped = longest.dropped || now[rank].dropped;
      longest.sm_mhz = std::fmin(longest.sm_mhz, now[rank].sm_mhz);
    }
    return longest;
  }
  // The samples of a rank that the group's timing took, as a timing of their own.
  Timing of(size_t rank, const Timing& group) const {
    Samples taken(of_[rank].end() - static_cast<ptrdiff_t>(group.taken.size()), of_[rank].end());
    std::vector<double> kept;
    for (size_t i = 0; i < taken.size(); ++i) {
      taken[i].at_s = group.taken[i].at_s, taken[i].dropped = group.taken[i].dropped;
      if (!taken[i].dropped) kept.push_back(taken[i].us);
    }
    Timing t = kept.empty() ? Timing{} : summarize(kept);
    t.taken = std::move(taken), t.stop = group.stop, t.dropped = group.dropped;
    t.steady = group.steady, t.waited_s = group.waited_s;
    return t;
  }

 private:
  RankGroup& group_;
  std::vector<Samples> of_;
};

CallClocks clocks_in(const Timing& t, bool knows_throttling) {
  std::vector<double> mhz;
  for (const TimedSample& s : t.taken)
    if (!s.dropped && std::isfinite(s.sm_mhz)) mhz.push_back(s.sm_mhz);
  return {mhz.empty() ? std::nan("") : summarize(mhz).median_us, knows_throttling};
}

// Of that many devices together; ranks on the host share what there is.
Limits limits_of(const TimedCase& c, int32_t ranks) {
  const double times = c.backend.table()->host_memory != 0 ? 1 : ranks;
  Limits all = c.limits;
  for (double* each :
       {&all.read_bytes_per_s, &all.copy_bytes_per_s, &all.write_bytes_per_s, &all.matrix_flops_fp32,
        &all.matrix_flops_bf16, &all.matrix_flops_fp8, &all.matrix_flops_int8})
    *each *= times;
  return all;
}

}  // namespace

std::vector<Work> work_of_ranks(const Problem& p, const Work& whole) {
  const auto ranks = static_cast<size_t>(p.ranks);
  std::vector<double> pairs(ranks), keys(ranks);  // with the context; all
  double all_pairs = 0, all_keys = 0;
  for (const Request& r : p.requests)
    for (int32_t key = 0; key < r.kv_len; ++key) {
      const auto owner = static_cast<size_t>(owner_of(key, p.ranks, p.interleave).rank);
      ++keys[owner], ++all_keys;
      if (key < r.context_len()) pairs[owner] += r.q_len, all_pairs += r.q_len;
    }
  const double of_context =
      std::min(whole.flops, 2.0 * (p.head_dim_qk + p.head_dim_v) * p.heads_q * all_pairs);
  std::vector<Work> parts(ranks, whole);
  for (size_t rank = 0; rank < ranks; ++rank) {
    Work& w = parts[rank];
    w.flops =
        (whole.flops - of_context) / p.ranks + (all_pairs > 0 ? of_context * pairs[rank] / all_pairs : 0);
    w.kv_bytes = all_keys > 0 ? whole.kv_bytes * keys[rank] / all_keys : 0;
    w.total_bytes = (whole.total_bytes - whole.kv_bytes) / p.ranks + w.kv_bytes;
  }
  return parts;
}

bool time_ranks(const TimedCase& c, RankGroup& group, Judge& judge, const std::string& mode, bool each_rank,
                const Row& checked) {
  const auto start = std::chrono::steady_clock::now();
  const Limits limits = limits_of(c, c.problem.ranks);
  assay_device devices = c.device;
  if (c.backend.table()->host_memory == 0) devices.cache_bytes *= c.problem.ranks;
  const TimedCase whole = {c.backend, devices, c.problem, c.work, limits, c.rule, c.clock, c.say};
  Row row = checked;
  RowAnswer answer;
  std::vector<RowAnswer> of_ranks;
  bool goes_on = true;
  try {
    group.prepare(*judge.inputs().view->get(), *judge.device_case().tensors(), mode);
    const StoppingRule rule = rule_for(whole);
    RankSeries series(group);
    const HostLoadMeter load;
    Timing t = measure([&] { return series.sample(); }, rule);
    const HostLoad busy = load.read();
    judge.clear_outputs();
    group.show();
    if (const Verdict again = judge.recheck(); again.outcome != Outcome::kPassed) {
      fill_verdict(row, again);
      row.reason = "outputs checked again after timing: " + again.reason;
      goes_on = false;
    } else {
      const std::vector<RankGroup::Seat>& seats = group.seats();
      const std::vector<Work> parts = work_of_ranks(c.problem, c.work);
      for (size_t rank = 0; each_rank && rank < seats.size(); ++rank) {
        RowAnswer& own = of_ranks.emplace_back();
        own.row = checked;
        own.row.kernel = stage_row_kernel(checked.kernel, fmt::format("rank{}", rank));
        own.row.device = seats[rank].device, own.row.device_uuid = seats[rank].uuid;
        const TimedCase part = {c.backend, c.device, c.problem, parts[rank],
                                c.limits,  c.rule,   c.clock,   c.say};
        Timing taken = series.of(rank, t);
        const CallClocks clocks = clocks_in(taken, seats[rank].knows_throttling);
        own.samples = fill_timed(own.row, part, clocks, rule, busy, mode, std::move(taken));
        own.row.tokens_per_s /= c.problem.ranks;  // of the group, this one's part
      }
      const CallClocks clocks = clocks_in(t, seats[0].knows_throttling);
      answer.samples = fill_timed(row, whole, clocks, rule, busy, mode, std::move(t));
    }
  } catch (...) {
    fill_untimed(row, mode);
    goes_on = !row.cache.empty();
  }
  const double case_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() + checked.case_s;
  answer.row = std::move(row);
  answer.row.case_s = case_s;
  c.say(answer);
  for (RowAnswer& own : of_ranks) own.row.case_s = case_s, c.say(own);
  return goes_on;
}

}  // namespace assay
