// SPDX-License-Identifier: Apache-2.0
// The order of the work: pattern, hypotheses, facts.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/explain/explanation.hpp"
#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/stage_buffers.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/order_calls.hpp"
#include "harness/explain/samples.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr size_t kLookedAtRight = 12;  // cells of a line that the kernel computes rightly

constexpr Family kFamilies[] = {output_family,    lse_family,    mask_family,    mapping_family, scale_family,
                                score_family,     merge_family,  softmax_family, rescale_family, part_family,
                                precision_family, key_family,    page_family,    stride_family,  lane_family,
                                length_family,    decode_family, factor_family};

// Where none of these explains the case.
constexpr Family kFurther[] = {
    solved_weight_family, solved_score_family, solved_key_family,  solved_dim_family,   solved_page_family,
    solved_merge_family,  solved_sum_family,   other_code_family,  composed_sum_family, scored_key_family,
    composed_part_family, composed_key_family, stage_buffer_family};

// Of these, and of the others, what depends on how keys are cut into tiles and parts.
constexpr Family kByCut[] = {merge_family,     part_family,         rescale_family,    score_family,
                             precision_family, solved_merge_family, solved_sum_family, composed_part_family};

// Of these, with numbers that are only found once another mistake is in place.
constexpr Family kUpon[] = {solved_weight_family, solved_score_family, solved_key_family, solved_dim_family,
                            solved_page_family,   length_family,       factor_family,     solved_sum_family,
                            composed_key_family,  composed_sum_family};

// Predictors of one line for both contents of unused memory. Where calls showed an order all hypotheses take
// keys in it: else those that happen to name tiles fit better than the true one.
struct Predictors {
  Predictor nan, low;
  explicit Predictors(const Evidence& e)
      : nan(e.problem, e.operands(false), e.declared), low(e.problem, e.operands(true), e.declared) {
    if (const std::optional<Layout> order = observed_layout_of(e)) nan.work_in(*order), low.work_in(*order);
  }
};

Clues clues_of(const Evidence& e, Predictor& predictor, Predictor* low = nullptr) {
  Clues clues{e, predictor, {}, {}, tile_sizes_of(e), layouts_of(e), {}};
  clues.tilings = tilings_of(e, clues.layouts);
  clues.low = low;
  return clues;
}

// Whether a call was made and any of what it left is wrong.
bool wrong(const Evidence& e, Call call) {
  if (!e.call(call).made) return false;
  for (const RowId& row : e.bounded.value.rows)
    for (int32_t head = 0; head < e.problem.heads_q; ++head)
      for (int32_t d = -1; d < e.problem.head_dim_v; ++d)  // -1: the LSE
        if (!accepted(e, call, {row.request, row.row, head}, d)) return true;
  return false;
}

// By all families; where a cell is not too much work also by those that build upon others, and on unusual
// cuts.
Ranking rank_all(const Clues& clues, Predictor& low, Choice choice) {
  choice.further = {std::begin(kFurther), std::end(kFurther)};
  if (!too_large(clues, kLargeCell)) {
    choice.upon = {std::begin(kUpon), std::end(kUpon)};
    choice.cut = {std::begin(kByCut), std::end(kByCut)};
  }
  return rank(clues, low, {std::begin(kFamilies), std::end(kFamilies)}, choice);
}

// Ranks causes that are asked for by what one call left.
Ranking rank_asked(const Evidence& e, Call call, const Choice& asked,
                   const std::vector<std::string>& without) {
  Predictors predictors(e);
  Predictor &nan = predictors.nan, &low = predictors.low;
  Clues clues = clues_of(e, nan, e.call(Call::kLow).made ? &low : nullptr);
  choose_samples(e, call, clues);
  Choice choice = asked;
  clues.only = &asked.only;
  choice.without = without;
  return rank_all(clues, low, std::move(choice));
}

// What a tile is on either line.
GivenNumbers tiles_of(const Evidence& first, const Evidence& second) {
  return tile_numbers(tile_sizes_of(first).front(), tile_sizes_of(second).front());
}

