// SPDX-License-Identifier: Apache-2.0
// libassay_hostile.so: for each row of hostile_table.hpp a kernel that does it, and behind each one that does
// nothing. Under another file name the whole library misbehaves: libassay_hostile-DEED.so, see at_load().
#include <dlfcn.h>
#include <fcntl.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/assay_series.h"
#include "harness/device/testing/fake_device.hpp"
#include "harness/run/testing/hostile.hpp"
#include "harness/run/testing/hostile_table.hpp"

// The fake backend, compiled into this library under another name.
extern "C" const assay_backend* assay_hostile_inner_open(uint32_t version);

namespace hostile {
void jump_back();
}

namespace {

using namespace hostile;

std::string own_file() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&own_file), &info);
  return info.dli_fname != nullptr ? info.dli_fname : "";
}

// Whether another process has opened this library before, under this name.
bool opened_before() {
  const int file = open((own_file() + ".opened").c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  return file < 0;
}

// What stands between "hostile-" and ".so" in the name of this library's file.
std::string own_deed() {
  const std::string file = own_file();
  const size_t at = file.rfind("hostile-");
  return at == std::string::npos ? "" : file.substr(at + 8, file.rfind(".so") - at - 8);
}

[[gnu::constructor]] void at_load() {
  const std::string deed = own_deed();
  if (deed == "load_segfault") raise(SIGSEGV);
  if (deed == "load_exit") _exit(0);
  if (deed == "load_hang") sleep_for_ever();
  if (deed == "load_stops") raise(SIGSTOP);
  if (deed == "load_forks" && fork() == 0) mark_child(), sleep_for_ever();
  if (deed == "load_speaks") {
    for (int fd = 3; fd < 5000; ++fd)
      if (write(fd, "{\"event\":\"ready\"}\n", 18) < 0) continue;
  }
}

const assay_kernel& inner_kernel() {
  static const assay_backend* inner = assay_hostile_inner_open(ASSAY_ABI_VERSION);
  for (int32_t i = 0; i < inner->kernel_count; ++i)
    if (std::strcmp(inner->kernels[i]->name, "paged_ok_fake") == 0) return *inner->kernels[i];
  std::abort();
}

const Deed* deed_of(const assay_kernel* self, Door door) {
  const auto* deed = static_cast<const Deed*>(self->context);
  const bool every = deed != nullptr && deed->door == Door::kEvery && door != Door::kInstead;
  return deed != nullptr && (deed->door == door || every) ? deed : nullptr;
}

void knock(const assay_kernel* self, Door door, Call call = {}) {
  call.door = door;
  if (const Deed* deed = deed_of(self, door)) deed->act(call);
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, const assay_device* d,
             char* why, size_t size) {
  int status = inner_kernel().supports(&inner_kernel(), p, t, d, why, size);
  Call call;
  call.tensors = t, call.status = &status;
  knock(self, Door::kSupports, call);
  return status;
}
int arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* a) {
  int status = inner_kernel().arithmetic(&inner_kernel(), p, a);
  Call call;
  call.arithmetic = a, call.status = &status;
  knock(self, Door::kArithmetic, call);
  return status;
}
int64_t bytes_of(const assay_kernel* self, Door door, int64_t bytes) {
  Call call;
  call.bytes = &bytes;
  knock(self, door, call);
  return bytes;
}
int64_t workspace(const assay_kernel* self, const assay_problem*) {
  return bytes_of(self, Door::kWorkspace, 64);
}
int64_t zeroed(const assay_kernel* self, const assay_problem*) { return bytes_of(self, Door::kZeroed, 4); }
int plan(const assay_kernel* self, const assay_problem*, const assay_tensors*, assay_plan** made, char*,
         size_t) {
  *made = reinterpret_cast<assay_plan*>(new char);
  knock(self, Door::kPlan);
  return ASSAY_OK;
}
void free_plan(const assay_kernel* self, assay_plan* made) {
  delete reinterpret_cast<char*>(made);
  knock(self, Door::kFreePlan);
}
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  int status = ASSAY_OK;
  Call call;
  call.problem = p, call.tensors = t, call.error = error, call.size = size, call.status = &status;
  call.kernel = self;
  if (std::strcmp(self->name, "paged_longjmp_hostile") == 0) jump_back();
  knock(self, Door::kBefore, call);
  if (status != ASSAY_OK) return status;
  if (const Deed* deed = deed_of(self, Door::kInstead)) return deed->act(call), status;
  status = inner_kernel().run(&inner_kernel(), p, t, nullptr, stream, error, size);
  knock(self, Door::kAfter, call);
  return status;
}

