// SPDX-License-Identifier: Apache-2.0
// See order_calls.hpp. Scores are sums of digits of three bits, which every format of K holds exactly, so
// that keys of one level have one score to the bit; V is 0 but for the pairs.
#include "harness/explain/order_calls.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <set>

#include "harness/input/contracts.hpp"
#include "harness/input/inputs.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int kDigits = 4, kBits = 3;
constexpr double kUnit = 1.0 / 1024;  // of a level, natural units
constexpr double kHalfSpike = 7;      // a spike stands twice as far above the others: 2^20
constexpr double kNoSink = -60;
constexpr float kLeastCap = 40;  // a cap below it would press the levels together: none is asked for then
// Two ways to round agree by chance in about every second round in fp32.
constexpr int kRounds = 7;
constexpr int32_t kLevel = 150, kSpread = 1400;
// Where spikes stand, in shares of the keys that all witnesses see.
constexpr double kPlaces[] = {0.0, 1.0, 0.52, 0.27, 0.77, 0.39, 0.64};

// Whether the operands can be written here: one code an element, V apart from K, rows found one by one.
bool can_plant(const Problem& p) {
  const Op& op = op_of(p);
  if (!op.whole_context || (op.has_cache && p.layout == ASSAY_LAYOUT_MLA)) return false;
  if (p.head_dim_qk <= kDigits || p.padded_rows > 0 || !p.encoder_len.empty()) return false;
  return std::ranges::all_of(std::vector{p.q_format, p.k_format, p.v_format},
                             [](int32_t f) { return format_bytes(f) >= 1; });
}

// What V holds at a pair, so large that what is left of one does not vanish in a narrow output and no
// accumulator of 16 bits overflows.
double value_of(int32_t format) { return format_bytes(format) > 1 ? 16384 : 64; }

KeyRange seen_by_row(const Problem& p, int32_t request, int32_t row) {
  KeyRange keys{p.requests[request].kv_len, 0};
  int32_t count = 0;
  for (int32_t k = 0; k < p.requests[request].kv_len; ++k)
    if (visible(p, request, row, k)) keys.begin = std::min(keys.begin, k), keys.end = k + 1, ++count;
  return count == keys.end - keys.begin ? keys : KeyRange{0, 0};  // one run of keys
}

struct Asked {  // of one request in one call
  int32_t request = 0, spike = 0, beside = 0;
  std::vector<int32_t> keys;  // a dimension each
};

