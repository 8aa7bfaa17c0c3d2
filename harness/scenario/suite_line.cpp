// SPDX-License-Identifier: Apache-2.0
// See suite_line.hpp. Reading a line, then stepping through its combinations like an odometer whose last
// axis turns fastest.
#include "harness/scenario/suite_line.hpp"

#include <algorithm>

#include "harness/base/input_errors.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/lengths.hpp"

namespace assay {
namespace {

constexpr int64_t kMaxExceptValues = 4096;

bool is_exception(std::string_view word) { return word.starts_with("except("); }

}  // namespace

bool LineWord::moves_with(int axis) const {
  return std::any_of(parts.begin(), parts.end(), [axis](const Part& p) { return p.axis >= axis; });
}
bool LineWord::uses(int axis) const {
  return std::any_of(parts.begin(), parts.end(), [axis](const Part& p) { return p.axis == axis; });
}
bool LineWord::constant() const { return !moves_with(0); }

bool Exception::Condition::holds(const Scenario& s) const {
  std::string text;
  fields()[field].print(s, text);
  return std::any_of(values.begin(), values.end(),
                     [&](const std::string& v) { return matches_pattern(v, text); });
}

bool Exception::matches(const Scenario& s) const {
  return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& c) { return c.holds(s); });
}

LineCases::LineCases(SourceText line) : source_(std::move(line)) {
  try {
    read(source_.slice());
    index_.assign(axes_.size.size(), 0);
    for (const LineWord& word : words_) keep([&] { try_values(word); });
    raise_wrong();  // what the fields are together is asked once each of them is right
    for (const LineWord& word : words_) set_word(word, index_, raw_);
    check_constant_rules();
    if (strength_ > 0) rows_ = cover_rows(*this);
  } catch (const TextError& error) {
    throw source_.error(error);
  }
}

// All bad words of a line are said at once.
template <class Call>
void LineCases::keep(const Call& call) {
  try {
    call();
  } catch (const TextError& error) {
    wrong_.push_back(error);
  }
}

void LineCases::raise_wrong() {
  std::stable_sort(wrong_.begin(), wrong_.end(),
                   [](const TextError& a, const TextError& b) { return a.offset() < b.offset(); });
  Mistakes all;
  for (const TextError& error : wrong_) all.add(source_.error(error));
  all.raise();
}

// Every value of a list of usual length, the first of a longer one; each axis by itself.
void LineCases::try_values(const LineWord& word) const {
  constexpr int64_t kMost = 64;
  std::vector<int64_t> index(axes_.size.size(), 0);
  Scenario scratch;
  set_word(word, index, scratch);
  for (size_t axis = 0; axis < index.size(); ++axis) {
    if (axes_.size[axis] > kMost || !word.uses(static_cast<int>(axis))) continue;
    for (index[axis] = 1; index[axis] < axes_.size[axis]; ++index[axis]) set_word(word, index, scratch);
    index[axis] = 0;
  }
}

void LineCases::read(Slice text) {
  std::vector<Slice> words = words_outside_brackets(text);
  size_t first = 0;
  if (words[0].text == "optional") {
    optional_ = true;
    if (++first == words.size()) throw TextError(words[0].offset, missing_op_message(""));
  }
  op_offset_ = words[first].offset;
  place_ = source_.place(op_offset_);
  require_op_word(words[first]);
  given_.add(0, op_offset_);
  words_.push_back({0, op_offset_, parse_value(words[first], axes_)});

  // All ops the line stands for, to judge the fields.
  std::vector<int32_t> ops;
  const int64_t op_count = axes_.size.empty() ? 1 : axes_.size[0];
  if (op_count > 64) throw TextError(op_offset_, "more than 64 ops in one line");
  for (int64_t i = 0; i < op_count; ++i) {
    const std::vector<int64_t> index(axes_.size.size(), i);
    Scenario probe;
    set_word(words_[0], index, probe);
    ops.push_back(probe.op);
  }

  for (size_t i = first + 1; i < words.size(); ++i) keep([&] { read_word(words[i], ops); });
  if (strength_ > 0 && axes_.size.empty())
    throw TextError(cover_offset_,
                    "cover= needs axes (a,b or [a:b:s]) in the line; leave it out or add some");
}

void LineCases::read_word(Slice word, const std::vector<int32_t>& ops) {
  if (is_exception(word.text)) {
    read_exception(word);
  } else if (word.text.starts_with("cover=")) {
    if (strength_ > 0) throw TextError(word.offset, "cover= is given twice; leave one out");
    cover_offset_ = word.offset;
    strength_ = static_cast<int>(parse_integer(word.sub(6), "cover", 2, 4));
  } else {
    const auto [field, value] = split_word(word);
    given_.add(field, word.offset);
    for (const int32_t op : ops) require_applicable(fields()[field], op, word.offset);
    words_.push_back({field, word.offset, parse_value(value, axes_)});
  }
}

