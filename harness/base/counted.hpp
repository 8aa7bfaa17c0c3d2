// SPDX-License-Identifier: Apache-2.0
// Numbers of things in sentences: "1 case", "2 cases". Only for nouns whose plural is an s.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace assay {

inline std::string counted(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace assay
