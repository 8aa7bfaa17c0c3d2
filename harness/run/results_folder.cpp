// SPDX-License-Identifier: Apache-2.0
// See results_folder.hpp.
#include "harness/run/results_folder.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/summary.hpp"
#include "harness/report/table.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

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

void write_all(int fd, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw InfrastructureError(
          fmt::format("{}: cannot be written: {}; free space, then continue with --resume", path,
                      n < 0 ? strerror(errno) : "nothing was written"));
    done += static_cast<size_t>(n);
  }
}

std::string short_text(const json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.size() > 160) text = text.substr(0, 157) + "...";
  return text;
}

}  // namespace

struct ResultsFolder::Files {
  Fd lock, rows, log;
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
    write_all(folder.files_->rows.get(), csv_header() + "\n", folder.file("rows.csv"));
  } catch (const InfrastructureError&) {  // nothing worth resuming yet: leave the path as it was found
    for (const char* name : {"run.json", "rows.csv", "worker.log", ".lock"})
      fs::remove(folder.file(name), error);
    if (!existed) fs::remove(path, error);
    throw;
  }
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
  folder.open_files();
  RowsFile found = read_rows(rows_path);
  if (!found.truncated_tail.empty() || found.valid_bytes == 0) {
    if (ftruncate(folder.files_->rows.get(), found.valid_bytes) != 0)
      throw InfrastructureError(fmt::format("{}: cannot be repaired: {}", rows_path, strerror(errno)));
    folder.repaired_ = found.truncated_tail;
  }
  if (found.valid_bytes == 0) write_all(folder.files_->rows.get(), csv_header() + "\n", rows_path);
  folder.rows_ = std::move(found.rows);
  for (const Row& row : folder.rows_) {
    if (folder.keys_.contains(row.key()))
      throw InputError({rows_path}, "holds two rows for " + row.key() + "; it was edited or merged by hand");
    folder.remember(row);
  }
  return folder;
}

void ResultsFolder::append(const Row& row) {
  ASSAY_CHECK(!keys_.contains(row.key()), "two rows for {}", row.key());
  write_all(files_->rows.get(), csv_line(row) + "\n", file("rows.csv"));
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

json read_run_json(const std::string& folder) {
  const std::string path = folder + "/run.json";
  std::ifstream in(path);
  if (!in)
    throw InputError({path},
                     "cannot be read; a results folder holds a run.json, so this is none (start a run with "
                     "--out instead of --resume)");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  json j = json::parse(text, nullptr, false);
  if (!j.is_object()) throw InputError({path}, "is not a JSON object; it was damaged or edited");
  const json version = j.value("schema_version", json(nullptr));
  if (version != kSchemaVersion)
    throw InputError({path}, fmt::format("schema_version is {}, this program writes and reads {}",
                                         version.dump(), kSchemaVersion));
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

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  {
    Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0)
      throw InfrastructureError(fmt::format("{}: cannot be written: {}", temporary, strerror(errno)));
    try {
      write_all(fd.get(), text, temporary);
    } catch (...) {
      unlink(temporary.c_str());
      throw;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0)
    throw InfrastructureError(fmt::format("{}: cannot be written: {}", path, strerror(errno)));
}

}  // namespace assay
