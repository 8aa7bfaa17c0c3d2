// SPDX-License-Identifier: Apache-2.0
// Rows in parts, computed. See chain.hpp.
#include "harness/explain/stages/chain.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/explain/causes.hpp"

namespace assay {
namespace {

constexpr size_t kChainRows = 48;   // wrong ones that are looked at
constexpr size_t kFineRows = 24;    // right ones
constexpr double kChainWork = 6e6;  // of one hypothesis: rows x heads x keys x dimensions
constexpr size_t kMostParts = 24;
constexpr double kBetterChain = 0.05;  // ... and of the error that the right answer leaves

}  // namespace

StepChain::StepChain(const StageCase& c, const StageVerdict& nothing)
    : c_(c),
      r_(c.given()),
      p_(c.problem_of(r_)),
      host_{&r_.tensors, r_.problem.q_scale_host, r_.problem.k_scale_host, r_.problem.v_scale_host,
            r_.dense.empty() ? nullptr : &r_.dense},
      first_(p_.cu_q()),
      operands_(p_, host_) {
  p_.only_keys.clear();
  std::vector<RowId> wrong, fine;
  double keys = 0;
  for (size_t i = 0; i < p_.requests.size(); ++i)
    for (int32_t n = 0; n < p_.requests[i].q_len; ++n) {
      every_.push_back({static_cast<int32_t>(i), n});
      const auto row = static_cast<size_t>(first_[i] + n);
      if (row >= nothing.bad_rows.size()) continue;
      if (nothing.bad_rows[row] == 0) fine.push_back(every_.back());
      if (nothing.bad_rows[row] == 0) continue;
      if (row < nothing.open_rows.size() && nothing.open_rows[row] != 0) continue;
      wrong.push_back(every_.back()), keys = std::max<double>(keys, p_.requests[i].kv_len);
    }
  const double one = p_.heads_q * std::max(1.0, keys) * std::max(p_.head_dim_qk, p_.head_dim_v);
  const size_t most = std::clamp<size_t>(static_cast<size_t>(kChainWork / one), 6, kChainRows);
  const size_t step = (wrong.size() + most - 1) / std::max<size_t>(1, most);
  for (size_t n = 0; n < wrong.size(); n += std::max<size_t>(1, step)) rows_.push_back(wrong[n]);
  const size_t fine_step = (fine.size() + kFineRows - 1) / kFineRows;
  for (size_t n = 0; n < fine.size(); n += std::max<size_t>(1, fine_step)) fine_.push_back(fine[n]);
  bad_ = nothing.bad_rows;
  for (const RowId& id : rows_)
    for (int32_t h = 0; h < p_.heads_q; ++h) {
      const State s = whole(id, h, Departure{});
      right_.insert(right_.end(), s.o.begin(), s.o.end());
    }
}

double StepChain::got(RowId id, int32_t head, int32_t d) const {
  const assay_tensor& o = r_.tensors.o;
  const int64_t row = first_[static_cast<size_t>(id.request)] + id.row;
  return c_.written(Operand::kO, row * o.stride[0] + head * o.stride[1] + d * o.stride[2]);
}

const StepChain::Keys& StepChain::keys(int32_t request, int32_t kv_head) const {
  Keys& own = keys_[{request, kv_head}];
  if (!own.k.empty()) return own;
  const int32_t count = p_.requests[static_cast<size_t>(request)].kv_len;
  own.k.resize(static_cast<size_t>(std::max(1, count)) * static_cast<size_t>(p_.head_dim_qk));
  own.v.resize(static_cast<size_t>(std::max(1, count)) * static_cast<size_t>(p_.head_dim_v));
  for (int32_t j = 0; j < count; ++j) {
    operands_.k(request, j, kv_head, own.k.data() + int64_t{j} * p_.head_dim_qk);
    operands_.v(request, j, kv_head, own.v.data() + int64_t{j} * p_.head_dim_v);
  }
  return own;
}

const std::vector<double>& StepChain::dots(RowId id, int32_t head, int32_t kv_head) const {
  std::vector<double>& own = dots_[{id.request, id.row, head, kv_head}];
  if (!own.empty()) return own;
  const Keys& k = keys(id.request, kv_head);
  std::vector<double> q(static_cast<size_t>(p_.head_dim_qk));
  operands_.q(id, head, q.data());
  own.assign(static_cast<size_t>(std::max(1, p_.requests[static_cast<size_t>(id.request)].kv_len)), 0.0);
  for (size_t j = 0; j < own.size(); ++j)
    for (size_t d = 0; d < q.size(); ++d) own[j] += q[d] * k.k[j * q.size() + d];
  return own;
}

double StepChain::own_score(const ChainKey& k, double dot) const {
  double s = double{p_.softmax_scale} * dot;
  if (p_.softcap > 0) s = double{p_.softcap} * std::tanh(s / double{p_.softcap});
  const auto away = static_cast<double>(row_offset(p_, k.row) - key_offset(p_, k.row.request, k.key));
  if (p_.alibi == ASSAY_ALIBI_LINEAR && away >= 0) s -= operands_.alibi_slope(k.head) * away;
  if (p_.alibi == ASSAY_ALIBI_SQRT && away >= 0) s -= operands_.alibi_slope(k.head) * std::sqrt(away);
  return s;
}

bool StepChain::own_sees(const Problem& p, const ChainKey& k) const {
  const KeyInterval seen = key_interval(p, k.row);
  if (k.key < seen.begin || k.key >= seen.end) return false;
  return p.mask != ASSAY_MASK_TREE || draft_visible(p, operands_, k.row, k.key);
}

StepChain::State StepChain::attend(RowId id, int32_t head, const ChainPart& part, const Departure& d) const {
  const int32_t count = p_.requests[static_cast<size_t>(id.request)].kv_len;
  const auto dims = static_cast<size_t>(p_.head_dim_v);
  State s{std::vector<double>(dims, 0.0)};
  std::vector<double> scores;
  std::vector<int32_t> from;
  std::vector<double> factors;
  double top = kUnseen;
  const int32_t kv_head = d.kv_head ? d.kv_head({id, head, 0, &part}) : head / p_.group();
  const Keys& own = keys(id.request, kv_head);
  std::vector<double> other;  // dots of another row's query
  if (d.query) {
    std::vector<double> q(static_cast<size_t>(p_.head_dim_qk));
    operands_.q(d.query(id), head, q.data());
    for (int32_t j = 0; j < count; ++j) {
      double dot = 0;
      for (size_t i = 0; i < q.size(); ++i) dot += q[i] * own.k[static_cast<size_t>(j) * q.size() + i];
      other.push_back(dot);
    }
  }
  const std::vector<double>& dot = d.query ? other : dots(id, head, kv_head);
  for (int32_t j = part.begin; j < part.end; ++j) {
    int32_t content = j + part.shift;
    if (j >= part.stale_from) content -= part.stale_by;
    if (content < 0 || content >= count || j < 0) continue;
    const ChainKey key{id, head, j, &part};
    const bool seen = d.sees ? d.sees(key) : j >= part.stale_from || own_sees(p_, key);
    if (!seen) continue;
    const double x = dot[static_cast<size_t>(content)];
    scores.push_back(d.score ? d.score(key, x) : own_score(key, x));
    from.push_back(content), factors.push_back(d.value ? d.value(key) : 1.0);
    top = std::max(top, scores.back());
  }
  if (from.empty() || !std::isfinite(top)) return s;
  double sum = 0;
  for (size_t n = 0; n < from.size(); ++n) {
    const double w = std::exp(scores[n] - top), by = w * factors[n];
    sum += w;
    const double* v = own.v.data() + static_cast<size_t>(from[n]) * dims;
    for (size_t i = 0; i < dims; ++i) s.o[i] += by * v[i];
  }
  for (double& x : s.o) x /= sum;
  s.lse = top + std::log(sum);
  return s;
}

std::vector<ChainPart> StepChain::parts_of(RowId id) const {
  const Request& request = p_.requests[static_cast<size_t>(id.request)];
  const int32_t context = std::clamp(request.context_len(), 0, request.kv_len);
  std::vector<ChainPart> parts;
  int32_t begin = 0;
  if (cut_.prefix > 0) {
    begin = std::min(cut_.prefix, request.kv_len);
    parts.push_back({0, begin});
  } else if (cut_.chunk > 0 && !(cut_.extends_alone && request.q_len <= p_.threshold)) {
    for (int32_t at = 0; at < context; at += cut_.chunk)
      parts.push_back({at, std::min(at + cut_.chunk, context)});
    if (parts.empty() && !cut_.extends_alone) parts.push_back({0, 0});  // the border is there all the same
    begin = context;
  }
  parts.push_back({begin, request.kv_len, false});
  return parts;
}

StepChain::State StepChain::whole(RowId id, int32_t head, const Departure& d) const {
  std::vector<ChainPart> parts = parts_of(id);
  if (d.empty_counts && cut_.chunk > 0 && parts.size() > 1) {  // as many as the longest has
    const int32_t end = parts.back().begin;
    int32_t longest = 0;
    for (const Request& request : p_.requests) longest = std::max(longest, request.context_len());
    while (static_cast<int32_t>(parts.size() - 1) * cut_.chunk < longest)
      parts.insert(parts.end() - 1, ChainPart{end, end});
  }
  const bool cut = parts.size() > 1;
  if (d.cut && cut) d.cut(parts);
  State all{std::vector<double>(static_cast<size_t>(p_.head_dim_v), 0.0)};
  const double sink = p_.sinks ? operands_.sink(head) : kUnseen;
  const auto join = [&](const State& a, const State& b, bool last, size_t so_far) {
    if (a.lse == kUnseen) return b;
    if (b.lse == kUnseen) return a;
    const double top = std::max(a.lse, b.lse);
    double wa = std::exp(a.lse - top), wb = std::exp(b.lse - top), lse = top + std::log(wa + wb);
    if (d.join && so_far > 0) d.join({a.lse, b.lse, last, so_far}, wa, wb, lse);
    State s = a;
    if (!(wa + wb > 0)) return s;
    for (size_t i = 0; i < s.o.size(); ++i) s.o[i] = (wa * a.o[i] + wb * b.o[i]) / (wa + wb);
    s.lse = lse;
    return s;
  };
  const State of_sink{std::vector<double>(all.o.size(), 0.0), sink};
  for (size_t q = 0; q < parts.size(); ++q) {
    const bool last = q + 1 == parts.size();
    State one = attend(id, head, parts[q], d);
    if (one.lse == kUnseen && d.empty_counts && !last) one.lse = 0;
    if (one.lse != kUnseen && d.lse && cut) one.lse = d.lse({id, head, &parts[q]}, one.lse);
    const bool takes_sink = d.sinks == kSinkInEach ||
                            (d.sinks == kSinkInEachWithKeys && one.lse != kUnseen) ||
                            (d.sinks == kSinkInContext && q == 0 && !last) ||
                            (d.sinks == kSinkInEachOfContext && !last) || (d.sinks == kSinkTwice && last);
    if (cut && takes_sink) one = join(one, of_sink, last, 0);
    all = q == 0 ? one : join(all, one, last, q);
  }
  const bool at_end =
      d.sinks == kSinkAtEnd || d.sinks == kSinkTwice || d.sinks == kSinkInEachOfContext || !cut;
  return p_.sinks && at_end ? join(all, of_sink, true, 0) : all;
}

std::vector<uint8_t> StepChain::spoilt_by(const Departure& d) const {
  std::vector<uint8_t> spoilt(bad_.size(), 0);
  for (const RowId& id : fine_)
    for (int32_t h = 0; h < p_.heads_q; ++h) {
      const State s = whole(id, h, d);
      double error = 0, size = 0;
      for (size_t i = 0; i < s.o.size(); ++i) {
        const double off = got(id, h, static_cast<int32_t>(i)) - s.o[i];
        error += off * off, size += s.o[i] * s.o[i];
      }
      if (error > kSameChain * size + 1e-12)
        spoilt[static_cast<size_t>(first_[static_cast<size_t>(id.request)] + id.row)] = 1;
    }
  return spoilt;
}

void StepChain::try_out(const Departure& d) {
  size_t fits = 0, missed = 0;
  const auto most = static_cast<size_t>((1 - kChainLeast) * static_cast<double>(rows_.size()));
  for (size_t n = 0; n < rows_.size() && missed <= most; ++n) {
    double error = 0, of_right = 0;
    bool fine = true;
    for (int32_t h = 0; h < p_.heads_q && fine; ++h) {
      const State s = whole(rows_[n], h, d);
      double here = 0, size = 0;
      const size_t at = (n * static_cast<size_t>(p_.heads_q) + static_cast<size_t>(h)) * s.o.size();
      for (size_t i = 0; i < s.o.size(); ++i) {
        const double is = got(rows_[n], h, static_cast<int32_t>(i)), due = right_[at + i];
        here += (is - s.o[i]) * (is - s.o[i]), size += s.o[i] * s.o[i];
        of_right += (is - due) * (is - due);
      }
      fine = here <= kSameChain * size + 1e-12;
      error += here;
    }
    fine = fine && error <= kBetterChain * of_right;
    fits += fine, missed += !fine;
  }
  const double share = static_cast<double>(fits) / static_cast<double>(rows_.size());
  if (missed > most || share <= kChainLeast) return;
  const std::string where = cut_.words.empty() ? "" : fmt::format(" ({})", cut_.words);
  StepRanked r{d.cause, d.how + where, kChainShare * share, 0, std::string(meaning_of(d.cause))};
  if (r.explained >= StepRanked::kSaid) {
    const std::vector<uint8_t> spoilt = spoilt_by(d);
    r.spoilt = std::count(spoilt.begin(), spoilt.end(), 1);
    if (r.spoilt > 0) of_one_kind(c_, bad_, spoilt, r);
  }
  r.whole = missed == 0 && r.spoilt == 0;
  list_.push_back(std::move(r));
}

std::vector<StepChain::Cut> StepChain::cuts_of_rows() const {
  std::vector<Cut> list;
  if (p_.prefix_tokens > 0) list.push_back({p_.prefix_tokens, 0, false, "a prefix and the rest"});
  int32_t longest = 0, extends = 0, with_context = 0, page = std::max(1, p_.page_size);
  for (const Request& request : p_.requests) {
    longest = std::max(longest, request.context_len());
    with_context += request.context_len() > 0;
    extends += request.context_len() > 0 && request.q_len > p_.threshold;
  }
  if (longest <= 0) return list;
  list.push_back({0, longest, false, "context and new keys"});
  std::vector<int32_t> sizes;
  const auto chunk = [&](int64_t size, bool extends_alone) {
    size = std::max<int64_t>(1, size);
    if (size >= longest || static_cast<size_t>((longest + size - 1) / size) > kMostParts) return;
    const auto s = static_cast<int32_t>(size);
    if (std::find(sizes.begin(), sizes.end(), s) != sizes.end()) return;
    sizes.push_back(s);
    list.push_back({0, s, extends_alone, fmt::format("the context in chunks of {} keys", s)});
  };
  if (extends > 0 && p_.token_budget > 0) {
    const int64_t own = p_.token_budget / extends;
    chunk(own, true);
    chunk(own / page * page, true);
    chunk(p_.token_budget, true);
    chunk(p_.token_budget / std::max(1, with_context), false);
    chunk(p_.token_budget / static_cast<int64_t>(p_.requests.size()), true);
  }
  return list;
}

}  // namespace assay