// Whether the second line says the same.
void look_at(const Evidence& first, Call main, const Evidence& second, Ranking& ranking,
             const std::vector<std::string>& without) {
  if (!wrong(second, Call::kFirst)) return;
  confirm(
      ranking, second.line, [&](const Choice& asked) { return rank_asked(first, main, asked, without); },
      [&](const Choice& asked) { return rank_asked(second, Call::kFirst, asked, without); },
      tiles_of(first, second));
}

void look_beside(const Evidence& e, Call main, const Beside& beside, Ranking& ranking,
                 const std::vector<std::string>& without, BesideLine third = BesideLine::kSeparating,
                 Ranking* by_second = nullptr) {
  const Evidence* second = beside(BesideLine::kSecond);
  const bool again = third == BesideLine::kSamePage;
  if (second && !again) look_at(e, main, *second, ranking, without);
  if (by_second != nullptr) *by_second = ranking;
  if (!sure(ranking) || (equally_good(ranking).size() < 2 && !assumes_much(ranking.list.front()))) return;
  const Evidence* other = beside(third);
  if (!other || !wrong(*other, Call::kFirst)) return;
  const RankElsewhere apart = [&](const Choice& asked) {
    return rank_asked(*other, Call::kFirst, asked, without);
  };
  tell_apart(ranking, apart);
  confirm_apart(ranking, e.line, other->line, apart, tiles_of(e, *other));
  if (sure(ranking)) return;
  other_form_of_all(
      ranking, other->line, [&](const Choice& asked) { return rank_asked(e, main, asked, without); },
      [&](const Choice& asked) {
        return second ? rank_asked(*second, Call::kFirst, asked, without) : Ranking{};
      },
      apart);
}

// Whether all that is wrong holds zeros or no numbers.
bool leaves_nothing(const Evidence& e, Call call) {
  for (const Judged& j : judge_cells(e, call))
    for (int32_t d = 0; d < e.problem.head_dim_v && j.bad; ++d)
      if (const double got = e.got(call, j.cell, d); std::isfinite(got) && got != 0) return false;
  return true;
}

// Rows that hold what rows without keys do: of these cells, and whether the case has no others.
struct WithoutKeys {
  bool wrong = true, all = true;
};
WithoutKeys without_keys(const Evidence& e, Call call) {
  WithoutKeys rows;
  for (const Judged& j : judge_cells(e, call)) {
    bool nothing = e.got(call, j.cell, -1) == -std::numeric_limits<double>::infinity();
    for (int32_t d = 0; d < e.problem.head_dim_v; ++d) nothing = nothing && e.got(call, j.cell, d) == 0;
    rows.wrong = rows.wrong && (nothing || !j.bad), rows.all = rows.all && nothing && j.bad;
  }
  return rows;
}

// What explains all lines and is not said all the same.
std::string why_unsaid(const Evidence& e, Call main, const Beside& beside, const Ranking& ranking) {
  const Ranked& said = ranking.list.front();
  if (said.fact || !e.call(main).made) return {};
  const WithoutKeys rows = without_keys(e, main);
  const bool leaves_zeros =
      std::find(said.names.begin(), said.names.end(), "output.zeros") != said.names.end();
  if (rows.wrong && (said.cause == "output.zeros" || (rows.all && leaves_zeros && !said.by_values)))
    return "that is what rows have that see no key, whatever hides them";
  if (beside && ranking.second.empty() && said.in_part && said.free > 0)
    return "in a part of the case and with a number that was fitted to it, and on no other line it shows";
  return {};
}

