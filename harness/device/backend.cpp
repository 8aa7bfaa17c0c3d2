// SPDX-License-Identifier: Apache-2.0
// Loading of backend libraries. Everything a table promises is looked at once, here, so that the rest
// of the program can call through it without asking again: a missing function or a wrong version is
// an error with the path and a remedy, not a crash three stages later.
#include "harness/device/backend.hpp"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/base/program.hpp"
#include "harness/device/library_text.hpp"
#include "harness/device/not_a_backend.hpp"
#include "harness/device/staging.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".so") ||
         text.find(".so.") != std::string::npos;
}

constexpr const char* kNamedOnly = "emulator";

std::vector<std::string> libraries_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with("libassay_") && file.ends_with(".so") && file.size() > 12)
      names.push_back(file.substr(9, file.size() - 12));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

fs::path resolve(const std::string& name_or_path) {
  if (name_or_path.empty()) throw NotABackend("backend: empty name; give a name such as cpu, or a path");
  if (is_path(name_or_path)) {
    if (!fs::exists(name_or_path))
      throw NotABackend(fmt::format("backend: {}: no such file; check the path", name_or_path));
    // dlopen searches the system folders for a name without a slash, so make it a path.
    return fs::absolute(name_or_path);
  }
  if (const std::string library = installed_path(name_or_path); !library.empty()) return library;
  std::vector<std::string> present = installed_backends();
  for (const std::string& name : named_backends()) present.push_back(name);
  throw NotABackend(
      fmt::format("backend {}: {} does not exist; installed: {}; a library elsewhere is "
                  "named by its path, such as ./lib{}.so",
                  name_or_path, (program_folder() / ("libassay_" + name_or_path + ".so")).string(),
                  present.empty() ? "none (build one first)" : join(present), name_or_path));
}

// The table as it was when the first library was built; what was appended since is optional.
constexpr size_t kFirstTableBytes = offsetof(assay_backend, time_run) + sizeof(assay_backend::time_run);

// The same of a kernel.
constexpr size_t kFirstKernelBytes = offsetof(assay_kernel, run) + sizeof(assay_kernel::run);

// A kernel's name is a column of tables, a word of command lines and a part of keys.
constexpr size_t kMaxName = 200;

// Memory of this process is copied here and not by the library, whose functions could do there, untimed, what
// a call is to do. The system copies: pages that a kernel protected, to compute when they are looked at, it
// does not read.
void let_the_system_copy(std::byte* target, std::byte* source, int64_t bytes) {
  while (bytes > 0) {
    const iovec read = {source, static_cast<size_t>(bytes)}, written = {target, static_cast<size_t>(bytes)};
    const ssize_t done = process_vm_readv(getpid(), &written, 1, &read, 1, 0);
    if (done <= 0) {
      if (done < 0 && errno == EFAULT) {  // the process ends in its kernel's name
        constexpr char kText[] = "memory of a tensor was made inaccessible\n";
        (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
        signal(SIGSEGV, SIG_DFL);
      }
      std::memcpy(target, source, static_cast<size_t>(bytes));
      return;
    }
    target += done, source += done, bytes -= done;
  }
}

int copy_in_host(void* to, const void* from, int64_t bytes, char*, size_t) {
  auto* target = static_cast<std::byte*>(to);
  auto* source = static_cast<std::byte*>(const_cast<void*>(from));
#pragma omp parallel for schedule(static) if (bytes > 4 * kCopyShareBytes)
  for (int64_t at = 0; at < bytes; at += kCopyShareBytes)
    let_the_system_copy(target + at, source + at, std::min(kCopyShareBytes, bytes - at));
  return ASSAY_OK;
}

// Nobody may touch fields beyond struct_size, so the rest of the program sees a copy padded with nulls.
std::shared_ptr<const assay_backend> padded(const assay_backend& table) {
  auto whole = std::make_shared<assay_backend>();
  std::memcpy(whole.get(), &table, std::min<size_t>(table.struct_size, sizeof *whole));
  if (whole->host_memory == 1) whole->copy_to_device = whole->copy_to_host = copy_in_host;
  return whole;
}

void check_table(const assay_backend& table, const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw NotABackend(
        fmt::format("backend {}: {}; what a table must hold is said in assay_kernel.h", path, what));
  };
  if (table.abi_version != ASSAY_ABI_VERSION)
    fail(fmt::format("its table says interface version {}, this program speaks {}", table.abi_version,
                     ASSAY_ABI_VERSION));
  if (table.struct_size < kFirstTableBytes)
    fail(fmt::format("its table has {} bytes, at least {} expected", table.struct_size, kFirstTableBytes));
  if (table.name == nullptr || *table.name == '\0') fail("it has no name");
  const bool functions = table.device_count && table.device_info && table.use_device && table.allocate &&
                         table.release && table.copy_to_device && table.copy_to_host && table.synchronize &&
                         table.measure_bandwidth && table.measure_matrix_rate;
  if (!functions) fail("a function pointer of its table is null");
  if (table.kernel_count < 0 || (table.kernel_count > 0 && table.kernels == nullptr))
    fail("its kernel list is broken");
  std::vector<std::string> names;
  for (int32_t i = 0; i < table.kernel_count; ++i) {
    const assay_kernel* kernel = table.kernels[i];
    if (kernel == nullptr) fail(fmt::format("kernel {} is null", i));
    if (kernel->struct_size < kFirstKernelBytes)
      fail(fmt::format("kernel {} has a table of {} bytes, at least {} expected", i, kernel->struct_size,
                       kFirstKernelBytes));
    if (kernel->name == nullptr || *kernel->name == '\0') fail(fmt::format("kernel {} has no name", i));
    if (const size_t length = strnlen(kernel->name, kMaxName + 1);
        length > kMaxName || !std::all_of(kernel->name, kernel->name + length,
                                          [](unsigned char c) { return c > ' ' && c < 0x7f && c != ','; }))
      fail(fmt::format(
          "the name of kernel {} is longer than {} characters, or has others than printable ASCII "
          "without spaces and commas",
          i, kMaxName));
    if (kernel->supports == nullptr || kernel->run == nullptr)
      fail(fmt::format("kernel {} lacks supports or run", kernel->name));
    if (kernel->plan != nullptr && kernel->free_plan == nullptr)
      fail(fmt::format("kernel {} has plan but no free_plan", kernel->name));
    if (std::find(names.begin(), names.end(), kernel->name) != names.end())
      fail(fmt::format("two kernels are called {}", kernel->name));
    names.push_back(kernel->name);
  }
}

}  // namespace

