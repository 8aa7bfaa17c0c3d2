// SPDX-License-Identifier: Apache-2.0
// What may be another within one part of a chain: sinks, whose LSE, masks, scores, values; and whose query a
// row takes. See chain.hpp.
#include <algorithm>
#include <cmath>
#include <set>

#include "harness/explain/causes.hpp"
#include "harness/explain/stages/chain.hpp"

namespace assay {

// A row with the query of another one, looked for among all.
void StepChain::queries() {
  constexpr size_t kMostRows = 96, kMostTried = 24;
  if (every_.size() > kMostRows || rows_.size() * every_.size() > kMostRows * kMostTried * 2) return;
  cut_ = {};
  size_t fits = 0;
  std::string how;
  for (const RowId& id : rows_)
    for (const RowId& other : every_) {
      if (other == id) continue;
      Departure d;
      d.query = [&](RowId) { return other; };
      bool fine = true;
      for (int32_t h = 0; h < p_.heads_q && fine; ++h) {
        const State s = whole(id, h, d);
        double error = 0, size = 0;
        for (size_t i = 0; i < s.o.size(); ++i) {
          const double off = got(id, h, static_cast<int32_t>(i)) - s.o[i];
          error += off * off, size += s.o[i] * s.o[i];
        }
        fine = error <= kSameChain * size && size > 0;
      }
      if (!fine) continue;
      ++fits;
      if (how.empty())
        how = fmt::format("row {} of request {} takes the query of row {} of request {}", id.row, id.request,
                          other.row, other.request);
      break;
    }
  const double share = static_cast<double>(fits) / static_cast<double>(rows_.size());
  if (share > kChainLeast)
    list_.push_back({"rows.query_of_other_row", how, kChainShare * share, 0,
                     std::string(meaning_of("rows.query_of_other_row"))});
}

void StepChain::sinks() {
  if (!p_.sinks) return;
  const struct {
    int32_t sinks;
    const char *cause, *how;
  } all[] = {{kSinkNever, "sink_missing", "where there are several parts"},
             {kSinkInEach, "sink_extra", "with every part"},
             {kSinkInEachWithKeys, "sink_extra", "with every part that holds keys"},
             {kSinkTwice, "sink_extra", "with the last part and once more"},
             {kSinkInEachOfContext, "sink_extra", "with every part of the context and once more"}};
  for (const auto& one : all) {
    Departure d{one.cause, one.how};
    d.sinks = one.sinks;
    try_out(d);
  }
}

// The LSE of other rows or heads, as where [rows, heads] and [heads, rows] are taken for each other.
void StepChain::lses() {
  const int32_t heads = p_.heads_q;
  using Place = std::pair<RowId, int32_t>;
  const auto add = [&](std::string how, std::function<Place(RowId, int32_t)> of) {
    for (const int which : {0, 1, 2}) {
      const char* words[] = {"", ", of the context alone", ", of the new keys alone"};
      Departure d{"lse_turned", how + words[which]};
      d.lse = [=, this](const ChainAt& at, double own) {
        if (which != 0 && (which == 1) != at.part->context) return own;
        const auto [row, head] = of(at.row, at.head);
        if (row == at.row && head == at.head) return own;
        ChainPart part = *at.part;
        const int32_t keys = p_.requests[static_cast<size_t>(row.request)].kv_len;
        if (!part.context) {  // each row's own new keys
          part = parts_of(row).back();
        }
        part.end = std::min(part.end, keys);
        return attend(row, head, part, Departure{}).lse;
      };
      try_out(d);
    }
  };
  for (const int32_t by : {1, heads - 1})
    if (heads > 1 && (by == 1 || heads > 2))
      add(by == 1 ? "the LSE of the next head" : "the LSE of the head before", [=](RowId id, int32_t head) {
        return Place{id, (head + by) % heads};
      });
  add("the LSE of the heads backwards", [=](RowId id, int32_t head) { return Place{id, heads - 1 - head}; });
  add("the LSE of the first head for all", [=](RowId id, int32_t) { return Place{id, 0}; });
  add("the LSE of the first row for all", [=](RowId id, int32_t head) {
    return Place{{id.request, 0}, head};
  });
  for (const bool of_request : {true, false})
    for (const bool back : {true, false})
      add(fmt::format("LSE of {} that lie as [{}] read as [{}]", of_request ? "a request" : "all rows",
                      back ? "heads, rows" : "rows, heads", back ? "rows, heads" : "heads, rows"),
          [=, this](RowId id, int32_t head) {
            const auto r = static_cast<size_t>(id.request);
            const int32_t rows = of_request ? p_.requests[r].q_len : static_cast<int32_t>(every_.size());
            const int32_t row = of_request ? id.row : first_[r] + id.row;
            const int32_t flat = back ? row * heads + head : head * rows + row;
            const int32_t to_row = back ? flat % rows : flat / heads,
                          to_head = back ? flat / rows : flat % heads;
            return Place{of_request ? RowId{id.request, to_row} : every_[static_cast<size_t>(to_row)],
                         to_head};
          });
}

void StepChain::masks(bool context) {
  const char* in = context ? "in the context" : "among the new keys";
  const auto add = [&](const char* cause, const std::string& how, std::function<bool(const ChainKey&)> sees) {
    Departure d{cause, fmt::format("{} {}", how, in)};
    d.sees = [=, this](const ChainKey& k) { return k.part->context == context ? sees(k) : own_sees(p_, k); };
    try_out(d);
  };
  const auto rows = [this](const ChainKey& k) {
    return p_.requests[static_cast<size_t>(k.row.request)].q_len;
  };
  Problem open = p_;
  open.window_left = open.window_right = -1;
  const int32_t left = p_.window_left;
  if (left >= 0 || p_.window_right >= 0) {
    add("window_missing", "no window", [=, this](const ChainKey& k) { return own_sees(open, k); });
    const struct {
      const char* how;
      std::function<int64_t(const ChainKey&)> at;
    } anchors[] = {
        {"the window of the part's last key", [](const ChainKey& k) { return k.part->end - 1; }},
        {"the window of rows that stand at the part's end",
         [=](const ChainKey& k) { return k.part->end - rows(k) + k.row.row; }},
        {"the window of a row behind the part's end", [](const ChainKey& k) { return k.part->end; }},
        {"the window of the first row for all",
         [this](const ChainKey& k) {
           return row_offset(p_, {k.row.request, 0});
         }},
        {"the window of the last row for all",
         [=, this](const ChainKey& k) {
           return row_offset(p_, {k.row.request, rows(k) - 1});
         }},
        {"the window of the row's number among the new ones", [](const ChainKey& k) { return k.row.row; }},
        {"the window of a row that stands at its number in the part",
         [](const ChainKey& k) { return k.part->begin + k.row.row; }},
    };
    for (const auto& anchor : anchors)
      add("mask.window_anchor", anchor.how, [=, this](const ChainKey& k) {
        const int64_t at = anchor.at(k);
        return own_sees(open, k) && (left < 0 || k.key >= at - left) &&
               (p_.window_right < 0 || k.key <= at + p_.window_right);
      });
    for (int32_t by = -2; by <= 2; ++by)
      if (by != 0 && left + by >= 0) {
        Problem other = p_;
        other.window_left = left + by;
        add("window_off_by_one", fmt::format("a window of {}", left + by),
            [=, this](const ChainKey& k) { return own_sees(other, k); });
      }
  }
  if (context) {
    add("mask_causal", "a causal mask, the last row at the part's end,", [=, this](const ChainKey& k) {
      return own_sees(p_, k) && k.key <= k.part->end - rows(k) + k.row.row;
    });
    add("mask_causal", "a causal mask, the first row at the part's first key,",
        [this](const ChainKey& k) { return own_sees(p_, k) && k.key <= k.part->begin + k.row.row; });
    return;
  }
  Problem full = p_;
  full.mask = ASSAY_MASK_FULL;
  add("mask_full", "no mask", [=, this](const ChainKey& k) { return own_sees(full, k); });
  add("mask.causal_short", "rows do not see themselves",
      [this](const ChainKey& k) { return own_sees(p_, k) && k.key < row_offset(p_, k.row); });
}

// Distances in runs, in every part alike: of keys that stand where their tile or page begins, or whole runs
// of them.
void StepChain::coarse_distances() {
  if (p_.alibi == ASSAY_ALIBI_NONE) return;
  std::set<int32_t> runs = {8, 16, 32, 64, 128};
  if (p_.page_size > 1) runs.insert(p_.page_size);
  for (const int32_t run : runs)
    for (const int which : {0, 1, 2}) {
      const char* how[] = {"keys stand at the first of their run of {}",
                           "keys stand at the last of their run of {}", "distances in whole runs of {}"};
      Departure d{"alibi.shifted", fmt::format(fmt::runtime(how[which]), run)};
      d.score = [=, this](const ChainKey& k, double dot) {
        const int64_t row = row_offset(p_, k.row), key = key_offset(p_, k.row.request, k.key),
                      own = row - key;
        const int64_t begin = k.key - k.key % run;
        const int64_t at[] = {key - (k.key - begin), key - (k.key - begin) + run - 1, row - own / run * run};
        const bool root = p_.alibi == ASSAY_ALIBI_SQRT;
        const auto size = [&](int64_t away) {
          const auto x = static_cast<double>(std::max<int64_t>(0, away));
          return root ? std::sqrt(x) : x;
        };
        return own_score(k, dot) + operands_.alibi_slope(k.head) * (size(own) - size(row - at[which]));
      };
      try_out(d);
    }
}

// Caps of another form, in every part alike.
void StepChain::caps() {
  const double cap = p_.softcap, scale = p_.softmax_scale;
  if (!(cap > 0)) return;
  const auto add = [&](const char* how, std::function<double(double capped)> of) {
    Departure d{"cap_other", how};
    d.score = [=, this](const ChainKey& k, double dot) {
      const double capped = cap * std::tanh(scale * dot / cap);
      return own_score(k, dot) - capped + of(capped);
    };
    try_out(d);
  };
  add("the cap twice", [=](double x) { return cap * std::tanh(x / cap); });
  add("tanh alone, not times the cap", [=](double x) { return x / cap; });
  add("times the cap twice", [=](double x) { return x * cap; });
}

void StepChain::scores(bool context) {
  const char* in = context ? "in the context" : "among the new keys";
  using Score = std::function<double(const ChainKey&, double)>;
  const auto add = [&](const char* cause, const std::string& how, Score score) {
    Departure d{cause, fmt::format("{} {}", how, in)};
    d.score = [=, this](const ChainKey& k, double dot) {
      return k.part->context == context ? score(k, dot) : own_score(k, dot);
    };
    try_out(d);
  };
  const double scale = p_.softmax_scale, cap = p_.softcap;
  if (cap > 0)
    add("cap_missing", "no cap", [=, this](const ChainKey& k, double dot) {
      const double s = scale * dot;
      return own_score(k, dot) - cap * std::tanh(s / cap) + s;
    });
  const double qk = p_.head_dim_qk, v = p_.head_dim_v;
  for (const double other : {1.0, 1 / qk, 1 / std::sqrt(v), scale * scale, scale * M_LOG2E, scale * M_LN2,
                             scale * 2, scale / 2, scale * std::sqrt(2.0), scale / std::sqrt(2.0)})
    if (std::fabs(other - scale) > 1e-6 * scale)
      add("softmax_scale", fmt::format("{:.6g} in place of {:.6g}", other, scale),
          [=, this](const ChainKey& k, double dot) { return own_score(k, dot * other / scale); });
  const auto rows = [this](const ChainKey& k) {
    return p_.requests[static_cast<size_t>(k.row.request)].q_len;
  };
  if (p_.alibi != ASSAY_ALIBI_NONE) {
    const struct {
      const char* how;
      std::function<double(const ChainKey&)> away;
    } ways[] = {
        {"no distance", [](const ChainKey&) { return 0.0; }},
        {"distances counted from the part's end", [](const ChainKey& k) { return k.part->end - k.key; }},
        {"distances counted from the part's last key",
         [](const ChainKey& k) { return k.part->end - 1 - k.key; }},
        {"distances of rows that stand at the part's end",
         [=](const ChainKey& k) { return k.part->end - rows(k) + k.row.row - k.key; }},
        {"distances of rows that stand at the part's end, with their sign lost,",
         [=](const ChainKey& k) { return std::abs(k.part->end - rows(k) + k.row.row - k.key); }},
        {"keys counted from the part's first one",
         [this](const ChainKey& k) {
           return static_cast<double>(row_offset(p_, k.row) - k.key + k.part->begin);
         }},
        {"distances from the row's number among the new ones",
         [](const ChainKey& k) { return k.row.row - k.key + k.part->begin; }},
        {"distances of the request's first row",
         [this](const ChainKey& k) {
           return static_cast<double>(row_offset(p_, {k.row.request, 0}) - k.key);
         }},
        {"distances of the request's last row",
         [=, this](const ChainKey& k) {
           return static_cast<double>(row_offset(p_, {k.row.request, rows(k) - 1}) - k.key);
         }},
    };
    for (const auto& way : ways)
      add("bias_other", way.how, [=, this](const ChainKey& k, double dot) {
        const auto own = static_cast<double>(row_offset(p_, k.row) - key_offset(p_, k.row.request, k.key));
        const double other = std::max(0.0, double{way.away(k)}), slope = operands_.alibi_slope(k.head);
        const bool root = p_.alibi == ASSAY_ALIBI_SQRT;
        const auto size = [&](double x) { return x < 0 ? 0.0 : root ? std::sqrt(x) : x; };
        return own_score(k, dot) + slope * (size(own) - size(other));
      });
  }
  // Scales of codes, and heads.
  const auto sized = [&](bool of_v, const ChainKey& k) {
    const int32_t head = k.head / p_.group();
    return of_v ? operands_.v_scale_size(k.row.request, k.key, head)
                : operands_.k_scale_size(k.row.request, k.key, head);
  };
  const auto plain = [](int32_t kind) { return kind != ASSAY_SCALE_NONE && kind != ASSAY_SCALE_CHANNEL; };
  if (plain(p_.k_scale))
    for (const bool twice : {false, true})
      add(twice ? "scale_twice" : "scale_missing", twice ? "the scale of K twice" : "codes of K as they are",
          [=, this](const ChainKey& k, double dot) {
            const double by = sized(false, k);
            return own_score(k, twice ? dot * by : dot / by);
          });
  if (plain(p_.v_scale))
    for (const bool twice : {false, true}) {
      Departure d{twice ? "scale_twice" : "scale_missing",
                  fmt::format("{} {}", twice ? "the scale of V twice" : "codes of V as they are", in)};
      d.value = [=](const ChainKey& k) {
        const double by = k.part->context == context ? sized(true, k) : 1.0;
        return twice ? by : 1 / by;
      };
      try_out(d);
      if (!plain(p_.k_scale)) continue;
      Departure both = d;
      both.how =
          fmt::format("{} {}", twice ? "the scales of K and V twice" : "codes of K and V as they are", in);
      both.score = [=, this](const ChainKey& k, double dot) {
        const double by = k.part->context == context ? sized(false, k) : 1.0;
        return own_score(k, twice ? dot * by : dot / by);
      };
      try_out(both);
    }
  const int32_t kv = p_.heads_kv;
  if (kv < 2) return;
  const struct {
    const char* how;
    std::function<int32_t(int32_t)> of;
  } maps[] = {{"KV heads dealt to query heads in turn", [=](int32_t h) { return h % kv; }},
              {"KV heads backwards", [=, this](int32_t h) { return kv - 1 - h / p_.group(); }},
              {"the first KV head for all", [](int32_t) { return 0; }},
              {"the next KV head", [=, this](int32_t h) { return (h / p_.group() + 1) % kv; }}};
  for (const auto& map : maps) {
    Departure d{"heads.kv_mapping", fmt::format("{} {}", map.how, in)};
    d.kv_head = [=, this](const ChainKey& k) {
      return k.part->context == context ? map.of(k.head) : k.head / p_.group();
    };
    try_out(d);
  }
}

}  // namespace assay
