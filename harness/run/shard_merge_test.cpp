// SPDX-License-Identifier: Apache-2.0
// Shards made by hand: the good sum, and every way the sum could be a lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "harness/base/error.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/run/merge.hpp"
#include "harness/run/options.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/run/samples.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Merge : public ::testing::Test {
 protected:
  fs::path root = fs::temp_directory_path() / ("assay_merge_test_" + std::to_string(getpid()));
  void SetUp() override {
    fs::create_directories(root);
    for (int i = 1; i <= 3; ++i) shard(fmt::format("part{}", i), {i, 3});
  }
  void TearDown() override { fs::remove_all(root); }
  std::string path(const std::string& name) { return (root / name).string(); }

  static std::vector<Row> rows_of(const Shard& s) {
    std::vector<Row> rows;
    for (int i = 0; i < 60; ++i) {
      Row r;
      r.scenario = fmt::format("paged batch=1q1s{}", i);
      r.backend = "cpu";
      r.kernel = "a";
      r.outcome = i == 5 ? "wrong" : "passed";
      r.op = "paged";
      if (i % 3 == 0) {
        r.set_mode("hot");
        r.samples = 2;
      }
      if (in_shard(r.scenario, s)) rows.push_back(r);
    }
    return rows;
  }
  void shard(const std::string& name, const Shard& s, bool complete = true, const std::string& seed = "1",
             std::vector<Row> extra = {}) {
    const nlohmann::json identity = {{"shard", fmt::format("{}/{}", s.index, s.count)},
                                     {"seed", seed},
                                     {"program", "differs from machine to machine " + name}};
    ResultsFolder f = ResultsFolder::create(path(name), identity);
    std::vector<Row> all = rows_of(s);
    all.insert(all.end(), extra.begin(), extra.end());
    for (const Row& r : all)
      f.append(r, r.samples > 0 ? Samples{{static_cast<double>(r.scenario.size())}, {7}} : Samples{});
    f.write_run_json({{"schema_version", kSchemaVersion},
                      {"identity", identity},
                      {"complete", complete},
                      {"rows", f.rows().size()},
                      {"rows_fingerprint", rows_fingerprint(f.rows())},
                      {"samples", samples_json()}});
  }
  std::string error_of(const std::vector<std::string>& names) {
    std::vector<std::string> folders;
    for (const auto& n : names) folders.push_back(path(n));
    try {
      merge(folders, path("out"), {"assay", "merge"});
    } catch (const InputError& e) {
      EXPECT_FALSE(fs::exists(path("out"))) << "nothing half-done";
      return e.what();
    }
    return "no InputError";
  }
};

TEST_F(Merge, EveryRowOnceInOneFolder) {
  const Merged m = merge({path("part2"), path("part3"), path("part1")}, path("out"), {"assay", "merge"});
  std::set<std::string> keys;
  for (const Row& r : m.rows) keys.insert(r.key());
  EXPECT_EQ(m.rows.size(), 60u);
  EXPECT_EQ(keys.size(), 60u);
  EXPECT_EQ(read_rows(path("out/rows.csv")).rows.size(), 60u);
  const nlohmann::json run = read_run_json(path("out"));
  EXPECT_EQ(run["tally"]["passed"], 59);
  EXPECT_EQ(run["tally"]["wrong"], 1);
  EXPECT_EQ(run["shards"].size(), 3u);
  EXPECT_EQ(run["identity"]["shard"], "1/1");
  EXPECT_TRUE(fs::exists(path("out/junit.xml")));
}

TEST_F(Merge, SamplesFollowTheirRows) {
  const Merged m = merge({path("part2"), path("part3"), path("part1")}, path("out"), {"assay", "merge"});
  const SamplesFile s = read_samples(path("out/samples.bin"), m.rows.size());
  check_samples("out", m.rows, s);
  for (size_t i = 0; i < m.rows.size(); ++i) {
    if (s.of_row[i].empty()) continue;
    EXPECT_EQ(s.of_row[i][0].us, static_cast<double>(m.rows[i].scenario.size()));
  }
  EXPECT_EQ(s.valid_bytes, 20 * 2 * 24);
  fs::resize_file(path("part2/samples.bin"), 24);
  fs::remove_all(path("out"));
  EXPECT_THAT(error_of({"part1", "part2", "part3"}), HasSubstr("records were lost"));
  fs::remove(path("part2/samples.bin"));
  EXPECT_THAT(error_of({"part1", "part2", "part3"}), HasSubstr("records were lost"));
}

