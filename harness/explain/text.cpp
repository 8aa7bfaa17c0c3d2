// SPDX-License-Identifier: Apache-2.0
// An explanation for people, and as JSON for scripts/explain_picture.py and other programs.
#include <cmath>

#include "harness/explain/causes.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr size_t kSynonyms = 2;  // that are named beside the cause

std::string place(const Cell& c, int32_t dim) {
  return fmt::format("request {} row {} head {}{}", c.request, c.row, c.head,
                     dim < 0 ? ", LSE" : fmt::format(" dim {}", dim));
}

nlohmann::json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

nlohmann::json numbers(const std::vector<double>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (double x : list) out.push_back(number(x));
  return out;
}

std::string and_also(const Ranked& r) {
  const Cause* c = r.also.empty() ? nullptr : find_cause(r.also);
  return c ? fmt::format(", and {} (two causes)", c->meaning) : "";
}

// What follows, or that nothing does: a cause that leaves a fifth of the error is not the cause.
std::string conclusion(const Ranking& ranking) {
  if (ranking.list.empty()) return "so        none of the known causes: none of them explains any of it\n";
  const double here = 100 * std::max(0.0, ranking.list.front().explained);
  if (!sure(ranking) && ranking.explained_there < kSureThere)
    return fmt::format(
        "so        none of the known causes: {} explains {:.0f} % of this line, but {:.0f} % of a second "
        "one\n"
        "          with other values and lengths, and a cause must explain both\n"
        "          (drawn beside yours: '{}')\n",
        ranking.list.front().cause, here, 100 * ranking.explained_there, ranking.second);
  if (!sure(ranking) && !ranking.unsaid.empty())
    return fmt::format("so        none of the known causes: {} explains {:.0f} %, but {}\n",
                       ranking.list.front().cause, here, ranking.unsaid);
  if (!sure(ranking) && ranking.list.front().by_cell)
    return fmt::format(
        "so        none of the known causes: {} explains {:.0f} %, chosen for every cell by no rule\n",
        ranking.list.front().cause, here);
  if (!sure(ranking) && ranking.list.front().against_order)
    return fmt::format(
        "so        none of the known causes: {} explains {:.0f} %, but as one of parts, and the kernel takes "
        "its keys in one go\n",
        ranking.list.front().cause, here);
  if (!sure(ranking))
    return fmt::format("so        none of the known causes: the best of them explains {:.0f} %\n", here);
  std::string text;
  const std::vector<Ranked> best = equally_good(ranking);
  const auto line = [&](std::string_view begin, const Ranked& r) {
    if (const Cause* c = find_cause(r.cause))
      text += fmt::format("{} {}{}\n", begin, c->meaning, and_also(r));
  };
  line("so       ", best[0]);
  for (const std::string_view name : best[0].names)
    if (const Cause* c = find_cause(name))
      text += fmt::format("          which is also called: {} ({})\n", c->meaning, name);
  bool others = false;
  // Many words predict the same of a simple case: the plainest two, and how many more.
  size_t named = 0, same = 0;
  for (size_t i = 1; i < best.size(); ++i) {
    if (!best[i].same_as_first) continue;
    ++same;
    if (same <= kSynonyms) line("          which here is the same as:", best[i]), ++named;
  }
  if (same > named)
    text += fmt::format("          and as {} more of the list above (a richer case tells them apart)\n",
                        same - named);
  for (size_t i = 1; i < best.size(); ++i)
    if (!best[i].same_as_first) line("or       ", best[i]), others = true;
  if (others)
    text += fmt::format("          (this case{} cannot tell them apart: try other lengths, windows, seeds)\n",
                        ranking.second.empty() ? "" : " and '" + ranking.second + "'");
  else if (!ranking.second.empty())
    text += fmt::format("          which explains {:.0f} % of '{}' too (a line drawn beside yours)\n",
                        100 * ranking.explained_there, ranking.second);
  return text;
}

}  // namespace