Backend Backend::load(const std::string& name_or_path) {
  const std::string path = resolve(name_or_path).string();
  dlerror();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    const std::string text =
        fmt::format("backend {}: cannot be loaded: {}", path, why ? why : "no reason given");
    // The loader begins with the file it stumbled over: another one is a library that this machine lacks.
    if (why == nullptr || std::string_view(why).starts_with(path))
      throw NotABackend(text + "; expected a shared library that exports assay_backend_open");
    throw InfrastructureError(text);
  }
  const auto open = reinterpret_cast<assay_backend_open_fn>(dlsym(library, "assay_backend_open"));
  if (open == nullptr)
    throw NotABackend(fmt::format(
        "backend {}: exports no assay_backend_open; it is not an assay backend, or hides the symbol", path));
  const assay_backend* table = open(ASSAY_ABI_VERSION);
  for (uint32_t older = 1; table == nullptr && older < ASSAY_ABI_VERSION; ++older)
    if (open(older) != nullptr)
      throw NotABackend(
          fmt::format("backend {}: serves interface version {}, this program speaks {}; rebuild it against "
                      "this program's "
                      "assay_kernel.h (since version 2 a kernel's functions get the kernel itself first)",
                      path, older, ASSAY_ABI_VERSION));
  if (table == nullptr)
    throw NotABackend(fmt::format(
        "backend {}: does not serve interface version {}; rebuild it against this program's assay_kernel.h",
        path, ASSAY_ABI_VERSION));
  check_table(*table, path);
  Backend backend;
  backend.path_ = path;
  backend.table_ = padded(*table);
  return backend;
}

std::vector<const assay_kernel*> Backend::kernels() const {
  return {table_->kernels, table_->kernels + table_->kernel_count};
}

const assay_kernel* Backend::find(const std::string& kernel) const {
  for (const assay_kernel* k : kernels())
    if (kernel == k->name) return k;
  const size_t open = kernel.find('(');
  return open == std::string::npos ? nullptr : compose(kernel, open);
}

namespace {

// "; for stage decode there are paged_naive_cpu, paged_online_cpu", empty where there is no such stage.
std::string kernels_for(const assay_kernel& step, const std::string& place, const Backend& library) {
  std::string list;
  for (int32_t i = 0; i < step.stage_count; ++i)
    for (const assay_kernel* k : library.kernels())
      if (step.stages[i].name == place && k->op == step.stages[i].kernel->op)
        list += (list.empty() ? "" : ", ") + std::string(k->name);
  return list.empty() ? list : fmt::format("; for stage {} there are {}", place, list);
}

}  // namespace