class Planted {
 public:
  Planted(const Problem& problem, const Backend& backend, const assay_kernel& kernel)
      : backend_(backend), kernel_(kernel), inputs_(build_inputs(problem)) {
    meet_contracts(inputs_, contracts_of(kernel));
    const Problem& p = inputs_.problem;
    inputs_.q_scale_host = inputs_.k_scale_host = inputs_.v_scale_host = 1;
    for (const Operand op : {Operand::kQScale, Operand::kKScale, Operand::kVScale}) fill(op, 1);
    if (p.sinks) fill(Operand::kSinks, kNoSink);
    if (p.alibi != ASSAY_ALIBI_NONE) fill(Operand::kAlibiSlopes, 0);
    value_ = value_of(p.v_format);
    if (op_of(p).has_cache) cache_ = std::make_unique<PagedCache>(p);
    k_ = operand_layout(p, Operand::kK), v_ = operand_layout(p, Operand::kV);
    first_rows_ = p.cu_q();
    device_case_ = std::make_unique<DeviceCase>(backend_, inputs_, call_workspace(kernel_, view()));
    planned_ = call_plan(backend_, kernel_, view(), device_case_->tensors(), &plan_).ok();
  }
  ~Planted() { call_free_plan(kernel_, plan_); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
  bool planned() const { return planned_; }

  void begin(int32_t request) {
    const Problem& p = inputs_.problem;
    std::vector<Slot>& places = places_[request];
    for (int32_t key = 0; key < p.requests[request].kv_len; ++key) places.push_back(place_of(request, key));
    const TensorLayout q = operand_layout(p, Operand::kQ);
    // The same mantissa in every digit, so that they add up as levels do.
    const double unit = round_to(p.q_format, 1.0 / p.softmax_scale);
    for (int32_t row = 0; row < p.requests[request].q_len; ++row)
      for (int32_t h = 0; h < p.heads_q; ++h)
        for (int32_t d = 0; d < p.head_dim_qk; ++d)
          put(Operand::kQ, p.q_format, q.at({first_rows_[request] + row, h, d}),
              d < kDigits    ? unit * kUnit * std::exp2(kBits * d)
              : d == kDigits ? unit
                             : 0);
    for (const Slot& at : places)
      for (int32_t h = 0; h < p.heads_kv; ++h) {
        for (int32_t d = 0; d < p.head_dim_qk; ++d) put_kv(Operand::kK, at, h, d, 0);
        for (int32_t d = 0; d < p.head_dim_v; ++d) put_kv(Operand::kV, at, h, d, 0);
      }
  }

  // One call. Every key but those that are asked about is a little above them, in no order.
  bool ask(const std::vector<Asked>& all, uint32_t draw) {
    const Problem& p = inputs_.problem;
    for (const Asked& a : all) {
      const std::vector<Slot>& places = places_[a.request];
      std::vector<int32_t> levels(places.size());
      for (int32_t& level : levels) {
        draw = draw * 1664525u + 1013904223u;
        level = kLevel + 1 + static_cast<int32_t>((draw >> 8) % kSpread);
      }
      levels[a.beside] = kLevel;
      for (const int32_t key : a.keys) levels[key] = kLevel;
      for (int32_t key = 0; key < static_cast<int32_t>(places.size()); ++key)
        for (int32_t h = 0; h < p.heads_kv; ++h) {
          for (int32_t d = 0; d < kDigits; ++d)
            put_kv(Operand::kK, places[key], h, d, levels[key] >> (kBits * d) & ((1 << kBits) - 1));
          put_kv(Operand::kK, places[key], h, kDigits, key == a.spike ? kHalfSpike : -kHalfSpike);
        }
    }
    set(all, value_);
    device_case_->upload();
    const bool made = call_run(backend_, kernel_, view(), device_case_->tensors(), plan_).ok();
    if (made) raw_ = device_case_->download(Operand::kO);
    set(all, 0);
    return made;
  }

  // Whether nothing is left of a pair.
  bool zero(const Cell& c, int32_t dim) const {
    const GuardedBuffer& host = inputs_.buffers[Operand::kO];
    const assay_tensor& o = inputs_.tensors.o;
    const std::byte* data = raw_.data() + (static_cast<const std::byte*>(o.data) - host.raw());
    return load(o.format, data,
                (first_rows_[c.request] + c.row) * o.stride[0] + c.head * o.stride[1] + dim * o.stride[2]) ==
           0;
  }

 private:
  const assay_problem* view() const { return inputs_.view->get(); }

  void set(const std::vector<Asked>& all, double x) {
    for (const Asked& a : all)
      for (size_t i = 0; i < a.keys.size(); ++i)
        for (int32_t h = 0; h < inputs_.problem.heads_kv; ++h) {
          put_kv(Operand::kV, places_[a.request][a.beside], h, static_cast<int32_t>(i), x);
          put_kv(Operand::kV, places_[a.request][a.keys[i]], h, static_cast<int32_t>(i), -x);
        }
  }

  void put(Operand op, int32_t format, int64_t at, double value) {
    store(format, inputs_.buffers[op].payload(), at, value);
  }

  // Of a paged cache the slot, else the row; block -1: a page that is not kept.
  Slot place_of(int32_t request, int32_t key) const {
    const Problem& p = inputs_.problem;
    if (!op_of(p).has_cache) return {static_cast<int32_t>(p.cu_kv()[request]) + key, 0};
    const PageRange keep = resident_pages(p, request);
    const int32_t page = key / p.page_size;
    return page < keep.first || page >= keep.last ? Slot{-1, 0} : locate(p, request, key);
  }

  void put_kv(Operand op, const Slot& at, int32_t head, int32_t dim, double value) {
    const Problem& p = inputs_.problem;
    const bool is_k = op == Operand::kK;
    if (at.block < 0) return;
    const int64_t element = !op_of(p).has_cache ? (is_k ? k_ : v_).at({at.block, head, dim})
                            : is_k              ? cache_->k_offset(at.block, at.slot, head, dim)
                                                : cache_->v_offset(at.block, at.slot, head, dim);
    put(op, is_k ? p.k_format : p.v_format, element, value);
  }

  // Every element of a small operand of its own format.
  void fill(Operand op, double value) {
    const assay_tensor& t = tensor_of(inputs_.tensors, op);
    if (t.data == nullptr) return;
    std::vector<int64_t> at(t.rank, 0);
    for (bool more = true; more;) {
      int64_t offset = 0;
      for (int d = 0; d < t.rank; ++d) offset += at[d] * t.stride[d];
      store(t.format, t.data, offset, value);
      more = false;
      for (int d = t.rank - 1; d >= 0 && !more; --d) more = ++at[d] < t.shape[d] || (at[d] = 0, false);
    }
  }

  const Backend& backend_;
  const assay_kernel& kernel_;
  Inputs inputs_;
  std::unique_ptr<DeviceCase> device_case_;
  std::unique_ptr<PagedCache> cache_;
  assay_plan* plan_ = nullptr;
  bool planned_ = false;
  std::map<int32_t, std::vector<Slot>> places_;  // by request
  std::vector<int32_t> first_rows_;
  std::vector<std::byte> raw_;
  TensorLayout k_, v_;
  double value_ = 1;
};

struct Witness {
  Cell cell;
  KeyRange keys;
};

// What is known of one request while its keys are asked about.
struct Asking {
  int32_t request = 0;
  KeyRange common;  // that all witnesses see
  std::vector<Witness> witnesses;
  Asked now;
  std::vector<std::vector<char>> alike;  // by witness and key
};

std::vector<Asking> requests_to_ask(const Problem& p, const OrderLimits& limits) {
  std::vector<Asking> list;
  std::vector<int32_t> order;
  std::set<std::pair<int32_t, int32_t>> lengths;
  for (size_t r = 0; r < p.requests.size(); ++r)
    if (const Request& of = p.requests[r];
        of.q_len > 0 && of.kv_len <= limits.keys && lengths.insert({of.q_len, of.kv_len}).second)
      order.push_back(static_cast<int32_t>(r));
  std::ranges::stable_sort(order,
                           [&](int32_t l, int32_t r) { return p.requests[l].kv_len > p.requests[r].kv_len; });
  // Requests that share pages cannot hold different keys.
  const bool shared = std::ranges::any_of(p.requests, [](const Request& r) { return r.shared_with >= 0; });
  for (const int32_t r : order) {
    if (list.size() >= (shared ? 1 : static_cast<size_t>(limits.requests))) break;
    Asking a;
    a.request = r;
    const int32_t last = p.requests[r].q_len - 1;
    a.common = seen_by_row(p, r, last);
    const int32_t least = (a.common.end - a.common.begin) / 2;
    for (const int32_t row : std::set<int32_t>{last, 0, last / 2}) {
      const KeyRange keys = seen_by_row(p, r, row);
      const KeyRange both{std::max(keys.begin, a.common.begin), std::min(keys.end, a.common.end)};
      if (both.end - both.begin < std::max(6, least)) continue;
      a.common = both;
      a.witnesses.push_back({{r, row, 0}, keys});
    }
    if (!a.witnesses.empty()) list.push_back(std::move(a));
  }
  return list;
}

}  // namespace