void LineCases::read_exception(Slice word) {
  if (word.text.back() != ')')
    throw TextError(word.offset, "nothing may follow the \")\" of except(NAME=VALUE ...)");
  Exception exception;
  for (const Slice& condition : words_outside_brackets(word.sub(7, word.text.size() - 8))) {
    Exception::Condition out;
    const size_t equals = condition.text.find('=');
    if (equals == std::string_view::npos)
      throw TextError(condition.offset, fmt::format("\"{}\" is not NAME=VALUE[,VALUE...]", condition.text));
    out.field = require_field(condition.sub(0, equals));
    for (const MappedText& value : list_values(condition.sub(equals + 1), kMaxExceptValues)) {
      if (value.text().find('*') != std::string::npos) {
        out.values.push_back(value.text());
        continue;
      }
      Scenario scratch;
      std::string canonical;
      try {
        fields()[out.field].parse({value.text(), 0}, scratch);
      } catch (const TextError& error) {
        throw TextError(value.source(error.offset()), error.what());
      }
      fields()[out.field].print(scratch, canonical);
      out.values.push_back(canonical);
    }
    exception.conditions.push_back(std::move(out));
  }
  if (exception.conditions.empty())
    throw TextError(word.offset, "except() leaves out everything; expected except(NAME=VALUE ...)");
  exceptions_.push_back(std::move(exception));
}

void LineCases::set_word(const LineWord& word, std::span<const int64_t> index, Scenario& scenario) const {
  MappedText text;
  for (const Part& part : word.parts) part.choice.write(part.axis < 0 ? 0 : index[part.axis], text);
  try {
    fields()[word.field].parse({text.text(), 0}, scenario);
  } catch (const TextError& error) {
    throw TextError(text.source(error.offset()), error.what());
  }
}

Scenario LineCases::resolved(const Scenario& raw) const {
  Scenario out = raw;
  resolve_defaults(out, given_.set());
  return out;
}

std::set<int> LineCases::axes_of(const std::vector<std::string_view>& names) const {
  std::set<int> axes;
  for (std::string_view name : names) {
    const int field = field_index(name);
    if (!given_.has(field) && !default_source(name).empty()) name = default_source(name);
    for (const LineWord& word : words_)
      if (fields()[word.field].name == name)
        for (const Part& part : word.parts)
          if (part.axis >= 0) axes.insert(part.axis);
  }
  return axes;
}

// What no axis can repair is the line's mistake, not a combination to leave out.
void LineCases::check_constant_rules() const {
  const Scenario scenario = resolved(raw_);
  for (const Rule& rule : rules())
    if (axes_of(rule.fields).empty() && !rule.holds(scenario))
      throw TextError(given_.place_of(rule), rule.message(scenario));
}

bool LineCases::advance() {
  int lowest = 0;  // slowest axis that moved
  if (strength_ > 0) {
    if (row_ == rows_.size()) return false;
    for (size_t a = 0; a < index_.size(); ++a) index_[a] = rows_[row_][a];
    ++row_;
  } else if (!started_) {
    started_ = true;
    return true;  // the constructor read the first combination
  } else {
    lowest = static_cast<int>(index_.size()) - 1;
    while (lowest >= 0 && ++index_[lowest] == axes_.size[lowest]) index_[lowest--] = 0;
    if (lowest < 0) return false;
  }
  for (const LineWord& word : words_)
    if (word.moves_with(lowest)) set_word(word, index_, raw_);
  return true;
}

bool LineCases::available(const Scenario& s, SuiteCounts& counts) {
  if (!optional_ || s.batch.kind != BatchSpec::Kind::kTrace) return true;
  const std::string& file = s.batch.file;
  if (!found_.count(file) && !missing_.count(file)) {
    if (trace_available(file)) {
      found_.insert(file);
    } else {
      missing_.insert(file);
      counts.skip_reasons.push_back(
          fmt::format("{}:{}: trace file {} not found; put it into the current folder or "
                      "name its folder in ASSAY_TRACE_PATH",
                      place_.file, place_.line, file));
    }
  }
  if (found_.count(file)) return true;
  ++counts.skipped;
  ++skipped_;
  return false;
}

std::optional<Scenario> LineCases::current(SuiteCounts& counts) {
  Scenario scenario = resolved(raw_);
  for (const Exception& exception : exceptions_) {
    if (!exception.matches(scenario)) continue;
    ++counts.excluded;
    why_left_out_ = "an except() of the line";
    return std::nullopt;
  }
  if (const Rule* rule = broken_rule(scenario)) {
    if (axes_.size.empty()) throw TextError(given_.place_of(*rule), rule->message(scenario));
    ASSAY_CHECK(strength_ == 0, "{}:{}: covering array row {} breaks the rule {}", place_.file, place_.line,
                row_, rule->name);
    ++counts.excluded;
    why_left_out_ = rule->message(scenario);
    return std::nullopt;
  }
  if (!available(scenario, counts)) return std::nullopt;
  ++produced_;
  ++counts.cases;
  return scenario;
}

std::optional<Scenario> LineCases::next(SuiteCounts& counts) {
  try {
    while (advance())
      if (std::optional<Scenario> scenario = current(counts)) return scenario;
    if (produced_ == 0 && skipped_ == 0)
      throw TextError(op_offset_,
                      fmt::format("every combination of this line is left out, the last one because of: {}",
                                  why_left_out_));
    return std::nullopt;
  } catch (const TextError& error) {
    throw source_.error(error);
  }
}

}  // namespace assay