// Whether it would show in each of its forms on a line that the kernel computes rightly.
bool would_show(const Evidence& right, const Ranked& said, const std::vector<std::string>& without) {
  Predictors predictors(right);
  Clues clues = clues_of(right, predictors.nan);
  choose_samples(right, Call::kFirst, clues);
  Choice asked;
  asked.without = without;
  asked.only = {said.cause};
  asked.words = {{said.cause, said.text}};
  clues.only = &asked.only;
  Hypotheses forms;
  for (const Family family : kFamilies) family(clues, forms);
  keep_asked(forms, asked);
  const auto shows = [&](const Hypothesis& h) {
    for (size_t i = 0; i < std::min(kLookedAtRight, clues.bad.size()); ++i)
      if (misfit_at(clues, clues.bad[i], h.rules) > kLegalMisfit) return true;
    return false;
  };
  return !forms.empty() && std::all_of(forms.begin(), forms.end(), shows);
}

// Zeros, and what leaves zeros only where scores are of an unusual size, predict the same on a line of such
// values. With values of the usual size one of them is right there.
void look_at_usual(const Beside& beside, Ranking& ranking) {
  const auto first = [&](bool by_values) {
    return std::find_if(ranking.list.begin(), ranking.list.end(), [&](const Ranked& r) {
      return r.by_values == by_values && r.same_as_first && !r.told_apart;
    });
  };
  const auto end = ranking.list.end();
  if (std::none_of(ranking.list.begin(), end,
                   [](const Ranked& r) { return r.cause == "output.zeros" && r.same_as_first; }) ||
      first(true) == end || first(false) == end)
    return;
  const Evidence* usual = beside(BesideLine::kUsual);
  if (usual == nullptr) return;
  const bool by_values = !wrong(*usual, Call::kFirst);
  const auto at = first(by_values);
  std::rotate(ranking.list.begin(), at, at + 1);
  for (Ranked& r : ranking.list)
    if (r.same_as_first && r.by_values != by_values) r.told_apart = true, r.same_as_first = false;
}

// A mechanism that leaves nothing does so with values of the usual size too, unless it depends on them.
void refute_by_usual(const Evidence& e, Call main, const Beside& beside, Ranking& ranking,
                     const std::vector<std::string>& without) {
  const Ranked& said = ranking.list.front();
  if (said.fact || !said.also.empty() || said.cause.starts_with("output.") || !leaves_nothing(e, main))
    return;
  const Evidence* usual = beside(BesideLine::kUsual);
  if (usual == nullptr || wrong(*usual, Call::kFirst) || !would_show(*usual, said, without)) return;
  ranking.second = usual->line, ranking.explained_there = 0;
}

}  // namespace

LinesBeside::LinesBeside(const std::string& line, const std::string& backend, const std::string& kernel,
                         const CaptureOptions& options)
    : options_(options) {
  const auto capture_of = [&](const std::string& text, Evidence& to) {
    if (!text.empty())
      to = capture_beside(text, make_problem(parse_scenario(text)), backend, kernel, options);
    return to.call(Call::kFirst).made;
  };
  capture_of(usual_line(line), usual_);
  capture_of(second_line(line), second_);
  const Problem problem = make_problem(parse_scenario(line));
  for (const bool many_rows : {true, false})
    for (int step = 0; step < (many_rows ? kManyRowsSteps : kSeparatingSteps); ++step) {
      if (!capture_of(separating_line(line, step, many_rows), separating_)) continue;
      if (step == 0 && op_of(problem).has_cache && problem.page_size > 1)
        capture_of(separating_line(line, 1, many_rows), same_page_);
      return;
    }
}

void LinesBeside::take_order(const Evidence& e) {
  for (Evidence* to : {&second_, &separating_, &same_page_})
    if (!order_of(*to).known) to->order = e.order;
}

const Evidence* LinesBeside::operator()(BesideLine which) {
  Evidence& e = which == BesideLine::kSecond       ? second_
                : which == BesideLine::kSeparating ? separating_
                : which == BesideLine::kUsual      ? usual_
                                                   : same_page_;
  if (!e.call(Call::kFirst).made) return nullptr;
  if (e.bounded.value.rows.empty()) complete(e, options_);
  return &e;
}

