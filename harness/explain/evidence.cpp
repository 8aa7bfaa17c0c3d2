// SPDX-License-Identifier: Apache-2.0
// See evidence.hpp. One child judges, one makes the series of calls, one makes the call after another
// problem. A call that kills its child is noted and the series goes on in a fresh one behind it.
#include "harness/explain/evidence.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/explain/caller.hpp"
#include "harness/explain/child.hpp"
#include "harness/explain/order_calls.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

using nlohmann::json;

struct Evidence::Raw {
  json of[kCallCount];
};

namespace {

constexpr double kBesideOrder = 2;     // seconds of a processor
constexpr double kBesideTimeout = 10;  // seconds

// An LSE that the kernel does not give is NaN here.
void decode_outputs(const Inputs& inputs, const json& report, CallResultCopy& to) {
  const Problem& p = inputs.problem;
  const auto tensor = [&](Operand op, const std::vector<uint8_t>& raw) {
    assay_tensor t = tensor_of(inputs.tensors, op);
    const GuardedBuffer& host = inputs.buffers[static_cast<int>(op)];
    ASSAY_CHECK(static_cast<int64_t>(raw.size()) == host.raw_bytes(), "{} bytes of output, {} expected",
                raw.size(), host.raw_bytes());
    if (t.data != nullptr)
      t.data = const_cast<uint8_t*>(raw.data()) + (static_cast<const std::byte*>(t.data) - host.raw());
    return t;
  };
  const auto& o_raw = report["o"].get_binary();
  const auto& lse_raw = report["lse"].get_binary();
  const assay_tensor o = tensor(Operand::kO, o_raw), lse = tensor(Operand::kLse, lse_raw);
  const double unit = lse_unit(inputs.contracts);
  for (int64_t row = 0; row < p.total_q(); ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        to.o.push_back(load(o.format, o.data, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]));
      to.lse.push_back(lse.data == nullptr
                           ? std::nan("")
                           : unit * load(lse.format, lse.data, row * lse.stride[0] + h * lse.stride[1]));
    }
}

// Nobody can be blamed for an LSE that is not there.
void take_right_lse(Evidence& e) {
  const int64_t heads = e.problem.heads_q;
  for (CallResultCopy& call : e.calls)
    for (size_t row = 0; call.made && row < e.row_of.size(); ++row)
      for (int64_t h = 0; h < heads && e.row_of[row] >= 0; ++h)
        call.lse[row * heads + h] = e.bounded.value.lse[e.row_of[row] * heads + h];
}

struct Child {
  const std::string& backend;
  const std::string& kernel;
  const Problem& problem;
  const CaptureOptions& options;

  // The kernel, inside the child.
  void with_kernel(const std::function<void(const Backend&, const assay_kernel&)>& work) const {
    if (options.threads > 0) omp_set_num_threads(options.threads);
    const Backend loaded = Backend::load(backend);
    const assay_kernel* found = loaded.find(kernel);
    if (found == nullptr) throw InputError(fmt::format("backend {} has no kernel {}", loaded.name(), kernel));
    char error[512] = "";
    if (loaded.table()->use_device(0, error, sizeof(error)) != ASSAY_OK)
      throw InfrastructureError(fmt::format("backend {}: {}", loaded.name(), error));
    work(loaded, *found);
  }

  void judge(Evidence& evidence) const {
    const ChildEnd end = run_in_child(
        [&](const Report& report) {
          with_kernel([&](const Backend& loaded, const assay_kernel& found) {
            Judge judge(problem, options.rows_budget);
            say_declared(report, loaded, found, *judge.inputs().view);
            const Verdict v = judge.judge(loaded, found, loaded.device(0));
            report({{"outcome", static_cast<int>(v.outcome)},
                    {"reason", v.reason + judge.otherwise_declared()}});
          });
        },
        [&](const json& r) { take_declared(evidence, r); }, options.timeout_s);
    if (end.fine()) return;
    evidence.verdict.outcome = end.timed_out ? Outcome::kTimedOut : Outcome::kCrashed;
    evidence.verdict.reason = "the kernel " + end.text();
  }