const assay_kernel* Backend::compose(const std::string& name, size_t open) const {
  static std::map<std::pair<const void*, std::string>, const assay_kernel*> made;  // live as long as they do
  const assay_kernel*& kernel = made[{table_->kernels, name}];
  if (kernel != nullptr) return kernel;
  const auto fail = [&](size_t at, const std::string& why) -> void {
    throw InputError(SourcePlace{"kernel " + name, 1, static_cast<int>(at) + 1}, why);
  };
  const assay_kernel* base = find(name.substr(0, open));
  if (base == nullptr) return nullptr;
  if (!has_stages(*base)) fail(0, fmt::format("{} is not made of kernels", base->name));
  if (!name.ends_with(')')) fail(name.size(), "expected NAME(STAGE=KERNEL;STAGE=KERNEL)");
  std::vector<std::string> words;  // what the stages point into
  struct Part {
    size_t at;  // in the name
    const assay_kernel* kernel;
  };
  std::vector<Part> parts;
  for (size_t at = open + 1; at < name.size();) {
    const size_t end = std::min(name.find(';', at), name.size() - 1), equal = name.find('=', at);
    if (equal == std::string::npos || equal > end)
      fail(at, fmt::format("expected STAGE=KERNEL at '{}'", name.substr(at, end - at)));
    const std::string wanted = name.substr(equal + 1, end - equal - 1);
    const size_t library = wanted.find('@');
    const std::string place = name.substr(at, equal - at);
    if (std::find(words.begin(), words.end(), place) != words.end())
      fail(at, fmt::format("stage {} is given twice; leave one out", place));
    const auto other = [&]() -> Backend {
      try {
        return load(wanted.substr(library + 1));
      } catch (const NotABackend& e) {
        fail(equal + 1 + library + 1, e.what());
        throw;
      }
    };
    const Backend owner = library == std::string::npos ? *this : other();
    const assay_kernel* stage = owner.find(wanted.substr(0, library));
    if (stage == nullptr)
      fail(equal + 1, fmt::format("there is no kernel {}{}", wanted, kernels_for(*base, place, owner)));
    parts.push_back({at, stage});
    words.push_back(place);
    at = end + 1;
  }
  std::vector<assay_stage> stages;
  for (size_t i = 0; i < parts.size(); ++i) stages.push_back({words[i].c_str(), parts[i].kernel});
  char why[400] = "";
  const auto made_of = [&](const assay_stage* first, size_t count, const assay_kernel** to) {
    return base->with_stages(base, name.c_str(), first, static_cast<int32_t>(count), to, why, sizeof why) ==
           ASSAY_OK;
  };
  if (made_of(stages.data(), stages.size(), &kernel)) return kernel;
  kernel = nullptr;
  const assay_kernel* alone = nullptr;
  for (size_t i = 0; i < stages.size(); ++i)
    if (!made_of(&stages[i], 1, &alone)) fail(parts[i].at, why + kernels_for(*base, words[i], *this));
  fail(open + 1, why);
  return nullptr;
}

assay_device Backend::device(int index) const {
  const int32_t count = table_->device_count();
  if (count == 0)
    throw NoDevice(fmt::format("backend {}: this machine has no device for it (or no driver)", name()));
  if (index < 0 || index >= count)
    throw InfrastructureError(
        fmt::format("backend {}: no device {}; it has {} (numbered from 0)", name(), index, count));
  assay_device device{};
  device.struct_size = sizeof(device);
  char error[512] = "";
  if (table_->device_info(index, &device, error, sizeof(error)) != ASSAY_OK)
    throw InfrastructureError(
        fmt::format("backend {}: device {}: {}", name(), index, library_text(error, sizeof error)));
  return device;
}

namespace {

struct Assuming {
  const assay_kernel* of = nullptr;
  uint32_t contracts = 0, promises = 0;
} assumed;

}  // namespace

Assumption::Assumption(const assay_kernel& kernel, uint32_t contracts, uint32_t promises) {
  ASSAY_CHECK(assumed.of == nullptr, "two assumptions at a time");
  assumed = {&kernel, contracts, promises};
}
Assumption::~Assumption() { assumed = {}; }

uint32_t promises_of(const assay_kernel& kernel) {
  return assumed.of == &kernel ? assumed.promises : kernel.promises;
}

bool has_stages(const assay_kernel& kernel) {
  return kernel.struct_size >= offsetof(assay_kernel, with_stages) + sizeof kernel.with_stages &&
         kernel.stage_count > 0;
}

uint32_t contracts_of(const assay_kernel& kernel) {
  if (assumed.of == &kernel) return assumed.contracts;
  return kernel.struct_size >= offsetof(assay_kernel, contracts) + sizeof kernel.contracts ? kernel.contracts
                                                                                           : 0;
}

std::vector<std::string> installed_backends() { return libraries_in(program_folder()); }
std::vector<std::string> named_backends() { return libraries_in(program_folder() / kNamedOnly); }

std::string installed_path(const std::string& name) {
  const std::string file = "libassay_" + name + ".so";
  for (const fs::path& folder : {program_folder(), program_folder() / kNamedOnly})
    if (fs::exists(folder / file)) return (folder / file).string();
  return "";
}

}  // namespace assay
