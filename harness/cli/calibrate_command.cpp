// SPDX-License-Identifier: Apache-2.0
// `assay calibrate`: has a worker measure one device, prints what it found and writes the file that other
// commands take with --calibration.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/text.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/pattern.hpp"
#include "harness/run/sweep.hpp"

namespace assay {
namespace {

struct CalibrateArguments {
  std::string backend = "cpu", out, only;
  int device = 0;
};

std::string words_of(const CalibratedProducts& p) {
  const ProductsFindings& f = p.findings;
  if (f.accumulator.kind == ASSAY_ACC_INT32) return "exact in int32";
  if (f.accumulator.kind == ASSAY_ACC_FMA)
    return fmt::format("every product added in fp32, to nearest; subnormals {}",
                       f.keeps_subnormal_operands ? "kept" : "flushed");
  std::string text = fmt::format("{}blocks of {}{}, {}{} fraction bits cut {}, {} bits kept {}; c {}",
                                 f.order == Order::kParallel ? "side by side, " : "", f.accumulator.block,
                                 f.groups_hidden ? " (or fewer: hidden by the format)" : "",
                                 f.fraction_bits_at_least ? "at least " : "", f.accumulator.fraction_bits,
                                 f.alignment, f.accumulator.mantissa_bits, f.rounding,
                                 f.order == Order::kWithC ? "aligned with them" : "added last, " + f.last);
  return text + fmt::format("; explains {} of {} random sums", f.explained, f.tried);
}

std::string error_words(double error, float at) {
  if (!(error > 0)) return "-";
  return std::isfinite(error) ? fmt::format("2^{:.3f} at {:a}", std::log2(error), at)
                              : fmt::format("not a number at {:a}", at);
}

void print(const Calibration& c) {
  fmt::print("{} ({}, backend {})\n\n", c.device, c.arch, c.backend);
  const auto limit = [](const char* name, double value, double unit, const char* words) {
    if (value > 0) fmt::print("  {:<22} {:>10.1f} {}\n", name, value / unit, words);
  };
  fmt::print("limits\n");
  limit("read", c.limits.read_bytes_per_s, 1e9, "GB/s");
  limit("write", c.limits.write_bytes_per_s, 1e9, "GB/s");
  limit("copy (read + write)", c.limits.copy_bytes_per_s, 1e9, "GB/s");
  limit("fp32", c.limits.matrix_flops_fp32, 1e12, "TFLOP/s");
  limit("16-bit", c.limits.matrix_flops_bf16, 1e12, "TFLOP/s");
  limit("fp8", c.limits.matrix_flops_fp8, 1e12, "TFLOP/s");
  limit("int8", c.limits.matrix_flops_int8, 1e12, "TOP/s");
  if (!c.products.empty()) fmt::print("\nmatrix instructions: TFLOP/s, how they add\n");
  for (const CalibratedProducts& p : c.products)
    fmt::print("  {:<22} {:>10.1f} {}\n", p.name, p.flops / 1e12, words_of(p));
  if (!c.functions.empty()) fmt::print("\nfunctions: largest error over every argument tried\n");
  for (const CalibratedFunction& f : c.functions)
    fmt::print("  {:<22} relative {}, absolute {}, {} arguments\n", f.name,
               error_words(f.findings.relative_error, f.findings.relative_at),
               error_words(f.findings.absolute_error, f.findings.absolute_at), f.findings.arguments);
  for (const std::string& m : c.missing) fmt::print("not measured: {}\n", clean_text(m));
}

int calibrate_command(const CalibrateArguments& args) {
  const Pattern only(args.only, "--only");  // a mistake in it is told before anything starts
  BackendChoice choice = choose_backends({args.backend}).front();
  choice.device = args.device;
  RunOptions options;
  options.backends = {args.backend};
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  Dispatcher dispatcher(worker_command(choice, options), null, options);
  const std::filesystem::path file = args.out.empty()
                                         ? std::filesystem::path("results/local") /
                                               device_slug(dispatcher.device().name) / "calibration.json"
                                         : std::filesystem::path(args.out);
  std::error_code failed;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failed);
  check_writable("--out", file.string());  // now, not after minutes
  const std::string start = now_utc();
  Calibration c = dispatcher.calibrate(
      args.only, [](const std::string& what) { fmt::print(stderr, "calibrating: {}\n", clean_text(what)); });
  close(null);
  const nlohmann::json build = build_facts();
  c.date = start;
  c.build = fmt::format("{} {}{}", build["version"].get<std::string>(),
                        build["commit"].is_string() ? build["commit"].get<std::string>() : "?",
                        build["dirty"] == true ? " dirty" : "");
  write_file(file.string(), json_of(c).dump(1) + "\n");
  print(c);
  fmt::print("\nwritten: {}\n", file.string());
  return c.products.empty() && c.functions.empty() ? kExitWrong : kExitOk;
}

}  // namespace

Command add_calibrate(CLI::App& app) {
  const auto arguments = std::make_shared<CalibrateArguments>();
  CalibrateArguments& args = *arguments;
  CLI::App* calibrate = app.add_subcommand(
      "calibrate", "measure a device: limits, how its matrix instructions add, errors of its functions");
  calibrate->add_option("--backend", args.backend, "installed backend, or path of a library")
      ->capture_default_str()
      ->type_name("NAME|PATH");
  calibrate->add_option("--device", args.device, "number of the device")
      ->capture_default_str()
      ->check(kNotNegative);
  calibrate->add_option("--out", args.out, "file to write (default: results/local/DEVICE/calibration.json)")
      ->type_name("FILE");
  calibrate
      ->add_option("--only", args.only,
                   "only instructions whose name matches; the limits are always measured")
      ->type_name("REGEX");
  calibrate->footer(
      "Give the file to check, bench, run and kernels --arithmetic with --calibration.\nExamples:\n"
      "  assay calibrate\n  assay calibrate --backend cuda --out results/h200/calibration.json\n"
      "  assay calibrate --backend cuda --only 'bf16|exp2f'");
  return {calibrate, [arguments](const auto&) { return calibrate_command(*arguments); }};
}

}  // namespace assay
