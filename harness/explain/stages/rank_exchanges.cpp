// SPDX-License-Identifier: Apache-2.0
// See rank_exchanges.hpp. Sums are those of doubles; what differs by more than floats round is wrong.
#include "harness/explain/stages/rank_exchanges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kClose = 1e-4;  // of the larger one: weights of a few float operations each

std::vector<float> floats(const std::vector<std::byte>& from) {
  std::vector<float> all(from.size() / sizeof(float));
  std::memcpy(all.data(), from.data(), all.size() * sizeof(float));
  return all;
}

bool close(double a, double b, double unit) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  return a == b || std::fabs(a - b) <= kClose * std::max({unit, std::fabs(a), std::fabs(b)});
}

// An element of what a stage was given or left.
class View {
 public:
  View(const StageRun& run, Operand o, bool after)
      : t_(tensor_of(run.tensors, o)),
        bytes_((after ? run.after : run.before)[static_cast<int>(o)]),
        origin_(static_cast<const std::byte*>(t_.data) - bytes_.address) {}
  const std::byte* at(std::initializer_list<int64_t> index) const {
    int64_t element = 0;
    int axis = 0;
    for (const int64_t i : index) element += i * t_.stride[axis++];
    const int64_t byte = origin_ + element * format_bytes(t_.format);
    return byte >= 0 && byte + format_bytes(t_.format) <= static_cast<int64_t>(bytes_.copy.size())
               ? bytes_.copy.data() + byte
               : nullptr;
  }
  double real(std::initializer_list<int64_t> index) const {
    const std::byte* here = at(index);
    return here == nullptr ? std::nan("") : load(t_.format, here, 0);
  }
  const assay_tensor& tensor() const { return t_; }

 private:
  const assay_tensor& t_;
  const Bytes& bytes_;
  int64_t origin_;
};

// One rank's exchanges, its stages beside them.
class Rank {
 public:
  Rank(const std::vector<StageRun>& runs, const assay_problem& p, const assay_tensor& q, int32_t rank)
      : p_(p),
        q_(q),
        rank_(rank),
        ranks_(p.ranks),
        rows_(p.total_q),
        own_(p.heads_q / std::max(1, p.ranks)),
        dv_(p.head_dim_v) {
    for (const StageRun& run : runs) {
      if (run.kernel->op == ASSAY_OP_PAGED && run.tensors.lse.data != nullptr) context_.push_back(&run);
      if (run.kernel->op == ASSAY_OP_MERGE_STATES) merge_ = &run;
    }
  }
  // They have the form that is judged here.
  bool find(const std::vector<Exchange>& all) {
    const int64_t q = rows_ * own_ * p_.head_dim_qk * format_bytes(p_.q_format), lse = rows_ * own_ * 4;
    for (const Exchange& e : all) {
      const auto sent = static_cast<int64_t>(e.sent.size());
      if (e.reduces && sent == ranks_ * lse * dv_)
        sums_ = &e;
      else if (!e.reduces && q_sent_ == nullptr && sent == q)
        q_sent_ = &e;
      else if (!e.reduces && sent == ranks_ * lse)
        lse_sent_ = &e;
    }
    // One attention over the heads of all ranks, or one over those of each.
    one_ = context_.size() == 1 && context_[0]->tensors.o.rank == 3 &&
           context_[0]->tensors.o.shape[1] == p_.heads_q;
    if (!one_ && static_cast<int32_t>(context_.size()) != ranks_) return false;
    if (lse_sent_ != nullptr) heads_first_ = lies_as(true) || !lies_as(false);
    return q_sent_ != nullptr && lse_sent_ != nullptr && sums_ != nullptr && !sums_->received.empty() &&
           !lse_sent_->received.empty();
  }

  bool explain(StepExplanation& x) {
    x.blame = StepBlame::kExchange;
    const bool wrong = queries(x) || parts(x) || weights(x) || totals(x) || sums(x);
    if (!wrong) x.blame = StepBlame::kNothing;
    return wrong;
  }

