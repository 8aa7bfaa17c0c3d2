// SPDX-License-Identifier: Apache-2.0
// O of a whole step read off the results: context and new keys, or chunks of the context, attended apart and
// put together in a wrong way; results of other rows. See explain_step.hpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr size_t kPartRows = 64;     // wrong ones that are looked at
constexpr int64_t kRowsOfAll = 256;  // of a step in which other rows' results are looked for
constexpr int32_t kMostChunks = 24;
constexpr double kSameRow = 1e-4;          // of the square of a row; rounding of 16 bits is a hundredth of it
constexpr double kBetterThanRight = 0.05;  // ... and of the error that the right answer leaves
constexpr double kPartShare = 0.97, kPartLeast = 0.3;
constexpr double kNothingSeen = -std::numeric_limits<double>::infinity();

// A result that joins others by its LSE.
struct PartState {
  std::vector<double> o;
  double lse = kNothingSeen;
};

class StepParts {
 public:
  explicit StepParts(const StageCase& c, const StageVerdict& nothing)
      : c_(c), r_(c.given()), p_(c.problem_of(r_)) {
    first_ = p_.cu_q();
    for (size_t i = 0; i < p_.requests.size(); ++i)
      for (int32_t n = 0; n < p_.requests[i].q_len; ++n)
        if (nothing.bad_rows[static_cast<size_t>(first_[i] + n)] != 0 && rows_.size() < kPartRows)
          rows_.push_back({static_cast<int32_t>(i), n});
    if (rows_.empty()) return;
    p_.only_keys.clear();
    right_ = attend(p_, rows_);
  }
  std::vector<StepRanked> all() {
    if (rows_.empty()) return {};
    no_numbers();
    other_rows();
    two_parts();
    chunks();
    return std::move(list_);
  }

 private:
  AttentionResult attend(const Problem& p, const std::vector<RowId>& rows) const {
    const HostOperands host{&r_.tensors, r_.problem.q_scale_host, r_.problem.k_scale_host,
                            r_.problem.v_scale_host, r_.dense.empty() ? nullptr : &r_.dense};
    return attention_simple(p, host, rows);
  }
  // Of one range of keys in every request, with the sink or without.
  AttentionResult part(const std::vector<KeyRange>& keys, bool sink) const {
    Problem p = p_;
    p.only_keys = keys;
    p.sinks = p.sinks && sink;
    return attend(p, rows_);
  }
  std::vector<KeyRange> ranges(const std::function<KeyRange(const Request&)>& of) const {
    std::vector<KeyRange> list;
    for (const Request& request : p_.requests) list.push_back(of(request));
    return list;
  }
  PartState state(const AttentionResult& a, size_t row, int32_t head) const {
    PartState s{{}, a.lse_at(static_cast<int64_t>(row), head)};
    for (int32_t d = 0; d < p_.head_dim_v; ++d) s.o.push_back(a.o_at(static_cast<int64_t>(row), head, d));
    return s;
  }
  double got(const RowId& id, int32_t head, int32_t d) const {
    const assay_tensor& o = r_.tensors.o;
    const int64_t row = first_[static_cast<size_t>(id.request)] + id.row;
    return c_.written(Operand::kO, row * o.stride[0] + head * o.stride[1] + d * o.stride[2]);
  }
  double slope(int32_t head) const {
    const assay_tensor& t = r_.tensors.alibi_slopes;
    return p_.alibi == ASSAY_ALIBI_LINEAR ? load(t.format, t.data, head * t.stride[0]) : 0.0;
  }
  static PartState joined(const PartState& a, const PartState& b, double wa, double wb) {
    PartState s{std::vector<double>(a.o.size(), 0.0), kNothingSeen};
    const double top = std::max(a.lse, b.lse);
    if (!(wa + wb > 0)) return s;
    for (size_t d = 0; d < s.o.size(); ++d) s.o[d] = (wa * a.o[d] + wb * b.o[d]) / (wa + wb);
    s.lse = top + std::log(std::exp(a.lse - top) + std::exp(b.lse - top));
    return s;
  }
  static PartState joined(const PartState& a, const PartState& b) {
    const double top = std::max(a.lse, b.lse);
    return top == kNothingSeen ? a : joined(a, b, std::exp(a.lse - top), std::exp(b.lse - top));
  }

