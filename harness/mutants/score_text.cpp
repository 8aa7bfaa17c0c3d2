// SPDX-License-Identifier: Apache-2.0
// The score as text. Tables are collected as cells first, so that every column is as wide as its widest cell
// and the last one takes what is left.
#include <algorithm>
#include <cmath>
#include <map>

#include "harness/base/error.hpp"
#include "harness/mutants/score_report.hpp"

namespace assay {
namespace {

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  return most < 4 ? text.substr(0, most) : text.substr(0, most - 3) + "...";
}

class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() < 2; }

  std::string text(size_t width) const {
    const size_t columns = rows_[0].size();
    std::vector<size_t> widths(columns, 0);
    for (const auto& row : rows_)
      for (size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
    size_t before = 0;
    for (size_t c = 0; c + 1 < columns; ++c) before += widths[c] + 2;
    const size_t last = std::min(widths[columns - 1], width > before + 10 ? width - before : 10);
    std::string out;
    const auto write = [&](const std::vector<std::string>& row) {
      std::string line;
      for (size_t c = 0; c + 1 < columns; ++c) line += fmt::format("{:<{}}  ", row[c], widths[c]);
      line += shortened(row[columns - 1], last);
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    };
    write(rows_[0]);
    out += std::string(std::min(width, before + last), '-') + "\n";
    for (size_t r = 1; r < rows_.size(); ++r) write(rows_[r]);
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "0.67 V-3.": kill rate, then a letter per peer: its own when it killed, . accepted, ! rejects the healthy
// kernel too, - not reached.
std::string peer_cell(const FaultScore& f, bool own_inputs) {
  const double rate = f.peer_rate(own_inputs);
  const PeerMarks marks = f.best_marks(own_inputs);
  std::string letters;
  for (const PeerInfo& info : peers()) switch (marks[static_cast<int>(info.peer)]) {
      case PeerMark::kNotReached:
        letters += '-';
        break;
      case PeerMark::kAccepted:
        letters += '.';
        break;
      case PeerMark::kHealthyToo:
        letters += '!';
        break;
      case PeerMark::kKilled:
        letters += info.letter;
        break;
    }
  return fmt::format("{} {}", std::isnan(rate) ? std::string("   -") : fmt::format("{:4.2f}", rate), letters);
}

std::vector<std::string> fault_row(const CatalogueEntry& e, const FaultScore& f) {
  const FaultTrial* kill = f.first_kill();
  std::string checks, cases;
  for (const FaultTrial& t : f.ours) {
    if (t.killed && checks.find(t.check) == std::string::npos)
      checks += (checks.empty() ? "" : ", ") + t.check;
    cases += fmt::format("{}{}", cases.empty() ? "" : " ", t.lines);
  }
  std::string line = kill ? kill->line : !f.reached() ? "NOT REACHED by any line" : "SURVIVES";
  return {e.name,
          e.museum,
          peer_cell(f, true),
          peer_cell(f, false),
          f.reached() ? fmt::format("{:4.2f}", f.our_rate()) : "   -",
          checks,
          cases,
          line};
}

std::string fault_tables(const Catalogue& c, const Score& s, size_t width) {
  std::vector<std::string> stages;
  for (const CatalogueEntry& e : c.faults)
    if (std::find(stages.begin(), stages.end(), e.stage) == stages.end()) stages.push_back(e.stage);
  // One table, so that columns line up; stages as rows of their own.
  Table table({"fault", "museum", "(i) theirs", "(ii) ours", "(iii)", "killed by", "cases",
               "first line that killed it"});
  Table controls({"control", "museum", "(i) theirs", "(ii) ours", "(iii)", "rejected by", "cases", "line"});
  for (const std::string& stage : stages) {
    table.add({"[" + stage + "]", "", "", "", "", "", "", ""});
    for (size_t f = 0; f < c.faults.size(); ++f) {
      if (c.faults[f].stage != stage) continue;
      std::vector<std::string> row = fault_row(c.faults[f], s.faults[f]);
      if (!c.faults[f].equivalent) {
        table.add(std::move(row));
        continue;
      }
      const bool o = std::any_of(s.faults[f].ours.begin(), s.faults[f].ours.end(),
                                 [](const FaultTrial& t) { return t.o_rejected; });
      if (s.faults[f].reached() && !s.faults[f].first_kill()) row.back() = "accepted";
      if (o) row.back() = "O REJECTED " + row.back();
      controls.add(std::move(row));
    }
  }
  std::string out = table.text(width);
  if (!controls.empty())
    out +=
        "\nControls: equivalent to a legal kernel in O, so O must pass; not counted\n" + controls.text(width);
  return out;
}

std::string stage_table(const Catalogue& c, const Score& s, size_t width) {
  struct Sum {
    int faults = 0;
    double rate[3] = {};
  };
  std::vector<std::pair<std::string, Sum>> sums;
  const auto at = [&](const std::string& name) -> Sum& {
    for (auto& [n, sum] : sums)
      if (n == name) return sum;
    return sums.emplace_back(name, Sum{}).second;
  };
  for (size_t f = 0; f < c.faults.size(); ++f) {
    if (c.faults[f].equivalent) continue;
    const auto value = [](double x) { return std::isnan(x) ? 0.0 : x; };
    const double rates[3] = {value(s.faults[f].peer_rate(true)), value(s.faults[f].peer_rate(false)),
                             s.faults[f].our_rate()};
    for (const std::string& name : {c.faults[f].stage, std::string("all")}) {
      Sum& sum = at(name);
      ++sum.faults;
      for (int i = 0; i < 3; ++i) sum.rate[i] += rates[i];
    }
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto& a, const auto& b) { return (a.first == "all") < (b.first == "all"); });
  Table table({"stage", "faults", "(i) any peer, peers' inputs", "(ii) any peer, our inputs",
               "(iii) our rules, our inputs"});
  for (const auto& [name, sum] : sums) {
    const auto percent = [n = sum.faults](double r) { return fmt::format("{:5.1f} %", 100 * r / n); };
    table.add({name, fmt::format("{}", sum.faults), percent(sum.rate[0]), percent(sum.rate[1]),
               percent(sum.rate[2])});
  }
  return table.text(width);
}

std::string check_table(const Catalogue& c, const Score& s, size_t width) {
  std::map<std::string, int> kills;
  int total = 0;
  for (size_t f = 0; f < c.faults.size(); ++f)
    for (const FaultTrial& t : s.faults[f].ours)
      if (t.killed && !c.faults[f].equivalent) ++kills[t.check], ++total;
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [name, n] : kills) order.push_back({-n, name});
  std::sort(order.begin(), order.end());
  Table table({"check that killed in (iii)", "kills", "share"});
  for (const auto& [n, name] : order)
    table.add({name, fmt::format("{}", -n), fmt::format("{:5.1f} %", -100.0 * n / total)});
  return table.empty() ? "" : table.text(width);
}

