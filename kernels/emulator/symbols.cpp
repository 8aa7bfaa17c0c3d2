// SPDX-License-Identifier: Apache-2.0
// See symbols.hpp.
#include "kernels/emulator/symbols.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

namespace gpu::emulator {
namespace {

struct Frame {
  std::string function, place;
};

std::string short_function(std::string name) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  if (const size_t at = name.find('('); at != std::string::npos && at > 0) name.resize(at);
  int depth = 0;  // the last :: outside template arguments
  size_t from = 0;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth == 0 && (name[i] == ' ' || (name[i] == ':' && name[i + 1] == ':')))
      from = i + (name[i] == ' ' ? 1 : 2);
  }
  return name.substr(from);
}

std::string offset_text(const void* address) {
  Dl_info info{};
  char text[64];
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    std::snprintf(text, sizeof text, "%p", address);
    return text;
  }
  std::snprintf(text, sizeof text, "+0x%zx",
                reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  return base_name(info.dli_fname) + text;
}

// Innermost first; empty where nothing is known.
std::vector<Frame> look_up(const void* address) {
  Dl_info info{};
  std::vector<Frame> frames;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return frames;
  const std::string path = info.dli_fname;
  if (path.find('\'') != std::string::npos) return frames;  // would end the quotes of the command
  char offset[32];
  std::snprintf(offset, sizeof offset, "0x%zx",
                reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  FILE* answer = popen(("addr2line -i -f -C -e '" + path + "' " + offset + " 2>/dev/null").c_str(), "r");
  if (answer == nullptr) return frames;
  char line[1024];
  std::vector<std::string> lines;
  while (std::fgets(line, sizeof line, answer) != nullptr) {
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    lines.push_back(text);
  }
  pclose(answer);
  for (size_t i = 0; i + 1 < lines.size(); i += 2) {
    if (lines[i] == "??") break;
    std::string place = lines[i + 1];
    if (const size_t at = place.find(" (discriminator"); at != std::string::npos) place.resize(at);
    const bool known = place.find("?") == std::string::npos;
    frames.push_back({short_function(lines[i]), known ? base_name(place) : ""});
  }
  return frames;
}

const std::vector<Frame>& frames_of(const void* address) {
  static std::mutex mutex;
  static std::map<const void*, std::vector<Frame>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(address);
  return found != known.end() ? found->second : known[address] = look_up(address);
}

}  // namespace

std::string base_name(const std::string& path) {
  const size_t at = path.rfind('/');
  return at == std::string::npos ? path : path.substr(at + 1);
}

std::string function_name(const void* code) {
  const std::vector<Frame>& frames = frames_of(code);
  return frames.empty() ? offset_text(code) : frames.back().function;
}

std::string source_of(const void* return_address) {
  if (return_address == nullptr) return "";
  // The instruction before the return address is the call.
  const void* call = static_cast<const char*>(return_address) - 1;
  const std::vector<Frame>& frames = frames_of(call);
  if (frames.empty() || frames.front().place.empty()) return offset_text(call);
  std::string text = frames.front().place;
  if (frames.size() > 1) {
    text += " (" + frames.front().function + ")";
    if (!frames.back().place.empty()) text += ", from " + frames.back().place;
  }
  return text;
}

}  // namespace gpu::emulator