  // What the kernel says of itself, without a judgement.
  void declaration(Evidence& evidence) const {
    const ChildEnd end = run_in_child(
        [&](const Report& report) {
          with_kernel([&](const Backend& loaded, const assay_kernel& found) {
            const ProblemView view(problem);
            say_declared(report, loaded, found, view);
            if (!call_supports(found, view.get(), nullptr, loaded.device(0)).ok())
              report({{"outcome", static_cast<int>(Outcome::kUnsupported)}, {"reason", ""}});
          });
        },
        [&](const json& r) { take_declared(evidence, r); }, options.timeout_s);
    if (!end.fine()) evidence.verdict.outcome = Outcome::kUnsupported;
  }

  static void say_declared(const Report& report, const Backend& loaded, const assay_kernel& found,
                           const ProblemView& view) {
    assay_arithmetic a = default_arithmetic();
    const bool declares = call_arithmetic(loaded, found, view.get(), a);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&a);
    report({{"arithmetic", json::binary({bytes, bytes + sizeof(a)})},
            {"declares", declares},
            {"promises", found.promises},
            {"contracts", contracts_of(found)}});
  }

  static void take_declared(Evidence& evidence, const json& r) {
    if (r.contains("arithmetic")) {
      const auto& bytes = r["arithmetic"].get_binary();
      std::memcpy(&evidence.declared, bytes.data(), std::min(bytes.size(), sizeof(evidence.declared)));
      evidence.declares = r["declares"];
      evidence.promises = r["promises"];
      evidence.contracts = r["contracts"];
    }
    if (r.contains("outcome")) {
      evidence.verdict.outcome = static_cast<Outcome>(r["outcome"].get<int>());
      evidence.verdict.reason = r["reason"];
    }
  }

  void calls(Evidence& evidence, const std::vector<Call>& series) const {
    for (size_t next = 0; next < series.size();) {
      const size_t from = next;
      const ChildEnd end = run_in_child(
          [&](const Report& report) {
            with_kernel([&](const Backend& loaded, const assay_kernel& found) {
              Caller caller(problem, loaded, found);
              if (const CallResult planned = caller.plan(); !planned.ok())
                throw InfrastructureError("plan: " + planned.error);
              for (size_t i = from; i < series.size(); ++i) {
                report({{"starting", i}});
                report(caller.call(series[i]));
              }
            });
          },
          [&](const json& r) {
            if (r.contains("starting"))
              next = r["starting"];
            else
              keep(evidence, r);
          },
          options.timeout_s);
      if (end.fine()) break;
      CallResultCopy& failed = evidence.calls[static_cast<int>(series[next])];
      failed.failure = end.text();
      failed.crashed = true;
      if (end.error.starts_with("plan: ")) break;
      ++next;
    }
  }

  // In a process of its own; one that dies has shown nothing.
  void order(Evidence& evidence, const OrderLimits& limits) const {
    run_in_child(
        [&](const Report& report) {
          with_kernel([&](const Backend& loaded, const assay_kernel& found) {
            const OrderSeen o = order_by_calls(problem, loaded, found, limits);
            const Layout& l = o.layout;
            report({{"known", o.known},
                    {"words", o.words},
                    {"calls", o.calls},
                    {"tile_keys", l.tile_keys},
                    {"splits", l.splits},
                    {"split_keys", l.split_keys},
                    {"least", l.cut.least},
                    {"least_met", l.cut.least_met},
                    {"whole", l.cut.whole},
                    {"rest_first", l.cut.rest_first},
                    {"block_rows", l.cut.block_rows},
                    {"packed", l.cut.packed},
                    {"states", l.cut.states}});
          });
        },
        [&](const json& r) {
          OrderSeen o;
          o.known = r["known"], o.words = r["words"], o.calls = r["calls"];
          o.layout.tile_keys = r["tile_keys"];
          o.layout.splits = r["splits"], o.layout.split_keys = r["split_keys"];
          o.layout.cut.least = r["least"], o.layout.cut.least_met = r["least_met"];
          o.layout.cut.whole = r["whole"], o.layout.cut.rest_first = r["rest_first"];
          o.layout.cut.block_rows = r["block_rows"], o.layout.cut.packed = r["packed"];
          o.layout.cut.states = r["states"];
          evidence.order = std::make_shared<const OrderSeen>(std::move(o));
        },
        options.timeout_s);
  }

  void after_other(Evidence& evidence) const {
    const ChildEnd end = run_in_child(
        [&](const Report& report) {
          with_kernel([&](const Backend& loaded, const assay_kernel& found) {
            Caller caller(problem, loaded, found);
            for (const Problem& other : previous_problems(problem)) {
              if (!call_supports(found, ProblemView(other).get(), nullptr, loaded.device(0)).ok()) continue;
              Caller before(other, loaded, found);
              if (before.plan().ok()) before.call(Call::kFirst);
              break;
            }
            if (caller.plan().ok()) report(caller.call(Call::kAfterOther));
          });
        },
        [&](const json& r) { keep(evidence, r); }, options.timeout_s);
    if (!end.fine()) {
      evidence.calls[static_cast<int>(Call::kAfterOther)].failure = end.text();
      evidence.calls[static_cast<int>(Call::kAfterOther)].crashed = end.signal != 0 || end.timed_out;
    }
  }

  // The parent has no inputs yet, so raw bytes are kept as they came.
  void keep(Evidence& evidence, const json& report) const {
    evidence.raw->of[report["call"].get<int>()] = report;
    CallResultCopy& to = evidence.calls[report["call"].get<int>()];
    to.made = report["status"] == ASSAY_OK;
    to.failure = report["error"];
    to.damage = report["damage"];
    to.changed = report["changed"];
  }
};

