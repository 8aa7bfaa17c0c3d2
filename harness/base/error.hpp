// SPDX-License-Identifier: Apache-2.0
// The two ways something goes wrong inside assay: the user's input is bad (InputError, exit code 2,
// always with a place and what was expected) or an invariant broke (CheckError: a bug of ours).
// Nothing below cli/ prints or exits; it throws one of these.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace assay {

// Where a piece of input text stands. Lines and columns count from 1; 0 = does not apply.
struct SourcePlace {
  std::string file;  // path, or "command line"
  int line = 0;
  int column = 0;
};

class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(message), message_(message) {}
  InputError(const SourcePlace& place, const std::string& message)
      : std::runtime_error(format(place, message)), place_(place), message_(message) {}
  const SourcePlace& place() const { return place_; }
  const std::string& message() const { return message_; }  // without the place

 private:
  static std::string format(const SourcePlace& p, const std::string& message) {
    std::string where = p.file.empty() ? "input" : p.file;
    if (p.line > 0) where += fmt::format(":{}", p.line);
    if (p.column > 0) where += fmt::format(":{}", p.column);
    return where + ": " + message;
  }
  SourcePlace place_;
  std::string message_;
};

// The machine or a backend failed (exit code 6): no memory, a folder that cannot be written, ...
class InfrastructureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace assay

#define ASSAY_CHECK(cond, ...)                                                                        \
  do {                                                                                                \
    if (!(cond))                                                                                      \
      throw ::assay::CheckError(fmt::format("{}:{}: check failed: {}: ", __FILE__, __LINE__, #cond) + \
                                fmt::format(__VA_ARGS__));                                            \
  } while (0)
