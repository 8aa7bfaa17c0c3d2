// SPDX-License-Identifier: Apache-2.0
// Hypotheses about what is stored, and about memory that is read though no key lies there. These need no
// mathematics but the right result of every cell.
#include <algorithm>
#include <cmath>

#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Places behind the last key (or before the first visible one), read with weight zero: harmless unless they
// hold NaN or infinity.
void unused_slots(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  std::vector<std::pair<int32_t, std::string>> grains;
  if (op_of(p).has_cache) grains.push_back({p.page_size, "page"});
  for (int32_t tile : clues.tile_sizes) grains.push_back({tile, fmt::format("tile of {}", tile)});
  const auto add =
      [&](std::string_view cause, std::string text, double cost,
          std::function<std::pair<int32_t, int32_t>(const Scene&, const std::vector<Term>&)> range) {
        Hypothesis h = propose(clues, cause, std::move(text), cost);
        h.rules.edit_terms = [range](Scene& s, std::vector<Term>& terms) {
          const auto [begin, end] = range(s, terms);
          std::vector<char> seen(std::max(end, 1), 0);
          for (const Term& t : terms)
            if (t.position < end) seen[t.position] = 1;
          for (int32_t j = begin; j < end; ++j) {
            if (seen[j]) continue;
            int32_t row = j;
            if (j >= s.kv_len) {
              int64_t block = -1, slot = 0;
              if (!s.keys.place(s.cell.request, j, &block, &slot)) block = -1;
              if (block < 0) continue;  // nothing there to read
              row = s.keys.extra(block, slot);
            }
            Term t{j, row, row};
            t.forced = -kInf;
            terms.push_back(t);
          }
          std::stable_sort(terms.begin(), terms.end(),
                           [](const Term& a, const Term& b) { return a.position < b.position; });
        };
        out.push_back(std::move(h));
      };
  for (const auto& [grain, name] : grains) {
    const int32_t g = grain;
    add("memory.unused_slot", fmt::format("slots behind the last key, up to a whole {}, with weight 0", name),
        0.2, [g](const Scene& s, const std::vector<Term>&) {
          return std::pair{s.kv_len, (s.kv_len + g - 1) / g * g};
        });
    add("memory.unused_slot", fmt::format("masked keys of visited {}s, with weight 0", name), 0.25,
        [g](const Scene&, const std::vector<Term>& t) {
          if (t.empty()) return std::pair{0, 0};
          return std::pair{t.front().position / g * g, (t.back().position / g + 1) * g};
        });
  }
  add("memory.unused_slot", "the slot behind the last key, with weight 0", 0.3,
      [](const Scene& s, const std::vector<Term>&) {
        return std::pair{s.kv_len, s.kv_len + 1};
      });
  add("memory.unused_slot", "keys before the first visible one, with weight 0", 0.2,
      [](const Scene&, const std::vector<Term>& t) {
        return std::pair{0, t.empty() ? 0 : t.front().position};
      });
  add("memory.unused_slot", "the key before the first visible one, with weight 0", 0.25,
      [](const Scene&, const std::vector<Term>& t) {
        const int32_t first = t.empty() ? 0 : t.front().position;
        return std::pair{std::max(0, first - 1), first};
      });
  add("memory.unused_slot", "every masked key of the request, with weight 0", 0.3,
      [](const Scene& s, const std::vector<Term>&) {
        return std::pair{0, s.kv_len};
      });
  if (!op_of(p).has_cache) return;
  // Blocks nobody asked for.
  const auto block = [&](std::string_view cause, std::string text, double cost,
                         std::function<int64_t(Scene&)> which, bool whole) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.edit_terms = [which, whole](Scene& s, std::vector<Term>& terms) {
      const int64_t b = which(s);
      if (b < 0) return;
      for (int32_t slot = 0; slot < (whole ? s.problem.page_size : 1); ++slot) {
        const int32_t row = s.keys.extra(b, slot);
        Term t{std::max(0, s.kv_len - 1), row, row};
        t.forced = -kInf;
        terms.push_back(t);
      }
    };
    out.push_back(std::move(h));
  };
  for (bool whole : {true, false}) {
    block(
        "memory.unused_slot", "block 0, with weight 0", 0.3, [](Scene&) { return int64_t{0}; }, whole);
    // The entry behind the last one of the request's table row, wrapped into the cache.
    block(
        "memory.out_of_range", "table entry behind the last one followed, with weight 0", 0.3,
        [](Scene& s) -> int64_t {
          const int64_t entry = s.keys.table_entry_behind();
          return entry < 0 ? -1 : entry % s.keys.blocks();
        },
        whole);
  }
}

}  // namespace

