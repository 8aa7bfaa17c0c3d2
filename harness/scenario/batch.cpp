// SPDX-License-Identifier: Apache-2.0
// Reading and printing the batch= field (grammar in batch.hpp). Drawing the lengths is lengths.cpp.
// A new distribution is a Kind, one branch in read_call() and one in print().
#include "harness/scenario/batch.hpp"

#include <algorithm>

#include "harness/scenario/batch_text.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

constexpr int64_t kMaxLength = kMaxTokens;

// Takes a count (digits, then k or m) off the front of `s`.
int32_t take_count(Slice& s, std::string_view what, int64_t low, int64_t high) {
  size_t n = 0;
  if (n < s.text.size() && (s.text[n] == '-' || s.text[n] == '+')) ++n;
  while (n < s.text.size() && s.text[n] >= '0' && s.text[n] <= '9') ++n;
  if (n < s.text.size() && (s.text[n] == 'k' || s.text[n] == 'm')) ++n;
  if (n == 0)
    throw TextError(s.offset, fmt::format("batch: {} expected {}", what,
                                          s.text.empty() ? std::string("at the end")
                                                         : fmt::format("where \"{}\" stands", s.text)));
  const auto value =
      static_cast<int32_t>(parse_count(s.sub(0, n), fmt::format("batch: {}", what), low, high));
  s = s.sub(n);
  return value;
}

bool take_letter(Slice& s, char letter) {
  if (s.text.empty() || s.text[0] != letter) return false;
  s = s.sub(1);
  return true;
}

BatchGroup read_group(Slice s) {
  BatchGroup group;
  if (s.text.empty())
    throw TextError(s.offset, "batch: empty group; expected COUNTqQLEN[sKVLEN][pSHARED], e.g. 64q1s4k");
  if (s.text[0] != 'q') group.count = take_count(s, "number of requests", 1, kMaxRequests);
  if (!take_letter(s, 'q'))
    throw TextError(s.offset, fmt::format("batch: \"q\" and the new tokens expected{}; a group is "
                                          "COUNTqQLEN[sKVLEN][pSHARED], e.g. 64q1s4k",
                                          s.text.empty() ? "" : fmt::format(" where \"{}\" stands", s.text)));
  group.q_len = take_count(s, "new tokens (q)", 0, kMaxLength);
  group.kv_len = take_letter(s, 's') ? take_count(s, "visible tokens (s)", 0, kMaxLength) : group.q_len;
  if (take_letter(s, 'p')) group.shared = take_count(s, "shared prefix (p)", 0, kMaxLength);
  if (!s.text.empty())
    throw TextError(s.offset, fmt::format("batch: unexpected \"{}\"; a group is COUNTqQLEN[sKVLEN][pSHARED], "
                                          "groups are joined by _",
                                          s.text));
  return group;
}

LengthRange read_range(Slice s, std::string_view what) {
  const size_t colon = s.text.find(':');
  LengthRange range;
  const std::string label = fmt::format("batch: {}", what);
  range.low = static_cast<int32_t>(parse_count(trim(s.sub(0, colon)), label, 0, kMaxLength));
  range.high = range.low;
  if (colon != std::string_view::npos)
    range.high = static_cast<int32_t>(parse_count(trim(s.sub(colon + 1)), label, 0, kMaxLength));
  if (range.high < range.low)
    throw TextError(s.offset,
                    fmt::format("batch: {}: range {} runs backwards; expected LOW:HIGH", what, s.text));
  return range;
}

// One NAME=VALUE of a call; `names` in the order of the documentation.
struct Argument {
  std::string_view name;
  Slice value;
};

std::vector<Argument> read_arguments(std::span<const Slice> parts, std::string_view call,
                                     std::span<const std::string_view> names) {
  std::vector<Argument> arguments;
  for (const Slice& part : parts) {
    const size_t equals = part.text.find('=');
    const std::string_view name = trim(part.sub(0, equals)).text;
    bool known = false;
    for (const std::string_view n : names) known |= n == name;
    if (!known || equals == std::string_view::npos)
      throw TextError(part.offset, fmt::format("batch: {}: unknown argument \"{}\"{}; accepted: {}", call,
                                               part.text, did_you_mean(name, names), join(names)));
    for (const Argument& other : arguments)
      if (other.name == name)
        throw TextError(part.offset, fmt::format("batch: {}: argument \"{}\" is given twice", call, name));
    arguments.push_back({name, trim(part.sub(equals + 1))});
  }
  return arguments;
}

double positive(Slice s, std::string_view what) {
  const double value = parse_real(s, what);
  if (!(value > 0) || value > 1e9)
    throw TextError(s.offset,
                    fmt::format("{}: {} is out of range; expected a number > 0 and <= 1e9", what, s.text));
  return value;
}

// The name prints as it was read, so it must not hold a character that ends a word or starts an axis.
std::string read_file_name(Slice s) {
  if (s.text.empty())
    throw TextError(s.offset, "batch: trace: file name expected, e.g. trace(requests.csv,step=100)");
  for (size_t i = 0; i < s.text.size(); ++i) {
    const char c = s.text[i];
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f ||
        std::string_view("()[]{},=$#\"'").find(c) != std::string_view::npos)
      throw TextError(
          s.offset + i,
          fmt::format(
              "batch: trace: the file name comes first and has no white space, quote or any of ()[]{{}},=$#; "
              "\"{}\" is not accepted",
              s.text));
  }
  return std::string(s.text);
}

