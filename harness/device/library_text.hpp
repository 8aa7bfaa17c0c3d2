// SPDX-License-Identifier: Apache-2.0
// What a library wrote as the reason of a failure: perhaps nothing, perhaps without an end.
#pragma once

#include <string.h>

#include <string>

namespace assay {

inline std::string library_text(const char* text, size_t size) {
  return *text == '\0' ? "the library gives no reason" : std::string(text, strnlen(text, size));
}

}  // namespace assay
