// SPDX-License-Identifier: Apache-2.0
// The syntax column of the table of fields as a grammar: alternatives stand between " | ", optional parts in
// brackets ("..." inside: any number of times), words in capitals are values, all else is literal. Numbers
// are drawn uniformly in their logarithm, because that is how sizes of real cases differ.
#include "harness/campaign/draw_value.hpp"

#include <array>
#include <cctype>
#include <map>
#include <vector>

#include "harness/base/error.hpp"

namespace assay::campaign {
namespace {

// Distances and counts beyond what the requests hold: rare, but windows and positions may be anything.
constexpr int64_t kFarTokens = 1 << 20;
constexpr int64_t kUsualCount = 32, kMostCount = 512;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t comma = text.find(", ");
    words.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 2);
  }
  return words;
}

std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t from = text.find(before);
  if (from == std::string_view::npos) return {};
  const size_t start = from + before.size();
  return text.substr(start, text.find(after, start) - start);
}

// Follows "as q" to the field that says it.
std::string_view accepted_of(const Field& field) {
  if (!field.accepted.starts_with("as ")) return field.accepted;
  return fields()[static_cast<size_t>(field_index(std::string_view(field.accepted).substr(3)))].accepted;
}

std::string one_word(Draws& d, std::string_view list, const Field& field) {
  const std::vector<std::string> words = words_of(list);
  ASSAY_CHECK(!words.empty(), "field {}: \"{}\" lists no words to draw from", field.name, field.accepted);
  return d.one_of(std::span(words));
}

int64_t draw_tokens(Draws& d, const LineSoFar& line) {
  if (d.chance(0.1)) return 0;
  if (d.chance(0.05)) return d.log_uniform(1, kFarTokens);
  return d.log_uniform(1, 2 * std::max<int64_t>(1, line.longest));
}

int64_t draw_count(Draws& d) { return d.log_uniform(1, d.chance(0.1) ? kMostCount : kUsualCount); }

// Mostly what models have; now and then as far out as the language goes.
std::string draw_number(Draws& d) {
  const double exponent = d.chance(0.1) ? d.uniform(-30, 30) : d.uniform(-4, 2);
  return fmt::format("{:.3g}", std::pow(10.0, exponent));
}

// A word in capitals.
std::string draw_word(Draws& d, std::string_view word, const Field& field, const LineSoFar& line) {
  const std::string_view accepted = accepted_of(field);
  if (word == "NAME") return one_word(d, accepted, field);
  if (word == "FORMAT" || word == "K" || word == "V")
    return one_word(d, accepted.substr(0, accepted.find("; ")), field);
  if (word == "SCALE") return one_word(d, between(accepted, "; scales ", ";"), field);
  if (word == "OPERAND" || word == "RELATION")
    return one_word(d, between(accepted, "any of ", " joined"), field);
  if (word == "TOKENS") return fmt::format("{}", draw_tokens(d, line));
  if (word == "LEFT" || word == "RIGHT")
    return d.chance(0.15) ? "-1" : fmt::format("{}", draw_tokens(d, line));
  if (word == "COUNT" || word == "ROWS" || word == "KEYS") return fmt::format("{}", draw_count(d));
  if (word == "NUMBER") return draw_number(d);
  ASSAY_CHECK(false, "field {}: its syntax \"{}\" holds {}, which a campaign cannot draw; teach draw_word()",
              field.name, field.syntax, word);
}

// Of the bracket at `open`.
size_t closing(std::string_view syntax, size_t open) {
  int depth = 0;
  for (size_t i = open; i < syntax.size(); ++i)
    if (syntax[i] == '[')
      ++depth;
    else if (syntax[i] == ']' && --depth == 0)
      return i;
  ASSAY_CHECK(false, "syntax \"{}\" opens a bracket that nothing closes", syntax);
}

std::string follow(Draws& d, std::string_view syntax, const Field& field, const LineSoFar& line) {
  std::string text;
  for (size_t i = 0; i < syntax.size();) {
    const auto capital = [&](size_t at) {
      return at < syntax.size() && std::isupper(static_cast<unsigned char>(syntax[at])) != 0;
    };
    if (syntax[i] == '[') {
      const size_t end = closing(syntax, i);
      std::string_view part = syntax.substr(i + 1, end - i - 1);
      const bool repeated = part.ends_with("...");
      if (repeated) part.remove_suffix(3);
      for (int n = 0; n < (repeated ? 3 : 1) && d.chance(0.5); ++n) text += follow(d, part, field, line);
      i = end + 1;
    } else if (capital(i)) {
      size_t end = i;
      while (capital(end)) ++end;
      text += draw_word(d, syntax.substr(i, end - i), field, line);
      i = end;
    } else {
      text += syntax[i++];
    }
  }
  return text;
}