BatchSpec read_call(Slice s, size_t open) {
  static constexpr std::string_view kKinds[] = {"uniform", "zipf", "trace"};
  const std::string_view call = s.text.substr(0, open);
  if (s.text.back() != ')') {
    const size_t close = s.text.find(')');
    throw TextError(s.offset + (close == std::string_view::npos ? open : close + 1),
                    close == std::string_view::npos ? "batch: \"(\" is never closed; expected \")\""
                                                    : "batch: nothing may follow the \")\"");
  }
  std::vector<Slice> parts;
  for (const Slice& part : split_outside_brackets(s.sub(open + 1, s.text.size() - open - 2), ','))
    parts.push_back(trim(part));

  BatchSpec spec;
  if (call == "trace") {
    static constexpr std::string_view kNames[] = {"step", "tokens", "seqs", "rate", "draft"};
    spec.kind = BatchSpec::Kind::kTrace;
    spec.file = read_file_name(parts[0]);
    for (const auto& [name, value] : read_arguments(std::span(parts).subspan(1), call, kNames)) {
      if (name == "step") spec.step = parse_count(value, "batch: step", 0, int64_t{1} << 40);
      if (name == "tokens")
        spec.tokens = static_cast<int32_t>(parse_count(value, "batch: tokens", 1, kMaxLength));
      if (name == "seqs")
        spec.seqs = static_cast<int32_t>(parse_count(value, "batch: seqs", 1, kMaxRequests));
      if (name == "rate") spec.rate = positive(value, "batch: rate");
      if (name == "draft")
        spec.q.low = spec.q.high =
            1 + static_cast<int32_t>(parse_count(value, "batch: draft", 0, kMaxLength - 1));
    }
    return spec;
  }
  static constexpr std::string_view kUniform[] = {"n", "q", "s"};
  static constexpr std::string_view kZipf[] = {"n", "q", "s", "a"};
  std::span<const std::string_view> names;
  if (call == "uniform") {
    spec.kind = BatchSpec::Kind::kUniform;
    names = kUniform;
  } else if (call == "zipf") {
    spec.kind = BatchSpec::Kind::kZipf;
    names = kZipf;
  } else {
    throw TextError(s.offset, fmt::format("batch: unknown distribution \"{}\"{}; accepted: {}", call,
                                          did_you_mean(call, kKinds), join(kKinds)));
  }
  bool has_n = false, has_s = false;
  for (const auto& [name, value] : read_arguments(parts, call, names)) {
    if (name == "n")
      spec.n = static_cast<int32_t>(parse_count(value, "batch: n", 1, kMaxRequests)), has_n = true;
    if (name == "q") spec.q = read_range(value, "q");
    if (name == "s") spec.s = read_range(value, "s"), has_s = true;
    if (name == "a") spec.exponent = positive(value, "batch: a");
  }
  if (!has_n || !has_s)
    throw TextError(s.offset,
                    fmt::format("batch: {} needs {}; e.g. {}(n=64,q=1,s=1k:8k)", call,
                                has_n ? "s=LOW:HIGH (visible tokens)" : "n= (number of requests)", call));
  return spec;
}

void append_range(std::string& out, std::string_view name, const LengthRange& range) {
  out += name;
  append_count(out, range.low);
  if (range.high != range.low) {
    out += ':';
    append_count(out, range.high);
  }
}

}  // namespace

BatchSpec read_batch(Slice s) {
  if (s.text.empty()) throw TextError(s.offset, "batch: value expected, e.g. 64q1s4k_2q512s2k");
  const size_t open = s.text.find('(');
  if (open != std::string_view::npos) return read_call(s, open);
  BatchSpec spec;
  size_t start = 0;
  while (true) {
    const size_t end = std::min(s.text.find('_', start), s.text.size());
    spec.groups.push_back(read_group(s.sub(start, end - start)));
    if (end == s.text.size()) return spec;
    start = end + 1;
  }
}

void append_batch(std::string& out, const BatchSpec& spec) {
  switch (spec.kind) {
    case BatchSpec::Kind::kMix:
      for (const BatchGroup& group : spec.groups) {
        if (&group != spec.groups.data()) out += '_';
        append_integer(out, group.count);
        out += 'q';
        append_count(out, group.q_len);
        if (group.kv_len != group.q_len) {
          out += 's';
          append_count(out, group.kv_len);
        }
        if (group.shared != 0) {
          out += 'p';
          append_count(out, group.shared);
        }
      }
      return;
    case BatchSpec::Kind::kUniform:
    case BatchSpec::Kind::kZipf:
      out += spec.kind == BatchSpec::Kind::kUniform ? "uniform(n=" : "zipf(n=";
      append_integer(out, spec.n);
      append_range(out, ",q=", spec.q);
      append_range(out, ",s=", spec.s);
      if (spec.kind == BatchSpec::Kind::kZipf && spec.exponent != BatchSpec().exponent) {
        out += ",a=";
        append_real(out, spec.exponent);
      }
      out += ')';
      return;
    case BatchSpec::Kind::kTrace: {
      const BatchSpec defaults;
      out += "trace(" + spec.file + ",step=";
      append_integer(out, spec.step);
      if (spec.tokens != defaults.tokens) append_count(out += ",tokens=", spec.tokens);
      if (spec.seqs != defaults.seqs) append_count(out += ",seqs=", spec.seqs);
      if (spec.rate != defaults.rate) append_real(out += ",rate=", spec.rate);
      if (spec.q != defaults.q) append_count(out += ",draft=", spec.q.high - 1);
      out += ')';
      return;
    }
  }
}

BatchSpec parse_batch(std::string_view text, const SourcePlace& place) {
  try {
    return read_batch({text, 0});
  } catch (const TextError& error) {
    SourcePlace at = place;
    at.column += static_cast<int>(error.offset());
    throw InputError(at, error.what());
  }
}

std::string print(const BatchSpec& spec) {
  std::string out;
  append_batch(out, spec);
  return out;
}

}  // namespace assay
