// SPDX-License-Identifier: Apache-2.0
// Notes name the values that a field accepts, each of them once and no others.
#include "harness/scenario/value_notes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "harness/scenario/fields.hpp"

namespace assay {
namespace {

// The words of "packed, or any of q, kv, out joined by +".
std::set<std::string> words_of(std::string text) {
  for (const std::string filler : {"or any of ", " joined by +"})
    if (const size_t at = text.find(filler); at != std::string::npos) text.erase(at, filler.size());
  std::set<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(", ", at), text.size());
    words.insert(text.substr(at, end - at));
    at = end + 2;
  }
  return words;
}

TEST(ValueNotes, AreOfWhatFieldsAccept) {
  for (const char* name : {"input", "strides", "relate", "mask", "alibi", "layout", "storage", "table"}) {
    const Field& field = fields()[static_cast<size_t>(field_index(name))];
    std::set<std::string> noted;
    for (const ValueNote& note : value_notes(name)) {
      EXPECT_TRUE(noted.insert(std::string(note.value)).second) << name << " " << note.value;
      EXPECT_FALSE(note.meaning.empty()) << name << "=" << note.value;
      Scenario s;
      EXPECT_NO_THROW(field.parse({note.value, 0}, s)) << name << "=" << note.value;
    }
    EXPECT_EQ(noted, words_of(field.accepted)) << name;
  }
  EXPECT_TRUE(value_notes("window").empty());
}

// Of batch= there are examples, and one for each letter and each kind that is drawn without a file.
TEST(ValueNotes, ExamplesOfBatchesAreRead) {
  const Field& batch = fields()[static_cast<size_t>(field_index("batch"))];
  std::string all;
  for (const ValueNote& note : value_notes("batch")) {
    Scenario s;
    EXPECT_NO_THROW(batch.parse({note.value, 0}, s)) << note.value;
    all += fmt::format("{}\n", note.value);
  }
  for (const char* part : {"_", "s", "p", "uniform(", "zipf("})
    EXPECT_NE(all.find(part), std::string::npos) << part;
  EXPECT_EQ(batch.meaning.find(".hpp"), std::string::npos) << "who has the program has no sources";
}

}  // namespace
}  // namespace assay
