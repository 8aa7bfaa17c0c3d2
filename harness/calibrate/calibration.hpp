// SPDX-License-Identifier: Apache-2.0
// What one device was measured to do: its limits, how its matrix instructions add, how wrong its functions
// are. `assay calibrate` writes it as a JSON file; a run that is given the file (--calibration) takes bounds
// and limits from it instead of what kernels declare and what is measured at the start. To measure more: a
// member, a step of calibrate(), its field in calibration_json.cpp.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/calibrate/functions.hpp"
#include "harness/calibrate/products.hpp"
#include "harness/device/backend.hpp"
#include "harness/measure/limits.hpp"

namespace assay {

struct CalibratedProducts {
  std::string name;
  int32_t format = 0, products = 0;
  ProductsFindings findings;
  double flops = 0;  // 0: not measured
};
struct CalibratedFunction {
  std::string name;
  int32_t function = 0;
  FunctionFindings findings;
};

struct Calibration {
  std::string backend, device, arch, uuid, date;  // date: UTC, of the measurement
  std::string build;                              // version and commit of the program that measured
  Limits limits;
  std::vector<CalibratedProducts> products;
  std::vector<CalibratedFunction> functions;
  std::vector<std::string> missing;  // what could not be measured, with the reason
};

// Measures the device in use: the limits, and the instructions whose names `wanted` accepts. `say` is told
// what comes next. InfrastructureError when the backend has nothing to probe or none of its instructions
// matches; one instruction that fails goes to `missing`.
Calibration calibrate(const Backend&, const assay_device&,
                      const std::function<bool(const std::string&)>& wanted,
                      const std::function<void(const std::string&)>& say);

nlohmann::json json_of(const Calibration&);
// InputError naming file and key when it is no such file, or of another version.
Calibration read_calibration(const std::string& path);
// The same from what json_of() made.
Calibration calibration_from(const nlohmann::json&, const SourcePlace&);

// Made on this kind of device: backend, name and arch are equal.
bool fits(const Calibration&, const std::string& backend, const assay_device&);

// The part that replaces what kernels declare. Functions count with their relative error where that exists
// over their whole range (a log2 does not).
MeasuredArithmetic measured_arithmetic(const Calibration&);

// "nvidia-h200" for "NVIDIA H200": the folder of a device under results/.
std::string device_slug(const std::string& device);

}  // namespace assay