Evidence started(const std::string& line, const Problem& problem, const std::string& kernel) {
  check_problem(problem);
  Evidence evidence;
  evidence.line = line;
  evidence.kernel_name = kernel;
  evidence.problem = problem;
  evidence.declared = default_arithmetic();
  evidence.first_rows = problem.cu_q();
  evidence.raw = std::make_shared<Evidence::Raw>();
  return evidence;
}

}  // namespace

std::vector<Problem> previous_problems(const Problem& problem) {
  Problem other = problem;
  other.softmax_scale *= 1.5f;
  for (Request& r : other.requests) {
    // A tree needs its rows among the keys.
    const int32_t least = problem.mask == ASSAY_MASK_TREE ? r.q_len : 1;
    r.kv_len = std::max(std::min(r.kv_len, least), r.kv_len - r.kv_len / 4 - 1);
    r.shared_with = -1;
    r.shared_tokens = 0;
  }
  other.recipe = InputRecipe::kNormal;
  Problem more = other;
  more.softcap = problem.softcap > 0 ? 0.0f : 20.0f;
  if (problem.mask == ASSAY_MASK_CAUSAL || problem.mask == ASSAY_MASK_FULL)
    more.mask = problem.mask == ASSAY_MASK_CAUSAL ? ASSAY_MASK_FULL : ASSAY_MASK_CAUSAL;
  if (problem.mask == ASSAY_MASK_TREE) {
    more.mask = ASSAY_MASK_CAUSAL;
    more.tree_mask.clear();
  }
  more.strided.q = !problem.strided.q;
  std::vector<Problem> list;
  for (Problem* p : {&more, &other}) {
    if (op_of(*p).has_cache) place_pages(*p);
    try {
      check_problem(*p);
      list.push_back(*p);
    } catch (const CheckError&) {  // this change does not go with the rest of the case
    }
  }
  return list;
}

std::string_view call_name(Call c) {
  constexpr std::string_view kNames[] = {"first call",        "second call",
                                         "third call",        "low poison",
                                         "high poison",       "other scratch contents",
                                         "other table tails", "call after another problem"};
  return kNames[static_cast<int>(c)];
}

HostOperands Evidence::operands(bool of_low) const {
  const Inputs& in = of_low ? low : nan;
  return {&in.tensors, in.q_scale_host, in.k_scale_host, in.v_scale_host};
}

int64_t Evidence::packed_row(const Cell& c) const { return first_rows[c.request] + c.row; }

Cell cell_of_row(const std::vector<int32_t>& first_rows, int64_t packed, int32_t head) {
  const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), packed);
  const auto request = static_cast<int32_t>(after - first_rows.begin()) - 1;
  return {request, static_cast<int32_t>(packed - first_rows[request]), head};
}

double Evidence::got(Call which, const Cell& c, int32_t dim) const {
  const CallResultCopy& from = call(which);
  const int64_t slot = packed_row(c) * problem.heads_q + c.head;
  return dim < 0 ? from.lse[slot] : from.o[slot * problem.head_dim_v + dim];
}