// "tests/a/test_x.py, test_y.py" -> "test_x.py, test_y.py": the project stands before it.
std::string file_names(std::string_view source) {
  std::string out;
  for (size_t at = 0; at < source.size();) {
    const size_t end = std::min(source.find(' ', at), source.size());
    const std::string_view word = source.substr(at, end - at);
    const size_t slash = word.rfind('/');
    out += slash == std::string_view::npos ? word : word.substr(slash + 1);
    out += ' ';
    at = end + 1;
  }
  return out;
}

std::string peer_table(const Catalogue& c, const Score& s, size_t width) {
  Table table({"", "peer", "(i) killed", "of all", "reached", "(ii) killed", "of all", "reached",
               "rejects healthy kernels on our inputs"});
  const auto all =
      std::count_if(c.faults.begin(), c.faults.end(), [](const auto& e) { return !e.equivalent; });
  const auto share = [&](int n) {
    return fmt::format("{:5.1f} %", 100.0 * n / static_cast<double>(std::max<int64_t>(all, 1)));
  };
  for (const PeerInfo& info : peers()) {
    const int p = static_cast<int>(info.peer);
    int killed[2] = {}, reached[2] = {};
    for (size_t f = 0; f < c.faults.size(); ++f) {
      if (c.faults[f].equivalent) continue;
      for (const bool own : {true, false}) {
        const PeerMark mark = s.faults[f].best_marks(own)[p];
        killed[own ? 0 : 1] += mark == PeerMark::kKilled;
        reached[own ? 0 : 1] += mark != PeerMark::kNotReached;
      }
    }
    const PeerHealth& h = s.peer_health[p];
    table.add({std::string(1, info.letter), std::string(info.name), fmt::format("{}", killed[0]),
               share(killed[0]), fmt::format("{}", reached[0]), fmt::format("{}", killed[1]),
               share(killed[1]), fmt::format("{}", reached[1]),
               h.cases == 0
                   ? std::string("-")
                   : fmt::format("{} of {} cases ({:.1f} %)", h.rejected, h.cases,
                                 100.0 * static_cast<double>(h.rejected) / static_cast<double>(h.cases))});
  }
  std::string out = table.text(width) + "\n";
  Table rules({"peer", "covers", "rule", "source"});
  for (const PeerRule& r : peer_rules())
    rules.add({std::string(1, info_of(r.peer).letter), std::string(r.cases), std::string(r.rule),
               file_names(r.source)});
  return out + rules.text(width);
}