void output_family(const Clues& clues, Hypotheses& out) {
  using Finish = std::function<void(const Scene&, std::vector<double>&, double&)>;
  const auto add = [&](std::string_view cause, std::string text, double cost, Finish finish) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.finish = std::move(finish);
    out.push_back(std::move(h));
  };
  const auto zero = [](std::vector<double>& o) { std::fill(o.begin(), o.end(), 0.0); };
  add("output.zeros", "O is zero", 0, [zero](const Scene&, std::vector<double>& o, double&) { zero(o); });
  add("output.zeros", "O and LSE are zero", 0, [zero](const Scene&, std::vector<double>& o, double& lse) {
    zero(o);
    lse = 0;
  });
  // Also what many a NaN ends as: dearer than what explains the NaN.
  add("output.zeros", "O is zero and LSE -inf", 0.15,
      [zero](const Scene&, std::vector<double>& o, double& lse) {
        zero(o);
        lse = -kInf;
      });
  add("output.nan", "O is NaN", 0,
      [](const Scene&, std::vector<double>& o, double&) { std::fill(o.begin(), o.end(), std::nan("")); });
  add("output.nan", "O and LSE are NaN", 0, [](const Scene&, std::vector<double>& o, double& lse) {
    std::fill(o.begin(), o.end(), std::nan(""));
    lse = std::nan("");
  });
  for (bool with_lse : {true, false})
    add("output.nan", fmt::format("rows that see nothing are NaN{}", with_lse ? "" : " in O"), 0.1,
        [with_lse](const Scene&, std::vector<double>& o, double& lse) {
          if (lse != -kInf) return;
          std::fill(o.begin(), o.end(), std::nan(""));
          if (with_lse) lse = std::nan("");
        });
  for (const Pick& pick : picks())
    for (int lse_rule : {0, 1, 2})
      for (bool of_request : {true, false})
        add("output.zeros",
            fmt::format("{} row of {} is zero{}", pick.name, of_request ? "each request" : "the batch",
                        lse_rule == 0   ? ", LSE right"
                        : lse_rule == 1 ? ", LSE 0"
                                        : ", LSE -inf"),
            0.2,
            [of = pick.of, lse_rule, of_request, zero, &first = clues.evidence.first_rows](
                const Scene& s, std::vector<double>& o, double& lse) {
              const int32_t n = of_request ? s.problem.requests[s.cell.request].q_len : first.back();
              const int32_t row = of_request ? s.cell.row : first[s.cell.request] + s.cell.row;
              if (row != of(n)) return;
              zero(o);
              if (lse_rule > 0) lse = lse_rule == 1 ? 0 : -kInf;
            });
  // Rows behind a request without keys, cleared together with it.
  const std::vector<int32_t>& first = clues.evidence.first_rows;
  for (int32_t width : {4, 8, 16, 32, 64, 128})
    for (int lse_rule : {0, 1, 2})
      add("rows.written_to_other_row",
          fmt::format("a request without keys clears {} rows from its first on{}", width,
                      lse_rule == 0   ? ""
                      : lse_rule == 1 ? ", LSE -inf"
                                      : ", LSE 0"),
          0.1, [width, lse_rule, zero, &first](const Scene& s, std::vector<double>& o, double& lse) {
            const int32_t row = first[s.cell.request] + s.cell.row;
            for (size_t r = 0; r < s.problem.requests.size(); ++r)
              if (s.problem.requests[r].kv_len == 0 && row >= first[r] && row < first[r] + width) {
                zero(o);
                if (lse_rule > 0) lse = lse_rule == 1 ? -kInf : 0;
                return;
              }
          });
  // Each head's row of O stored as wide as K's: zeros over the beginning of the next head.
  const int32_t extra = clues.problem().head_dim_qk - clues.problem().head_dim_v;
  if (extra > 0)
    for (bool round : {false, true})
      add("dims.store_overrun",
          fmt::format("rows of O stored {} dimensions too wide, over the next head{}", extra,
                      round ? " and row" : ""),
          0.2, [extra, round, &first](const Scene& s, std::vector<double>& o, double&) {
            if (s.cell.head == 0 && (!round || first[s.cell.request] + s.cell.row == 0)) return;
            std::fill(o.begin(), o.begin() + std::min<int64_t>(extra, static_cast<int64_t>(o.size())), 0.0);
          });
  // NaN that no rule predicts: said as it is observed, behind every rule.
  if (std::any_of(clues.bad.begin(), clues.bad.end(), [&](const Sample& s) {
        return s.call == Call::kLow && std::isnan(clues.evidence.got(Call::kLow, s.cell, 0));
      })) {
    const Evidence* e = &clues.evidence;
    add("output.nan", "NaN in the wrong cells, whatever unused memory holds", 1.2,
        [e](const Scene& s, std::vector<double>& o, double& lse) {
          for (size_t d = 0; d < o.size(); ++d)
            if (std::isnan(e->got(Call::kLow, s.cell, static_cast<int32_t>(d)))) o[d] = std::nan("");
          if (std::isnan(e->got(Call::kLow, s.cell, -1))) lse = std::nan("");
        });
  }
  unused_slots(clues, out);
}

}  // namespace assay
