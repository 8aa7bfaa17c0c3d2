// SPDX-License-Identifier: Apache-2.0
// A struct's fields listed once, for both ways through JSON: messages between processes and the files we
// write. A specialisation of JsonFields beside the struct is the list; encode() and decode() do the rest, and
// a field that is missing, of another kind or unknown is an InputError that names the struct and the field.
//
//   template <> struct JsonFields<Point> {
//     static constexpr std::string_view name = "point";
//     static constexpr auto list = std::tuple(JsonField("x", &Point::x), JsonField("y", &Point::y));
//     static std::string fault(const Point& p) { return p.x < 0 ? "x is negative" : ""; }  // may be left out
//   };
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "harness/base/error.hpp"

namespace assay {

// `get` is a member pointer, or a lambda from the struct (const or not) to the value.
template <class Get>
struct JsonField {
  constexpr JsonField(std::string_view n, Get g) : name(n), get(g) {}
  std::string_view name;
  Get get;
};
// A list that is left out when it is empty.
template <class Get>
struct JsonSome {
  constexpr JsonSome(std::string_view n, Get g) : name(n), get(g) {}
  std::string_view name;
  Get get;
};
// A field that documents of an earlier version lack: it keeps its value then.
template <class Get>
struct JsonSince {
  constexpr JsonSince(std::string_view n, Get g) : name(n), get(g) {}
  std::string_view name;
  Get get;
};
// A whole number or enumeration written as a word: `words()` gives entries with `text` and `value`.
template <class Get, class Words>
struct JsonWord {
  constexpr JsonWord(std::string_view n, Get g, Words w) : name(n), get(g), words(w) {}
  std::string_view name;
  Get get;
  Words words;
};
// The fields of a struct inside, among those of the outer one.
template <class Get>
struct JsonInlined {
  constexpr explicit JsonInlined(Get g) : get(g) {}
  Get get;
};
// Written for people, not read back: what `make` returns for the struct.
template <class Make>
struct JsonDerived {
  constexpr JsonDerived(std::string_view n, Make m) : name(n), make(m) {}
  std::string_view name;
  Make make;
};

template <class T>
struct JsonFields;
// A type with a text of its own: static nlohmann::json encode(const T&), static void decode(const json&, T&,
// const JsonPlace&).
template <class T>
struct JsonCodec;

// Where a value stands, for messages: "run.json: options: field 'rule.max_seconds' is ...".
struct JsonPlace {
  JsonPlace(SourcePlace p, std::string w, std::string inside_it = "")
      : place(std::move(p)), what(std::move(w)), path(std::move(inside_it)) {}
  SourcePlace place;
  std::string what;  // the struct
  std::string path;  // of the field inside; empty: the struct itself
  JsonPlace inside(std::string_view field) const;
};
[[noreturn]] void json_missing(const JsonPlace&, const std::string& expected);
[[noreturn]] void json_mistyped(const JsonPlace&, const nlohmann::json&, const std::string& expected);
[[noreturn]] void json_impossible(const JsonPlace&, const std::string& why);
[[noreturn]] void json_unknown(const JsonPlace&, const std::string& key,
                               const std::vector<std::string_view>& known);
// At most 40 characters of one line, however large or deep the value is.
std::string json_shown(const nlohmann::json&);

int64_t whole_of(const nlohmann::json&, int64_t low, int64_t high, const JsonPlace&);
uint64_t unsigned_of(const nlohmann::json&, const JsonPlace&);
// JSON has no infinities and no NaN: those are the strings "inf", "-inf" and "nan".
nlohmann::json json_number(double);
double number_of(const nlohmann::json&, const JsonPlace&);
size_t word_of(const nlohmann::json&, std::span<const std::string_view> words, const JsonPlace&);

// The text as JSON. InputError with line and column, counted on from `start` ({file, 1, 1} for a whole file),
// also for numbers that no double holds; `expected` ends the message.
nlohmann::json parse_json(std::string_view text, const SourcePlace& start, const std::string& expected);

template <class T>
concept HasJsonFields = requires {
  JsonFields<T>::list;
};
template <class T>
concept HasJsonCodec = requires(const T& value) {
  JsonCodec<T>::encode(value);
};

template <class T>
nlohmann::json encode(const T&);
template <class T>
void decode(const nlohmann::json&, T&, const JsonPlace&);

namespace json_fields {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
void put_fields(nlohmann::json& object, const T& from);
template <class T>
void take_fields(const nlohmann::json& object, T& to, const JsonPlace& at,
                 std::vector<std::string_view>& known);

template <class T, class Get>
void put(nlohmann::json& object, const T& from, const JsonField<Get>& f) {
  object[std::string(f.name)] = encode(std::invoke(f.get, from));
}
template <class T, class Get>
void put(nlohmann::json& object, const T& from, const JsonSome<Get>& f) {
  if (!std::invoke(f.get, from).empty()) object[std::string(f.name)] = encode(std::invoke(f.get, from));
}
template <class T, class Get>
void put(nlohmann::json& object, const T& from, const JsonSince<Get>& f) {
  object[std::string(f.name)] = encode(std::invoke(f.get, from));
}
template <class T, class Get, class Words>
void put(nlohmann::json& object, const T& from, const JsonWord<Get, Words>& f) {
  const auto value = static_cast<int64_t>(std::invoke(f.get, from));
  for (const auto& word : f.words())
    if (static_cast<int64_t>(word.value) == value) object[std::string(f.name)] = std::string(word.text);
  ASSAY_CHECK(object.contains(std::string(f.name)), "field {}: no word for {}", f.name, value);
}
template <class T, class Get>
void put(nlohmann::json& object, const T& from, const JsonInlined<Get>& f) {
  put_fields(object, std::invoke(f.get, from));
}
template <class T, class Make>
void put(nlohmann::json& object, const T& from, const JsonDerived<Make>& f) {
  object[std::string(f.name)] = f.make(from);
}

inline const nlohmann::json& member(const nlohmann::json& object, std::string_view name,
                                    const JsonPlace& at) {
  const auto found = object.find(std::string(name));
  if (found == object.end()) json_missing(at.inside(name), "a value");
  return *found;
}
template <class T, class Get>
void take(const nlohmann::json& object, T& to, const JsonPlace& at, std::vector<std::string_view>& known,
          const JsonField<Get>& f) {
  known.push_back(f.name);
  decode(member(object, f.name, at), std::invoke(f.get, to), at.inside(f.name));
}
template <class T, class Get>
void take(const nlohmann::json& object, T& to, const JsonPlace& at, std::vector<std::string_view>& known,
          const JsonSome<Get>& f) {
  known.push_back(f.name);
  std::invoke(f.get, to).clear();
  if (const auto found = object.find(std::string(f.name)); found != object.end())
    decode(*found, std::invoke(f.get, to), at.inside(f.name));
}
template <class T, class Get>
void take(const nlohmann::json& object, T& to, const JsonPlace& at, std::vector<std::string_view>& known,
          const JsonSince<Get>& f) {
  known.push_back(f.name);
  if (const auto found = object.find(std::string(f.name)); found != object.end())
    decode(*found, std::invoke(f.get, to), at.inside(f.name));
}
template <class T, class Get, class Words>
void take(const nlohmann::json& object, T& to, const JsonPlace& at, std::vector<std::string_view>& known,
          const JsonWord<Get, Words>& f) {
  known.push_back(f.name);
  std::vector<std::string_view> texts;
  for (const auto& word : f.words()) texts.push_back(word.text);
  auto& value = std::invoke(f.get, to);
  const size_t index = word_of(member(object, f.name, at), texts, at.inside(f.name));
  value = static_cast<std::remove_reference_t<decltype(value)>>(f.words()[index].value);
}
template <class T, class Get>
void take(const nlohmann::json& object, T& to, const JsonPlace& at, std::vector<std::string_view>& known,
          const JsonInlined<Get>& f) {
  take_fields(object, std::invoke(f.get, to), at, known);
}
template <class T, class Make>
void take(const nlohmann::json&, T&, const JsonPlace&, std::vector<std::string_view>& known,
          const JsonDerived<Make>& f) {
  known.push_back(f.name);
}

template <class T>
void put_fields(nlohmann::json& object, const T& from) {
  std::apply([&](const auto&... field) { (put(object, from, field), ...); }, JsonFields<T>::list);
}
template <class T>
void take_fields(const nlohmann::json& object, T& to, const JsonPlace& at,
                 std::vector<std::string_view>& known) {
  std::apply([&](const auto&... field) { (take(object, to, at, known, field), ...); }, JsonFields<T>::list);
  if constexpr (requires { JsonFields<T>::fault(to); })
    if (const std::string why = JsonFields<T>::fault(to); !why.empty()) json_impossible(at, why);
}

// `also`: a key that is not of the struct (the kind of a message).
template <class T>
void decode_object(const nlohmann::json& object, T& to, const JsonPlace& at, std::string_view also = "") {
  if (!object.is_object()) json_mistyped(at, object, "an object");
  std::vector<std::string_view> known;
  take_fields(object, to, at, known);
  for (const auto& [key, unused] : object.items())
    if (key != also && std::find(known.begin(), known.end(), key) == known.end())
      json_unknown(at, key, known);
}

}  // namespace json_fields

template <class T>
nlohmann::json encode(const T& value) {
  if constexpr (HasJsonCodec<T>) {
    return JsonCodec<T>::encode(value);
  } else if constexpr (HasJsonFields<T>) {
    nlohmann::json object = nlohmann::json::object();
    json_fields::put_fields(object, value);
    return object;
  } else if constexpr (json_fields::IsVector<T>::value) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& element : value) array.push_back(encode(element));
    return array;
  } else if constexpr (json_fields::IsOptional<T>::value) {
    return value ? encode(*value) : nlohmann::json(nullptr);
  } else if constexpr (std::is_floating_point_v<T>) {
    return json_number(value);
  } else {
    return nlohmann::json(value);  // bool, whole numbers, text, json itself
  }
}

