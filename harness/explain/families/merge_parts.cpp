// SPDX-License-Identifier: Apache-2.0
// Hypotheses about partial results that meet the wrong partners, or are kept too coarsely. Where no splits
// are declared nothing else looks for the latter.
#include <cmath>
#include <numbers>

#include "harness/explain/families/merges.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

void exchanged_parts(const Clues& clues, Merges& add) {
  for (int32_t step : {1, -1})
    add.parts("merge.pairing", fmt::format("O of every split with the LSE of the split {:+}, round", step),
              0.15, [step](const Scene&, std::vector<SplitPart>& parts) {
                std::vector<double> lse;
                for (const SplitPart& p : parts) lse.push_back(p.lse);
                const int32_t n = count(parts);
                for (int32_t i = 0; i < n; ++i) parts[i].lse = lse[((i + step) % n + n) % n];
              });
  add.parts("merge.pairing", "O of every split with the LSE of the split as far from the end", 0.2,
            [](const Scene&, std::vector<SplitPart>& parts) {
              std::vector<double> lse;
              for (const SplitPart& p : parts) lse.push_back(p.lse);
              const int32_t n = count(parts);
              for (int32_t i = 0; i < n; ++i) parts[i].lse = lse[n - 1 - i];
            });
  for (double factor : {std::numbers::log2e, std::numbers::ln2})
    add.parts("merge.base", fmt::format("LSEs of the splits times {:.5g}, merged as natural ones", factor),
              0.1, [factor](const Scene&, std::vector<SplitPart>& parts) {
                if (filled(parts).size() < 1 || count(parts) < 2) return;
                for (SplitPart& p : parts) p.lse *= factor;
              });
  for (int32_t of : {2, 1}) {
    Hypothesis h = add.start("merge.split_dropped",
                             of == 2 ? "last split left out where their number is odd"
                                     : "last split left out where their number is even",
                             0.2);
    h.rules.edit_parts = [of](const Scene&, std::vector<SplitPart>& parts) {
      const std::vector<int32_t> list = filled(parts);
      if (list.size() > 1 && list.size() % 2 == (of == 2 ? 1 : 0)) parts[list.back()].lse = -kInf;
    };
    add.push(std::move(h));
  }
  for (int32_t parity : {0, 1})
    add.parts("merge.split_dropped", fmt::format("splits of {} number left out", parity ? "odd" : "even"),
              0.3, [parity](const Scene&, std::vector<SplitPart>& parts) {
                for (int32_t s = 0; s < count(parts); ++s)
                  if (s % 2 == parity) parts[s].lse = -kInf;
              });
  // Partial results of two heads in one place: the group's first or last head writes it for all.
  const Problem& p = clues.problem();
  if (p.group() < 2) return;
  for (bool last : {false, true})
    for (int32_t which : {-1, 0}) {
      Hypothesis h = add.start("merge.partial_of_other",
                               fmt::format("{} of the group's {} head", which < 0 ? "splits" : "first split",
                                           last ? "last" : "first"),
                               0.3);
      const Rules base = h.rules;
      Predictor* predictor = &clues.predictor;
      h.rules.edit_parts = [=](const Scene& s, std::vector<SplitPart>& parts) {
        Cell c = s.cell;
        const int32_t g = s.problem.group();
        c.head = c.head / g * g + (last ? g - 1 : 0);
        if (c == s.cell || count(parts) < 2) return;
        std::vector<SplitPart> other;
        Rules spy = base;
        spy.edit_parts = [&other](const Scene&, std::vector<SplitPart>& seen) { other = seen; };
        predictor->predict(spy, c);
        for (size_t i = 0; i < parts.size() && i < other.size(); ++i)
          if (which < 0 || static_cast<int32_t>(i) == which) parts[i] = other[i];
      };
      add.push(std::move(h));
    }
}

void coarse_parts(const Clues& clues, Merges& add) {
  const assay_arithmetic& declared = clues.predictor.declared();
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    const char* name = format == ASSAY_BF16 ? "bf16" : "fp16";
    Hypothesis h = add.start("precision.partials", fmt::format("partial outputs in {}", name), 0.1);
    if (declared.partial_format != format) {
      h.rules.arithmetic.partial_format = format;
      add.push(h);
    }
    for (int32_t tile : {32, 64, 128})
      for (bool per_key : {true, false}) {
        h = add.start("precision.row_sum",
                      fmt::format("row sum in {} after every {}, tiles of {} keys", name,
                                  per_key ? "key" : "tile", tile),
                      0.2);
        const int32_t keys = h.rules.arithmetic.split_keys;
        if (keys == 0 || keys % tile != 0) continue;
        h.rules.arithmetic.tile_keys = tile;
        h.rules.sum_format = format;
        h.rules.sum_per_key = per_key;
        add.push(h);
      }
    h = add.start("precision.partial_lse", fmt::format("partial LSEs in {}", name), 0.1);
    if (declared.partial_lse_format == format) continue;
    h.rules.arithmetic.partial_lse_format = format;
    add.push(std::move(h));
  }
}

}  // namespace assay
