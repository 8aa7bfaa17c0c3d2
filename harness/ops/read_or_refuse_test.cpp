// SPDX-License-Identifier: Apache-2.0
// What authors are told to read or to refuse (harness/abi/README.md) names every field of a problem and every
// operand that ops paged and step have: a field of the header that is forgotten there is one that kernels
// forget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "harness/ops/op.hpp"

namespace assay {
namespace {

std::string text_of_file(const std::string& name) {
  std::ifstream in(ASSAY_SOURCE_DIR "/harness/abi/" + name);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

std::string read_or_refuse() {
  const std::string readme = text_of_file("README.md");
  const size_t begin = readme.find("## What a kernel of `paged` or `step` reads, or refuses");
  EXPECT_NE(begin, std::string::npos);
  return readme.substr(begin, readme.find("\n## ", begin + 1) - begin);
}

// Members of struct assay_problem, as the header declares them.
std::vector<std::string> problem_fields() {
  std::string header = text_of_file("assay_problem.h");
  header = header.substr(header.find("typedef struct assay_problem {"));
  header = header.substr(header.find('{') + 1, header.find("} assay_problem;") - header.find('{') - 1);
  header = std::regex_replace(header, std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
  std::vector<std::string> names;
  const std::regex name(R"((\w+)\s*[,;])");
  for (std::sregex_iterator m(header.begin(), header.end(), name), end; m != end; ++m)
    names.push_back((*m)[1]);
  return names;
}

TEST(ReadOrRefuse, NamesEveryFieldOfAProblem) {
  const std::vector<std::string> fields = problem_fields();
  EXPECT_GT(fields.size(), 50u);
  for (const char* known : {"op", "softcap", "first_key", "two_sources", "computed_scales"})
    EXPECT_THAT(fields, ::testing::Contains(known));
  const std::string section = read_or_refuse();
  for (const std::string& field : fields) EXPECT_THAT(section, ::testing::HasSubstr("`" + field + "`"));
}

TEST(ReadOrRefuse, NamesEveryOperandOfAttentionOverPages) {
  const std::string section = read_or_refuse();
  for (const char* name : {"paged", "step"})
    for (const Op* op : all_ops()) {
      if (op->name != name) continue;
      for (const OperandUse& use : op->operands)
        EXPECT_THAT(section, ::testing::HasSubstr("`" + std::string(operand_name(use.operand)) + "`"))
            << name;
    }
}

}  // namespace
}  // namespace assay
