// SPDX-License-Identifier: Apache-2.0
// The record and what follows from it. A threshold is a number; "" where nothing of the family is seen, "-"
// where it was not asked, "?" where it was not reached, "x" where the kernel without a fault is rejected too.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/power/curves.hpp"

namespace assay::power {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 28;
constexpr const char* kFields[] = {"format", "keys", "fault", "draw"};
constexpr double kNothing = std::numeric_limits<double>::infinity();

std::string text_of(const Threshold& t) {
  switch (t.kind) {
    case Threshold::kSize:
      return fmt::format("{:.9g}", t.size);
    case Threshold::kNever:
      return "";
    case Threshold::kRejectsRight:
      return "x";
    case Threshold::kNotReached:
      return "?";
    default:
      return "-";
  }
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (char c : line)
    if (c == ',')
      cells.emplace_back();
    else
      cells.back() += c;
  return cells;
}

bool number_of(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && std::isfinite(value);
}

bool threshold_of(const std::string& text, Threshold& t) {
  if (text == "-") return t = {}, true;
  if (text.empty()) return t = {Threshold::kNever, 0}, true;
  if (text == "?") return t = {Threshold::kNotReached, 0}, true;
  if (text == "x") return t = {Threshold::kRejectsRight, 0}, true;
  t.kind = Threshold::kSize;
  return number_of(text, t.size) && t.size > 0;
}

// The threshold that the share of all draws does not exceed. Draws that were not asked or not reached do not
// count.
Threshold share_of(std::vector<Threshold> all, double share) {
  const auto is = [](Threshold::Kind kind) { return [kind](const Threshold& t) { return t.kind == kind; }; };
  std::erase_if(all, is(Threshold::kNotReached));
  if (all.empty()) return {Threshold::kNotReached, 0};
  std::erase_if(all, is(Threshold::kNotAsked));
  if (all.empty()) return {};
  for (const Threshold& t : all)
    if (t.kind == Threshold::kRejectsRight) return t;
  std::vector<double> sizes;
  for (const Threshold& t : all) sizes.push_back(t.kind == Threshold::kSize ? t.size : kNothing);
  std::sort(sizes.begin(), sizes.end());
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(sizes.size()))) - 1;
  return sizes[at] == kNothing ? Threshold{Threshold::kNever, 0} : Threshold{Threshold::kSize, sizes[at]};
}

double size_of(const Threshold& t) { return t.kind == Threshold::kSize ? t.size : kNothing; }

std::string exponent_of(const Threshold& t) {
  if (t.kind != Threshold::kSize) return t.kind == Threshold::kNever ? "." : text_of(t);
  return fmt::format("{:g}", std::log2(t.size));
}

std::string cell_of(const Power::Sizes& s) {
  const std::string half = exponent_of(s.half), most = exponent_of(s.most);
  return s.half.kind == Threshold::kSize || s.half.kind == Threshold::kNever ? half + "/" + most : half;
}

size_t width_of(const std::string& detector) { return std::max<size_t>(9, detector.size() + 2); }

}  // namespace

std::string csv_header() {
  std::string text;
  for (const char* field : kFields) text += fmt::format("{}{}", text.empty() ? "" : ",", field);
  for (const std::string& name : detector_names()) text += "," + name;
  return text;
}

std::string csv_line(const CurveRow& r) {
  std::string text = fmt::format("{},{},{},{}", r.format, r.keys, r.fault, r.draw);
  for (const Threshold& t : r.seen) text += "," + text_of(t);
  return text;
}

CurveRow row_of_line(const std::string& line) {
  const std::vector<std::string> cells = cells_of(line);
  CurveRow r;
  double keys = 0, draw = 0;
  bool fine = cells.size() == std::size(kFields) + kDetectors;
  if (fine) {
    r.format = cells[0], r.fault = cells[2];
    fine = number_of(cells[1], keys) && number_of(cells[3], draw) && keys >= 1 && draw >= 0;
    r.keys = static_cast<int64_t>(keys), r.draw = static_cast<int>(draw);
  }
  for (size_t d = 0; fine && d < kDetectors; ++d)
    fine = threshold_of(cells[std::size(kFields) + d], r.seen[d]);
  if (!fine)
    throw InputError("expected format, keys, fault, draw and a size for each detector (or -, ?, x, nothing)");
  return r;
}

