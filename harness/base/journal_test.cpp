// SPDX-License-Identifier: Apache-2.0
// What a journal knows survives the end of its process, whenever that comes; nobody else's is taken for it.
#include "harness/base/journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace assay {
namespace {

class JournalOnDisk : public ::testing::Test {
 protected:
  JournalOnDisk() { std::filesystem::remove(path_); }
  ~JournalOnDisk() override { std::filesystem::remove(path_); }

  std::unique_ptr<Journal> journal(bool resume, const nlohmann::json& identity = {{"seed", 7}}) const {
    return std::make_unique<Journal>("--out", path_, identity, resume);
  }
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }
  template <class Act>
  static std::string refused(const Act& act) {
    try {
      act();
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  }

  const std::string path_ = ::testing::TempDir() + "/assay_journal_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST_F(JournalOnDisk, KnowsWhatWasKeptAndGoesOnBehindIt) {
  {
    const auto first = journal(false);
    first->add("a", {{"x", 1}});
    first->add("a", {{"x", 2}});
  }
  {
    const auto second = journal(true);
    ASSERT_NE(second->find("a"), nullptr);
    EXPECT_EQ((*second->find("a"))["x"], 1) << "the first value stays";
    EXPECT_EQ(second->find("b"), nullptr);
    second->add("b", "text");
  }
  const auto third = journal(true);
  EXPECT_NE(third->find("a"), nullptr);
  ASSERT_NE(third->find("b"), nullptr);
  EXPECT_EQ(*third->find("b"), "text");
}

TEST_F(JournalOnDisk, ALineThatWasCutOffIsUnknown) {
  journal(false)->add("a", 1);
  append(R"({"key":"b","val)");
  {
    const auto again = journal(true);
    EXPECT_NE(again->find("a"), nullptr);
    EXPECT_EQ(again->find("b"), nullptr);
    again->add("b", 2);
  }
  EXPECT_EQ(*journal(true)->find("b"), 2);
}

TEST_F(JournalOnDisk, SecondsOfAllRunsAddUp) {
  journal(false);
  append(
      "{\"key\":\"a\",\"s\":5,\"value\":1}\n{\"key\":\"resumed\",\"s\":0,\"value\":null}\n"
      "{\"key\":\"b\",\"s\":2.5,\"value\":1}\n");
  EXPECT_EQ(journal(true)->seconds_before(), 7.5);
}

TEST_F(JournalOnDisk, AnothersIsRefusedWithItsLine) {
  journal(false)->add("a", 1);
  EXPECT_THAT(refused([&] { journal(false); }), ::testing::HasSubstr("--resume"));
  EXPECT_THAT(refused([&] {
                journal(true, {{"seed", 8}});
              }),
              ::testing::AllOf(::testing::HasSubstr(":1:1"), ::testing::HasSubstr(R"({"seed":7})")));
  append("{\"key\":\"b\"}\n");
  EXPECT_THAT(refused([&] { journal(true); }),
              ::testing::AllOf(::testing::HasSubstr(":3:1"), ::testing::HasSubstr("expected a key")));
  std::filesystem::remove(path_);
  EXPECT_THAT(refused([&] { journal(true); }), ::testing::HasSubstr("there is no file"));
}

TEST(JournalOfNoFile, KeepsNothing) {
  Journal none;
  none.add("a", 1);
  EXPECT_EQ(none.find("a"), nullptr);
}

}  // namespace
}  // namespace assay
