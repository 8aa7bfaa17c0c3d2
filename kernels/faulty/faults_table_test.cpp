// SPDX-License-Identifier: Apache-2.0
// The table of faults as a document: names, sources and causes are what they claim, and every group of the
// museum's mutant plan that a CPU can show is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "harness/explain/causes.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {
namespace {

std::vector<Row> faults() { return {planted_faults().rows, planted_faults().rows + planted_faults().count}; }

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::set<std::string> all_sources() {
  std::set<std::string> all;
  for (const Row& row : faults())
    for (const std::string& id : words(row.museum)) all.insert(id);
  return all;
}

TEST(FaultTable, HoldsWhatTheIssueAsksFor) {
  int wrong = 0, controls = 0;
  for (const Row& row : faults()) ++(row.equivalent ? controls : wrong);
  EXPECT_GE(wrong, 130);
  EXPECT_GE(controls, 2);
}

TEST(FaultTable, NamesAreUniqueAndSpellKernels) {
  std::set<std::string> names;
  const std::regex spelling("[a-z][a-z0-9_]*");
  for (const Table& table : {legal_variants(), planted_faults()})
    for (int32_t i = 0; i < table.count; ++i) {
      EXPECT_TRUE(names.insert(table.rows[i].name).second) << table.rows[i].name;
      EXPECT_TRUE(std::regex_match(table.rows[i].name, spelling)) << table.rows[i].name;
    }
}

TEST(FaultTable, EveryFaultNamesItsStageItsSummaryAndWhenItIsReached) {
  const std::set<std::string> stages = {"metadata", "addressing", "dequant", "mask",   "scores",
                                        "softmax",  "values",     "merge",   "output", "state"};
  std::set<std::string> summaries, used;
  for (const Row& row : faults()) {
    EXPECT_TRUE(stages.contains(row.stage)) << row.name << ": " << row.stage;
    EXPECT_TRUE(summaries.insert(row.summary).second) << row.name << " repeats a summary";
    EXPECT_NE(row.reached, nullptr) << row.name;
    used.insert(row.stage);
  }
  EXPECT_EQ(used, stages);
}

TEST(FaultTable, CausesAreKnownToTheExplanation) {
  for (const Row& row : faults())
    EXPECT_TRUE(std::string(row.cause) == "none" || assay::find_cause(row.cause) != nullptr)
        << row.name << ": " << row.cause;
}

// The museum's numbering by project, and its trigger dimensions for faults that only those ask for.
TEST(FaultTable, SourcesExist) {
  const std::map<std::string, int> last = {{"FI", 66}, {"FA", 34}, {"VL", 50}, {"SG", 22},
                                           {"AI", 33}, {"FM", 4},  {"SA", 6},  {"TR", 9},
                                           {"PT", 5},  {"TL", 2},  {"MX", 1},  {"CK", 1}};
  const std::regex museum("([A-Z]{2})-([0-9]{2})"), dimension("T([0-9]{2})"), proto("proto:[A-Z0-9_]+");
  for (const std::string& id : all_sources()) {
    std::smatch part;
    if (std::regex_match(id, part, museum)) {
      ASSERT_TRUE(last.contains(part[1])) << id;
      EXPECT_GE(std::stoi(part[2]), 1) << id;
      EXPECT_LE(std::stoi(part[2]), last.at(part[1])) << id;
    } else if (std::regex_match(id, part, dimension)) {
      EXPECT_GE(std::stoi(part[1]), 1) << id;
      EXPECT_LE(std::stoi(part[1]), 26) << id;
    } else {
      EXPECT_TRUE(std::regex_match(id, proto) || id == "spec:5.2") << id;
    }
  }
}

TEST(FaultTable, EveryMutantOfThePrototypeIsPlanted) {
  const std::set<std::string> all = all_sources();
  for (const char* name :
       {"WIN_EXTRA",    "WIN_SHORT",     "DROP1",      "NO_RESCALE_TILE", "L_ROUNDED",  "SCALE_BF16",
        "KSCALE_1P",    "VSCALE_1P",     "VSCALE_ULP", "LSE_BASE",        "LAST_SPLIT", "PAGE_WRONG",
        "PAGE_SWAP_V",  "SOFTCAP_ORDER", "P_TRUNC",    "O_BF16",          "EXP10",      "LSE_BF16",
        "PART_BF16",    "TAIL_ZERO",     "S_BF16",     "L_MISS1",         "D_DROP",     "STALE_TOKEN",
        "L_NO_RESCALE", "PART_FP16",     "P_FP8",      "VSCALE_QUARTER",  "DUP1",       "S_FP16ACC",
        "OUT_RZ",       "ALIBI_OFF"})
    EXPECT_TRUE(all.contains(std::string("proto:") + name)) << name;
  EXPECT_TRUE(all.contains("spec:5.2"));
}

// The groups of the museum's mutant plan, each by the ids that open it. Left to devices: asynchronous copies
// (group 39), context-parallel ranks (40: their LSE base and length arithmetic are planted), padding lanes
// that read past an operand without using it (41: the fetch that is used is planted).
TEST(FaultTable, GroupsOfTheMutantPlanArePlanted) {
  const std::set<std::string> all = all_sources();
  const char* const groups[] = {
      "SG-01", "FI-40", "VL-01", "VL-02", "VL-46", "SG-10", "VL-08", "VL-50", "AI-09", "AI-21",
      "VL-20", "FI-09", "FA-26", "FI-11", "SG-03", "FI-16", "TR-04", "FA-13", "FI-56", "FI-14",
      "VL-36", "FA-01", "FI-35", "FI-36", "AI-31", "VL-39", "FI-04", "AI-32", "VL-24", "FI-01",
      "VL-15", "AI-06", "AI-07", "AI-03", "FI-30", "VL-07", "VL-26", "FI-49", "SG-11", "VL-30",
      "FI-19", "FA-17", "FI-03", "TL-02", "VL-10", "VL-12", "AI-16", "SA-01", "VL-48"};
  for (const char* id : groups) EXPECT_TRUE(all.contains(id)) << id;
}

}  // namespace
}  // namespace assay_faulty