  void put(std::string_view cause, const std::string& how, double explained) {
    if (explained > kPartLeast)
      list_.push_back({std::string(cause), how, explained, 0, std::string(meaning_of(cause))});
  }
  // How many wrong rows hold what is predicted for them, in every head, and better than the right answer.
  void try_out(std::string_view cause, const std::string& how,
               const std::function<PartState(size_t row, int32_t head)>& predicted) {
    int64_t fits = 0;
    for (size_t n = 0; n < rows_.size(); ++n) {
      double error = 0, size = 0, of_right = 0;
      bool fine = true;
      for (int32_t h = 0; h < p_.heads_q && fine; ++h) {
        const PartState s = predicted(n, h);
        double here = 0, all = 0;
        for (int32_t d = 0; d < p_.head_dim_v; ++d) {
          const double is = got(rows_[n], h, d), due = right_.o_at(static_cast<int64_t>(n), h, d);
          here += (is - s.o[d]) * (is - s.o[d]), all += s.o[d] * s.o[d];
          of_right += (is - due) * (is - due);
        }
        fine = here <= kSameRow * all + 1e-12;
        error += here, size += all;
      }
      fits += fine && error <= kBetterThanRight * of_right;
    }
    put(cause, how, kPartShare * static_cast<double>(fits) / static_cast<double>(rows_.size()));
  }

  void no_numbers() {
    int64_t none = 0;
    for (const RowId& id : rows_) none += !std::isfinite(got(id, 0, 0));
    put("out_of_order", "rows hold no numbers: what they read was not written yet",
        0.96 * static_cast<double>(none) / static_cast<double>(rows_.size()));
  }

  // The results of all rows, in the places of others.
  void other_rows() {
    std::vector<RowId> every;
    for (size_t i = 0; i < p_.requests.size(); ++i)
      for (int32_t n = 0; n < p_.requests[i].q_len; ++n) every.push_back({static_cast<int32_t>(i), n});
    if (static_cast<int64_t>(every.size()) > kRowsOfAll) return;
    const AttentionResult all = attend(p_, every);
    int64_t fits = 0;
    std::string how;
    for (const RowId& id : rows_)
      for (size_t n = 0; n < every.size(); ++n) {
        double error = 0, size = 0;
        for (int32_t h = 0; h < p_.heads_q; ++h)
          for (int32_t d = 0; d < p_.head_dim_v; ++d) {
            const double due = all.o_at(static_cast<int64_t>(n), h, d), off = got(id, h, d) - due;
            error += off * off, size += due * due;
          }
        if (!(error <= kSameRow * size)) continue;
        ++fits;
        if (how.empty() && !(every[n].request == id.request && every[n].row == id.row))
          how = fmt::format("O of row {} of request {} is that of row {} of request {}", id.row, id.request,
                            every[n].row, every[n].request);
        break;
      }
    if (!how.empty())
      put("rows.written_to_other_row", how,
          kPartShare * static_cast<double>(fits) / static_cast<double>(rows_.size()));
  }

