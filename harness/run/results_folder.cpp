// SPDX-License-Identifier: Apache-2.0
// See results_folder.hpp.
#include "harness/run/results_folder.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/json_fields.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/summary.hpp"
#include "harness/report/table.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/options.hpp"
#include "harness/run/samples.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A descriptor that workers do not inherit: a lock held by a stray worker would outlive the run.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

Fd open_to_append(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd.get() < 0)
    throw InputError({path},
                     fmt::format("cannot be written: {}; choose another folder with --out", strerror(errno)));
  return fd;
}

int64_t size_of(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 ? s.st_size : -1;
}

constexpr const char* kAdvice = "; free space, then continue with --resume";

std::string short_text(const json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.size() > 160) text = text.substr(0, 157) + "...";
  return text;
}

}  // namespace

struct ResultsFolder::Files {
  Fd lock, rows, samples, log;
};

ResultsFolder::ResultsFolder(ResultsFolder&&) noexcept = default;
ResultsFolder::~ResultsFolder() = default;
int ResultsFolder::log_fd() const { return files_->log.get(); }

void ResultsFolder::open_files() {
  files_ = std::make_unique<Files>();
  files_->lock = open_to_append(file(".lock"));
  if (flock(files_->lock.get(), LOCK_EX | LOCK_NB) != 0)
    throw InputError(
        {path_}, "another assay is writing this results folder; wait for it or choose another with --out");
  files_->rows = open_to_append(file("rows.csv"));
  files_->log = open_to_append(file("worker.log"));
}

void ResultsFolder::remember(const Row& row) { keys_.insert(row.key()); }

ResultsFolder ResultsFolder::create(const std::string& path, const json& identity, json facts) {
  std::error_code error;
  const bool existed = fs::exists(path, error);
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw InputError({path}, fmt::format("cannot make the results folder: {}; choose another with --out",
                                         error ? error.message() : "it is not a folder"));
  if (existed) {
    fs::directory_iterator entries(path, error);
    if (error)
      throw InputError({path}, fmt::format("cannot be read: {}; choose another with --out", error.message()));
    if (entries != fs::directory_iterator()) {
      const bool run = fs::exists(path + "/run.json") || fs::exists(path + "/rows.csv");
      throw InputError({path},
                       run ? "holds the results of a run already; continue it with --resume, or choose "
                             "another folder with --out"
                           : "is not empty; results want a folder of their own, choose another with --out");
    }
  }
  ResultsFolder folder;
  folder.path_ = path;
  folder.open_files();
  facts["schema_version"] = kSchemaVersion;
  facts["identity"] = identity;
  facts["complete"] = false;
  try {
    folder.write_run_json(facts);
    write_all(folder.files_->rows.get(), csv_header() + "\n", folder.file("rows.csv"), kAdvice);
  } catch (const InfrastructureError&) {  // nothing worth resuming yet: leave the path as it was found
    for (const char* name : {"run.json", "rows.csv", "worker.log", ".lock"})
      fs::remove(folder.file(name), error);
    if (!existed) fs::remove(path, error);
    throw;
  }
  folder.rows_end_ = size_of(folder.files_->rows.get());
  return folder;
}

