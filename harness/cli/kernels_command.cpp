// SPDX-License-Identifier: Apache-2.0
// assay kernels: what there is, which shapes each kernel takes and what it supports beyond the plainest of
// them, asked in a worker (a kernel that crashes over the question must not take the program down).

#include <algorithm>
#include <cstdio>
#include <optional>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/kernel_shapes.hpp"
#include "harness/cli/null_file.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/device/backend.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/text.hpp"
#include "harness/run/sweep.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

constexpr size_t kFeatureWidth = 20;

// Libraries leave fields empty.
std::string device_text(const DeviceInfo& device, bool on_host) {
  const auto known = [](const std::string& text) { return text.empty() ? "unknown" : clean_text(text); };
  const std::string_view unit = on_host ? "thread" : "multiprocessor";
  return fmt::format(
      "{} ({}), {}, {}", known(device.name), known(device.arch),
      device.multiprocessors > 0 ? counted(device.multiprocessors, unit) : fmt::format("{}s unknown", unit),
      device.memory_bytes > 0
          ? fmt::format("{:.1f} GiB", static_cast<double>(device.memory_bytes) / (1 << 30))
          : "memory unknown");
}

void print_shapes(const std::vector<KernelAnswers>& kernels) {
  fmt::print("\nshapes taken, each beside the plainest one\n");
  for (const KernelAnswers& k : kernels) {
    fmt::print("  {}  {}\n", clean_text(k.name),
               k.takes_it ? "plainest " + shape_text(k.shape) : "none of those asked");
    for (const auto& [field, values] : k.axes) fmt::print("    {:<5} {}\n", field, values);
  }
}

void print_matrix(const std::vector<KernelAnswers>& kernels, const std::vector<Probe>& probes, bool why) {
  // As many kernels side by side as fit; names are long, so at least one.
  const size_t width = terminal_width() > 0 ? static_cast<size_t>(terminal_width()) : 110;
  std::vector<std::string> refusals;
  for (size_t first = 0; first < kernels.size();) {
    size_t last = first, used = kFeatureWidth;
    while (last < kernels.size() && (last == first || used + 2 + kernels[last].name.size() <= width))
      used += 2 + kernels[last++].name.size();
    fmt::print("\n{:<{}}", "", kFeatureWidth);
    for (size_t k = first; k < last; ++k) fmt::print("  {}", clean_text(kernels[k].name));
    fmt::print("\n");
    for (size_t i = 0; i < probes.size(); ++i) {
      fmt::print("{:<{}}", probes[i].feature, kFeatureWidth);
      for (size_t k = first; k < last; ++k) {
        const KernelSupport& a = kernels[k].features[i];
        const char* cell = a.status == ASSAY_OK ? "yes" : a.status == ASSAY_UNSUPPORTED ? "-" : "error";
        if (a.status != ASSAY_OK)
          refusals.push_back(
              fmt::format("{} {}: {}", clean_text(kernels[k].name), probes[i].feature, clean_text(a.why)));
        fmt::print("  {:<{}}", cell, kernels[k].name.size());
      }
      fmt::print("\n");
    }
    first = last;
  }
  if (!why) return;
  if (!refusals.empty()) fmt::print("\n");
  for (const std::string& line : refusals) fmt::print("{}\n", line);
}

int kernels_command(const KernelsArguments& args) {
  if (!args.op.empty() && !value_of(op_names(), args.op)) {
    std::vector<std::string_view> names;
    for (const Name& op : op_names()) names.push_back(op.text);
    throw InputError(fmt::format("--op {}: unknown{}; accepted: {}", args.op, did_you_mean(args.op, names),
                                 accepted(op_names())));
  }
  RunOptions options;
  options.backends = args.backends;
  options.timeout_s = args.timeout_s;
  const NullFile log;
  bool any = false;
  std::vector<std::string> known;
  for (const BackendChoice& choice : choose_backends(args.backends)) {
    std::optional<Dispatcher> started;
    try {
      started.emplace(worker_command(choice, options), log.fd, options);
    } catch (const NoDevice& e) {
      if (!args.backends.empty()) throw;
      fmt::print("{}{}\n", any ? "\n" : "", e.what());
      continue;
    }
    Dispatcher& dispatcher = *started;
    const DeviceInfo& device = dispatcher.device();
    fmt::print("{}backend {}: {}\n", any ? "\n" : "", choice.label,
               device_text(device, dispatcher.on_host()));
    for (const KernelInfo& k : dispatcher.kernels()) known.push_back(k.name);
    const std::vector<KernelInfo> chosen = dispatcher.chosen(args.kernels);
    for (const Name& op : op_names()) {
      if (!args.op.empty() && args.op != op.text) continue;
      std::vector<std::string> kernels;
      for (const KernelInfo& k : chosen) {
        if (k.op != op.value) continue;
        fmt::print("{}  {:<24} {}\n", kernels.empty() ? fmt::format("\n{}\n", op.text) : "",
                   clean_text(k.name), clean_text(k.description));
        kernels.push_back(k.name);
      }
      if (kernels.empty()) continue;
      any = true;
      std::vector<KernelAnswers> answered;
      for (const std::string& kernel : kernels) answered.push_back(ask_kernel(dispatcher, op.text, kernel));
      print_matrix(answered, support_probes(op.text, candidate_shapes(op.text).front()), args.why);
      print_shapes(answered);
    }
  }
  if (!any) no_kernel_fits(args.kernels, args.op, known);
  return kExitOk;
}

}  // namespace

Command add_kernels(CLI::App& app) {
  const auto a = std::make_shared<KernelsArguments>();
  CLI::App* kernels = app.add_subcommand("kernels", "the kernels of the backends and what each supports");
  add_repeatable(*kernels, "--backend", a->backends, "installed backend, or path of a library", "NAME|PATH");
  add_repeatable(*kernels, "--kernel", a->kernels, "only kernels matching this glob", "GLOB");
  kernels->add_option("--op", a->op, "only this op: " + accepted(op_names()));
  kernels->add_option("--timeout", a->timeout_s, "seconds a kernel may take to answer")
      ->capture_default_str()
      ->check(kPositive)
      ->type_name("S");
  kernels->add_flag("--why", a->why, "print the reason of every refusal below the table");
  auto* arithmetic =
      kernels->add_flag("--arithmetic", a->arithmetic,
                        "what each kernel declares about its rounding, instead of what it supports");
  kernels->add_option("scenario", a->scenario, "with --arithmetic: the case it is declared for")
      ->type_name("LINE")
      ->needs(arithmetic);
  kernels->add_flag("--json", a->json, "with --arithmetic: as JSON")->needs(arithmetic);
  add_repeatable(*kernels, "--calibration", a->calibrations,
                 "with --arithmetic: file of assay calibrate whose measurements replace declared fields",
                 "FILE")
      ->needs(arithmetic);
  kernels->footer(
      "Examples:\n  assay kernels\n  assay kernels --op paged --why\n  assay kernels --backend ./libmine.so\n"
      "  assay kernels --arithmetic\n  assay kernels --arithmetic 'paged kv=fp8_e4m3 batch=4q1s8k' --json");
  return {kernels, [a](const auto&) { return a->arithmetic ? arithmetic_command(*a) : kernels_command(*a); }};
}

}  // namespace assay
