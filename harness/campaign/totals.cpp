// SPDX-License-Identifier: Apache-2.0
// See totals.hpp. The file: one JSON object per line, first the identity, then chunks.
#include "harness/campaign/totals.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"

namespace assay {

// [passed, alarms, untrusted, unsupported, useless, largest, unrounded]; the last three are younger.
template <>
struct JsonCodec<campaign::Counts> {
  static nlohmann::json encode(const campaign::Counts& c) {
    return {c.passed, c.alarms, c.untrusted, c.unsupported, c.useless, c.largest, c.unrounded};
  }
  static void decode(const nlohmann::json& j, campaign::Counts& c, const JsonPlace& at) {
    constexpr size_t kCounts = 5, kAll = 7, kBefore = 4;
    if (!j.is_array() || (j.size() != kAll && j.size() != kBefore))
      json_mistyped(at, j, "four counts, or five and two ratios");
    int64_t counts[kCounts] = {};
    for (size_t i = 0; i < std::min(j.size(), kCounts); ++i) assay::decode(j[i], counts[i], at);
    c = {counts[0], counts[1], counts[2], counts[3], counts[4]};
    if (j.size() < kAll) return;
    assay::decode(j[5], c.largest, at), assay::decode(j[6], c.unrounded, at);
  }
};
template <class V>
struct JsonCodec<std::map<std::string, V>> {
  static nlohmann::json encode(const std::map<std::string, V>& map) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, value] : map) object[key] = assay::encode(value);
    return object;
  }
  static void decode(const nlohmann::json& j, std::map<std::string, V>& map, const JsonPlace& at) {
    if (!j.is_object()) json_mistyped(at, j, "an object");
    for (const auto& [key, value] : j.items()) assay::decode(value, map[key], at.inside(key));
  }
};

namespace campaign {
namespace {

struct Chunk {
  uint64_t chunk = 0;
  Totals totals;
};

}  // namespace
}  // namespace campaign

template <>
struct JsonFields<campaign::Totals> {
  using T = campaign::Totals;
  static constexpr std::string_view name = "totals";
  static constexpr auto list = std::tuple(
      JsonField("lines", &T::lines), JsonField("alarm_lines", &T::alarm_lines),
      JsonField("unbuilt", &T::unbuilt), JsonField("seconds", &T::seconds), JsonField("kernels", &T::kernels),
      JsonField("untrusted", &T::untrusted), JsonSome("alarms", &T::alarms));
};
template <>
struct JsonFields<campaign::Chunk> {
  static constexpr std::string_view name = "chunk";
  static constexpr auto list =
      std::tuple(JsonField("chunk", &campaign::Chunk::chunk), JsonInlined(&campaign::Chunk::totals));
};

namespace campaign {
namespace {

constexpr const char* kFile = "a file of totals";

// For lines of such a file: the first goes to `identity`, the others to take(chunk, totals).
template <class Take>
auto lines_to(Identity& identity, Take take) {
  return [&identity, take](const SourcePlace& place, std::string_view line) {
    const nlohmann::json j = parse_json(line, place, "a line of totals");
    if (place.line == 1) {
      identity = decode_as<Identity>(j, place);
    } else {
      const auto chunk = decode_as<Chunk>(j, place);
      take(chunk.chunk, chunk.totals);
    }
  };
}

}  // namespace

void Counts::add(const Counts& c) {
  passed += c.passed, alarms += c.alarms, untrusted += c.untrusted, unsupported += c.unsupported;
  useless += c.useless;
  largest = std::max(largest, c.largest), unrounded = std::max(unrounded, c.unrounded);
}

void Totals::add(const Totals& t) {
  lines += t.lines, alarm_lines += t.alarm_lines, unbuilt += t.unbuilt, seconds += t.seconds;
  for (const auto& [kernel, counts] : t.kernels) kernels[kernel].add(counts);
  for (const auto& [reason, count] : t.untrusted) untrusted[reason] += count;
  alarms.insert(alarms.end(), t.alarms.begin(), t.alarms.end());
}

Counts Totals::sum() const {
  Counts all;
  for (const auto& [kernel, counts] : kernels) all.add(counts);
  return all;
}

double rate_bound(int64_t alarms, int64_t cases, double confidence) {
  if (alarms >= cases) return 1;
  const auto n = static_cast<double>(cases);
  // P(X <= alarms), summed from the likeliest term down so that nothing underflows before it matters.
  const auto at_most = [&](double p) {
    double sum = 0;
    for (int64_t k = alarms; k >= 0; --k) {
      const auto x = static_cast<double>(k);
      const double term = std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                                   x * std::log(p) + (n - x) * std::log1p(-p));
      sum += term;
      if (term < 1e-18 * sum) break;
    }
    return sum;
  };
  double low = 0, high = 1;  // of the logarithm's argument: rates of 1e-9 need relative precision
  for (int i = 0; i < 200; ++i) {
    const double middle = low > 0 ? std::sqrt(low * high) : high / 16;
    (at_most(middle) > 1 - confidence ? low : high) = middle;
    if (low > 0 && high / low < 1 + 1e-12) break;
  }
  return high;
}

TotalsFile::TotalsFile(const std::string& path, const Identity& identity, bool resume) {
  Identity found = identity;
  const auto take = [&](uint64_t chunk, const Totals& totals) {
    if (!chunks_.insert(chunk).second)
      throw InputError({path, 0, 0}, fmt::format("holds chunk {} twice", chunk));
    sum_.add(totals);
  };
  file_ = std::make_unique<LineFile>("--out", path, resume, kFile, lines_to(found, take));
  if (!(found == identity))
    throw InputError(
        fmt::format("--resume {}: is another campaign's (seed {}, shard {}, largest {:g}, commit {}); give "
                    "the same options, or another file",
                    path, found.seed, found.shard, found.largest, found.commit));
  if (!resume) file_->append(encode(identity).dump());
}

void TotalsFile::append(uint64_t chunk, const Totals& totals) {
  chunks_.insert(chunk);
  sum_.add(totals);
  const std::string text =
      encode(Chunk{chunk, totals}).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  file_->append(text);
}

Totals read_totals(const std::string& path, Identity* identity) {
  Totals sum;
  Identity found;
  for_each_line(path, kFile, lines_to(found, [&](uint64_t, const Totals& totals) { sum.add(totals); }));
  if (identity != nullptr) *identity = found;
  return sum;
}

}  // namespace campaign
}  // namespace assay