ResultsFolder ResultsFolder::resume(const std::string& path, const json& identity) {
  ResultsFolder folder;
  folder.path_ = path;
  folder.run_ = read_run_json(path);
  const std::string differs = identity_difference(folder.run_.value("identity", json::object()), identity);
  if (!differs.empty())
    throw InputError(
        {path}, "holds another run, whose rows cannot be continued by this one. Different are: " + differs +
                    ". Repeat the command of run.json, or choose another folder with --out");
  const std::string rows_path = folder.file("rows.csv");
  if (folder.run_.contains("rows_fingerprint") && !fs::exists(rows_path))
    throw InputError({rows_path},
                     "is not there, and run.json says that the run ended; choose another folder with --out");
  folder.open_files();
  RowsFile found = read_rows(rows_path);
  if (found.valid_bytes > 0) {
    // Rows are appended as csv_line writes them, so the columns must stand as csv_header has them.
    std::ifstream in(rows_path);
    std::string header;
    std::getline(in, header);
    if (header != csv_header())
      throw InputError(
          {rows_path, 1, 1},
          "the columns stand in another order than this program writes them; the file was edited");
  }
  const json print = folder.run_.value("rows_fingerprint", json(nullptr));
  if (print.is_string() && print != rows_fingerprint(found.rows))
    throw InputError({rows_path}, "holds other cases than run.json says: the file was edited");
  if (!found.truncated_tail.empty() || found.valid_bytes == 0) {
    if (ftruncate(folder.files_->rows.get(), found.valid_bytes) != 0)
      throw InfrastructureError(fmt::format("{}: cannot be repaired: {}", rows_path, strerror(errno)));
    folder.repaired_ = found.truncated_tail;
  }
  if (found.valid_bytes == 0) write_all(folder.files_->rows.get(), csv_header() + "\n", rows_path, kAdvice);
  folder.rows_end_ = size_of(folder.files_->rows.get());
  folder.rows_ = std::move(found.rows);
  // Of a row that was cut off, or never written: the next row will have its number.
  const std::string samples = folder.file(kSamplesName);
  const SamplesFile calls = read_samples(samples, folder.rows_.size());
  std::error_code error;
  if (fs::exists(samples, error) && truncate(samples.c_str(), calls.valid_bytes) != 0)
    throw InfrastructureError(fmt::format("{}: cannot be repaired: {}", samples, strerror(errno)));
  folder.take_back(calls.of_row);
  for (const Row& row : folder.rows_) {
    if (folder.keys_.contains(row.key()))
      throw InputError({rows_path}, "holds two rows for " + row.key() + "; it was edited or merged by hand");
    folder.remember(row);
  }
  return folder;
}

// Rows that want of memory or a failure of assay itself decided say nothing about their kernels: they leave
// the folder, and what they are about runs again.
void ResultsFolder::take_back(const std::vector<Samples>& samples) {
  const auto says_nothing = [](const Row& row) {
    return row.mode().empty() && (row.check == kMemoryCheck || row.check == kAssayCheck);
  };
  if (std::none_of(rows_.begin(), rows_.end(), says_nothing)) return;
  std::vector<Row> kept;
  std::string lines = csv_header() + "\n", records;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (says_nothing(rows_[i])) {
      ++taken_back_;
      continue;
    }
    lines += csv_line(rows_[i]) + "\n";
    records += sample_bytes(static_cast<int64_t>(kept.size()), samples[i]);
    kept.push_back(std::move(rows_[i]));
  }
  rows_ = std::move(kept);
  if (!records.empty()) write_file(file(kSamplesName), records);
  write_file(file("rows.csv"), lines);
  files_->rows = open_to_append(file("rows.csv"));
  rows_end_ = size_of(files_->rows.get());
}

// A folder that somebody deletes or moves takes the rows with it; found out now, hours may be saved.
void ResultsFolder::check_in_place() const {
  struct stat ours {
  }, there{};
  const std::string path = file("rows.csv");
  if (fstat(files_->rows.get(), &ours) != 0 || stat(path.c_str(), &there) != 0 ||
      ours.st_ino != there.st_ino || ours.st_dev != there.st_dev)
    throw InfrastructureError(
        fmt::format("{}: is gone, the results folder was deleted or moved while it was written", path));
  if (ours.st_size != rows_end_)
    throw InfrastructureError(fmt::format(
        "{}: has {} bytes, and {} were written: somebody else wrote there meanwhile, so its rows are no "
        "results; start again in another folder",
        path, ours.st_size, rows_end_));
}

