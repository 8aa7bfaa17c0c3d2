// SPDX-License-Identifier: Apache-2.0
// See options.hpp.
#include "harness/run/options.hpp"

#include <charconv>

#include "harness/base/json_fields.hpp"
#include "harness/measure/measure_json.hpp"

namespace assay {

Shard parse_shard(const std::string& text) {
  Shard s;
  const char* end = text.data() + text.size();
  auto [slash, error] = std::from_chars(text.data(), end, s.index);
  if (error == std::errc() && slash < end && *slash == '/') {
    auto [last, error2] = std::from_chars(slash + 1, end, s.count);
    if (error2 == std::errc() && last == end && s.count >= 1 && s.index >= 1 && s.index <= s.count) return s;
  }
  throw InputError(fmt::format("'{}' is no part of a run; expected I/N with 1 <= I <= N, such as 2/8", text));
}

bool in_shard(std::string_view line, const Shard& s) {
  return s.count == 1 ||
         fingerprint(line) % static_cast<uint64_t>(s.count) == static_cast<uint64_t>(s.index - 1);
}

uint64_t fingerprint(std::string_view bytes, uint64_t so_far) {
  for (const char c : bytes) so_far = (so_far ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return so_far;
}

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

template <>
struct JsonCodec<Shard> {
  static nlohmann::json encode(const Shard& s) { return fmt::format("{}/{}", s.index, s.count); }
  static void decode(const nlohmann::json& j, Shard& s, const JsonPlace& at) {
    std::string text;
    assay::decode(j, text, at);
    s = parse_shard(text);
  }
};

template <>
struct JsonFields<RowChoice> {
  static constexpr std::string_view name = "row to run";
  static constexpr auto list =
      std::tuple(JsonField("scenario", &RowChoice::scenario), JsonField("kernel", &RowChoice::kernel),
                 JsonField("backend", &RowChoice::backend));
};

template <>
struct JsonFields<RunOptions> {
  using T = RunOptions;
  static constexpr std::string_view name = "options";
  static constexpr auto list = std::tuple(
      JsonField("suites", &T::suites), JsonField("backends", &T::backends), JsonField("devices", &T::devices),
      JsonField("calibrations", &T::calibrations), JsonField("kernels", &T::kernels),
      JsonField("filter", &T::filter), JsonField("seed", &T::seed), JsonField("largest", &T::largest),
      JsonField("limit", &T::limit), JsonField("shard", &T::shard), JsonField("graphs", &T::graphs),
      JsonSince("walk", &T::walk), JsonField("timed", &T::timed), JsonField("caches", &T::caches),
      JsonInlined(&T::rule), JsonField("rows_budget", &T::rows_budget), JsonField("timeout_s", &T::timeout_s),
      JsonField("worker_memory_bytes", &T::worker_memory_bytes), JsonSome("only", &T::only),
      JsonSome("set", &T::set), JsonSince("races", &T::races), JsonSince("stages", &T::stages),
      JsonSince("until_wrong", &T::until_wrong), JsonSince("jobs", &T::jobs));
};

nlohmann::json options_json(const RunOptions& o) { return encode(o); }

RunOptions options_from_json(const nlohmann::json& j, const std::string& file) {
  return decode_as<RunOptions>(j, {file});
}

}  // namespace assay