 private:
  const StageRun& context_of(int32_t of) const { return *context_[one_ ? 0 : static_cast<size_t>(of)]; }
  int64_t head_of(int32_t of, int64_t h) const { return one_ ? of * own_ + h : h; }
  // Of what is exchanged, heads of a rank after rows, or before them.
  int64_t place_of(int32_t of, int64_t row, int64_t h, bool heads_first) const {
    return heads_first ? (of * own_ + h) * rows_ + row : (of * rows_ + row) * own_ + h;
  }
  int64_t place_of(int32_t of, int64_t row, int64_t h) const { return place_of(of, row, h, heads_first_); }
  // Whether the LSE that are sent are those that were made, in that order.
  bool lies_as(bool heads_first) const {
    const std::vector<float> sent = floats(lse_sent_->sent);
    for (int32_t of = 0; of < ranks_; ++of) {
      const View left(context_of(of), Operand::kLse, true);
      for (int64_t row = 0; row < rows_; ++row)
        for (int64_t h = 0; h < own_; ++h)
          if (!close(sent[static_cast<size_t>(place_of(of, row, h, heads_first))],
                     left.real({row, head_of(of, h)}), 0))
            return false;
    }
    return true;
  }
  void say(StepExplanation& x, const char* place, std::string reason) const {
    x.place = place, x.stage_reason = std::move(reason);
  }
  static void cause(StepExplanation& x, const char* name, std::string how, double explained = 1) {
    x.causes.push_back({name, std::move(how), explained, 0, ""});
  }

