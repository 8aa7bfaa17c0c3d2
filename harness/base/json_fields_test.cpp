// SPDX-License-Identifier: Apache-2.0
// The way through JSON and back, and everything that may be wrong with what comes back.
#include "harness/base/json_fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace assay {

enum class Color { kRed, kBlue };
struct ColorWord {
  std::string_view text;
  Color value;
};
constexpr ColorWord kColors[] = {{"red", Color::kRed}, {"blue", Color::kBlue}};
struct Inner {
  double rate = 0;
  int32_t count = 0;
  bool operator==(const Inner&) const = default;
};
struct Base {
  std::string text;
  bool operator==(const Base&) const = default;
};
struct Outer {
  Base base;
  Inner inner;
  std::vector<Inner> more, rare;
  std::optional<uint64_t> seed;
  bool flag = false;
  Color color = Color::kRed;
  bool operator==(const Outer&) const = default;
};
template <>
struct JsonFields<Inner> {
  static constexpr std::string_view name = "inner";
  static constexpr auto list = std::tuple(JsonField("rate", &Inner::rate), JsonField("count", &Inner::count));
  static std::string fault(const Inner& i) { return i.count < 0 ? "count is negative" : ""; }
};
template <>
struct JsonFields<Base> {
  static constexpr std::string_view name = "base";
  static constexpr auto list = std::tuple(JsonField("text", &Base::text));
};
template <>
struct JsonFields<Outer> {
  static constexpr std::string_view name = "outer";
  static constexpr auto list = std::tuple(JsonInlined(&Outer::base), JsonField("inner", &Outer::inner),
                                          JsonField("more", &Outer::more), JsonSome("rare", &Outer::rare),
                                          JsonField("seed", &Outer::seed),
                                          JsonField(
                                              "flag", [](auto& o) -> auto& { return o.flag; }),
                                          JsonWord("color", &Outer::color, [] { return std::span(kColors); }),
                                          JsonDerived("size", [](const Outer& o) { return o.more.size(); }));
};

namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Outer sample() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return {{"t"}, {0.1, 7}, {{kInf, 1}, {-kInf, 2}}, {{1, 2}}, 0xfedcba9876543210ull, true, Color::kBlue};
}