int run_slowly(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* made,
               void* stream, char* error, size_t size) {
  usleep(2000);
  return run(self, p, t, made, stream, error, size);
}
// What its row must say, as harness/cli/hostile_score.hpp reads it.
std::string expectation(const Deed* deed) {
  if (deed == nullptr) return "does nothing";
  const std::string name = deed->name;
  for (const Expected& e : kKernels)
    if (name == e.name) return std::string("expected: ") + e.outcome + ": " + e.reason;
  for (const Cheat& c : kCheats)
    if (name == c.name)
      return std::string("cheat: ") + c.outcome + ": " + std::to_string(c.least_us) + " " +
             std::to_string(c.least_total_us);
  return "hostile";
}

struct Registry {
  std::vector<std::string> names, descriptions;
  std::vector<assay_kernel> kernels;
  std::vector<const assay_kernel*> pointers;
  void add(const std::string& name, const Deed* deed) {
    assay_kernel k{};
    k.struct_size = sizeof(k);
    descriptions.push_back(expectation(deed));
    k.arch = "any";
    k.op = ASSAY_OP_PAGED;
    k.context = const_cast<Deed*>(deed);
    k.promises = ASSAY_PROMISE_REPEATABLE;
    k.supports = supports;
    k.arithmetic = arithmetic;
    k.workspace_bytes = workspace;
    k.workspace_zeroed_bytes = zeroed;
    k.plan = plan;
    k.free_plan = free_plan;
    k.run = own_deed() == "times_half" ? run_slowly : run;
    names.push_back(name);
    kernels.push_back(k);
  }
  Registry() {
    for (const auto& deeds :
         {process_deeds(), speech_deeds(), state_deeds(), system_deeds(), clock_deeds(), cheats()})
      for (const Deed& deed : deeds) {
        add(std::string("paged_") + deed.name + "_hostile", &deed);
        add(std::string("paged_") + deed.name + "_beside", nullptr);
      }
    if (own_deed() == "odd_names") names[0] = "=1+1,\"\n\033[31m" + std::string(1 << 20, 'n');
    if (own_deed() == "lists_once" && opened_before()) names[1] = "paged_exit_other";
    for (size_t i = 0; i < kernels.size(); ++i) {
      kernels[i].name = names[i].c_str();
      kernels[i].description = descriptions[i].c_str();
      pointers.push_back(&kernels[i]);
    }
  }
};

// Of the whole backend: what it says of the device, its limits and times.
// A tenth of the truth, of a kernel that takes its time.
int time_tenth(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
               int64_t, double* us, char* error, size_t size) {
  const int status = kernel->run(kernel, p, t, made, nullptr, error, size);
  usleep(10000);
  *us = 1000;
  return status;
}
// Half of it.
int time_half(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
              int64_t, double* us, char* error, size_t size) {
  const int status = kernel->run(kernel, p, t, made, nullptr, error, size);
  *us = 1000;
  return status;
}
int time_more(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
              int64_t, double* us, char* error, size_t size) {
  *us = 1e9;
  return kernel->run(kernel, p, t, made, nullptr, error, size);
}
// Of the library's copies: does what a cheat left undone until somebody would see it.
int (*inner_to_host)(void*, const void*, int64_t, char*, size_t) = nullptr;
int copy_to_host(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (left_undone != nullptr) left_undone();
  return inner_to_host(to, from, bytes, error, size);
}
// Calls in a row, by the host's clock; or far more than it says (with what it does between two of them), or
// no time.
int time_runs(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
              int64_t, int32_t count, const assay_change* changes, const int32_t* first, double* us,
              char* error, size_t size) {
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t n = first[i]; n < first[i + 1]; ++n)
      std::memcpy(changes[n].to, changes[n].from, static_cast<size_t>(changes[n].bytes));
    const auto start = std::chrono::steady_clock::now();
    if (const int bad = kernel->run(kernel, p, t, made, nullptr, error, size); bad != ASSAY_OK) return bad;
    us[i] = 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (own_deed() == "series_more") us[i] *= 30;
    if (own_deed() == "series_nan" && i % 2 == 1) us[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return own_deed() == "series_fails" ? ASSAY_FAILED : ASSAY_OK;
}
int time_one(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
             int64_t flush, double* us, char* error, size_t size) {
  const auto start = std::chrono::steady_clock::now();
  const int status = kernel->run(kernel, p, t, made, nullptr, error, size);
  static_cast<void>(flush);
  *us = 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}
