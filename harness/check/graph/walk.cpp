// SPDX-License-Identifier: Apache-2.0
// See walk.hpp.
#include "harness/check/graph/walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "harness/check/graph/replays.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

constexpr uint64_t kOtherPages = 0x9e3779b97f4a7c15;
constexpr int kArrivesOneIn = 3, kRaggedOneIn = 3;
constexpr int32_t kMostStepsOfEncoder = 12;  // which a request with cross attention lasts

struct Live {
  int origin;
  int32_t context;   // keys in the cache before the step, or the encoder's
  int32_t left = 0;  // of an encoder: steps to come
};

class Walker {
 public:
  explicit Walker(const Problem& p)
      : p_(p),
        random_(p.seed * 2654435761 + 97),
        rows_(p.requests[0].q_len),
        keys_(rows_ * (p.drafted + 1)),
        to_encoder_(p.mask == ASSAY_MASK_CROSS) {
    order_.resize(p.requests.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return p.requests[a].kv_len > p.requests[b].kv_len; });
    for (size_t n = 1; n < order_.size(); n *= 2) sizes_.push_back(n);
    sizes_.push_back(order_.size());
    free_ = order_;
    const size_t first = (order_.size() + 1) / 2;
    while (live_.size() < first) arrive();
  }

  Walk walk(int steps) {
    Walk w;
    for (const size_t size : sizes_) {
      std::vector<Request> requests;
      for (size_t i = 0; i < size; ++i) requests.push_back(p_.requests[order_[i]]);
      for (int32_t drafted = 0; drafted <= p_.drafted; ++drafted) {
        std::vector<Request> shorter = requests;
        for (Request& r : shorter) r.kv_len -= rows_ * (p_.drafted - drafted);
        w.captures.push_back(
            reshaped(p_, {order_.begin(), order_.begin() + static_cast<ptrdiff_t>(size)}, shorter, drafted));
      }
    }
    for (int n = 0; static_cast<int>(w.steps.size()) < steps; ++n) step(n, w.steps);
    w.steps.resize(static_cast<size_t>(steps));
    return w;
  }

 private:
  int32_t below(int32_t n) { return n <= 1 ? 0 : static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  // A request that was not there, with a context that leaves room for a step at least.
  void arrive() {
    const size_t at = static_cast<size_t>(below(static_cast<int32_t>(free_.size())));
    const int origin = free_[at];
    free_.erase(free_.begin() + static_cast<ptrdiff_t>(at));
    if (to_encoder_)
      live_.push_back({origin, below(p_.requests[origin].kv_len + 1), 1 + below(kMostStepsOfEncoder)});
    else
      live_.push_back({origin, below(p_.requests[origin].kv_len - keys_ + 1)});
  }

  // One step of a server; of drafts all their steps, one after the other.
  void step(int n, std::vector<WalkStep>& out) {
    if (live_.empty() || (!free_.empty() && below(kArrivesOneIn) == 0)) arrive();
    if (live_.size() > 1 && below(2) == 0) std::swap(live_.front(), live_[live_.size() / 2]);
    const bool ragged = below(kRaggedOneIn) == 0 && p_.drafted == 0;  // branches end together
    std::vector<int> origin;
    std::vector<Request> requests;
    for (Live& r : live_) {
      const int32_t rows = ragged ? 1 + below(rows_) : rows_;
      origin.push_back(r.origin), requests.push_back({rows, r.context + (to_encoder_ ? 0 : rows)});
      if (!to_encoder_)
        r.context += 1 + below(p_.drafted > 0 ? p_.drafted + 1 : rows);  // of which as many are kept
    }
    int fits = 0;
    while (sizes_[static_cast<size_t>(fits)] < origin.size()) ++fits;
    const size_t live = origin.size(), size = sizes_[static_cast<size_t>(fits)];
    const int32_t padding = n % 2;  // its length
    for (size_t i = 0; origin.size() < size; ++i)
      origin.push_back(free_[i]), requests.push_back({padding, padding});
    for (int32_t drafted = 0; drafted <= p_.drafted; ++drafted) {
      WalkStep& step = out.emplace_back();
      step.capture = fits * (p_.drafted + 1) + drafted;
      step.name = fmt::format("step {}{}, {} requests in a capture of {}", n,
                              p_.drafted > 0 ? fmt::format(" of drafts after {}", drafted) : std::string(),
                              live, size);
      step.call = reshaped(p_, origin, requests, drafted);
      for (Request& r : requests) r.kv_len += r.q_len;  // of the next step of drafts
    }
    for (size_t i = live_.size(); i-- > 0;)
      if (to_encoder_ ? --live_[i].left == 0
                      : live_[i].context + keys_ > p_.requests[live_[i].origin].kv_len) {
        free_.push_back(live_[i].origin);
        live_[i] = live_.back();  // the last one takes its place
        live_.pop_back();
      }
  }

  const Problem& p_;
  std::mt19937_64 random_;
  int32_t rows_, keys_;            // of a request in a step: new ones, and with drafts before
  bool to_encoder_;                // whose tokens stay as many as they are
  std::vector<int> order_, free_;  // longest first; nobody's at the moment
  std::vector<size_t> sizes_;      // of captures
  std::vector<Live> live_;
};

}  // namespace