  // Context and new keys, the border between them so many keys on. The sink is the new keys'.
  void two_parts() {
    const auto of = [&](bool context, int32_t on, bool sink) {
      return part(ranges([&](const Request& request) {
                    const int32_t cut =
                        std::clamp(std::max(0, request.context_len()) + on, 0, request.kv_len);
                    return context ? KeyRange{0, cut} : KeyRange{cut, request.kv_len};
                  }),
                  sink);
    };
    const AttentionResult a = of(true, 0, false), b = of(false, 0, true), a_longer = of(true, 1, false),
                          a_shorter = of(true, -1, false), b_longer = of(false, -1, true),
                          b_shorter = of(false, 1, true), a_sink = of(true, 0, true);
    using Weights = void (*)(double la, double lb, double& wa, double& wb);
    constexpr Weights kRight = [](double la, double lb, double& wa, double& wb) {
      const double top = std::max(la, lb);
      wa = std::exp(la - top), wb = std::exp(lb - top);
    };
    const struct {
      const char *cause, *how;
      Weights weights;
      const AttentionResult *context = nullptr, *fresh = nullptr;  // where they are other keys
      bool from_end = false;  // without what a bias takes off between the context's end and the row
    } ways[] = {
        {"new_keys_missing", "the context alone",
         [](double, double, double& wa, double& wb) { wa = 1, wb = 0; }, &a_sink},
        {"context_missing", "the new keys alone",
         [](double, double, double& wa, double& wb) { wa = 0, wb = 1; }},
        {"merge_unweighted", "the mean of context and new keys",
         [](double, double, double& wa, double& wb) { wa = wb = 1; }},
        {"merge_largest", "context or new keys, whichever has the larger LSE",
         [](double la, double lb, double& wa, double& wb) { wa = la >= lb, wb = la < lb; }},
        {"merge_base2", "weights of base 2 for natural LSE",
         [](double la, double lb, double& wa, double& wb) { wa = 1, wb = std::exp2(lb - la); }},
        {"state_twice", "new keys weighed twice",
         [](double la, double lb, double& wa, double& wb) { wa = 1, wb = 2 * std::exp(lb - la); }},
        {"state_twice", "the weight of the new keys squared",
         [](double la, double lb, double& wa, double& wb) {
           const double top = std::max(la, lb);
           wa = std::exp(la - top), wb = std::exp(2 * (lb - top));
         }},
        {"keys.one_doubled", "the first new key with the context as well", kRight, &a_longer, nullptr},
        {"keys.one_doubled", "the last key of the context with the new ones as well", kRight, nullptr,
         &b_longer},
        {"keys.one_dropped", "the last key of the context in neither part", kRight, &a_shorter, nullptr},
        {"keys.one_dropped", "the first new key in neither part", kRight, nullptr, &b_shorter},
        {"sink_extra", "with the context and with the new keys", kRight, &a_sink},
        {"bias_other", "distances within the context counted from its end", kRight, nullptr, nullptr, true},
    };
    for (const auto& way : ways)
      try_out(way.cause, way.how, [&](size_t n, int32_t h) {
        PartState x = state(way.context != nullptr ? *way.context : a, n, h);
        const PartState y = state(way.fresh != nullptr ? *way.fresh : b, n, h);
        if (way.from_end) x.lse += slope(h) * (1 + rows_[n].row);
        double wa = 1, wb = 1;
        if (x.lse == kNothingSeen)
          wa = 0;
        else if (y.lse == kNothingSeen)
          wb = 0;
        else
          way.weights(x.lse, y.lse, wa, wb);
        if (!(wa + wb > 0)) wa = 1;
        return joined(x, y, wa, wb);
      });
  }