std::vector<SpikeSeen> spikes_by_calls(const Problem& given, const Backend& backend,
                                       const assay_kernel& kernel, const OrderLimits& limits,
                                       int32_t* calls) {
  std::vector<SpikeSeen> seen;
  Problem problem = given;
  if (problem.softcap > 0 && problem.softcap < kLeastCap) problem.softcap = 0;
  if (!can_plant(problem)) return seen;
  // Of this process, whatever else the machine does.
  const std::clock_t start = std::clock();
  const auto over = [&] {
    return static_cast<double>(std::clock() - start) > limits.seconds * CLOCKS_PER_SEC;
  };
  std::vector<Asking> all = requests_to_ask(problem, limits);
  if (all.empty()) return seen;
  Planted planted(problem, backend, kernel);
  if (!planted.planned()) return seen;
  for (const Asking& a : all) planted.begin(a.request);
  const auto dims = static_cast<size_t>(problem.head_dim_v);
  // All keys of all requests against the key beside their spike; false: refused, or no time is left.
  const auto asked = [&]() -> bool {
    std::vector<std::vector<int32_t>> open(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      Asking& a = all[i];
      a.alike.assign(a.witnesses.size(), {});
      std::set<int32_t> keys;
      for (size_t w = 0; w < a.witnesses.size(); ++w) {
        const KeyRange& range = a.witnesses[w].keys;
        a.alike[w].assign(range.end - range.begin, 1);
        for (int32_t k = range.begin; k < range.end; ++k) keys.insert(k);
      }
      keys.erase(a.now.spike), keys.erase(a.now.beside);
      open[i].assign(keys.begin(), keys.end());
    }
    for (int round = 0; round < kRounds; ++round) {
      size_t most = 0;
      for (const auto& keys : open) most = std::max(most, keys.size());
      const size_t turns = (most + dims - 1) / dims;
      for (size_t turn = 0; turn < turns; ++turn) {
        if (over()) return false;
        std::vector<Asked> now;
        for (size_t i = 0; i < all.size(); ++i) {
          all[i].now.request = all[i].request;
          all[i].now.keys.clear();
          // Far from one another, so that no tile is filled by them.
          for (size_t k = turn; k < open[i].size(); k += turns) all[i].now.keys.push_back(open[i][k]);
          now.push_back(all[i].now);
        }
        ++*calls;
        if (!planted.ask(now, 7919u * static_cast<uint32_t>(*calls))) return false;
        for (Asking& a : all)
          for (size_t d = 0; d < a.now.keys.size(); ++d)
            for (size_t w = 0; w < a.witnesses.size(); ++w) {
              const KeyRange& range = a.witnesses[w].keys;
              const int32_t key = a.now.keys[d];
              if (key >= range.begin && key < range.end && !planted.zero(a.witnesses[w].cell, d))
                a.alike[w][key - range.begin] = 0;
            }
      }
      for (size_t i = 0; i < all.size(); ++i)
        std::erase_if(open[i], [&](int32_t key) {
          const Asking& a = all[i];
          for (size_t w = 0; w < a.witnesses.size(); ++w) {
            const KeyRange& range = a.witnesses[w].keys;
            if (key >= range.begin && key < range.end && a.alike[w][key - range.begin]) return false;
          }
          return true;
        });
    }
    return true;
  };
  for (const double place : kPlaces) {
    for (Asking& a : all) {
      const int32_t n = a.common.end - a.common.begin;
      a.now.spike = a.common.begin + std::clamp(static_cast<int32_t>(place * n), 1, n - 3);
    }
    // A tile may begin or end beside the spike, so both neighbours are asked.
    for (const int32_t side : {1, -1}) {
      for (Asking& a : all) a.now.beside = a.now.spike + side;
      if (!asked()) return seen;
      for (const Asking& a : all)
        for (size_t w = 0; w < a.witnesses.size(); ++w)
          seen.push_back({a.witnesses[w].cell, a.witnesses[w].keys, a.now.spike, a.now.beside, a.alike[w]});
      bool one_side = true;
      for (const Asking& a : all)
        for (size_t w = 0; w < a.witnesses.size(); ++w)
          one_side &= a.alike[w][a.now.spike - 1 - a.witnesses[w].keys.begin] != 0;
      if (side == 1 && one_side) break;
    }
  }
  return seen;
}

OrderSeen order_by_calls(const Problem& problem, const Backend& backend, const assay_kernel& kernel,
                         const OrderLimits& limits) {
  int32_t calls = 0;
  const std::vector<SpikeSeen> seen = spikes_by_calls(problem, backend, kernel, limits, &calls);
  OrderSeen order = seen.empty() ? OrderSeen{} : order_rule(problem, seen);
  order.calls = calls;
  return order;
}

}  // namespace assay