// Odd numbers of heads are as likely as round ones; a single KV head is a kind of its own (MQA, MLA).
std::string draw_heads(Draws& d, const LineSoFar&) {
  const int64_t kv = d.chance(0.3) ? 1 : d.log_uniform(1, 8);
  const int64_t group = d.chance(0.3) ? 1 : d.log_uniform(1, d.chance(0.1) ? 64 : 8);
  return fmt::format("{}/{}", kv * group, kv);
}

// Sizes kernels are written for, and any others: a scalar rest behind the vectors.
std::string draw_dims(Draws& d, const LineSoFar&) {
  const auto one = [&d] {
    if (d.chance(0.6)) return d.one_of<int64_t>({16, 32, 48, 64, 64, 80, 96, 128, 128, 192, 256, 576});
    return d.chance(0.3) ? 16 * d.log_uniform(1, 20) : d.log_uniform(1, 300);
  };
  const int64_t qk = one();
  return d.chance(0.75) ? fmt::format("{}", qk) : fmt::format("{}/{}", qk, one());
}

// A tree: every draft sees itself and one earlier draft with all that this one sees, or none.
std::string draw_bits(Draws& d, const LineSoFar&) {
  std::vector<std::string> rows(static_cast<size_t>(d.log_uniform(1, 9)));
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::string(rows.size(), '0');
    if (i > 0 && d.chance(0.8)) rows[i] = rows[static_cast<size_t>(d.below(static_cast<int64_t>(i)))];
    rows[i][i] = '1';
    text += (i > 0 ? "/" : "") + rows[i];
  }
  return text;
}

std::string draw_seed(Draws& d, const LineSoFar&) { return fmt::format("{}", d.bits() >> 44); }

}  // namespace

std::string draw_batch(Draws& d, const Op& op, int64_t most_keys) {
  const bool one_row = op.rows == RowRule::kOneAtMost;
  const auto keys = [&] { return d.chance(0.04) ? 0 : d.log_uniform(1, most_keys); };
  const auto rows = [&](int64_t of) -> int64_t {
    if (d.chance(0.04)) return 0;
    if (one_row || d.chance(0.35)) return 1;
    if (d.chance(0.4)) return d.log_uniform(1, 16);
    if (op.rows != RowRule::kWithinCache && d.chance(0.1)) return d.log_uniform(1, most_keys);
    return d.chance(0.5) ? of : d.log_uniform(1, std::max<int64_t>(1, of));
  };
  const int64_t most_requests = d.chance(0.2) ? 256 : 8;
  if (d.chance(0.15)) {
    const int64_t low = keys(), high = std::max(low, keys()), q_high = std::min(rows(high), high);
    const int64_t q_low = one_row || d.chance(0.5) ? q_high : d.below(q_high + 1);
    const std::string zipf = d.chance(0.5) ? fmt::format(",a={:.2g}", d.uniform(0.3, 3)) : "";
    return fmt::format("{}(n={},q={}:{},s={}:{}{})", zipf.empty() ? "uniform" : "zipf",
                       d.log_uniform(1, most_requests), q_low, q_high, low, high, zipf);
  }
  std::string text;
  const int64_t groups = d.log_uniform(1, 5);
  for (int64_t g = 0; g < groups; ++g) {
    int64_t s = keys();
    const int64_t q = rows(s);
    if (op.rows == RowRule::kWithinCache) s = std::max(s, q);
    text += fmt::format("{}{}q{}s{}", g > 0 ? "_" : "", d.log_uniform(1, most_requests), q, s);
    if (op.shares_pages && d.chance(0.1)) text += fmt::format("p{}", d.below(s + 1));
  }
  return text;
}

std::string draw_value(Draws& d, const Field& field, const LineSoFar& line) {
  // Where a value is more than its words: heads divide, dimensions belong together, lengths have a grammar.
  static const std::map<std::string_view, std::string (*)(Draws&, const LineSoFar&)> whole = {
      {"h", draw_heads},
      {"d", draw_dims},
      {"bits", draw_bits},
      {"seed", draw_seed},
      {"batch", [](Draws& of, const LineSoFar& so) { return draw_batch(of, so.op, so.longest); }}};
  if (const auto own = whole.find(field.name); own != whole.end()) return own->second(d, line);
  std::vector<std::string_view> alternatives;
  for (std::string_view rest = field.syntax; !rest.empty();) {
    const size_t bar = rest.find(" | ");
    alternatives.push_back(rest.substr(0, bar));
    rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 3);
  }
  return follow(d, d.one_of(std::span<const std::string_view>(alternatives)), field, line);
}

}  // namespace assay::campaign