namespace {

// A wrong path or name is the user's affair and no evidence. Asked in a process of its own: loading runs code
// too, and what a library starts then (a device's driver) does not survive the forks that follow.
void check_name(const std::string& backend, const std::string& kernel, const Problem& problem,
                const CaptureOptions& options) {
  std::string name, names;
  std::optional<int32_t> op;
  const ChildEnd end = run_in_child(
      [&](const Report& report) {
        const Backend loaded = Backend::load(backend);
        json all = json::array();
        for (const assay_kernel* k : loaded.kernels()) all.push_back({{"name", k->name}, {"op", k->op}});
        report({{"name", loaded.name()}, {"kernels", all}});
      },
      [&](const json& said) {
        name = said["name"];
        for (const json& k : said["kernels"]) {
          const std::string known = k["name"];
          if (known == kernel) op = k["op"].get<int32_t>();
          if (names.size() <= 300) names += (names.empty() ? "" : ", ") + known;
        }
      },
      options.timeout_s);
  if (!end.fine())  // its own error names the library already
    throw InfrastructureError(
        !end.timed_out && end.signal == 0 && end.exit_code == 0
            ? end.text()
            : fmt::format("backend {}: the process that loaded it {}", backend, end.text()));
  if (!op)
    throw InputError(fmt::format("backend {} has no kernel {}; accepted is one of: {}{}", name, kernel, names,
                                 names.size() > 300 ? ", ..." : ""));
  if (*op != problem.op)
    throw InputError(fmt::format("kernel {} is for op {}, and the line is of op {}", kernel,
                                 name_of(op_names(), *op), op_of(problem).name));
}

}  // namespace

Evidence capture(const std::string& line, const Problem& problem, const std::string& backend,
                 const std::string& kernel, const CaptureOptions& options) {
  Evidence evidence = started(line, problem, kernel);
  check_name(backend, kernel, problem, options);
  const Child child{backend, kernel, problem, options};
  // Children first: after this the process may have OpenMP threads.
  child.judge(evidence);
  const Outcome outcome = evidence.verdict.outcome;
  if (outcome == Outcome::kUnsupported) return evidence;
  child.calls(evidence, {Call::kFirst, Call::kAgain, Call::kThird, Call::kLow, Call::kHigh, Call::kScratch,
                         Call::kTails});
  child.after_other(evidence);
  if (outcome == Outcome::kWrong && !order_repeated(evidence.declared)) child.order(evidence, {});
  complete(evidence, options);
  return evidence;
}

Evidence capture_beside(const std::string& line, const Problem& problem, const std::string& backend,
                        const std::string& kernel, const CaptureOptions& options) {
  Evidence evidence = started(line, problem, kernel);
  // A kernel that hangs is waited for once.
  CaptureOptions brief = options;
  brief.timeout_s = std::min(options.timeout_s, kBesideTimeout);
  const Child child{backend, kernel, problem, brief};
  child.declaration(evidence);
  if (evidence.verdict.outcome == Outcome::kUnsupported) return evidence;
  // What reads unused memory predicts nothing under NaN; under other contents it must say what comes out.
  child.calls(evidence, {Call::kFirst, Call::kLow});
  // What calls on this line do not show is taken from the line itself: they get less time.
  if (!order_repeated(evidence.declared))
    Child{backend, kernel, problem, options}.order(evidence, {.seconds = kBesideOrder});
  return evidence;
}

void complete(Evidence& evidence, const CaptureOptions& options) {
  const Problem& problem = evidence.problem;
  evidence.nan = build_inputs(problem);
  evidence.low = build_inputs(problem, Poison::kLow);
  meet_contracts(evidence.nan, evidence.contracts);
  meet_contracts(evidence.low, evidence.contracts);
  for (int i = 0; i < kCallCount; ++i)
    if (evidence.calls[i].made) decode_outputs(evidence.nan, evidence.raw->of[i], evidence.calls[i]);
  evidence.raw.reset();
  const RowSelection rows = select_rows(problem, options.rows_budget);
  evidence.bounded = bounded_attention(problem, evidence.operands(false), rows.rows, evidence.declared);
  evidence.row_of.assign(problem.total_q(), -1);
  for (size_t n = 0; n < rows.rows.size(); ++n)
    evidence.row_of[evidence.first_rows[rows.rows[n].request] + rows.rows[n].row] = static_cast<int64_t>(n);
  if ((evidence.contracts & ASSAY_CONTRACT_NO_LSE) != 0) take_right_lse(evidence);
}

}  // namespace assay
