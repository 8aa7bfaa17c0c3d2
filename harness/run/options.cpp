// SPDX-License-Identifier: Apache-2.0
// See options.hpp.
#include "harness/run/options.hpp"

#include <charconv>

#include "harness/base/error.hpp"

namespace assay {

Shard parse_shard(const std::string& text) {
  Shard s;
  const char* end = text.data() + text.size();
  auto [slash, error] = std::from_chars(text.data(), end, s.index);
  if (error == std::errc() && slash < end && *slash == '/') {
    auto [last, error2] = std::from_chars(slash + 1, end, s.count);
    if (error2 == std::errc() && last == end && s.count >= 1 && s.index >= 1 && s.index <= s.count) return s;
  }
  throw InputError(fmt::format("--shard '{}': expected I/N with 1 <= I <= N, for example 2/8", text));
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

nlohmann::json options_json(const RunOptions& o) {
  nlohmann::json j = {{"suites", o.suites},
                      {"backends", o.backends},
                      {"devices", o.devices},
                      {"calibrations", o.calibrations},
                      {"kernels", o.kernels},
                      {"filter", o.filter},
                      {"largest", o.largest},
                      {"limit", o.limit},
                      {"shard", fmt::format("{}/{}", o.shard.index, o.shard.count)},
                      {"graphs", o.graphs},
                      {"timed", o.timed},
                      {"caches", o.caches},
                      {"relative_width", o.rule.relative_width},
                      {"min_samples", o.rule.min_samples},
                      {"max_samples", o.rule.max_samples},
                      {"max_seconds", o.rule.max_seconds},
                      {"warmup_seconds", o.rule.warmup_seconds},
                      {"rows_budget", o.rows_budget},
                      {"timeout_s", o.timeout_s},
                      {"worker_memory_bytes", o.worker_memory_bytes}};
  if (!o.only.empty()) j["only"] = nlohmann::json::array();
  for (const RowChoice& c : o.only) j["only"].push_back({c.scenario, c.kernel, c.backend});
  j["seed"] = o.seed ? nlohmann::json(*o.seed) : nlohmann::json(nullptr);
  return j;
}

RunOptions options_from_json(const nlohmann::json& j, const std::string& file) {
  RunOptions o;
  const char* key = "";
  const auto get = [&](const char* name, auto& to) {
    key = name;
    j.at(name).get_to(to);
  };
  try {
    get("suites", o.suites);
    get("backends", o.backends);
    get("devices", o.devices);
    get("calibrations", o.calibrations);
    get("kernels", o.kernels);
    get("filter", o.filter);
    get("largest", o.largest);
    get("limit", o.limit);
    get("graphs", o.graphs);
    get("timed", o.timed);
    get("caches", o.caches);
    get("relative_width", o.rule.relative_width);
    get("min_samples", o.rule.min_samples);
    get("max_samples", o.rule.max_samples);
    get("max_seconds", o.rule.max_seconds);
    get("warmup_seconds", o.rule.warmup_seconds);
    get("rows_budget", o.rows_budget);
    get("timeout_s", o.timeout_s);
    get("worker_memory_bytes", o.worker_memory_bytes);
    key = "seed";
    if (!j.at(key).is_null()) o.seed = j.at(key).get<uint64_t>();
    key = "only";
    if (j.contains(key))
      for (const auto& c : j.at(key))
        o.only.push_back(
            {c.at(0).get<std::string>(), c.at(1).get<std::string>(), c.at(2).get<std::string>()});
    key = "shard";
    o.shard = parse_shard(j.at(key).get<std::string>());
  } catch (const nlohmann::json::exception&) {
    throw InputError({file},
                     fmt::format("options.{} is missing or of the wrong kind; the file was not written by "
                                 "this version of assay",
                                 key));
  }
  return o;
}

}  // namespace assay
