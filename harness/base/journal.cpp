// SPDX-License-Identifier: Apache-2.0
// See journal.hpp. Each line of a journal holds when it was written, in seconds of its run; a run that goes
// on begins with a line at 0, so the times of all runs add up.
#include "harness/base/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/base/files.hpp"
#include "harness/base/json_fields.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr const char *kIdentity = "of", *kKey = "key", *kValue = "value", *kSeconds = "s";

bool is_entry(const json& j) {
  return j.is_object() && j.contains(kKey) && j[kKey].is_string() && j.contains(kValue) &&
         j.contains(kSeconds) && j[kSeconds].is_number();
}

std::string text_of(const json& line) { return line.dump(-1, ' ', true, json::error_handler_t::replace); }

}  // namespace

size_t for_each_line(const std::string& path, const std::string& expected,
                     const std::function<void(const SourcePlace&, std::string_view)>& take) {
  const std::string text = read_text_file({path, 0, 0}, path, kMostBytes, expected);
  size_t from = 0;
  int number = 0;
  for (size_t end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    take({path, ++number, 1}, std::string_view(text).substr(from, end - from));
  if (number == 0) throw InputError({path, 1, 1}, "its first line is missing; expected " + expected);
  return from;
}

LineFile::LineFile(const std::string& option, const std::string& path, bool resume,
                   const std::string& expected,
                   const std::function<void(const SourcePlace&, std::string_view)>& take)
    : path_(path) {
  const bool exists = std::filesystem::exists(path);
  if (exists && !resume)
    throw InputError(fmt::format("{} {}: is there already; go on with it by --resume, or name another file",
                                 option, path));
  if (!exists && resume) throw InputError(fmt::format("--resume: there is no file {}", path));
  const size_t whole = exists ? for_each_line(path, expected, take) : 0;
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw InputError(fmt::format("{} {}: {}", option, path, std::strerror(errno)));
  if (ftruncate(fd_, static_cast<off_t>(whole)) != 0 || lseek(fd_, 0, SEEK_END) < 0)
    throw InfrastructureError(fmt::format("{}: {}", path, std::strerror(errno)));
}

LineFile::~LineFile() {
  if (fd_ >= 0) close(fd_);
}

void LineFile::append(const std::string& line) { write_all(fd_, line + "\n", path_); }

Journal::Journal(const std::string& option, const std::string& path, const json& identity, bool resume) {
  file_ = std::make_unique<LineFile>(
      option, path, resume, "a journal",
      [&](const SourcePlace& place, std::string_view line) { read(place, line, identity); });
  before_s_ += last_s_;
  file_->append(text_of(resume ? json{{kKey, "resumed"}, {kValue, nullptr}, {kSeconds, 0}}
                               : json{{kIdentity, identity}}));
}

void Journal::read(const SourcePlace& place, std::string_view line, const json& identity) {
  const json j = parse_json(line, place, "a line of a journal");
  if (place.line == 1) {
    if (!j.is_object() || !j.contains(kIdentity)) throw InputError(place, "expected whose journal this is");
    if (j[kIdentity] != identity)
      throw InputError(place,
                       fmt::format("is the journal of {}, not of {}; give the same options, or another "
                                   "file",
                                   text_of(j[kIdentity]), text_of(identity)));
    return;
  }
  if (!is_entry(j)) throw InputError(place, "expected a key, a value and the seconds at which it was kept");
  const double s = j[kSeconds].get<double>();
  if (s < last_s_) before_s_ += last_s_;
  last_s_ = s;
  if (!j[kValue].is_null()) kept_.emplace(j[kKey].get<std::string>(), j[kValue]);
}

const json* Journal::find(const std::string& key) const {
  const auto at = kept_.find(key);
  return at == kept_.end() ? nullptr : &at->second;
}

void Journal::add(const std::string& key, const json& value) {
  if (!file_ || !kept_.emplace(key, value).second) return;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - start_;
  file_->append(text_of({{kKey, key}, {kValue, value}, {kSeconds, now.count()}}));
}

}  // namespace assay
