// SPDX-License-Identifier: Apache-2.0
// Pipes, devices, links and full disks in the place of files, both ways.
#include "harness/base/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  fs::path root;
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "assay_files_XXXXXX").string();
    root = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root); }
  std::string path(const char* name) const { return (root / name).string(); }
  static std::string text_of(const std::string& p) {
    std::ifstream in(p);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string refusal(const std::string& p, int64_t most = 100) {
    try {
      read_text_file({"suite", 3, 1}, p, most, "a suite");
    } catch (const InputError& e) {
      return e.what();
    }
    return "read";
  }
  int entries() const {
    return static_cast<int>(std::distance(fs::directory_iterator(root), fs::directory_iterator()));
  }
};

TEST_F(Files, APlainFileIsReplacedAndNothingElseIsLeft) {
  write_file(path("a"), "one");
  write_file(path("a"), "two");
  EXPECT_EQ(text_of(path("a")), "two");
  EXPECT_EQ(entries(), 1);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(static_cast<mode_t>(fs::status(path("a")).permissions()), 0666 & ~mask);
  EXPECT_EQ(read_text_file({path("a")}, path("a"), 3, "text"), "two");
}

TEST_F(Files, APipeIsWrittenThrough) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  check_writable("--junit", path("pipe"));  // and does not wait for a reader
  std::string got;
  std::thread reader([&] { got = text_of(path("pipe")); });
  write_file(path("pipe"), std::string(200'000, 'x'));
  reader.join();
  EXPECT_EQ(got.size(), 200'000u);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(Files, ALinkStaysALink) {
  write_file(path("target"), "a longer text than the next");
  fs::create_symlink(path("target"), path("link"));
  fs::create_symlink(path("nowhere"), path("dangling"));
  write_file(path("link"), "new");
  write_file(path("dangling"), "born");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text_of(path("target")), "new");
  EXPECT_EQ(text_of(path("nowhere")), "born");
}

// Somebody prepared what a predictable temporary file would have been called.
TEST_F(Files, ThePreparedTemporaryIsNotFollowed) {
  write_file(path("precious"), "gold");
  fs::create_symlink(path("precious"), path("a.tmp"));
  write_file(path("a"), "new");
  EXPECT_EQ(text_of(path("precious")), "gold");
  EXPECT_EQ(text_of(path("a")), "new");
}

TEST_F(Files, ADeviceStaysADevice) {
  if (mknod(path("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "needs root";
  write_file(path("null"), "gone");
  EXPECT_TRUE(fs::is_character_file(path("null")));
}

TEST_F(Files, AFullDiskIsSaid) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  try {
    write_file("/dev/full", "text");
    FAIL();
  } catch (const InfrastructureError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/dev/full: cannot be written: No space left"));
  }
  EXPECT_THROW(write_file(path("no/such/folder"), "x"), InfrastructureError);
}

TEST_F(Files, WhereNothingCanBeWrittenIsKnownBefore) {
  check_writable("--junit", path("new.xml"));
  EXPECT_EQ(entries(), 0) << "asking makes nothing";
  for (const std::string& bad : {path("no/such.xml"), root.string()})
    EXPECT_THROW(check_writable("--junit", bad), InputError) << bad;
}

TEST_F(Files, OnlyPlainFilesOfABoundedSizeAreRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("pipe")), HasSubstr("suite:3:1: \"" + path("pipe") +
                                               "\" is a pipe, no plain file; "
                                               "expected a suite"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("is a device"));
  EXPECT_THAT(refusal(root.string()), HasSubstr("is a folder"));
  EXPECT_THAT(refusal(path("none")), HasSubstr("No such file"));
  write_file(path("large"), std::string(101, 'x'));
  EXPECT_THAT(refusal(path("large")), HasSubstr("larger than"));
  EXPECT_THAT(refusal("/proc/self/maps"), HasSubstr("larger than")) << "says it has no size";
}

}  // namespace
}  // namespace assay
