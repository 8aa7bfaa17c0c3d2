// SPDX-License-Identifier: Apache-2.0
// See recorded.hpp.
#include "harness/campaign/recorded.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/text.hpp"

namespace assay::campaign {
namespace {

constexpr std::string_view kOpening = "# alarm: ";
constexpr int64_t kMostBytes = 64 << 20;
constexpr std::string_view kHead =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Lines on which a legal kernel was condemned, as campaigns found them (assay campaign); none may be "
    "again.\n"
    "# The comment before a line names the kernel and what was said against it.\n";

}  // namespace

std::vector<Recorded> read_recorded(const std::string& path, std::vector<std::string>* illegal) {
  const std::string text = read_text_file({path, 0, 0}, path, kMostBytes, "a suite of alarms");
  std::vector<Recorded> all;
  std::string kernel;
  int number = 0;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line = trim({std::string_view(text).substr(from, end - from), 0}).text;
    from = end + 1, ++number;
    if (line.starts_with(kOpening)) {
      const std::string_view rest = line.substr(kOpening.size());
      kernel = rest.substr(0, rest.find(':'));
    } else if (!line.empty() && line[0] != '#') {
      if (kernel.empty())
        throw InputError({path, number, 1},
                         "a line without its kernel; expected '# alarm: KERNEL: ...' before it");
      const std::string place = fmt::format("{}:{}", path, number);
      try {
        make_problem(parse_scenario(line, {path, number, 1}));
        all.push_back({std::string(line), kernel, place});
      } catch (const InputError& e) {
        const std::string what = e.what();
        if (illegal != nullptr) illegal->push_back(what.starts_with(path) ? what : place + ": " + what);
      }
      kernel.clear();
    }
  }
  return all;
}

void record(const std::string& path, const Alarm& alarm) {
  std::string text;
  if (std::filesystem::exists(path)) {
    const std::vector<Recorded> known = read_recorded(path);
    if (std::find(known.begin(), known.end(), Recorded{alarm.line, alarm.kernel}) != known.end()) return;
  } else {
    text = kHead;
  }
  // The place matters, the figures are another day's.
  text +=
      fmt::format("\n{}{}: {} ({})\n{}\n", kOpening, alarm.kernel, alarm.outcome, alarm.check, alarm.line);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw InfrastructureError(fmt::format("{}: {}", path, std::strerror(errno)));
  write_all(fd, text, path);
  close(fd);
}

}  // namespace assay::campaign
