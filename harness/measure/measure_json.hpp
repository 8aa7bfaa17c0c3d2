// SPDX-License-Identifier: Apache-2.0
// How the numbers of this folder travel as JSON: in messages to and from workers, in calibration files and in
// run.json. A new member of a struct needs its line here.
#pragma once

#include <cmath>

#include "harness/base/json_fields.hpp"
#include "harness/measure/limits.hpp"
#include "harness/measure/measure.hpp"

namespace assay {

template <>
struct JsonFields<StoppingRule> {
  static constexpr std::string_view name = "stopping rule";
  static constexpr auto list = std::tuple(JsonField("relative_width", &StoppingRule::relative_width),
                                          JsonField("min_samples", &StoppingRule::min_samples),
                                          JsonField("max_samples", &StoppingRule::max_samples),
                                          JsonField("max_seconds", &StoppingRule::max_seconds),
                                          JsonField("warmup_seconds", &StoppingRule::warmup_seconds),
                                          JsonSince("min_seconds", &StoppingRule::min_seconds),
                                          JsonSince("steady_seconds", &StoppingRule::steady_seconds),
                                          JsonSince("noise", &StoppingRule::noise));
};

template <>
struct JsonFields<Limits> {
  static constexpr std::string_view name = "limits";
  static constexpr auto list = std::tuple(JsonField("read_bytes_per_s", &Limits::read_bytes_per_s),
                                          JsonField("write_bytes_per_s", &Limits::write_bytes_per_s),
                                          JsonField("copy_bytes_per_s", &Limits::copy_bytes_per_s),
                                          JsonField("matrix_flops_fp32", &Limits::matrix_flops_fp32),
                                          JsonField("matrix_flops_bf16", &Limits::matrix_flops_bf16),
                                          JsonField("matrix_flops_fp8", &Limits::matrix_flops_fp8),
                                          JsonField("matrix_flops_int8", &Limits::matrix_flops_int8));
  // Shares of a limit are made of these: nonsense must not pass as a very fast device.
  static std::string fault(const Limits& l) {
    std::string bad;
    std::apply(
        [&](const auto&... f) {
          ((std::isfinite(l.*f.get) && l.*f.get >= 0
                ? void()
                : void(bad += fmt::format("{}{} is {:g}", bad.empty() ? "" : ", ", f.name, l.*f.get))),
           ...);
        },
        list);
    return bad;
  }
};

template <>
struct JsonFields<MeasuredLimits> {
  static constexpr std::string_view name = "measured limits";
  static constexpr auto list =
      std::tuple(JsonInlined(&MeasuredLimits::limits), JsonField("missing", &MeasuredLimits::missing));
};

// [microseconds, seconds since the start, MHz or null, left out]: thousands of them in one message.
template <>
struct JsonCodec<TimedSample> {
  static nlohmann::json encode(const TimedSample& s) {
    return {json_number(s.us), json_number(s.at_s),
            std::isnan(s.sm_mhz) ? nlohmann::json(nullptr) : json_number(s.sm_mhz), s.dropped};
  }
  static void decode(const nlohmann::json& j, TimedSample& s, const JsonPlace& at) {
    if (!j.is_array() || j.size() != 4)
      json_mistyped(at, j, "an array of time, place in time, clock, left out");
    assay::decode(j[0], s.us, at);
    assay::decode(j[1], s.at_s, at);
    if (!j[2].is_null()) assay::decode(j[2], s.sm_mhz, at);
    assay::decode(j[3], s.dropped, at);
  }
};

}  // namespace assay
