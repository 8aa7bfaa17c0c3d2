// SPDX-License-Identifier: Apache-2.0
// What a long run found out so far: a file of JSON lines from which an interrupted run goes on. The first
// line says whose it is.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/base/error.hpp"

namespace assay {

// Calls `take` with every whole line of the file (a last one without its end is none) and its place; how many
// bytes they are. InputError when it cannot be read, or holds no line; `expected` ends the message.
size_t for_each_line(const std::string& path, const std::string& expected,
                     const std::function<void(const SourcePlace&, std::string_view)>& take);

// A file that lines are added to, each with one call, so that only the last one can be cut off.
class LineFile {
 public:
  // A new file (InputError when there is one), or with `resume` what for_each_line reads of an old one
  // (InputError when there is none), to go on behind it. Messages begin with `option`.
  LineFile(const std::string& option, const std::string& path, bool resume, const std::string& expected,
           const std::function<void(const SourcePlace&, std::string_view)>& take);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  void append(const std::string& line);  // without its end; on the disk when this returns

 private:
  std::string path_;
  int fd_ = -1;
};

class Journal {
 public:
  Journal() = default;  // no file: nothing is kept, nothing is known
  // As a LineFile. InputError when its identity is another one.
  Journal(const std::string& option, const std::string& path, const nlohmann::json& identity, bool resume);

  // What was kept under the key, or null; stays where it is while others are added.
  const nlohmann::json* find(const std::string& key) const;
  // On the disk when this returns; a key that is there already keeps its first value. InfrastructureError.
  void add(const std::string& key, const nlohmann::json& value);
  double seconds_before() const { return before_s_; }  // of the runs that were interrupted

 private:
  void read(const SourcePlace&, std::string_view line, const nlohmann::json& identity);
  std::unique_ptr<LineFile> file_;
  double before_s_ = 0, last_s_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::map<std::string, nlohmann::json> kept_;
};

}  // namespace assay