// InputError; what was read before the fault stays in `to`.
template <class T>
void decode(const nlohmann::json& j, T& to, const JsonPlace& at) {
  if constexpr (HasJsonCodec<T>) {
    JsonCodec<T>::decode(j, to, at);
  } else if constexpr (HasJsonFields<T>) {
    json_fields::decode_object(j, to, at);
  } else if constexpr (json_fields::IsVector<T>::value) {
    if (!j.is_array()) json_mistyped(at, j, "an array");
    to.clear();
    to.reserve(j.size());
    for (size_t i = 0; i < j.size(); ++i) {
      to.emplace_back();
      decode(j[i], to.back(), at.inside(std::to_string(i)));
    }
  } else if constexpr (json_fields::IsOptional<T>::value) {
    to.reset();
    if (!j.is_null()) decode(j, to.emplace(), at);
  } else if constexpr (std::is_same_v<T, nlohmann::json>) {
    to = j;
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!j.is_string()) json_mistyped(at, j, "a string");
    to = j.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!j.is_boolean()) json_mistyped(at, j, "true or false");
    to = j.get<bool>();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    to = unsigned_of(j, at);
  } else if constexpr (std::is_integral_v<T>) {
    to = static_cast<T>(
        whole_of(j, std::numeric_limits<T>::min(), static_cast<int64_t>(std::numeric_limits<T>::max()), at));
  } else {
    static_assert(std::is_floating_point_v<T>, "no way into JSON: list its fields, or give it a JsonCodec");
    to = static_cast<T>(number_of(j, at));
  }
}