TEST_F(Merge, ShardsMissingOrTwice) {
  EXPECT_THAT(error_of({"part1", "part3"}), HasSubstr("missing shards: 2/3"));
  EXPECT_THAT(error_of({"part1"}), HasSubstr("missing shards: 2/3, 3/3"));
  shard("again", {2, 3});
  EXPECT_THAT(error_of({"part1", "part2", "again", "part3"}), HasSubstr("is shard 2/3, and so is"));
  shard("half", {1, 2});
  EXPECT_THAT(error_of({"part1", "half"}), HasSubstr("is shard 1/2, but"));
}

TEST_F(Merge, UnfinishedOrOfAnotherRun) {
  shard("stopped", {2, 3}, false);
  EXPECT_THAT(error_of({"part1", "stopped", "part3"}), HasSubstr("did not run to its end"));
  shard("seeded", {2, 3}, true, "2");
  EXPECT_THAT(error_of({"part1", "seeded", "part3"}), HasSubstr("seed: 1 there, 2 here"));
  EXPECT_THAT(error_of({"part1", "nowhere", "part3"}), HasSubstr("is not a results folder"));
}

// What is there of shards that were ended early, for the asking, and never as if it were all.
TEST_F(Merge, InPart) {
  const auto partial = [&](const std::vector<std::string>& names) {
    fs::remove_all(path("out"));
    std::vector<std::string> folders;
    for (const auto& n : names) folders.push_back(path(n));
    merge(folders, path("out"), {"assay", "merge"}, true);
    return read_run_json(path("out"));
  };
  shard("stopped", {2, 3}, false);
  std::ofstream(path("stopped") + "/rows.csv", std::ios::app) << "half";
  const nlohmann::json stopped = partial({"part1", "stopped", "part3"});
  EXPECT_EQ(stopped["complete"], false);
  EXPECT_EQ(stopped["shards"][1]["complete"], false);
  EXPECT_EQ(read_rows(path("out/rows.csv")).rows.size(), 60u);
  const nlohmann::json missing = partial({"part3", "part1"});
  EXPECT_EQ(missing["complete"], false);
  EXPECT_EQ(missing["shards"].size(), 2u);
  EXPECT_EQ(missing["rows"], rows_of({1, 3}).size() + rows_of({3, 3}).size());
  EXPECT_EQ(partial({"part1", "part2", "part3"})["complete"], true);
  // Everything else is refused as ever.
  shard("seeded", {2, 3}, false, "2");
  EXPECT_THROW(partial({"part1", "seeded"}), InputError);
  EXPECT_THROW(partial({"part1", "part1"}), InputError);
}

TEST_F(Merge, RowsLostOrExchanged) {
  std::ifstream in(path("part2") + "/rows.csv");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const auto write = [&](const std::vector<std::string>& some) {
    std::ofstream out(path("part2") + "/rows.csv");
    for (const auto& l : some) out << l << "\n";
  };
  write({lines.begin(), lines.end() - 1});
  EXPECT_THAT(error_of({"part1", "part2", "part3"}), HasSubstr("rows were lost or added"));
  auto exchanged = lines;
  exchanged.back() = exchanged[1];
  write(exchanged);
  EXPECT_THAT(error_of({"part1", "part2", "part3"}), HasSubstr("other cases than run.json says"));
  write(lines);
  std::ofstream(path("part2") + "/rows.csv", std::ios::app) << "half";
  EXPECT_THAT(error_of({"part1", "part2", "part3"}), HasSubstr("half-written"));
}

TEST_F(Merge, RowsInTwoShards) {
  const Row stray = rows_of({1, 3}).front();
  shard("wide", {2, 3}, true, "1", {stray});
  EXPECT_THAT(error_of({"part1", "wide", "part3"}), HasSubstr("again; it is in"));
  EXPECT_THAT(error_of({"wide", "part1", "part3"}), HasSubstr("which is no case of shard 2/3"));
}

TEST_F(Merge, AUsedFolderIsRefused) {
  EXPECT_THROW(merge({path("part1"), path("part2"), path("part3")}, path("part1"), {}), InputError);
}

}  // namespace
}  // namespace assay
