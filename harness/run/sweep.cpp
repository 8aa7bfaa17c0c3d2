// SPDX-License-Identifier: Apache-2.0
// See sweep.hpp.
#include "harness/run/sweep.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/base/program.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/device/backend.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/limits_beside.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/repeat.hpp"
#include "harness/run/stage_rows.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  return did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

}  // namespace

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
      if (!fs::is_regular_file(text)) throw InputError(fmt::format("--backend {}: no such file", text));
      c.path = fs::absolute(text).string();
      if (text.find('/') == std::string::npos) c.label = "./" + text;
    } else if (c.path = installed_path(text); c.path.empty()) {
      std::vector<std::string> present = installed;
      for (const std::string& name : named_backends()) present.push_back(name);
      throw InputError(
          fmt::format("--backend {}: not installed{}; installed are: {}; a library elsewhere is named by "
                      "its path, such as ./lib{}.so",
                      text, suggestion(text, present), present.empty() ? "none" : join(present), text));
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

WorkerCommand worker_command(const BackendChoice& choice, const RunOptions& options) {
  WorkerCommand command;
  command.argv = {program_path().string(), "worker", choice.path};
  if (choice.device != 0) {
    command.argv.push_back("--device");
    command.argv.push_back(std::to_string(choice.device));
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

struct Sweep::Arm {
  std::string label, path;
  Dispatcher dispatcher;
  std::vector<KernelInfo> chosen;
  std::vector<std::string> modes;  // cache modes to time; empty: only checked
  std::set<std::string> failed;    // kernels, where nobody asks for a second failure
};

Sweep::Sweep(const RunOptions& options) : options_(options), choices_(choose_backends(options.backends)) {
  if (!options_.devices.empty() && choices_.size() != 1)
    throw InputError("--devices numbers the devices of one backend; name it with --backend NAME");
  for (const std::string& file : options_.calibrations) read_calibration(file);  // now, not in a worker
  count_ = count_cases(options_);
  identity_ = identity_of(options_, count_, choices_);
}

Sweep::~Sweep() = default;

void Sweep::check_found(const ResultsFolder& folder) const {
  const std::string file = folder.file("rows.csv");
  std::unordered_map<std::string_view, int> line_of;  // a row of each scenario
  int line = 1;
  for (const Row& row : folder.rows()) {
    ++line;
    line_of.emplace(row.scenario, line);
    const auto is_label = [&](const BackendChoice& b) {
      return row.backend == b.label || row.backend.starts_with(b.label + ":");  // cuda:1 with --devices
    };
    const bool none = row.kernel == "none";
    if (!none && !std::any_of(choices_.begin(), choices_.end(), is_label))
      throw InputError({file, line},
                       fmt::format("a row of backend {}, which is none of this run; the file is "
                                   "of another run, or was edited",
                                   row.backend));
    if (!none && !chosen_by(std::string(whole_kernel(row.kernel)), options_.kernels))
      throw InputError({file, line}, fmt::format("a row of kernel {}, which is none of this run; the file is "
                                                 "of another run, or was edited",
                                                 row.kernel));
  }
  CaseStream cases(options_);
  for (std::optional<RunCase> c; !line_of.empty() && (c = cases.next());) line_of.erase(c->line);
  if (line_of.empty()) return;
  const auto first = std::min_element(line_of.begin(), line_of.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  throw InputError(
      {file, first->second},
      fmt::format("a row of {}, which is no case of this run; the file is of another run, or was "
                  "edited",
                  first->first.substr(0, 400)));
}

void Sweep::add_arm(const BackendChoice& choice, int log_fd) {
  arms_.push_back(std::unique_ptr<Arm>(new Arm{
      choice.label, choice.path, Dispatcher(worker_command(choice, options_), log_fd, options_), {}, {}}));
}

void Sweep::start(int log_fd, const std::atomic<bool>& stop) {
  for (const BackendChoice& choice : choices_) {
    try {
      if (options_.devices.empty()) {
        add_arm(choice, log_fd);
        continue;
      }
      // Only a worker may load the library, so one of them says how many devices there are.
      const int32_t count = Dispatcher(worker_command(choice, options_), log_fd, options_).device_count();
      for (const BackendChoice& one : on_devices(choice, options_.devices, count)) add_arm(one, log_fd);
    } catch (const NoDevice& e) {
      if (!options_.backends.empty()) throw;
      left_out_.push_back(e.what());
    } catch (const InfrastructureError& e) {
      if (choices_.size() == 1) throw;
      broken_.push_back({choice.label, e.what()});
    }
  }
  if (arms_.empty() && !broken_.empty()) throw InfrastructureError(broken_[0].why);
  if (arms_.empty()) throw InfrastructureError("no backend can run here: " + join(left_out_));
  std::vector<std::string> all, used;
  bool any = false;
  for (const auto& arm : arms_) {
    if (options_.timed && arm->dispatcher.no_times().empty())
      arm->modes = options_.caches;
    else if (options_.timed)
      not_timed_.push_back(fmt::format("backend {}: {}", arm->label, arm->dispatcher.no_times()));
    arm->chosen = arm->dispatcher.chosen(options_.kernels);
    for (const KernelInfo& k : arm->dispatcher.kernels()) all.push_back(k.name);
    for (const KernelInfo& k : arm->chosen)
      if (k.name.find('(') != std::string::npos) all.push_back(k.name);  // NAME(STAGE=KERNEL)
    any = any || !arm->chosen.empty();
    if (const auto& c = arm->dispatcher.calibration()) used.push_back(c->file);
  }
  for (const std::string& glob : options_.kernels) {
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const std::string& name) { return fits_glob(name, glob); });
    if (any && !known)
      throw InputError(fmt::format("--kernel {}: no kernel of that name{}; there are: {}", glob,
                                   suggestion(glob, all), join(all)));
  }
  if (!any)
    throw InputError(
        fmt::format("--kernel {}: no kernel of that name{}; there are: {}", join(options_.kernels),
                    options_.kernels.size() == 1 ? suggestion(options_.kernels[0], all) : "", join(all)));
  for (const std::string& file : options_.calibrations)
    if (std::find(used.begin(), used.end(), fs::absolute(file).string()) == used.end()) {
      const Calibration c = read_calibration(file);
      throw InputError({file},
                       fmt::format("was made on {} ({}, backend {}), and no device of this run is like it",
                                   c.device, c.arch, c.backend));
    }
  if (!options_.timed) return;
  for (const auto& arm : arms_)
    if (!arm->chosen.empty() && !arm->modes.empty() && !stop) {
      if (is_installed(arm->path) || arm->dispatcher.calibration())
        arm->dispatcher.measure_limits(stop);
      else
        arm->dispatcher.use_limits(
            [this, log_fd, device = arm->dispatcher.device()](const std::atomic<bool>& halt) {
              return limits_beside(device, log_fd, options_, halt);
            },
            stop);
    }
}

struct Sweep::Work {
  Arm* arm;
  CaseRequest request;
};

// One case on the arms that want it, one after the other; but devices of one library at the same time: each
// has a worker of its own, and they share no time that is measured. False when *stop ended it.
bool Sweep::run_together(const std::vector<Work>& work, ResultsFolder* folder, SweepObserver& observer,
                         const std::atomic<bool>& stop, std::vector<std::string>& unanswered_kernels) const {
  std::mutex one_at_a_time;
  const auto run = [&](const Work& w) {
    std::vector<Row> rows;
    const bool finished = w.arm->dispatcher.run(
        w.request,
        [&](Row row, const Samples& samples) {
          row.backend = w.arm->label;
          row.repeat = repeat_command(row, options_);
          rows.push_back(row);
          const std::lock_guard lock(one_at_a_time);
          if (options_.until_wrong && is_failure(row)) w.arm->failed.insert(row.kernel);
          if (folder) folder->append(row, samples);
          observer.row(row);
        },
        [&](const std::string& kernel, const std::string& stage) {
          const std::lock_guard lock(one_at_a_time);
          observer.starting(w.request.scenario, kernel, stage);
        },
        stop);
    const std::lock_guard lock(one_at_a_time);
    if (finished)
      for (const std::string& kernel : unanswered(w.request.kernels, rows))
        unanswered_kernels.push_back(fmt::format("{} of {}: {}", kernel, w.arm->label, w.request.scenario));
    return finished;
  };
  for (size_t first = 0; first < work.size();) {
    size_t last = first + 1;
    while (last < work.size() && work[last].arm->path == work[first].arm->path) ++last;
    std::vector<std::future<bool>> others;
    for (size_t i = first + 1; i < last; ++i)
      others.push_back(std::async(std::launch::async, run, std::cref(work[i])));
    bool went_on = run(work[first]);
    for (std::future<bool>& other : others) went_on = other.get() && went_on;
    if (!went_on) return false;
    first = last;
  }
  return true;
}

SweepResult Sweep::run(ResultsFolder* folder, SweepObserver& observer, const std::atomic<bool>& stop) {
  SweepResult result;
  // Without a folder the output of kernels goes to memory: the last line of it is still quoted when a
  // kernel dies.
  const int memory_log = folder ? -1 : memfd_create("assay-worker-log", MFD_CLOEXEC);
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) close(fd);
    }
  } closer{memory_log};
  start(folder ? folder->log_fd() : memory_log, stop);

  SweepPlan plan{count_};
  if (folder) plan.found = static_cast<int64_t>(folder->rows().size());
  if (count_.complete) {
    plan.rows = 0;
    for (const auto& arm : arms_)
      for (const KernelInfo& k : arm->chosen)
        if (k.op > 0 && k.op < kOpValues)
          plan.rows += count_.by_op[k.op] * std::max<int64_t>(1, static_cast<int64_t>(arm->modes.size()));
  }
  if (count_.complete) plan.rows += count_.cases * static_cast<int64_t>(broken_.size());
  if (!options_.only.empty())
    plan.rows = static_cast<int64_t>(options_.only.size() * (options_.timed ? options_.caches.size() : 1));
  if (options_.stages || options_.until_wrong) plan.rows = -1;  // a case says itself which stages run
  if (folder && options_.until_wrong)
    for (const Row& row : folder->rows())
      for (const auto& arm : arms_)
        if (row.backend == arm->label && is_failure(row)) arm->failed.insert(row.kernel);
  observer.planned(plan);

  std::unordered_set<std::string> only;
  for (const RowChoice& choice : options_.only) only.insert(choice.key());
  CaseStream cases(options_);
  while (!stop) {
    const std::optional<RunCase> c = cases.next();
    if (!c) break;
    ++result.cases;
    bool has_kernel = false;
    std::vector<Work> work;
    for (const auto& arm : arms_) {
      CaseRequest request{c->line, c->place, {}};
      for (const KernelInfo& k : arm->chosen) {
        if (k.op != c->scenario.op) continue;
        has_kernel = true;
        if (arm->failed.contains(k.name)) continue;
        if (!only.empty() && !only.contains(RowChoice{c->line, k.name, arm->label}.key())) continue;
        ResultsFolder::Left left{false, arm->modes};
        if (folder) left = folder->left(c->line, k.name, arm->label, arm->modes);
        if (!left.done) request.kernels.push_back({k.name, left.modes});
      }
      if (!request.kernels.empty()) work.push_back({arm.get(), std::move(request)});
    }
    if (!run_together(work, folder, observer, stop, result.unanswered)) result.stopped = true;
    if (result.stopped) break;
    const auto without_kernel = [&](const std::string& label, const char* outcome, const std::string& why) {
      Row row = row_of_line(c->line, c->place);
      row.kernel = kNoKernel;
      row.backend = label;
      row.outcome = outcome;
      row.reason = one_line(why);
      row.repeat = repeat_command(row, options_);
      if (folder && folder->left(row.scenario, row.kernel, row.backend, {}).done) return;
      if (folder) folder->append(row);
      observer.row(row);
    };
    for (const Broken& b : broken_)
      if (only.empty() || only.contains(RowChoice{c->line, std::string(kNoKernel), b.label}.key()))
        without_kernel(b.label, "crashed", b.why);
    if (!has_kernel) {
      ++result.no_kernel;
      without_kernel(arms_.size() == 1 ? arms_[0]->label : "any", "unsupported",
                     fmt::format("no chosen kernel has the op {}", name_of(op_names(), c->scenario.op)));
    }
  }
  for (const auto& arm : arms_)
    for (const std::string& line : arm->dispatcher.unexplained())
      result.unexplained.push_back(fmt::format("{}: {}", arm->label, line));
  result.stopped = result.stopped || stop;
  result.repeated = cases.repeated();
  result.partly_set = cases.partly_set();
  result.contradicted = cases.aim().contradicted();
  result.first_contradiction = cases.aim().first();
  result.too_large = cases.too_large();
  result.counts = cases.counts();
  return result;
}

int64_t unverified_cases(std::span<const Row> rows) {
  std::unordered_map<std::string, bool> judged;
  for (const Row& row : rows) judged[row.scenario] |= row.outcome != "unsupported";
  return std::count_if(judged.begin(), judged.end(), [](const auto& entry) { return !entry.second; });
}

json Sweep::backends_json() const {
  json all = json::array();
  for (const auto& arm : arms_) {
    json kernels = json::array();
    for (const KernelInfo& k : arm->chosen)
      kernels.push_back({{"name", k.name},
                         {"op", name_of(op_names(), k.op)},
                         {"description", k.description},
                         {"arch", k.arch}});
    all.push_back({{"backend", arm->label},
                   {"device", encode(arm->dispatcher.device())},
                   {"limits", encode(arm->dispatcher.limits())},
                   {"calibration", encode(arm->dispatcher.calibration())},
                   {"clock", arm->dispatcher.clock()},
                   {"kernels", kernels}});
  }
  return all;
}

json Sweep::first_limits() const {
  for (const auto& arm : arms_)
    if (arm->dispatcher.limits()) return encode(arm->dispatcher.limits());
  return nullptr;
}

}  // namespace assay
