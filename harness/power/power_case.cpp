// SPDX-License-Identifier: Apache-2.0
// The questions are those of harness/check: the same intervals and roundings, the same statistics with the
// same second look. What a run of the program asks beyond that (poison, guards, repetition) no fault of an
// adjustable size changes.
#include "harness/power/power_case.hpp"

#include <cmath>

#include "harness/base/error.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/device/call_once.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay::power {
namespace {

assay_arithmetic declared_by(const Catalogue& c, const CatalogueEntry& e, const Problem& p,
                             const assay_problem* view) {
  const assay_kernel* kernel = e.kernel_for(p);
  if (kernel == nullptr || !call_supports(*kernel, view, nullptr, c.device).ok())
    throw InfrastructureError(fmt::format("kernel {} does not take the case", e.name));
  assay_arithmetic a = default_arithmetic();
  call_arithmetic(c.backend, *kernel, view, a);
  return a;
}

std::vector<RowId> all_rows(const Problem& p) {
  std::vector<RowId> rows;
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) rows.push_back({r, i});
  return rows;
}

void run_once(const Catalogue& c, const assay_kernel& kernel, const assay_problem* view, DeviceCase& device) {
  device.poison_outputs();
  const CallResult r = call_once(c.backend, kernel, view, device.tensors());
  if (!r.ok()) throw InfrastructureError(fmt::format("kernel {} failed: {}", kernel.name, r.error));
}

Mark mark(bool rejects) { return rejects ? Mark::kRejects : Mark::kAccepts; }

// Whether a tier rejects: the interval of one, in the format of the output.
bool outside(double got, double centre, double half, int32_t format) {
  return half != kNoTier && !within(got, centre - half, centre + half, format);
}

}  // namespace

PowerCase::PowerCase(const Catalogue& c, const CatalogueEntry& right, const std::string& line)
    : catalogue_(c),
      peers_(make_problem(parse_scenario(line))),
      arithmetic_(declared_by(c, right, peers_.problem(), peers_.view())),
      bounded_(bounded_attention(peers_.problem(), host_operands(peers_.inputs()), all_rows(problem()),
                                 arithmetic_)),
      device_(std::make_unique<DeviceCase>(c.backend, peers_.inputs(), WorkspaceSize{})) {}
PowerCase::~PowerCase() = default;

Snapshot PowerCase::run(const CatalogueEntry& e) {
  run_once(catalogue_, *e.kernel_for(problem()), peers_.view(), *device_);
  return {peers_.inputs(), *device_};
}

AggregateReport PowerCase::statistics(const Snapshot& left) const {
  const assay_tensor o = left.view(peers_.inputs(), Operand::kO),
                     lse = left.view(peers_.inputs(), Operand::kLse);
  return aggregates(bounded_, problem(), host_operands(peers_.inputs()), {&o, &lse}, arithmetic_);
}

void PowerCase::look_at_elements(const PeerOutputs& got, Marks& marks) const {
  bool d = false, p = false, r = false, lse = false;
  for (size_t i = 0; i < got.o.size(); ++i) {
    const int32_t format = problem().o_format;
    const Widths w = o_widths(bounded_, static_cast<int64_t>(i));
    const bool by_d = outside(got.o[i], w.exact, w.d, format);
    const bool by_p = by_d || outside(got.o[i], w.exact, w.p, format);
    d |= by_d, p |= by_p;
    // Tiers that exclude each other leave tier D alone, as the judge does.
    const bool meet = bounded_.o_low[i] <= bounded_.o_high[i];
    r |= by_p || (meet && !within(got.o[i], bounded_.o_low[i], bounded_.o_high[i], format));
  }
  for (size_t i = 0; i < got.lse.size(); ++i)
    lse |= !within(got.lse[i], bounded_.lse_low[i], bounded_.lse_high[i], ASSAY_FP32);
  marks[kTierD] = mark(d), marks[kTierP] = mark(p), marks[kTierR] = mark(r), marks[kLse] = mark(lse);
}

Marks PowerCase::look(const CatalogueEntry& e) {
  Marks marks{};
  const Snapshot left = run(e);
  const PeerOutputs got =
      outputs_of(left.view(peers_.inputs(), Operand::kO), left.view(peers_.inputs(), Operand::kLse));
  look_at_elements(got, marks);
  for (const PeerInfo& peer : peers())
    if (const PeerRule* rule = rule_for(peer.peer, problem()); rule != nullptr)
      marks[kFirstPeer + static_cast<size_t>(peer.peer)] = mark(!rule->rejects(peers_, got).empty());
  return marks;
}

Mark PowerCase::ask_statistics(const CatalogueEntry& e, PowerCase& again) {
  const AggregateReport first = statistics(run(e));
  if (first.alarms.empty()) return Mark::kAccepts;
  for (const Finding& alarm : again.statistics(again.run(e)).alarms)
    for (const Finding& before : first.alarms)
      if (same_place(alarm, before)) return Mark::kRejects;
  return Mark::kAccepts;
}

IncidenceCase::IncidenceCase(const Catalogue& c, const CatalogueEntry& right, const std::string& line)
    : catalogue_(c),
      inputs_(build_inputs(make_problem(parse_scenario(line)))),
      device_(std::make_unique<DeviceCase>(c.backend, inputs_, WorkspaceSize{})) {
  ASSAY_CHECK(answer_binds(problem(), declared_by(c, right, problem(), inputs_.view->get())),
              "{}: the kernel need not reach the known answer", line);
}
IncidenceCase::~IncidenceCase() = default;

bool IncidenceCase::rejects(const CatalogueEntry& e) {
  run_once(catalogue_, *e.kernel_for(problem()), inputs_.view->get(), *device_);
  const Snapshot left(inputs_, *device_);
  return !inexact(problem(), left.view(inputs_, Operand::kO), inputs_.exact_o).empty();
}

double run_cost(const Problem& p) {
  double keys = 0;
  for (const Request& r : p.requests) keys += static_cast<double>(r.q_len) * r.kv_len;
  return keys * p.heads_q * (p.head_dim_qk + p.head_dim_v);
}

}  // namespace assay::power
