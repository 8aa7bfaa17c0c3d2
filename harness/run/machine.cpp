// SPDX-License-Identifier: Apache-2.0
// See machine.hpp. ASSAY_BUILD_* come from this folder's CMakeLists.txt and build_commit.cmake.
#include "harness/run/machine.hpp"

#include <build_commit.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "harness/run/options.hpp"

namespace assay {
namespace {

using nlohmann::json;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line) || line.empty()) return std::nullopt;
  return line;
}

std::optional<std::string> value_after(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find_first_of(":=");
    if (colon == std::string::npos) continue;
    const size_t from = line.find_first_not_of(" \t\"", colon + 1);
    if (from == std::string::npos) continue;
    return line.substr(from, line.find_last_not_of(" \t\"") - from + 1);
  }
  return std::nullopt;
}

void put(json& j, const char* key, const std::optional<std::string>& value, const char* reason) {
  if (value)
    j[key] = *value;
  else {
    j[key] = nullptr;
    j[std::string(key) + "_reason"] = reason;
  }
}

// First line of a command's output; nothing when it fails.
std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return std::nullopt;
  char text[512] = "";
  const bool any = std::fgets(text, sizeof text, pipe) != nullptr;
  char rest[4096];
  while (std::fgets(rest, sizeof rest, pipe)) {  // or the command dies of a closed pipe
  }
  if (pclose(pipe) != 0) return std::nullopt;
  std::string line = any ? text : "";
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

}  // namespace

int64_t available_memory_bytes() {
  const auto kilobytes = [](const char* path, const char* key) -> int64_t {
    const auto text = value_after(path, key);
    return text ? std::atoll(text->c_str()) : 0;
  };
  const int64_t free = kilobytes("/proc/meminfo", "MemAvailable");
  return free == 0 ? 0 : 1024 * (free + kilobytes("/proc/self/status", "VmRSS"));
}

int64_t total_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<int64_t>(pages) * size : 0;
}

json machine_facts() {
  json j;
  put(j, "cpu", value_after("/proc/cpuinfo", "model name"), "/proc/cpuinfo has no model name");
  j["cores"] = std::thread::hardware_concurrency();
  j["memory_bytes"] = total_memory_bytes();
  put(j, "os", value_after("/etc/os-release", "PRETTY_NAME"), "/etc/os-release has no PRETTY_NAME");
  utsname u{};
  uname(&u);
  j["kernel"] = fmt::format("{} {} {}", u.sysname, u.release, u.machine);
  j["host"] = u.nodename;
  return j;
}

json clock_facts() {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/";
  const char* reason = "no cpufreq in /sys: the kernel or the hypervisor does not show clocks";
  json j;
  put(j, "governor", first_line(folder + "scaling_governor"), reason);
  put(j, "current_khz", first_line(folder + "scaling_cur_freq"), reason);
  put(j, "max_khz", first_line(folder + "scaling_max_freq"), reason);
  put(j, "min_khz", first_line(folder + "scaling_min_freq"), reason);
  return j;
}

json build_facts() {
  json j;
  j["version"] = ASSAY_BUILD_VERSION;
  j["compiler"] = ASSAY_BUILD_COMPILER;
  j["flags"] = ASSAY_BUILD_FLAGS;
  j["build_type"] = ASSAY_BUILD_TYPE;
  const std::string commit = ASSAY_BUILD_COMMIT;
  put(j, "commit", commit.empty() ? std::nullopt : std::optional(commit), "not built from a git checkout");
  j["dirty"] = commit.empty() ? json(nullptr) : json(ASSAY_BUILD_DIRTY != 0);
  return j;
}

json source_facts() {
  json j;
  const std::string git = "git -C '" ASSAY_BUILD_SOURCE "' ";
  const auto commit = output_of(git + "rev-parse HEAD");
  put(j, "commit", commit && !commit->empty() ? commit : std::nullopt,
      "git or the source folder is not there");
  const auto changes = output_of(git + "status --porcelain");
  j["dirty"] = commit && changes ? json(!changes->empty()) : json(nullptr);
  return j;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string file_fingerprint(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "";
  uint64_t print = fingerprint("");
  char chunk[65536];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0)
    print = fingerprint({chunk, static_cast<size_t>(in.gcount())}, print);
  return hex(print);
}

}  // namespace assay
