// SPDX-License-Identifier: Apache-2.0
// Runs the real program the way a user does: a command line, and what came out of it. Included by the
// tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness/report/row_reader.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/results_folder.hpp"

namespace assay {

inline const std::string kProgram = ASSAY_BINARY_DIR "/assay";
inline const std::string kFake = ASSAY_BINARY_DIR "/testing/libassay_fake.so";
// Two decode requests of three pages: quick for the double-precision fake kernel.
inline const std::string kLine = "paged h=4/2 d=64 batch=2q1s33";

struct Output {
  int code = -1;
  std::string out, err;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A test with a folder of its own.
class Program : public ::testing::Test {
 protected:
  std::filesystem::path root;
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "assay_program_XXXXXX").string();
    root = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  std::string path(const std::string& name) const { return (root / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  static std::string shell(const std::vector<std::string>& words) {
    std::string command = shell_quote(kProgram);
    for (const std::string& w : words) command.append(" ").append(shell_quote(w));
    return command;
  }
  Output run(const std::vector<std::string>& words) const { return run_shell(shell(words)); }
  // `beside`: names the files of what is printed, where several run at a time.
  Output run_shell(const std::string& command, const std::string& beside = "") const {
    const std::string out = path(beside + "stdout"), err = path(beside + "stderr");
    const std::string whole =
        "(" + command + ") >" + shell_quote(out) + " 2>" + shell_quote(err) + " </dev/null";
    const int status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_text(out), read_text(err)};
  }
  // `words` with the misbehaving backend.
  Output fake(std::vector<std::string> words) const {
    words.insert(words.end(), {"--backend", kFake});
    return run(words);
  }
  // Rows by kernel (one scenario) or by scenario (one kernel).
  static std::map<std::string, Row> by(const std::string& folder, std::string Row::*key) {
    std::map<std::string, Row> rows;
    for (const Row& r : read_rows(folder + "/rows.csv").rows) {
      EXPECT_FALSE(rows.contains(r.*key)) << "twice: " << r.key();
      rows[r.*key] = r;
    }
    return rows;
  }
};

}  // namespace assay
