// SPDX-License-Identifier: Apache-2.0
// What the readers of clocks share: a library opened at run time, and where each of them begins.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "harness/measure/clocks.hpp"

namespace assay {

class ManagementLibrary {
 public:
  // Stays loaded: drivers do not like their libraries to be unloaded and loaded again.
  explicit ManagementLibrary(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) why_ = path + " cannot be opened";
    path_ = path;
  }
  // The function of that name, or of the second where the first is missing; null when there is neither.
  template <class Function>
  void get(const char* name, Function* out, const char* other_name = nullptr) {
    *out = nullptr;
    if (handle_ == nullptr) return;
    *out = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*out == nullptr && other_name != nullptr)
      *out = reinterpret_cast<Function>(dlsym(handle_, other_name));
    if (*out == nullptr && why_.empty()) why_ = path_ + " lacks the function " + name;
  }
  const std::string& why() const { return why_; }  // empty when nothing was missing

 private:
  void* handle_;
  std::string path_, why_;
};

// A Clock whose connect(what it knows the device by, library) answered nothing; else null with *why.
template <class Clock>
std::unique_ptr<DeviceClock> connected(const char* device, const std::string& library, std::string* why) {
  auto clock = std::make_unique<Clock>();
  *why = clock->connect(device, library);
  if (!why->empty()) return nullptr;
  return clock;
}

// Null with *why. `library` empty: the vendor's.
std::unique_ptr<DeviceClock> open_nvml(const assay_device&, const std::string& library, std::string* why);
std::unique_ptr<DeviceClock> open_amd_smi(const assay_device&, const std::string& library, std::string* why);

}  // namespace assay
