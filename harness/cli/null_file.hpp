// SPDX-License-Identifier: Apache-2.0
// A file that forgets what is written to it, for commands that start workers and keep no log of them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace assay {

struct NullFile {
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  NullFile() = default;
  NullFile(const NullFile&) = delete;
  NullFile& operator=(const NullFile&) = delete;
  ~NullFile() { close(fd); }
};

}  // namespace assay
