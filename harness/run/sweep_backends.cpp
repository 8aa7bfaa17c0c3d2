// SPDX-License-Identifier: Apache-2.0
// See sweep.hpp. Here: which backends, on which devices, how a worker of one is started, and what makes two
// runs one.
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/base/program.hpp"
#include "harness/device/backend.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/sweep.hpp"
#include "harness/run/sweep_arm.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

namespace fs = std::filesystem;
using nlohmann::json;

std::string name_like(const std::string& word, const std::vector<std::string>& names) {
  return did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

std::vector<BackendChoice> choose_backends(const std::vector<std::string>& asked) {
  const std::vector<std::string> installed = installed_backends();
  if (asked.empty() && installed.empty())
    throw InfrastructureError(
        "no backend library (libassay_*.so) stands beside the program; build one, or name a "
        "library with --backend ./PATH.so");
  std::vector<BackendChoice> choices;
  for (const std::string& text : asked.empty() ? installed : asked) {
    BackendChoice c{text, ""};
    if (text.find('/') != std::string::npos || text.find(".so") != std::string::npos) {
      if (!fs::is_regular_file(text))
        throw InputError(fmt::format("--backend {}: {}", text,
                                     fs::is_directory(text) ? "is a folder; a library is expected"
                                     : fs::exists(text)     ? "is no plain file; a library is expected"
                                                            : "no such file"));
      c.path = fs::absolute(text).string();
      if (text.find('/') == std::string::npos) c.label = "./" + text;
    } else if (c.path = installed_path(text); c.path.empty()) {
      std::vector<std::string> present = installed;
      for (const std::string& name : named_backends()) present.push_back(name);
      throw InputError(
          fmt::format("--backend {}: not installed{}; installed are: {}; a library elsewhere is named by "
                      "its path, such as ./lib{}.so",
                      text, name_like(text, present),
                      present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", ")), text));
    }
    for (const BackendChoice& other : choices)
      if (other.path == c.path) throw InputError(fmt::format("--backend {}: given twice", text));
    choices.push_back(std::move(c));
  }
  return choices;
}

std::vector<BackendChoice> on_devices(const BackendChoice& choice, const std::vector<std::string>& devices,
                                      int32_t device_count) {
  std::vector<BackendChoice> out;
  const auto add = [&](int32_t device) {
    out.push_back({fmt::format("{}:{}", choice.label, device), choice.path, device});
  };
  for (const std::string& text : devices) {
    if (text == "all") {
      for (int32_t d = 0; d < device_count; ++d) add(d);
      continue;
    }
    int32_t device = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
    if (error != std::errc() || end != text.data() + text.size() || device < 0 || device >= device_count)
      throw InputError(
          fmt::format("--devices {}: backend {} has devices 0 to {}; give all, or numbers such as 0,2", text,
                      choice.label, device_count - 1));
    add(device);
  }
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (out[i].device == out[j].device)
        throw InputError(fmt::format("--devices: device {} is given twice", out[i].device));
  return out;
}

WorkerCommand worker_command(const BackendChoice& choice, const RunOptions& options, int32_t threads) {
  WorkerCommand command;
  command.argv = {program_path().string(), "worker", choice.path};
  if (choice.device != 0) {
    command.argv.push_back("--device");
    command.argv.push_back(std::to_string(choice.device));
  }
  if (threads > 0) {
    command.argv.push_back("--threads");
    command.argv.push_back(std::to_string(threads));
  }
  for (const std::string& file : options.calibrations) {
    command.argv.push_back("--calibration");
    command.argv.push_back(fs::absolute(file).string());
  }
  command.kept = true;
  command.memory_bytes = options.worker_memory_bytes;
  if (command.memory_bytes < 0 && total_memory_bytes() > 0)
    command.memory_bytes = total_memory_bytes() / 5 * 4;
  return command;
}

json identity_of(const RunOptions& o, const CaseCount& count, const std::vector<BackendChoice>& backends) {
  json j = options_json(o);
  j.erase("timeout_s");
  j.erase("worker_memory_bytes");
  j.erase("jobs");
  if (!o.timed) {
    j.erase("caches");
    const json rule = encode(o.rule);
    for (const auto& [key, unused] : rule.items()) j.erase(key);
  }
  j["cases_fingerprint"] = hex(count.fingerprint);
  json names = json::array(), files = json::object();
  for (const BackendChoice& b : backends) {
    names.push_back(b.label);
    files[b.label] = file_fingerprint(b.path);
  }
  j["calibration_files"] = json::array();
  for (const std::string& file : o.calibrations) j["calibration_files"].push_back(file_fingerprint(file));
  j.erase("calibrations");  // what they say counts, not where they lie
  j["backends"] = names;
  j["backend_files"] = files;
  j["program"] = file_fingerprint(program_path().string());
  const json build = build_facts();
  j["build"] = fmt::format("{} {}{}", build["version"].get<std::string>(),
                           build["commit"].is_string() ? build["commit"].get<std::string>() : "?",
                           build["dirty"] == true ? " dirty" : "");
  return j;
}

const std::vector<std::string>& identity_per_shard() {
  static const std::vector<std::string> keys = {"shard", "program", "backend_files"};
  return keys;
}

}  // namespace assay
