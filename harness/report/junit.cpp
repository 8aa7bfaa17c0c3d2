// SPDX-License-Identifier: Apache-2.0
// See junit.hpp. Written by hand: the format is four elements, and its one difficulty, text that XML
// cannot hold, needs care with any library.
#include "harness/report/junit.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

// "scenarios/smoke.suite:12:1" -> "scenarios/smoke.suite"
std::string suite_of(const Row& row) {
  std::string place = row.suite_place;
  for (int i = 0; i < 2; i++) {
    const size_t colon = place.rfind(':');
    if (colon == std::string::npos || colon + 1 == place.size() ||
        place.find_first_not_of("0123456789", colon + 1) != std::string::npos)
      break;
    place.resize(colon);
  }
  if (!place.empty() && place != "command line") return place;
  return row.op.empty() ? "assay" : row.op;
}

enum class Kind { kPassed, kSkipped, kFailure, kError };

Kind kind_of(const Row& row) {
  if (row.outcome == "passed" || row.outcome == "noisy") return Kind::kPassed;
  if (row.outcome == "unsupported") return Kind::kSkipped;
  return row.outcome == "wrong" || row.outcome == "untrusted" || row.outcome == "implausible" ? Kind::kFailure
                                                                                              : Kind::kError;
}

// A NaN output has no error to print.
std::string number_text(double x) { return std::isnan(x) ? "not a number" : shortest(x); }

std::string detail(const Row& row) {
  std::string text = xml_escape(row.reason) + "\n";
  if (!row.check.empty()) text += "check: " + xml_escape(row.check) + "\n";
  if (!row.o_where.empty())
    text += fmt::format("O: largest error {}, {} x its bound, at request/row/head/dim {}\n",
                        number_text(row.o_max_error), number_text(row.o_ratio), xml_escape(row.o_where));
  if (!row.lse_where.empty())
    text +=
        fmt::format("LSE: largest error {}, {} x its bound, at request/row/head {}\n",
                    number_text(row.lse_max_error), number_text(row.lse_ratio), xml_escape(row.lse_where));
  if (!row.repeat.empty()) text += "repeat: " + xml_escape(row.repeat) + "\n";
  return text;
}

struct Group {
  std::vector<const Row*> rows;
  int64_t failures = 0, errors = 0, skipped = 0;
  double seconds = 0;
};

double seconds_of(const Row& row) { return std::isfinite(row.case_s) ? row.case_s : 0; }

}  // namespace

std::string xml_escape(std::string_view s) {
  std::string out;
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    const auto b = static_cast<unsigned char>(s[0]);
    const std::string_view unit = s.substr(0, n == 0 ? 1 : n);
    s.remove_prefix(unit.size());
    // XML 1.0 has no spelling at all for these, not even as character references.
    const bool forbidden = (n == 1 && b < 0x20 && b != '\t' && b != '\n' && b != '\r') ||
                           unit == "\xEF\xBF\xBE" || unit == "\xEF\xBF\xBF";
    if (n == 0 || forbidden)
      out += fmt::format("\\x{:02x}", b);
    else if (unit == "&")
      out += "&amp;";
    else if (unit == "<")
      out += "&lt;";
    else if (unit == ">")
      out += "&gt;";
    else if (unit == "\"")
      out += "&quot;";
    else if (n == 1 && b < 0x20)  // as references, or parsers turn them into blanks in attributes
      out += fmt::format("&#{};", b);
    else
      out += unit;
  }
  return out;
}

std::string junit_xml(std::span<const Row> rows) {
  std::map<std::string, Group> groups;
  std::set<std::string> backends;
  Group all;
  for (const Row& row : rows) {
    Group& group = groups[suite_of(row)];
    group.rows.push_back(&row);
    backends.insert(row.backend);
    for (Group* sum : {&group, &all}) {
      sum->seconds += seconds_of(row);
      sum->failures += kind_of(row) == Kind::kFailure;
      sum->errors += kind_of(row) == Kind::kError;
      sum->skipped += kind_of(row) == Kind::kSkipped;
    }
  }
  auto counts = [](const Group& g, size_t tests) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests,
                       g.failures, g.errors, g.skipped, g.seconds);
  };
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format("<testsuites name=\"assay\" {}>\n", counts(all, rows.size()));
  for (const auto& [name, group] : groups) {
    xml += fmt::format("  <testsuite name=\"{}\" {}>\n", xml_escape(name), counts(group, group.rows.size()));
    for (const Row* row : group.rows) {
      // Viewers identify a case by class and name: keep the pair unique within a run.
      const std::string test = row->cache.empty() ? row->scenario : row->scenario + " [" + row->cache + "]";
      const std::string kernel = backends.size() > 1 ? row->backend + "." + row->kernel : row->kernel;
      xml += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", xml_escape(kernel),
                         xml_escape(test), seconds_of(*row));
      const Kind kind = kind_of(*row);
      if (kind == Kind::kPassed)
        xml += "/>\n";
      else if (kind == Kind::kSkipped)
        xml += fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", xml_escape(row->reason));
      else
        xml += fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n",
                           kind == Kind::kFailure ? "failure" : "error", xml_escape(row->outcome),
                           xml_escape(row->reason), detail(*row));
    }
    xml += "  </testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

}  // namespace assay
