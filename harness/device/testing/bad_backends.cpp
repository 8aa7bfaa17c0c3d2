// SPDX-License-Identifier: Apache-2.0
// Backends that must not load, one per way of being wrong; ASSAY_BAD_KIND chooses at compile time:
// 1 serves another version, 2 claims another version in its table, 3 lacks a function, 4 has a null kernel,
// 5 loads, but finds no device (a machine without its GPU); its clock says what it was given to flush; 6 was
// built against version 1 of the header.
// (The missing entry point is any other shared library.)
#include "harness/abi/assay_kernel.h"

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
#if ASSAY_BAD_KIND == 1
  (void)version;
  return nullptr;
#elif ASSAY_BAD_KIND == 6
  static assay_backend backend;
  return version == 1 ? &backend : nullptr;
#else
  (void)version;
  static assay_backend backend;
  backend.struct_size = sizeof(backend);
  backend.abi_version = ASSAY_ABI_VERSION + (ASSAY_BAD_KIND == 2 ? 7 : 0);
  backend.name = "bad";
#  if ASSAY_BAD_KIND >= 4
  static const assay_kernel* const kernels[1] = {nullptr};
  backend.kernel_count = ASSAY_BAD_KIND == 4;
  backend.kernels = kernels;
  backend.device_count = [] { return ASSAY_BAD_KIND == 4 ? 1 : 0; };
  backend.time_run = [](const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*,
                        int64_t flush, double* us, char*, size_t) {
    *us = static_cast<double>(flush);
    return 0;
  };
  backend.device_info = [](int32_t, assay_device*, char*, size_t) { return 0; };
  backend.use_device = [](int32_t, char*, size_t) { return 0; };
  backend.allocate = [](int64_t, void**, char*, size_t) { return 0; };
  backend.release = [](void*, char*, size_t) { return 0; };
  backend.copy_to_device = [](void*, const void*, int64_t, char*, size_t) { return 0; };
  backend.copy_to_host = [](void*, const void*, int64_t, char*, size_t) { return 0; };
  backend.synchronize = [](char*, size_t) { return 0; };
  backend.measure_bandwidth = [](int32_t, int64_t, double*, char*, size_t) { return 0; };
  backend.measure_matrix_rate = [](int32_t, double*, char*, size_t) { return 0; };
#  endif
  return &backend;
#endif
}
