// SPDX-License-Identifier: Apache-2.0
// Several things wrong with one input, said at once: whoever mends a file wants all of them. It is the first
// of them (place and message) to whoever catches InputError; what() has a line for each, which starts with
// its place. Only the first kKept are kept, the others counted.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.hpp"

namespace assay {

class InputErrors : public InputError {
 public:
  static constexpr size_t kKept = 40;

  // At least one; `more` that were seen and not kept; `then` follows the number of them ("; nothing was
  // run").
  explicit InputErrors(std::vector<InputError> all, size_t more = 0, const std::string& then = "")
      : InputError(all.at(0).place(), all.at(0).message()), all_(std::move(all)), more_(more) {
    text_ = fmt::format("{} mistakes{}", all_.size() + more_, then);
    for (const InputError& one : all_) text_ += fmt::format("\n{}", one.what());
    if (more_ > 0) text_ += fmt::format("\nand {} more", more_);
  }
  const char* what() const noexcept override { return text_.c_str(); }
  const std::vector<InputError>& all() const { return all_; }
  size_t more() const { return more_; }

 private:
  std::vector<InputError> all_;
  size_t more_;
  std::string text_;
};

// Gathers them, and throws what there is.
class Mistakes {
 public:
  bool empty() const { return all_.empty(); }
  void add(const InputError& error) {
    if (const auto* several = dynamic_cast<const InputErrors*>(&error)) {
      for (const InputError& one : several->all()) add_one(one);
      more_ += several->more();
    } else {
      add_one(error);
    }
  }
  // Throws one error as it is, several as InputErrors; returns where there is none.
  void raise(const std::string& then = "") const {
    if (all_.empty()) return;
    if (all_.size() > 1 || more_ > 0) throw InputErrors(all_, more_, then);
    throw InputError(all_[0]);
  }

 private:
  void add_one(const InputError& error) {
    if (all_.size() < InputErrors::kKept)
      all_.push_back(error);
    else
      ++more_;
  }
  std::vector<InputError> all_;
  size_t more_ = 0;
};

}  // namespace assay