// A whole struct; its name and `place` begin every message.
template <class T>
T decode_as(const nlohmann::json& j, const SourcePlace& place) {
  T value{};
  json_fields::decode_object(j, value, {place, std::string(JsonFields<T>::name), ""});
  return value;
}

// One of several structs, told apart by the key `kind`, which holds its name.
template <class... T>
nlohmann::json encode_message(const std::variant<T...>& message, const std::string& kind) {
  return std::visit(
      [&](const auto& m) {
        nlohmann::json object = encode(m);
        object[kind] = std::string(JsonFields<std::decay_t<decltype(m)>>::name);
        return object;
      },
      message);
}
template <class... T>
void decode_message(const nlohmann::json& j, const std::string& kind, const SourcePlace& place,
                    std::variant<T...>& message) {
  if (!j.is_object()) json_mistyped({place, "message", ""}, j, "an object");
  static constexpr std::string_view kNames[] = {JsonFields<T>::name...};
  const JsonPlace of_kind{place, "message", kind};
  const auto found = j.find(kind);
  if (found == j.end()) json_missing(of_kind, "the kind of the message");
  const std::string_view name = kNames[word_of(*found, kNames, of_kind)];
  const auto take = [&]<class One>(One value) {
    if (name != JsonFields<One>::name) return;
    json_fields::decode_object(j, value, {place, "message " + std::string(name), ""}, kind);
    message = std::move(value);
  };
  (take(T{}), ...);
}

}  // namespace assay