Walk walk_of(const Problem& p, int steps) {
  if (p.requests.empty() || p.requests[0].q_len < 1) return {{}, {}, "a walk needs requests with rows"};
  if (p.mask == ASSAY_MASK_FULL) return {{}, {}, "the rows of an encoder are all of its tokens"};
  for (const Request& r : p.requests)
    if (r.q_len != p.requests[0].q_len || (p.mask != ASSAY_MASK_CROSS && r.kv_len < p.drafts(r)))
      return {{},
              {},
              fmt::format("a walk needs one number of rows in all requests, of which each has as many "
                          "keys at least; it has {} and {} rows of {} keys",
                          p.requests[0].q_len, r.q_len, r.kv_len)};
  Walk walk = Walker(p).walk(steps);
  const Op& op = op_of(p);
  if (takes(op, "pad"))
    for (WalkStep& s : walk.steps)
      s.call.problem.padded_rows = static_cast<int32_t>(
          walk.captures[static_cast<size_t>(s.capture)].problem.total_q() - s.call.problem.total_q());
  if (!op.has_cache) return walk;
  int32_t blocks = 0;
  for (DerivedCall& c : walk.captures)
    place_pages(c.problem), blocks = std::max(blocks, c.problem.num_blocks);
  for (DerivedCall& c : walk.captures) c.problem.min_blocks = blocks, place_pages(c.problem);
  for (size_t n = 0; n < walk.steps.size(); ++n) {
    Problem& d = walk.steps[n].call.problem;
    d.min_blocks = blocks;
    d.seed ^= kOtherPages * (n + 1);  // other pages in every step, the same values
    place_pages(d);
    d.seed = p.seed;
  }
  return walk;
}

std::string check_walk(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                       const Problem& problem, int steps, const assay_arithmetic& fallback,
                       double row_key_budget, RelationResult& result) {
  if (result.note = outside_graph_contracts(problem, contracts_of(kernel)); !result.note.empty()) return {};
  const Walk walk = walk_of(problem, steps);
  if (result.note = walk.nothing; !result.note.empty()) return {};
  const InputValues values(problem);
  Replays replays(backend, kernel, device, values, row_key_budget, walk.captures.back());
  for (const DerivedCall& batch : walk.captures)
    if (std::string reason = replays.capture(batch, fallback, &result.note); !reason.empty())
      return result.note.empty()
                 ? fmt::format("capture of {} requests: {}", batch.problem.requests.size(), reason)
                 : std::string();
  for (const WalkStep& step : walk.steps)
    if (std::string reason =
            replay_batch(replays, values, kernel, step.call, {step.capture, false, true}, step.name, result);
        !reason.empty())
      return reason;
  return {};
}

}  // namespace assay
