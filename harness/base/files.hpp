// SPDX-License-Identifier: Apache-2.0
// Files that users name: read whole, but only plain ones of a bounded size (a pipe would be empty the second
// time, a device may never end); written so that a reader sees the old text or the new, never half of it.
// What is no plain file when written (a terminal, a pipe, a device, a link) is written through, never
// replaced.
#pragma once

#include <cstdint>
#include <string>

#include "harness/base/error.hpp"

namespace assay {

// InputError at `place` (where the path was named) when it is no plain file, larger, or cannot be read;
// `expected` ends the message: "a suite file".
std::string read_text_file(const SourcePlace& place, const std::string& path, int64_t max_bytes,
                           const std::string& expected);

// Whole or not at all where it is a plain file or a new one. InfrastructureError when it cannot be written.
void write_file(const std::string& path, const std::string& text);
// Whether write_file will be allowed to, without touching anything; else InputError that begins with
// `option`.
void check_writable(const std::string& option, const std::string& path);

// All bytes, however the system cuts them up. InfrastructureError naming `path`, with `advice` at its end.
void write_all(int fd, const std::string& bytes, const std::string& path, const std::string& advice = "");

}  // namespace assay
