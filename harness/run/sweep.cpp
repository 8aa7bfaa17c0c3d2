// SPDX-License-Identifier: Apache-2.0
// See sweep.hpp.
#include "harness/run/sweep.hpp"

#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/device/backend.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/limits_beside.hpp"
#include "harness/run/stage_rows.hpp"
#include "harness/run/sweep_arm.hpp"

namespace assay {

namespace fs = std::filesystem;
using nlohmann::json;

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
  arms_.push_back(std::unique_ptr<Arm>(
      new Arm{choice, Dispatcher(worker_command(choice, options_), log_fd, options_), {}, {}, {}, {}, {}}));
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
  if (arms_.empty())
    throw InfrastructureError("no backend can run here: " + fmt::format("{}", fmt::join(left_out_, ", ")));
  std::vector<std::string> all, used;
  bool any = false;
  for (const auto& arm : arms_) {
    if (options_.timed && arm->dispatcher.no_times().empty())
      arm->modes = options_.caches;
    else if (options_.timed)
      not_timed_.push_back(fmt::format("backend {}: {}", arm->choice.label, arm->dispatcher.no_times()));
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
    if (any && !known && broken_.empty())  // a library that does not load may have it
      throw InputError(fmt::format("--kernel {}: no kernel of that name{}; there are: {}", glob,
                                   name_like(glob, all), fmt::format("{}", fmt::join(all, ", "))));
  }
  if (!any)
    throw InputError(fmt::format("--kernel {}: no kernel of that name{}; there are: {}",
                                 fmt::format("{}", fmt::join(options_.kernels, ", ")),
                                 options_.kernels.size() == 1 ? name_like(options_.kernels[0], all) : "",
                                 fmt::format("{}", fmt::join(all, ", "))) +
                     (broken_.empty() ? "" : "; and " + broken_[0].why));
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
      if (is_installed(arm->choice.path) || arm->dispatcher.calibration())
        arm->dispatcher.measure_limits(stop);
      else
        arm->dispatcher.use_limits(
            [this, log_fd, device = arm->dispatcher.device()](const std::atomic<bool>& halt) {
              return limits_beside(device, log_fd, options_, halt);
            },
            stop);
    }
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
  const int log_fd = folder ? folder->log_fd() : memory_log;
  start(log_fd, stop);

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
  if (count_.complete)  // a row each of kernel none
    for (int32_t op = 1; op < kOpValues; ++op)
      if (std::none_of(arms_.begin(), arms_.end(), [op](const auto& arm) {
            return std::any_of(arm->chosen.begin(), arm->chosen.end(),
                               [op](const KernelInfo& k) { return k.op == op; });
          }))
        plan.rows += count_.by_op[op];
  if (!options_.only.empty())
    plan.rows = static_cast<int64_t>(options_.only.size() * (options_.timed ? options_.caches.size() : 1));
  if (options_.stages || options_.until_wrong) plan.rows = -1;  // a case says itself which stages run
  if (folder && options_.until_wrong)
    for (const Row& row : folder->rows())
      for (const auto& arm : arms_)
        if (row.backend == arm->choice.label && is_failure(row)) arm->failed.insert(row.kernel);
  observer.planned(plan);

  Cases(*this, folder, observer, stop, log_fd, result).run(jobs());
  for (const auto& arm : arms_) {
    const auto gather = [&](const Dispatcher& dispatcher) {
      for (const std::string& line : dispatcher.unexplained())
        result.unexplained.push_back(fmt::format("{}: {}", arm->choice.label, line));
    };
    gather(arm->dispatcher);
    for (const auto& worker : arm->beside)
      if (worker) gather(*worker);
  }
  result.stopped = result.stopped || stop;
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
    all.push_back({{"backend", arm->choice.label},
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