  // Of part `of`, how much of its Q is that of the heads of `from`.
  double same_q(int32_t of, int32_t from) const {
    const View given(context_of(of), Operand::kQ, false);
    const int64_t width = format_bytes(p_.q_format);
    int64_t same = 0;
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t h = 0; h < own_; ++h) {
        const std::byte* due = static_cast<const std::byte*>(q_.data) +
                               (row * q_.stride[0] + (from * own_ + h) * q_.stride[1]) * width;
        bool all = true;
        for (int64_t d = 0; d < p_.head_dim_qk && all; ++d) {
          const std::byte* got = given.at({row, head_of(of, h), d});
          all = got != nullptr &&
                std::memcmp(got, due + d * q_.stride[2] * width, static_cast<size_t>(width)) == 0;
        }
        same += all;
      }
    return static_cast<double>(same) / static_cast<double>(std::max<int64_t>(1, rows_ * own_));
  }
  bool queries(StepExplanation& x) const {
    const auto all_by = [&](auto from) {
      double least = 1;
      for (int32_t of = 0; of < ranks_; ++of) least = std::min(least, same_q(of, from(of)));
      return least;
    };
    if (all_by([](int32_t of) { return of; }) == 1) return false;
    say(x, "gather_q", "Q that the parts see is not that of the step");
    for (int32_t one = 0; one < ranks_; ++one)
      if (all_by([&](int32_t) { return one; }) == 1)
        cause(x, "heads_of_one_rank", fmt::format("Q of rank {} for all", one));
    for (int32_t by = 1; by < ranks_; ++by)
      if (all_by([&](int32_t of) { return (of + by) % ranks_; }) == 1)
        cause(x, "heads_turned", fmt::format("Q of ranks {} on", by));
    if (all_by([&](int32_t of) { return ranks_ - 1 - of; }) == 1)
      cause(x, "heads_turned", "Q of ranks in the opposite order");
    cause(x, "exchange_other", "Q of something else", 0.9);
    return true;
  }

  bool parts(StepExplanation& x) const {
    const std::vector<float> sent = floats(lse_sent_->sent);
    for (int32_t of = 0; of < ranks_; ++of) {
      const View left(context_of(of), Operand::kLse, true);
      for (int64_t row = 0; row < rows_; ++row)
        for (int64_t h = 0; h < own_; ++h) {
          const double due = left.real({row, head_of(of, h)});
          const double got = sent[static_cast<size_t>(place_of(of, row, h))];
          if (close(got, due, 0)) continue;
          say(x, "gather_lse",
              fmt::format("LSE of the part for rank {}, row {} head {}: {:.6g} was made and {:.6g} is sent",
                          of, row, h, due, got));
          cause(x, "exchange_other", "LSE of something else");
          return true;
        }
    }
    return false;
  }

  // LSE of a part as others see it.
  double lse(const std::vector<float>& all, int32_t from, int32_t of, int64_t row, int64_t h) const {
    return all[static_cast<size_t>(from * ranks_ * rows_ * own_ + place_of(of, row, h))];
  }
  static double total(const std::vector<double>& all) {
    const double most = *std::max_element(all.begin(), all.end());
    if (!std::isfinite(most)) return most;
    double sum = 0;
    for (const double one : all) sum += std::exp(one - most);
    return most + std::log(sum);
  }

  // How the weight of a part may follow from all LSE of its row; and for which rank's heads it is.
  struct Hypothesis {
    const char *cause, *place;
    std::string how;
    std::function<double(const std::vector<double>& all, int32_t here)> weight;
    std::function<int32_t(int32_t)> turned = [](int32_t of) { return of; };
  };
  static double right_weight(const std::vector<double>& all, int32_t here) {
    const double sum = total(all), own = all[static_cast<size_t>(here)];
    return std::isinf(own) && own < 0 ? 0 : std::exp(own - sum);
  }
  std::vector<Hypothesis> hypotheses() const {
    using All = std::vector<double>;
    const auto scaled = [](double by) {
      return [by](const All& all, int32_t here) {
        All other = all;
        for (double& one : other) one *= by;
        return right_weight(other, here);
      };
    };
    std::vector<Hypothesis> list = {
        {"", "", "", right_weight},
        {"merge_base2", "correct", "LSE taken for those of base 2", scaled(std::log(2.0))},
        {"merge_base2", "correct", "powers of 2", scaled(1 / std::log(2.0))},
        {"merge_unweighted", "correct", "no weights", [](const All&, int32_t) { return 1.0; }},
        {"merge_unweighted", "correct", "one weight for all",
         [](const All& all, int32_t) { return 1.0 / static_cast<double>(all.size()); }},
        {"merge_largest", "correct", "the part of the largest LSE alone",
         [](const All& all, int32_t here) {
           return *std::max_element(all.begin(), all.end()) == all[static_cast<size_t>(here)] ? 1.0 : 0.0;
         }},
        {"merge_unweighted", "correct", "weights that are not divided by their sum",
         [](const All& all, int32_t here) {
           return std::exp(all[static_cast<size_t>(here)] - *std::max_element(all.begin(), all.end()));
         }},
        {"empty_as_zero", "correct", "an LSE of 0 for ranks without keys",
         [](const All& all, int32_t here) {
           All other = all;
           for (double& one : other) one = std::isinf(one) ? 0 : one;
           return right_weight(other, here);
         }},
        {"state_missing", "correct", "the last rank is left out of the sum",
         [](const All& all, int32_t here) {
           const All some(all.begin(), all.end() - 1);
           const double own = all[static_cast<size_t>(here)];
           return std::isinf(own) ? 0 : std::exp(own - total(some));
         }},
        {"total_of_one_rank", "gather_lse", "the rank's own LSE for all",
         [](const All& all, int32_t here) {
           return std::isinf(all[static_cast<size_t>(here)]) ? 0 : 1.0 / static_cast<double>(all.size());
         }},
    };
    for (int32_t by = 1; by < ranks_; ++by) {
      list.push_back({"heads_turned", "scatter", fmt::format("to ranks {} on", by), right_weight,
                      [=, n = ranks_](int32_t of) { return (of + by) % n; }});
      list.push_back({"states_exchanged", "gather_lse", fmt::format("LSE of ranks {} on", by),
                      [=](const All& all, int32_t here) {
                        const auto at = (static_cast<size_t>(here) + static_cast<size_t>(by)) % all.size();
                        return std::isinf(all[at]) ? 0 : std::exp(all[at] - total(all));
                      }});
    }
    if (ranks_ > 2) {
      list.push_back({"heads_turned", "scatter", "first and last rank exchanged", right_weight,
                      [n = ranks_](int32_t of) { return of == 0       ? n - 1
                                                        : of == n - 1 ? 0
                                                                      : of; }});
      list.push_back({"heads_turned", "scatter", "to ranks in the opposite order", right_weight,
                      [n = ranks_](int32_t of) { return n - 1 - of; }});
    }
    return list;
  }

  bool weights(StepExplanation& x) const {
    const std::vector<float> sent = floats(sums_->sent), all = floats(lse_sent_->received);
    const auto explained = [&](const Hypothesis& as, std::string* first) {
      int64_t fits = 0, count = 0;
      for (int32_t to = 0; to < ranks_; ++to) {
        const int32_t of = as.turned(to);
        const View part(context_of(of), Operand::kO, true);
        for (int64_t row = 0; row < rows_; ++row)
          for (int64_t h = 0; h < own_; ++h) {
            std::vector<double> list;
            for (int32_t from = 0; from < ranks_; ++from) list.push_back(lse(all, from, of, row, h));
            const double weight = as.weight(list, rank_);
            for (int64_t d = 0; d < dv_; ++d, ++count) {
              const double o = part.real({row, head_of(of, h), d}), due = weight == 0 ? 0 : weight * o;
              const double got = sent[static_cast<size_t>(place_of(to, row, h) * dv_ + d)];
              if (close(got, due, 1e-3))
                ++fits;
              else if (first != nullptr && first->empty())
                *first = fmt::format("for rank {}, row {} head {} dim {}: {:.6g} is sent, {:.6g} is right",
                                     to, row, h, d, got, due);
            }
          }
      }
      return count == 0 ? 1.0 : static_cast<double>(fits) / static_cast<double>(count);
    };
    const std::vector<Hypothesis> list = hypotheses();
    std::string first;
    const double right = explained(list[0], &first);
    if (right == 1) return false;
    std::string place = "correct";
    double best = 0;
    // Equal weights may follow from equal LSE, which then add up to the total that the merge gets.
    if (merge_ != nullptr && merge_->tensors.partial_lse.rank == 3 && ranks_ > 1 && totals_fit(kOwnForAll)) {
      say(x, "gather_lse", "what came from other ranks is this rank's own LSE");
      cause(x, "total_of_one_rank", "weights and total are those of equal parts");
      return true;
    }
    for (size_t i = 1; i < list.size(); ++i) {
      const double all_of = explained(list[i], nullptr);
      // Of what the right one leaves wrong.
      const double share = std::max(0.0, (all_of - right) / (1 - right));
      if (share <= 0.3) continue;
      cause(x, list[i].cause, list[i].how, all_of == 1 ? 1 : 0.99 * share);
      if (share > best) best = share, place = list[i].place;
    }
    if (best < StepExplanation::kSure) cause(x, "exchange_other", "addends of something else", 0.3);
    say(x, place.c_str(), "parts as addends of the sum, " + first);
    return true;
  }

  enum Total { kTotal, kOwn, kBase2, kLargest, kBaseE, kOwnForAll, kEmptyAsZero };
  // Whether the merge gets this as the LSE of the context.
  bool totals_fit(Total kind) const {
    const std::vector<float> all = floats(lse_sent_->received);
    const View given(*merge_, Operand::kPartialLse, false);
    const auto due = [&](int64_t row, int64_t h) {
      std::vector<double> list;
      for (int32_t from = 0; from < ranks_; ++from) list.push_back(lse(all, from, rank_, row, h));
      const double own = list[static_cast<size_t>(rank_)];
      switch (kind) {
        case kOwn:
          return own;
        case kBase2:
          return total(list) / std::log(2.0);
        case kLargest:
          return *std::max_element(list.begin(), list.end());
        case kBaseE:
          return total(list) * std::log(2.0);
        case kOwnForAll:
          return own + std::log(static_cast<double>(ranks_));
        case kEmptyAsZero:
          for (double& one : list) one = std::isinf(one) ? 0 : one;
          break;
        case kTotal:
          break;
      }
      return total(list);
    };
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t h = 0; h < own_; ++h)
        if (!close(given.real({0, row, h}), due(row, h), 1)) return false;
    return true;
  }

  bool totals(StepExplanation& x) const {
    if (merge_ == nullptr || merge_->tensors.partial_lse.rank != 3) return false;
    if (totals_fit(kTotal)) return false;
    say(x, "correct", "the LSE of the context, which the merge gets, is not that of all ranks");
    if (totals_fit(kOwn)) cause(x, "total_of_one_rank", "the rank's own part");
    if (totals_fit(kBase2) || totals_fit(kBaseE)) cause(x, "merge_base2", "an LSE of base 2");
    if (totals_fit(kEmptyAsZero)) cause(x, "empty_as_zero", "an LSE of 0 for ranks without keys");
    if (totals_fit(kLargest)) cause(x, "merge_largest", "the largest of the parts");
    cause(x, "exchange_other", "an LSE of something else", 0.3);
    return true;
  }

  bool sums(StepExplanation& x) const {
    if (merge_ == nullptr || merge_->tensors.partial_o.rank != 4) return false;
    const std::vector<float> received = floats(sums_->received);
    const View given(*merge_, Operand::kPartialO, false);
    double ratio = std::nan("");
    bool scaled = true, right = true;
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t h = 0; h < own_; ++h)
        for (int64_t d = 0; d < dv_; ++d) {
          const double got = given.real({0, row, h, d});
          const double due = received[static_cast<size_t>(place_of(0, row, h) * dv_ + d)];
          right = right && close(got, due, 0);
          if (std::fabs(due) < 1e-6) continue;
          if (std::isnan(ratio)) ratio = got / due;
          scaled = scaled && close(got / due, ratio, 0);
        }
    if (right) return false;
    say(x, "scatter", "what the merge gets is not the sum that came");
    if (scaled) cause(x, "sum_scaled", fmt::format("times {:.4g}", ratio));
    cause(x, "exchange_other", "a sum of something else", 0.3);
    return true;
  }

  const assay_problem& p_;
  const assay_tensor& q_;
  int32_t rank_, ranks_;
  int64_t rows_, own_, dv_;
  bool one_ = false, heads_first_ = true;
  std::vector<const StageRun*> context_;
  const StageRun* merge_ = nullptr;
  const Exchange *q_sent_ = nullptr, *lse_sent_ = nullptr, *sums_ = nullptr;
};

}  // namespace

bool explain_exchanges(const std::vector<Exchange>& all, const std::vector<StageRun>& runs,
                       const assay_problem& p, const assay_tensor& whole_q, int32_t rank,
                       StepExplanation& x) {
  Rank one(runs, p, whole_q, rank);
  return one.find(all) && one.explain(x);
}

}  // namespace assay