  // The context in chunks of the budget's share of one extend, joined one after the other.
  void chunks() {
    int32_t extends = 0, longest = 0;
    for (const Request& request : p_.requests)
      if (request.q_len > p_.threshold && request.context_len() > 0)
        ++extends, longest = std::max(longest, request.context_len());
    if (extends == 0 || p_.token_budget <= 0) return;
    const int32_t s = std::max<int32_t>(1, static_cast<int32_t>(p_.token_budget / extends));
    const int32_t count = (longest + s - 1) / s;
    if (count < 1 || count > kMostChunks) return;
    std::vector<AttentionResult> own, first, with_sink;
    for (int32_t q = 0; q < count; ++q) {
      const auto of = [&](bool from_start) {
        return ranges([&](const Request& request) {
          const int32_t context = std::max(0, request.context_len());
          const KeyRange keys{std::min(q * s, context), std::min((q + 1) * s, context)};
          return from_start ? KeyRange{0, keys.end - keys.begin} : keys;
        });
      };
      own.push_back(part(of(false), false));
      first.push_back(part(of(true), false));
      with_sink.push_back(part(of(false), true));
    }
    const AttentionResult fresh = part(ranges([](const Request& request) {
                                         return KeyRange{std::max(0, request.context_len()), request.kv_len};
                                       }),
                                       true);
    const auto whole = [&](size_t n, int32_t q) {
      return (q + 1) * s <= p_.requests[static_cast<size_t>(rows_[n].request)].context_len();
    };
    const auto joined_all = [&](size_t n, int32_t h, const std::vector<AttentionResult>& list, auto takes,
                                auto change) {
      PartState context{std::vector<double>(p_.head_dim_v, 0.0), kNothingSeen};
      for (int32_t q = 0; q < count; ++q) {
        PartState one = state(list[static_cast<size_t>(q)], n, h);
        if (one.lse == kNothingSeen || !takes(q)) continue;
        change(q, one);
        context = context.lse == kNothingSeen ? one : joined(context, one);
      }
      return joined(context, state(fresh, n, h));
    };
    const auto every = [](int32_t) { return true; };
    const auto same = [](int32_t, PartState&) {};
    try_out("state_missing", "a last chunk of the context that is not full left out",
            [&](size_t n, int32_t h) {
              return joined_all(
                  n, h, own, [&](int32_t q) { return whole(n, q); }, same);
            });
    try_out("state_missing", "the first chunk of the context alone", [&](size_t n, int32_t h) {
      return joined_all(
          n, h, own, [](int32_t q) { return q == 0; }, same);
    });
    try_out("starts_zero", "every chunk of the context holds its first keys",
            [&](size_t n, int32_t h) { return joined_all(n, h, first, every, same); });
    try_out("sink_extra", "with every chunk of the context",
            [&](size_t n, int32_t h) { return joined_all(n, h, with_sink, every, same); });
    try_out("bias_other", "distances within a chunk of the context counted from its first key",
            [&](size_t n, int32_t h) {
              return joined_all(n, h, own, every,
                                [&](int32_t q, PartState& one) { one.lse -= slope(h) * q * s; });
            });
    try_out("merge.lse_wrong", "chunks are joined by the LSE of the first one", [&](size_t n, int32_t h) {
      PartState context{std::vector<double>(p_.head_dim_v, 0.0), kNothingSeen};
      for (const AttentionResult& one : own) {
        const PartState next = state(one, n, h);
        if (next.lse == kNothingSeen) continue;
        const double kept = context.lse;
        context = kept == kNothingSeen ? next : joined(context, next);
        if (kept != kNothingSeen) context.lse = kept;
      }
      return joined(context, state(fresh, n, h));
    });
    try_out("merge_unweighted", "chunks of the context with equal weights", [&](size_t n, int32_t h) {
      PartState context{std::vector<double>(p_.head_dim_v, 0.0), kNothingSeen};
      double so_far = 0;
      for (const AttentionResult& one : own) {
        const PartState next = state(one, n, h);
        if (next.lse == kNothingSeen) continue;
        context = so_far == 0 ? next : joined(context, next, so_far, 1);
        ++so_far;
      }
      return joined(context, state(fresh, n, h));
    });
  }

  const StageCase& c_;
  Reading r_;
  Problem p_;
  std::vector<int32_t> first_;
  std::vector<RowId> rows_;
  AttentionResult right_;
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> part_patterns(const StageCase& c, const StageVerdict& nothing) {
  if (c.kernel().op != ASSAY_OP_PAGED) return {};
  return StepParts(c, nothing).all();
}

}  // namespace assay
