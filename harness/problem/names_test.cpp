// SPDX-License-Identifier: Apache-2.0
// Every enumerator has one spelling, every spelling one enumerator, and the format facts agree with the
// C header. A new enumerator: extend the expected list of its table.
#include "harness/problem/names.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

namespace assay {
namespace {

TEST(Names, TextAndValueAreInverse) {
  for (auto names :
       {format_names(), mask_names(), alibi_names(), scale_names(), layout_names(), table_names()}) {
    for (const Name& name : names) {
      EXPECT_EQ(name_of(names, name.value), name.text);
      EXPECT_EQ(value_of(names, name.text), name.value);
    }
    EXPECT_EQ(name_of(names, 99), "?");
    EXPECT_EQ(value_of(names, "nothing"), std::nullopt);
  }
  EXPECT_EQ(value_of(format_names(), "fp8_e4m3fnuz"), ASSAY_FP8_E4M3FNUZ);
  EXPECT_EQ(value_of(scale_names(), "token_head"), ASSAY_SCALE_TOKEN_HEAD);
}

// The enumerators of one enum of the C header, as they are written there: without their prefix, in lower
// case.
std::map<int32_t, std::string> enumerators(const std::string& of, const std::string& prefix) {
  std::map<int32_t, std::string> found;
  for (const char* file : {"assay_kernel.h", "assay_problem.h"}) {
    std::ifstream in(std::string(ASSAY_SOURCE_DIR "/harness/abi/") + file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t begin = text.find("enum " + of + " {");
    if (begin == std::string::npos) continue;
    const std::string body = text.substr(begin, text.find("};", begin) - begin);
    const std::regex enumerator("\\bASSAY_" + prefix + "([A-Z0-9_]+) *= *([0-9]+)");
    for (std::sregex_iterator it(body.begin(), body.end(), enumerator), end; it != end; ++it) {
      std::string name = (*it)[1];
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      found[std::stoi((*it)[2])] = name;
    }
  }
  return found;
}

TEST(Names, EveryEnumeratorOfTheHeaderHasOne) {
  const struct {
    const char *type, *prefix;
    std::span<const Name> names;
  } tables[] = {{"assay_mask", "MASK_", mask_names()},    {"assay_alibi", "ALIBI_", alibi_names()},
                {"assay_scale", "SCALE_", scale_names()}, {"assay_layout", "LAYOUT_", layout_names()},
                {"assay_table", "TABLE_", table_names()}, {"assay_format", "", format_names()}};
  for (const auto& table : tables) {
    std::map<int32_t, std::string> wanted = enumerators(table.type, table.prefix);
    if (*table.prefix == '\0') wanted.erase(ASSAY_FORMAT_NONE);
    ASSERT_GE(wanted.size(), 3u) << table.type << " was not found in the header";
    for (const auto& [value, text] : wanted)
      EXPECT_EQ(name_of(table.names, value), text) << "names.cpp, enum " << table.type;
    std::string in_order;
    for (const auto& [value, text] : wanted) in_order += (in_order.empty() ? "" : ", ") + text;
    EXPECT_EQ(accepted(table.names), in_order) << "names.cpp, enum " << table.type;
  }
}

TEST(Names, FormatFacts) {
  const int bytes[] = {0, 4, 2, 2, 1, 1, 1, 1, 1, 1, 4, 8};  // by enumerator
  for (int format = 0; format <= ASSAY_INT64; ++format) {
    EXPECT_EQ(format_bytes(format), bytes[format]) << format;
    EXPECT_EQ(format_is_float16(format), format == ASSAY_BF16 || format == ASSAY_FP16) << format;
    EXPECT_EQ(format_is_fp8(format), format >= ASSAY_FP8_E4M3 && format <= ASSAY_FP8_E5M2FNUZ) << format;
    EXPECT_EQ(format_is_quantized(format), format >= ASSAY_FP8_E4M3 && format <= ASSAY_INT8) << format;
  }
}

}  // namespace
}  // namespace assay