std::vector<CurveRow> read_curves(const std::string& path) {
  std::istringstream text(read_text_file({path}, path, kMostBytes, "a record of assay power"));
  std::vector<CurveRow> rows;
  std::string line;
  bool header = false;
  for (int number = 1; std::getline(text, line); ++number) {
    if (line.empty() || line.starts_with('#')) continue;
    if (!header) {
      if (line != csv_header())
        throw InputError(SourcePlace{path, number}, "expected the header " + csv_header());
      header = true;
      continue;
    }
    try {
      rows.push_back(row_of_line(line));
    } catch (const InputError& e) {
      throw InputError(SourcePlace{path, number}, e.what());
    }
  }
  return rows;
}

std::vector<Power> powers_of(const std::vector<CurveRow>& rows) {
  std::vector<Power> all;
  std::vector<std::vector<const CurveRow*>> draws;
  for (const CurveRow& r : rows) {
    size_t at = 0;
    while (at < all.size() &&
           (all[at].format != r.format || all[at].fault != r.fault || all[at].keys != r.keys))
      ++at;
    if (at == all.size()) {
      all.push_back({r.format, r.fault, r.keys, 0, {}});
      draws.emplace_back();
    }
    draws[at].push_back(&r);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (const CurveRow* r : draws[i])
      all[i].draws += std::any_of(r->seen.begin(), r->seen.end(),
                                  [](const Threshold& t) { return t.kind != Threshold::kNotReached; });
    for (size_t d = 0; d < kDetectors; ++d) {
      std::vector<Threshold> seen;
      for (const CurveRow* r : draws[i]) seen.push_back(r->seen[d]);
      all[i].by[d] = {share_of(seen, 0.5), share_of(seen, 0.95)};
    }
  }
  return all;
}

std::vector<Behind> behind_peers(const std::vector<Power>& all) {
  std::vector<Behind> behind;
  for (const Power& p : all)
    for (size_t d = kFirstPeer; d < kDetectors; ++d) {
      const auto ours = [&](Threshold Power::Sizes::*share) {
        return std::min(size_of(p.by[kOurs].*share), size_of(p.by[kIncidence].*share));
      };
      if (size_of(p.by[d].half) < ours(&Power::Sizes::half))
        behind.push_back({&p, d, true});
      else if (size_of(p.by[d].most) < ours(&Power::Sizes::most))
        behind.push_back({&p, d, false});
    }
  return behind;
}

Holes holes_of(const std::vector<Power>& all) {
  Holes holes;
  for (const Power& p : all) {
    holes.random += p.by[kTierD].half.kind == Threshold::kNotReached;
    holes.known += p.by[kIncidence].half.kind == Threshold::kNotReached;
  }
  return holes;
}

int false_alarms(const std::vector<CurveRow>& rows) {
  std::set<DrawKey> alarms;
  for (const CurveRow& r : rows)
    for (size_t d = 0; d < kFirstPeer; ++d)
      if (r.seen[d].kind == Threshold::kRejectsRight) alarms.insert({r.format, r.keys, r.draw, {}});
  return static_cast<int>(alarms.size());
}

std::string power_text(const std::vector<Power>& all, const Catalogue& c) {
  std::vector<std::pair<std::string, std::string>> faults, groups;  // (fault, unit), (fault, format)
  for (const Power& p : all) {
    if (std::find(groups.begin(), groups.end(), std::pair(p.fault, p.format)) == groups.end())
      groups.emplace_back(p.fault, p.format);
  }
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& a, const auto& b) {
    const auto place = [&](const std::string& fault) {
      return std::find_if(c.faults.begin(), c.faults.end(), [&](auto& e) { return e.family == fault; });
    };
    return place(a.first) < place(b.first);
  });
  std::string text, fault;
  for (const auto& [name, format] : groups) {
    if (name != fault) {
      std::string unit;
      for (const CatalogueEntry& e : c.faults)
        if (e.family == name) unit = e.unit;
      text += fmt::format("\n{}: {}\n{:<12}{:>8}{:>6}", name, unit, "", "keys", "draws");
      for (const std::string& d : detector_names()) text += fmt::format("{:>{}}", d, width_of(d));
      text += "\n";
      fault = name;
    }
    std::vector<const Power*> rows;
    for (const Power& p : all)
      if (p.fault == name && p.format == format) rows.push_back(&p);
    std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->keys < b->keys; });
    for (const Power* p : rows) {
      text += fmt::format("{:<12}{:>8}{:>6}", format, p->keys, p->draws);
      for (size_t d = 0; d < kDetectors; ++d)
        text += fmt::format("{:>{}}", cell_of(p->by[d]), width_of(detector_names()[d]));
      text += "\n";
    }
  }
  return text;
}

}  // namespace assay::power