void ResultsFolder::append(const Row& row, const Samples& samples) {
  ASSAY_CHECK(!keys_.contains(row.key()), "two rows for {}", row.key());
  check_in_place();
  if (!samples.empty()) {
    if (files_->samples.get() < 0) files_->samples = open_to_append(file(kSamplesName));
    write_all(files_->samples.get(), sample_bytes(static_cast<int64_t>(rows_.size()), samples),
              file(kSamplesName), kAdvice);
  }
  try {
    write_all(files_->rows.get(), csv_line(row) + "\n", file("rows.csv"), kAdvice);
  } catch (const std::exception&) {
    rows_end_ = size_of(files_->rows.get());  // a full disk takes a part: nobody else wrote it
    throw;
  }
  rows_end_ = size_of(files_->rows.get());
  remember(row);
  rows_.push_back(row);
}

ResultsFolder::Left ResultsFolder::left(const std::string& scenario, const std::string& kernel,
                                        const std::string& backend,
                                        const std::vector<std::string>& modes) const {
  Row probe;
  probe.scenario = scenario;
  probe.kernel = kernel;
  probe.backend = backend;
  Left left;
  if (keys_.contains(probe.key())) {
    left.done = true;
    return left;
  }
  for (const std::string& mode : modes) {
    probe.set_mode(mode);
    if (!keys_.contains(probe.key())) left.modes.push_back(mode);
  }
  left.done = !modes.empty() && left.modes.empty();
  return left;
}

void ResultsFolder::write_run_json(const json& run) {
  run_ = run;
  write_file(file("run.json"), run.dump(2, ' ', true, json::error_handler_t::replace) + "\n");
}

void ResultsFolder::write_pages() const {
  write_file(file("table.txt"), format_table(rows_) + tally_line(tally_of(rows_)) + "\n");
  write_file(file("summary.md"), summary_markdown(rows_));
  write_file(file("junit.xml"), junit_xml(rows_));
  std::string failures;
  for (const Row& row : rows_)
    if (is_failure(row)) failures += clean_text(row.repeat) + "\n";
  write_file(file("failures.txt"), failures);
}

std::string rows_fingerprint(std::span<const Row> rows) {
  uint64_t sum = 0;  // of hashes: order does not matter, loss and exchange do
  for (const Row& row : rows) sum += fingerprint(row.key());
  return hex(sum);
}

json read_run_json(const std::string& folder) {
  constexpr int64_t kMaxBytes = 256 << 20;
  const std::string path = folder + "/run.json";
  const std::string text =
      read_text_file({path}, path, kMaxBytes,
                     "the run.json of a results folder (start a run with --out instead of --resume)");
  json j = parse_json(text, {path, 1, 1}, "the run.json of a results folder; it was damaged or edited");
  if (!j.is_object()) throw InputError({path}, "is not a JSON object; it was damaged or edited");
  const json version = j.value("schema_version", json(nullptr));
  if (version != kSchemaVersion)
    throw InputError({path}, fmt::format("schema_version is {}, this program writes and reads {}",
                                         json_shown(version), kSchemaVersion));
  const auto kind = [&](const char* key, bool (json::*is)() const noexcept, const char* expected) {
    const auto found = j.find(key);
    if (found != j.end() && !((*found).*is)()) json_mistyped({{path}, "run.json", key}, *found, expected);
  };
  for (const char* key : {"identity", "options", "clocks"}) kind(key, &json::is_object, "an object");
  for (const char* key : {"start", "rows_fingerprint"}) kind(key, &json::is_string, "a string");
  kind("complete", &json::is_boolean, "true or false");
  kind("rows", &json::is_number_integer, "a whole number");
  kind("resumed", &json::is_array, "an array");
  return j;
}

std::string identity_difference(const json& there, const json& here, const std::vector<std::string>& but) {
  std::string text;
  json keys = there;
  keys.update(here);
  for (const auto& [key, unused] : keys.items()) {
    if (std::find(but.begin(), but.end(), key) != but.end()) continue;
    const json a = there.value(key, json(nullptr)), b = here.value(key, json(nullptr));
    if (a == b) continue;
    text +=
        fmt::format("{}{}: {} there, {} here", text.empty() ? "" : "; ", key, short_text(a), short_text(b));
  }
  return text;
}

}  // namespace assay