Explanation explain(const Evidence& e, const std::vector<std::string>& without, const Beside& beside) {
  const auto start = std::chrono::steady_clock::now();
  Explanation x;
  x.line = e.line;
  x.kernel = e.kernel_name;
  x.outcome = e.verdict.outcome;
  x.reason = e.verdict.reason;
  if (x.outcome == Outcome::kUnsupported || x.outcome == Outcome::kInvalid) return x;
  const Call main = e.call(Call::kFirst).made ? Call::kFirst : Call::kLow;
  bool different = false;
  for (const CallResultCopy& c : e.calls)
    different = different || c.crashed || !c.damage.empty() || !c.changed.empty();
  if (e.call(main).made) {
    Predictors predictors(e);
    Predictor &nan = predictors.nan, &low = predictors.low;
    describe_pattern(e, main, nan, x);
    Clues clues = clues_of(e, nan, &low);
    choose_samples(e, main, clues);
    if (x.bad_cells > 0 || x.outcome == Outcome::kWrong) {
      Choice all;
      all.without = without;
      x.ranking = rank_all(clues, low, std::move(all));
      x.explained = true;
    }
  }
  if (e.call(Call::kFirst).made && x.bad_cells == 0 && wrong(e, Call::kAgain)) {
    // Right at first, wrong afterwards: does the wrong call skip a clean piece of work?
    Predictors predictors(e);
    Predictor &nan = predictors.nan, &low = predictors.low;
    Clues clues = clues_of(e, nan);
    choose_samples(e, Call::kAgain, clues);
    const Ranking again = rank(clues, low, {merge_family, key_family});
    const bool skips =
        !again.list.empty() && again.list.front().misfit < 0.5 && again.nothing > 1 &&
        (again.list.front().cause == "merge.split_dropped" ||
         again.list.front().cause == "keys.tile_dropped" || again.list.front().cause == "keys.tail_dropped");
    if (skips) x.left_out_again = again.list.front().text;
  }
  add_facts(e, x);
  if (const OrderSeen& order = order_of(e); order.calls > 0)
    x.facts.push_back(fmt::format("order of keys: {}{}", order.words, order.known ? " (observed)" : ""));
  std::erase_if(x.ranking.list, [&](const Ranked& r) {
    return std::find(without.begin(), without.end(), r.cause) != without.end() ||
           std::find(without.begin(), without.end(), r.also) != without.end();
  });
  if (beside && sure(x.ranking) && !x.ranking.list.front().fact) {
    // What explains this line alone hides what explains them all.
    Choice rest;
    for (const Ranked& r : equally_good(x.ranking)) rest.refuted.emplace_back(r.cause);
    Ranking by_second;
    look_beside(e, main, beside, x.ranking, without, BesideLine::kSeparating, &by_second);
    const Evidence* third = beside(BesideLine::kSeparating);
    const bool by_third = third != nullptr && x.ranking.second == third->line;
    if (!sure(x.ranking)) {
      Ranking others = rank_asked(e, main, rest, without);
      if (sure(others)) look_beside(e, main, beside, others, without);
      if (clearly(others) && !others.second.empty() && others.list.front().also.empty() &&
          !others.list.front().in_part) {
        for (Ranked& r : x.ranking.list)
          if (r.fact) others.list.push_back(std::move(r));
        x.ranking = std::move(others);
      }
      // Nothing explains all of them. A kernel whose tiles are pages here does by them what it does by tiles
      // where pages are larger: with the same pages a third line shows it.
      if (!sure(x.ranking) && by_third && beside(BesideLine::kSamePage) != nullptr) {
        Ranking again = by_second;
        look_beside(e, main, beside, again, without, BesideLine::kSamePage);
        if (clearly(again)) x.ranking = std::move(again);
      }
    }
  }
  if (beside && sure(x.ranking)) look_at_usual(beside, x.ranking);
  if (beside && sure(x.ranking)) refute_by_usual(e, main, beside, x.ranking, without);
  if (sure(x.ranking)) x.ranking.unsaid = why_unsaid(e, main, beside, x.ranking);
  x.explained = x.explained || different || !x.ranking.list.empty();
  x.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return x;
}

}  // namespace assay