// A device on which a call's work is done while caches are flushed, by what the call before left on a stream
// of its own; only behind an empty device it takes its time, 2 ms.
bool left_on_a_stream = false;
int empty_device(char*, size_t) { return left_on_a_stream = false, ASSAY_OK; }
int time_between(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
                 int64_t, double* us, char* error, size_t size) {
  const int status = run_slowly(kernel, p, t, made, nullptr, error, size);
  *us = std::exchange(left_on_a_stream, true) ? 30 : 2030;
  return status;
}
double broken_number() {
  const std::string deed = own_deed();
  if (deed.ends_with("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (deed.ends_with("infinite")) return std::numeric_limits<double>::infinity();
  return deed.ends_with("zero") ? 0 : -1;
}
int time_run(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* made,
             int64_t, double* us, char* error, size_t size) {
  *us = broken_number();
  return kernel->run(kernel, p, t, made, nullptr, error, size);
}
int limit(int32_t, int64_t, double* rate, char*, size_t) { return *rate = broken_number(), ASSAY_OK; }
int limit_crash(int32_t, int64_t, double*, char*, size_t) { return raise(SIGSEGV); }
int limit_hang(int32_t, int64_t, double*, char*, size_t) { sleep_for_ever(); }
int matrix_rate(int32_t, double* rate, char*, size_t) { return *rate = broken_number(), ASSAY_OK; }
int32_t count_throws() { throw std::runtime_error("from device_count"); }
int32_t count_huge() { return std::numeric_limits<int32_t>::max(); }
int info_unended(int32_t, assay_device* device, char*, size_t) {
  std::memset(device, 'd', sizeof *device);
  device->struct_size = sizeof *device;
  return ASSAY_OK;
}

}  // namespace

void (*hostile::left_undone)() = nullptr;

int hostile::compute(const Call& c) {
  return inner_kernel().run(&inner_kernel(), c.problem, c.tensors, nullptr, nullptr, c.error, c.size);
}

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  if (version != ASSAY_ABI_VERSION) return nullptr;
  const std::string deed = own_deed();
  if (deed == "open_throws") throw std::runtime_error("from open");
  if (deed == "open_hangs") sleep_for_ever();
  if (deed == "open_null") return nullptr;
  static const Registry registry;
  static assay_backend backend = *assay_hostile_inner_open(version);
  backend.name = "hostile";
  backend.kernel_count = static_cast<int32_t>(registry.pointers.size());
  backend.kernels = registry.pointers.data();
  if (inner_to_host == nullptr) inner_to_host = backend.copy_to_host;
  backend.copy_to_host = copy_to_host;
  if (deed.starts_with("series_")) backend.time_run = time_one;
  if (deed.starts_with("times_")) backend.time_run = time_run;
  if (deed == "times_tenth") backend.time_run = time_tenth;
  if (deed == "times_half") backend.time_run = time_half;
  if (deed == "times_more") backend.time_run = time_more;
  if (deed == "times_between") backend.time_run = time_between, backend.synchronize = empty_device;
  if (deed.starts_with("limits_"))
    backend.measure_bandwidth = limit, backend.measure_matrix_rate = matrix_rate;
  if (deed == "limits_crash") backend.measure_bandwidth = limit_crash;
  if (deed == "limits_hang") backend.measure_bandwidth = limit_hang;
  if (deed == "count_throws") backend.device_count = count_throws;
  if (deed == "count_huge") backend.device_count = count_huge;
  if (deed == "info_unended") backend.device_info = info_unended;
  return &backend;
}

extern "C" __attribute__((visibility("default"))) const assay_series* assay_series_open(uint32_t) {
  static const assay_series series = {sizeof(assay_series), time_runs};
  return own_deed().starts_with("series_") ? &series : nullptr;
}