std::string ratio_cell(double x) { return std::isnan(x) ? "-" : fmt::format("{:.3f}", x); }

std::string variant_table(const Catalogue& c, const Score& s, size_t width) {
  Table table(
      {"legal variant", "cases", "alarms", "untrusted", "O largest", "median", "LSE largest", "median", ""});
  for (size_t v = 0; v < c.variants.size(); ++v) {
    const VariantScore& score = s.variants[v];
    const auto alarms = std::count_if(s.false_alarms.begin(), s.false_alarms.end(),
                                      [&](const FalseAlarm& a) { return a.variant == static_cast<int>(v); });
    const double o = largest_of(score.o_ratios);
    table.add({c.variants[v].name, fmt::format("{}", score.cases), fmt::format("{}", alarms),
               fmt::format("{}", score.untrusted), ratio_cell(o), ratio_cell(median_of(score.o_ratios)),
               ratio_cell(largest_of(score.lse_ratios)), ratio_cell(median_of(score.lse_ratios)),
               o < 0.02 ? "bound too loose" : ""});
  }
  return table.text(width);
}

}  // namespace

std::string score_text(const Catalogue& c, const CampaignPlan& plan, const CampaignOptions& o, const Score& s,
                       int columns) {
  const auto width = static_cast<size_t>(columns);
  std::string out = fmt::format(
      "{} faults, {} legal variants; {} lines of {} within {:g} multiply-adds, {} dearer ones as a last "
      "resort, "
      "{} left out;\n{} trials; {:.0f} s\n\n",
      c.faults.size(), c.variants.size(), plan.lines.cheap,
      shortened(fmt::format("{}", fmt::join(o.suites, " ")), 40), o.cost_cap,
      plan.lines.lines.size() - plan.lines.cheap, plan.lines.left_out, o.trials, s.seconds);
  out +=
      "(i) peers' rules on peers' inputs, (ii) peers' rules on our inputs, (iii) our rules on our inputs: "
      "share of\n"
      "trials that kill. A letter per peer: its own killed it, . accepted it, ! would reject the healthy "
      "kernel too,\n"
      "- no such case. cases: how many each trial needed.\n\n";
  out += fault_tables(c, s, width) + "\n" + stage_table(c, s, width) + "\n" + check_table(c, s, width) + "\n";
  out += peer_table(c, s, width);
  if (!c.variants.empty())
    out += "\nLargest error over bound of each case: the largest and the median over the cases\n" +
           variant_table(c, s, width);
  if (!s.false_alarms.empty()) out += "\nFalse alarms\n";
  for (const FalseAlarm& a : s.false_alarms)
    out += fmt::format("{} {}  {}\n    {}\n", c.variants[a.variant].name, a.outcome, a.line, a.reason);
  return out;
}

}  // namespace assay