std::string error_of(const json& j) {
  try {
    decode_as<Outer>(j, {"file", 3, 0});
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(JsonFields, ComesBackTheSame) {
  const json j = json::parse(encode(sample()).dump());
  EXPECT_EQ(decode_as<Outer>(j, {}), sample());
  EXPECT_EQ(j["text"], "t");
  EXPECT_EQ(j["color"], "blue");
  EXPECT_EQ(j["more"][0]["rate"], "inf");
  EXPECT_EQ(j["size"], 2);
  EXPECT_EQ(decode_as<Outer>(encode(Outer{}), {}), Outer{}) << "also without the trip through text";
  EXPECT_FALSE(encode(Outer{}).contains("rare"));
  Outer nan = sample();
  nan.inner.rate = NAN;
  EXPECT_TRUE(std::isnan(decode_as<Outer>(encode(nan), {}).inner.rate));
}

TEST(JsonFields, EveryFieldIsMissedByItsName) {
  const json good = encode(sample());
  for (const auto& [key, value] : good.items()) {
    json j = good;
    j.erase(key);
    if (key == "size" || key == "rare") {
      EXPECT_EQ(error_of(j), "accepted") << "derived: for people; rare: none";
      continue;
    }
    EXPECT_THAT(error_of(j), HasSubstr(fmt::format("file:3: outer: field '{}' is missing", key)));
  }
}

TEST(JsonFields, WhatIsWrongIsNamedWithItsPath) {
  const auto with = [](auto... path_and_value) {
    json j = encode(sample());
    const auto set = [&](const char* pointer, const json& value) { j[json::json_pointer(pointer)] = value; };
    set(path_and_value...);
    return error_of(j);
  };
  EXPECT_THAT(with("/inner/rate", "fast"),
              HasSubstr("outer: field 'inner.rate' is 'fast'; expected a number"));
  EXPECT_THAT(with("/inner/rate", nullptr), HasSubstr("is null"));
  EXPECT_THAT(with("/more/1/count", 1.5), HasSubstr("'more.1.count' is 1.5; expected a whole number"));
  EXPECT_THAT(with("/inner/count", 1ll << 40), HasSubstr("expected a whole number from -2147483648 to"));
  EXPECT_THAT(with("/more/0/count", -1), HasSubstr("'more.0' is impossible: count is negative"));
  EXPECT_THAT(with("/seed", -1), HasSubstr("not negative"));
  EXPECT_THAT(with("/flag", 1), HasSubstr("true or false"));
  EXPECT_THAT(with("/text", json::array()), HasSubstr("'text' is an array; expected a string"));
  EXPECT_THAT(with("/more", json::object()), HasSubstr("'more' is an object; expected an array"));
  EXPECT_THAT(with("/color", "green"), HasSubstr("'color' is 'green'; expected one of red, blue"));
  EXPECT_THAT(with("/extra", 1), HasSubstr("outer: field 'extra' is unknown; expected text, inner"));
  EXPECT_THAT(error_of(3), HasSubstr("outer is 3; expected an object"));
  EXPECT_LT(with("/text", json::array({std::string(10 << 20, 'x')})).size(), 200u);
  EXPECT_LT(with("/inner/rate", std::string(10 << 20, 'x')).size(), 200u);
  EXPECT_LT(with(("/" + std::string(10 << 20, 'x')).c_str(), 1).size(), 300u);
}

TEST(JsonFields, MessagesAreToldApartByTheirKind) {
  std::variant<Base, Inner> message = Inner{2.5, 3};
  const json j = encode_message(message, "event");
  EXPECT_EQ(j["event"], "inner");
  decode_message(encode_message(decltype(message)(Base{"x"}), "event"), "event", {}, message);
  EXPECT_EQ(std::get<Base>(message).text, "x");
  decode_message(j, "event", {}, message);
  EXPECT_EQ(std::get<Inner>(message), (Inner{2.5, 3}));
  const auto error = [&](const json& bad) {
    try {
      decode_message(bad, "event", {"worker", 0, 0}, message);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(error({{"event", "outer"}}), HasSubstr("'event' is 'outer'; expected one of base, inner"));
  EXPECT_THAT(error({{"rate", 1}}), HasSubstr("message: field 'event' is missing"));
  EXPECT_THAT(error({{"event", "base"}}), HasSubstr("worker: message base: field 'text' is missing"));
  EXPECT_THAT(error({{"event", "base"}, {"text", "x"}, {"more", 1}}), HasSubstr("'more' is unknown"));
  EXPECT_THAT(error(json::array()), HasSubstr("expected an object"));
}

TEST(ParseJson, FaultsHaveALineAndAColumn) {
  EXPECT_EQ(parse_json("{\"a\": [1]}", {"f", 1, 1}, "x")["a"][0], 1);
  const auto error = [](const char* text, SourcePlace start) {
    try {
      parse_json(text, start, "an object");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(error("{\"a\": 1,\n  oops}", {"f", 1, 1}), "f:2:3: no valid JSON here; expected an object");
  EXPECT_EQ(error("{\"a\": tru}", {"f", 7, 1}), "f:7:10: no valid JSON here; expected an object");
  EXPECT_EQ(error("{\"a\": 1", {"f", 1, 1}),
            "f:1:8: the text ends inside the JSON (is it cut short?); expected an object");
  EXPECT_EQ(error("", {"f", 1, 1}),
            "f:1:1: the text ends inside the JSON (is it cut short?); expected an object");
  EXPECT_EQ(error("{\"a\": 1,\n \"b\": 1e400}", {"f", 1, 1}),
            "f:2:7: the number 1e400 is too large for a double; expected an object");
}

}  // namespace
}  // namespace assay