std::string explanation_text(const Explanation& x, const Problem&, size_t top, bool color) {
  const char *bold = color ? "\033[1m" : "", *red = color ? "\033[31m" : "", *dim = color ? "\033[2m" : "",
             *off = color ? "\033[0m" : "";
  std::string text = fmt::format("{}{}{}\nkernel    {}\nverdict   {}{}{}{}\n", bold, x.line, off, x.kernel,
                                 x.outcome == Outcome::kPassed ? "" : red, outcome_name(x.outcome), off,
                                 x.reason.empty() ? "" : ": " + x.reason);
  for (const BadElement& b : x.first)
    text += fmt::format("first     {}: got {:.9g}, expected {:.9g}, accepted {:.9g} to {:.9g}\n",
                        place(b.cell, b.dim), b.got, b.expected, b.low, b.high);
  for (size_t i = 0; i < x.pattern.size(); ++i)
    text += fmt::format("{:<9} {}\n", i == 0 ? "pattern" : "", x.pattern[i]);
  for (size_t i = 0; i < x.facts.size(); ++i)
    text += fmt::format("{:<9} {}\n", i == 0 ? "calls" : "", x.facts[i]);
  if (!x.explained) {
    text += x.outcome == Outcome::kPassed ? "nothing to explain: every element lies in its interval\n" : "";
    return text;
  }
  if (x.ranking.list.empty()) return text + "causes    none found\n" + conclusion(x.ranking);
  text += fmt::format(
      "causes    {}misfit: error left, in units of legal rounding (log scale); \"nothing is wrong\" leaves "
      "{:.2f}{}\n",
      dim, x.ranking.nothing, off);
  text += fmt::format("   {:>4} {:>9} {:>8}  {:<30} {}\n", "rank", "explains", "misfit", "cause", "how");
  for (size_t i = 0; i < x.ranking.list.size() && i < top; ++i) {
    const Ranked& r = x.ranking.list[i];
    text += fmt::format("   {}{:>4} {:>8.0f}% {:>8.2f}  {:<30} {}{}\n", i == 0 ? bold : "", i + 1,
                        100 * std::max(0.0, r.explained), r.misfit, r.cause,
                        r.fact ? "[observed] " + r.text : r.text, i == 0 ? off : "");
  }
  text += conclusion(x.ranking);
  text += fmt::format("          {}{} hypotheses tested on {} cells in {:.1f} s{}\n", dim, x.ranking.tested,
                      x.ranking.samples.size(), x.seconds, off);
  return text;
}

nlohmann::json explanation_json(const Explanation& x, const Problem& p) {
  nlohmann::json j = {{"scenario", x.line},
                      {"kernel", x.kernel},
                      {"outcome", outcome_name(x.outcome)},
                      {"reason", x.reason},
                      {"cells", x.cells},
                      {"bad_cells", x.bad_cells},
                      {"bad_in_o", x.bad_in_o},
                      {"bad_in_lse", x.bad_in_lse},
                      {"pattern", x.pattern},
                      {"calls", x.facts},
                      {"tested", x.ranking.tested},
                      {"samples", x.ranking.samples.size()},
                      {"misfit_of_nothing", x.ranking.nothing},
                      {"sure", sure(x.ranking)},
                      {"equally_good", sure(x.ranking) ? equally_good(x.ranking).size() : 0},
                      {"second_line", x.ranking.second},
                      {"explained_there", x.ranking.explained_there},
                      {"seconds", x.seconds}};
  for (const BadElement& b : x.first)
    j["first"] = {{"request", b.cell.request}, {"row", b.cell.row},
                  {"head", b.cell.head},       {"dim", b.dim},
                  {"got", number(b.got)},      {"expected", number(b.expected)},
                  {"low", number(b.low)},      {"high", number(b.high)}};
  j["causes"] = nlohmann::json::array();
  for (const Ranked& r : x.ranking.list) {
    j["causes"].push_back({{"cause", r.cause},
                           {"also", r.also},
                           {"also_called", r.names},
                           {"how", r.text},
                           {"misfit", r.misfit},
                           {"explained", r.explained},
                           {"same_as_first", r.same_as_first},
                           {"told_apart", r.told_apart},
                           {"cost", r.cost},
                           {"numbers_fitted", r.free},
                           {"in_wrong_cells", r.in_wrong_cells},
                           {"observed", r.fact},
                           {"meaning", meaning_of(r.cause)}});
  }
  if (x.picture.empty()) return j;
  const int32_t request = x.picture.front().cell.request;
  nlohmann::json heat = {{"request", request},
                         {"keys", p.requests[request].kv_len},
                         {"page", op_of(p).has_cache ? p.page_size : 0},
                         {"splits", x.split_edges},
                         {"window_left", p.window_left},
                         {"chunk", p.chunk},
                         {"rows", nlohmann::json::array()}};
  for (const Attribution& a : x.picture)
    heat["rows"].push_back({{"row", a.cell.row},
                            {"head", a.cell.head},
                            {"begin", a.begin},
                            {"end", a.end},
                            {"bad", a.bad},
                            {"finite", a.finite},
                            {"error", number(a.error)},
                            {"change", numbers(a.change)},
                            {"weight", numbers(a.weight)}});
  j["heat"] = std::move(heat);
  return j;
}

}  // namespace assay
