// SPDX-License-Identifier: Apache-2.0
// What a loaded backend exports beside its table, by name. The loader counts: the handle taken here is the
// backend's own library, and is never closed (kernels may hold threads).
#pragma once

#include <dlfcn.h>

#include "harness/device/backend.hpp"

namespace assay {

// Function: pointer to a function, as its typedef in harness/abi says. Null where the library has none.
template <class Function>
Function exported(const Backend& backend, const char* name) {
  void* library = dlopen(backend.path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

}  // namespace assay
