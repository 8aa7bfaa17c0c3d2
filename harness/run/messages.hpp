// SPDX-License-Identifier: Apache-2.0
// What the parent and a worker say to each other, as structs: one JSON object per line, told apart by the
// keys "do" (to the worker) and "event" (its answers). Both sides go through these lists and nothing else.
//
// To the worker, and what it answers:
// - hello: here, before anything is loaded; then ready, or failed, no_device, not_a_backend, and the end
// - limits: limits
// - supports: supports
// - arithmetic: arithmetic
// - declaration: arithmetic, without words
// - calibration: calibrating, several times, then calibration
// - timed: timed_ready; then samples to samples, recheck to rechecked
// - case: starting, row and left, several times, then done; or device_lost or spent, and the end
//
// A stage is announced before it begins, with the seconds of work it may take beyond the time limit; if
// the process dies, the parent knows where. Lines of the worker carry a secret (worker_process.hpp).
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/base/json_fields.hpp"
#include "harness/measure/measure_json.hpp"
#include "harness/report/row_json.hpp"

namespace assay {

// ---- parts

struct DeviceInfo {
  std::string name, uuid, arch;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0, cache_bytes = 0;
};
struct KernelInfo {
  std::string name, description, arch;
  int32_t op = 0;
  uint32_t promises = 0, contracts = 0;
};
// The calibration file a worker uses.
struct CalibrationUse {
  std::string file, fingerprint, date, build, uuid;
  MeasuredLimits limits;
};
// A kernel and what is to be timed: hot, cold, graph; nothing: it is only checked.
struct WantedKernel {
  std::string kernel;
  std::vector<std::string> modes;
};
// What a kernel says to one scenario. `status`: of enum assay_status.
struct KernelSupport {
  std::string kernel;
  int32_t status = 0;
  std::string why;
};
struct KernelArithmetic {
  KernelSupport support;
  // Where it supports the scenario and declares something possible (harness/run/arithmetic.hpp).
  std::optional<bool> declared;
  std::vector<std::pair<std::string, std::string>> words;
  nlohmann::json arithmetic;
  std::string declaration;  // as in rows
};

// ---- to the worker

struct Hello {
  int32_t schema = 0;
  std::string secret;
};
struct AskLimits {};
// One kernel at a time: what becomes of the worker is that kernel's answer.
struct AskSupports {
  std::vector<std::string> scenarios;
  std::string kernel;
  int32_t alignment = 0;  // with tensors whose data are multiples of so many bytes and no more; 0: no tensors
};
struct AskArithmetic {
  std::string scenario, kernel;
};
// What a kernel declares for a scenario, and nothing else: asked of a worker that judges nothing.
struct AskDeclaration {
  std::string scenario, kernel;
};
// The instructions whose names match, all when empty.
struct AskCalibration {
  std::string only;
};
struct AskTimed {
  std::string scenario, kernel, mode;
  double rows_budget = 0;
};
struct AskSamples {
  int64_t count = 0;
};
struct AskRecheck {};
// Contracts and promises that a kernel is taken to declare in place of its own (Assumption).
struct Assumed {
  uint32_t contracts = 0, promises = 0;
};
struct RunCaseOrder {
  std::string scenario, place;
  std::vector<WantedKernel> kernels;
  double rows_budget = 0;
  bool graphs = false;
  int32_t walk = 0;  // steps
  int64_t races = 0;
  bool stages = false;
  StoppingRule rule;
  Limits limits;
  std::optional<Assumed> assumed;
};
using WorkerRequest = std::variant<Hello, AskLimits, AskSupports, AskArithmetic, AskDeclaration,
                                   AskCalibration, AskTimed, AskSamples, AskRecheck, RunCaseOrder>;

// ---- from the worker

struct Here {
  int32_t schema = 0;
};
struct Ready {
  std::string backend, path;
  std::string no_times;  // why nothing may be timed; empty: it may
  std::string clock;     // where the column sm_clock_mhz comes from, or why it stays empty
  DeviceInfo device;
  int32_t device_count = 0;
  bool on_host = false;  // kernels run on the host's processors
  std::optional<CalibrationUse> calibration;
  std::vector<KernelInfo> kernels;
};
struct Failed {
  std::string message;
};
struct NoDeviceHere {
  std::string message;
};
struct NotABackendHere {
  std::string message;
};
struct LimitsAnswer {
  MeasuredLimits limits;
};
struct SupportsAnswer {
  std::vector<KernelSupport> answers;  // one per scenario
};
struct ArithmeticAnswer {
  KernelArithmetic answer;
};
struct Calibrating {
  std::string what;
};
struct CalibrationAnswer {
  nlohmann::json calibration;  // as in a file
};
struct TimedReady {
  std::string why_not;  // empty: it was judged right and may be timed
  double flops = 0, bytes = 0;
  int64_t tokens = 0;
};
struct SamplesAnswer {
  std::string failed;  // empty: as many samples as were asked for
  Samples samples;
  bool knows_throttling = false;
};
struct Rechecked {
  std::string why;  // empty: still right
};
struct Starting {
  std::string stage, kernel;
  double allow_s = 0;
};
struct RowAnswer {
  Row row;
  Samples samples;  // every timed call behind the row
  // There was not enough memory: perhaps only because of what ran in this worker before.
  bool short_of_memory = false;
};
// What the kernel that was through left in the process: "3 threads".
struct Left {
  std::string what;
};
struct Done {};
// The process is not what it was and cannot be put back: the rows stand, and the next kernel gets another.
struct Spent {
  std::string message;
};
struct DeviceLost {
  std::string message;
};
using WorkerAnswer =
    std::variant<Here, Ready, Failed, NoDeviceHere, NotABackendHere, LimitsAnswer, SupportsAnswer,
                 ArithmeticAnswer, Calibrating, CalibrationAnswer, TimedReady, SamplesAnswer, Rechecked,
                 Starting, RowAnswer, Left, Done, Spent, DeviceLost>;

// ---- their fields

template <>
struct JsonFields<DeviceInfo> {
  using T = DeviceInfo;
  static constexpr std::string_view name = "device";
  static constexpr auto list =
      std::tuple(JsonField("name", &T::name), JsonField("uuid", &T::uuid), JsonField("arch", &T::arch),
                 JsonField("multiprocessors", &T::multiprocessors),
                 JsonField("memory_bytes", &T::memory_bytes), JsonField("cache_bytes", &T::cache_bytes));
};
template <>
struct JsonFields<KernelInfo> {
  using T = KernelInfo;
  static constexpr std::string_view name = "kernel";
  static constexpr auto list = std::tuple(
      JsonField("name", &T::name), JsonField("description", &T::description), JsonField("arch", &T::arch),
      JsonField("op", &T::op), JsonField("promises", &T::promises), JsonField("contracts", &T::contracts));
};
template <>
struct JsonFields<CalibrationUse> {
  using T = CalibrationUse;
  static constexpr std::string_view name = "calibration in use";
  static constexpr auto list = std::tuple(
      JsonField("file", &T::file), JsonField("fingerprint", &T::fingerprint), JsonField("date", &T::date),
      JsonField("build", &T::build), JsonField("uuid", &T::uuid), JsonField("limits", &T::limits));
};
template <>
struct JsonFields<WantedKernel> {
  static constexpr std::string_view name = "wanted kernel";
  static constexpr auto list =
      std::tuple(JsonField("name", &WantedKernel::kernel), JsonField("modes", &WantedKernel::modes));
};
template <>
struct JsonFields<KernelSupport> {
  using T = KernelSupport;
  static constexpr std::string_view name = "support";
  static constexpr auto list =
      std::tuple(JsonField("kernel", &T::kernel), JsonField("status", &T::status), JsonField("why", &T::why));
};
template <>
struct JsonCodec<std::pair<std::string, std::string>> {
  using T = std::pair<std::string, std::string>;
  static nlohmann::json encode(const T& t) { return {t.first, t.second}; }
  static void decode(const nlohmann::json& j, T& t, const JsonPlace& at) {
    if (!j.is_array() || j.size() != 2) json_mistyped(at, j, "two strings");
    assay::decode(j[0], t.first, at);
    assay::decode(j[1], t.second, at);
  }
};
template <>
struct JsonFields<KernelArithmetic> {
  using T = KernelArithmetic;
  static constexpr std::string_view name = "kernel arithmetic";
  static constexpr auto list =
      std::tuple(JsonInlined(&T::support), JsonField("declared", &T::declared), JsonField("words", &T::words),
                 JsonField("arithmetic", &T::arithmetic), JsonField("declaration", &T::declaration));
};
// A row is already one table (row_fields()).
template <>
struct JsonCodec<Row> {
  static nlohmann::json encode(const Row& row) { return json_of(row); }
  static void decode(const nlohmann::json& j, Row& row, const JsonPlace& at) {
    SourcePlace place = at.place;
    place.file += ": " + at.what;
    row = row_from_json(j, place);
  }
};

template <>
struct JsonFields<Hello> {
  static constexpr std::string_view name = "hello";
  static constexpr auto list =
      std::tuple(JsonField("schema", &Hello::schema), JsonField("secret", &Hello::secret));
};
template <>
struct JsonFields<AskLimits> {
  static constexpr std::string_view name = "limits";
  static constexpr auto list = std::tuple();
};
template <>
struct JsonFields<AskSupports> {
  static constexpr std::string_view name = "supports";
  static constexpr auto list =
      std::tuple(JsonField("scenarios", &AskSupports::scenarios), JsonField("kernel", &AskSupports::kernel),
                 JsonField("alignment", &AskSupports::alignment));
};
template <>
struct JsonFields<AskArithmetic> {
  static constexpr std::string_view name = "arithmetic";
  static constexpr auto list = std::tuple(JsonField("scenario", &AskArithmetic::scenario),
                                          JsonField("kernel", &AskArithmetic::kernel));
};
template <>
struct JsonFields<AskDeclaration> {
  static constexpr std::string_view name = "declaration";
  static constexpr auto list = std::tuple(JsonField("scenario", &AskDeclaration::scenario),
                                          JsonField("kernel", &AskDeclaration::kernel));
};
template <>
struct JsonFields<AskCalibration> {
  static constexpr std::string_view name = "calibration";
  static constexpr auto list = std::tuple(JsonField("only", &AskCalibration::only));
};
template <>
struct JsonFields<AskTimed> {
  using T = AskTimed;
  static constexpr std::string_view name = "timed";
  static constexpr auto list =
      std::tuple(JsonField("scenario", &T::scenario), JsonField("kernel", &T::kernel),
                 JsonField("mode", &T::mode), JsonField("rows_budget", &T::rows_budget));
};
template <>
struct JsonFields<AskSamples> {
  static constexpr std::string_view name = "samples";
  static constexpr auto list = std::tuple(JsonField("count", &AskSamples::count));
};
template <>
struct JsonFields<AskRecheck> {
  static constexpr std::string_view name = "recheck";
  static constexpr auto list = std::tuple();
};
template <>
struct JsonFields<Assumed> {
  static constexpr std::string_view name = "assumed";
  static constexpr auto list =
      std::tuple(JsonField("contracts", &Assumed::contracts), JsonField("promises", &Assumed::promises));
};
template <>
struct JsonFields<RunCaseOrder> {
  using T = RunCaseOrder;
  static constexpr std::string_view name = "case";
  static constexpr auto list = std::tuple(
      JsonField("scenario", &T::scenario), JsonField("place", &T::place), JsonField("kernels", &T::kernels),
      JsonField("rows_budget", &T::rows_budget), JsonField("graphs", &T::graphs), JsonField("walk", &T::walk),
      JsonField("races", &T::races), JsonField("stages", &T::stages), JsonField("rule", &T::rule),
      JsonField("limits", &T::limits), JsonField("assumed", &T::assumed));
};
template <>
struct JsonFields<Here> {
  static constexpr std::string_view name = "here";
  static constexpr auto list = std::tuple(JsonField("schema", &Here::schema));
};
template <>
struct JsonFields<Ready> {
  using T = Ready;
  static constexpr std::string_view name = "ready";
  static constexpr auto list = std::tuple(
      JsonField("backend", &T::backend), JsonField("path", &T::path), JsonField("no_times", &T::no_times),
      JsonField("clock", &T::clock), JsonField("device", &T::device),
      JsonField("device_count", &T::device_count), JsonField("on_host", &T::on_host),
      JsonField("calibration", &T::calibration), JsonField("kernels", &T::kernels));
};
template <>
struct JsonFields<Failed> {
  static constexpr std::string_view name = "failed";
  static constexpr auto list = std::tuple(JsonField("message", &Failed::message));
};
template <>
struct JsonFields<NoDeviceHere> {
  static constexpr std::string_view name = "no_device";
  static constexpr auto list = std::tuple(JsonField("message", &NoDeviceHere::message));
};
template <>
struct JsonFields<NotABackendHere> {
  static constexpr std::string_view name = "not_a_backend";
  static constexpr auto list = std::tuple(JsonField("message", &NotABackendHere::message));
};
template <>
struct JsonFields<LimitsAnswer> {
  static constexpr std::string_view name = "limits";
  static constexpr auto list = std::tuple(JsonInlined(&LimitsAnswer::limits));
};
template <>
struct JsonFields<SupportsAnswer> {
  static constexpr std::string_view name = "supports";
  static constexpr auto list = std::tuple(JsonField("answers", &SupportsAnswer::answers));
};
template <>
struct JsonFields<ArithmeticAnswer> {
  static constexpr std::string_view name = "arithmetic";
  static constexpr auto list = std::tuple(JsonField("answer", &ArithmeticAnswer::answer));
};
template <>
struct JsonFields<Calibrating> {
  static constexpr std::string_view name = "calibrating";
  static constexpr auto list = std::tuple(JsonField("what", &Calibrating::what));
};
template <>
struct JsonFields<CalibrationAnswer> {
  static constexpr std::string_view name = "calibration";
  static constexpr auto list = std::tuple(JsonField("calibration", &CalibrationAnswer::calibration));
};
template <>
struct JsonFields<TimedReady> {
  using T = TimedReady;
  static constexpr std::string_view name = "timed_ready";
  static constexpr auto list = std::tuple(JsonField("why_not", &T::why_not), JsonField("flops", &T::flops),
                                          JsonField("bytes", &T::bytes), JsonField("tokens", &T::tokens));
};
template <>
struct JsonFields<SamplesAnswer> {
  using T = SamplesAnswer;
  static constexpr std::string_view name = "samples";
  static constexpr auto list = std::tuple(JsonField("failed", &T::failed), JsonField("samples", &T::samples),
                                          JsonField("knows_throttling", &T::knows_throttling));
};
template <>
struct JsonFields<Rechecked> {
  static constexpr std::string_view name = "rechecked";
  static constexpr auto list = std::tuple(JsonField("why", &Rechecked::why));
};
template <>
struct JsonFields<Starting> {
  static constexpr std::string_view name = "starting";
  static constexpr auto list =
      std::tuple(JsonField("stage", &Starting::stage), JsonField("kernel", &Starting::kernel),
                 JsonField("allow_s", &Starting::allow_s));
  static std::string fault(const Starting& s) {
    return std::isfinite(s.allow_s) && s.allow_s >= 0 ? "" : fmt::format("allow_s is {:g}", s.allow_s);
  }
};
template <>
struct JsonFields<RowAnswer> {
  static constexpr std::string_view name = "row";
  static constexpr auto list =
      std::tuple(JsonField("row", &RowAnswer::row), JsonField("samples", &RowAnswer::samples),
                 JsonField("short_of_memory", &RowAnswer::short_of_memory));
};
template <>
struct JsonFields<Left> {
  static constexpr std::string_view name = "left";
  static constexpr auto list = std::tuple(JsonField("what", &Left::what));
};
template <>
struct JsonFields<Spent> {
  static constexpr std::string_view name = "spent";
  static constexpr auto list = std::tuple(JsonField("message", &Spent::message));
};
template <>
struct JsonFields<Done> {
  static constexpr std::string_view name = "done";
  static constexpr auto list = std::tuple();
};
template <>
struct JsonFields<DeviceLost> {
  static constexpr std::string_view name = "device_lost";
  static constexpr auto list = std::tuple(JsonField("message", &DeviceLost::message));
};

}  // namespace assay
