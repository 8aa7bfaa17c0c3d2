// SPDX-License-Identifier: Apache-2.0
// The step on a device. See wiring.hpp.
#include <cmath>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/explain/stages/wiring.hpp"
#include "harness/input/contracts.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

struct StepEnd::Impl {
  Inputs inputs;
  std::unique_ptr<DeviceCase> device_case;
  std::unique_ptr<Expectation> expected;
  assay_arithmetic arithmetic = assay_default_arithmetic();
};

namespace {

constexpr uint64_t kStreamUnused = 0x5e7;  // beside those of inputs
constexpr Operand kCached[] = {Operand::kK, Operand::kV, Operand::kKScale, Operand::kVScale};

// A number of its own, of the size of those that are there, in every element that one poison and another
// fill: what a step makes of memory that it should not read is then told by what it read there.
void put_numbers(Inputs& in) {
  std::vector<std::byte> before[std::size(kCached)];
  const uint32_t poisoned = in.contracts & ~uint32_t{ASSAY_CONTRACT_FINITE_UNUSED};
  meet_contracts(in, poisoned);
  for (size_t n = 0; n < std::size(kCached); ++n)
    if (GuardedBuffer& b = in.buffers[kCached[n]]; !b.empty() && !b.sparse())
      before[n].assign(b.payload(), b.payload() + b.bytes());
  meet_contracts(in, poisoned | ASSAY_CONTRACT_FINITE_UNUSED);
  for (size_t n = 0; n < std::size(kCached); ++n) {
    const Operand o = kCached[n];
    GuardedBuffer& b = in.buffers[o];
    const int32_t format = tensor_of(in.tensors, o).format;
    const auto width = static_cast<size_t>(format_bytes(format));
    if (b.empty() || width == 0) continue;
    std::vector<int64_t> unused;
    double squares = 0;
    int64_t used = 0;
    for (size_t at = 0; at + width <= before[n].size(); at += width) {
      const auto element = static_cast<int64_t>(at / width);
      if (std::memcmp(before[n].data() + at, b.payload() + at, width) != 0) {
        unused.push_back(element);
      } else if (const double x = load(format, b.payload(), element); std::isfinite(x) && x != 0) {
        squares += x * x, ++used;
      }
    }
    const double size = used > 0 ? std::sqrt(squares / static_cast<double>(used)) : 1;
    const bool scale = o == Operand::kKScale || o == Operand::kVScale;
    const CounterRng random(in.problem.seed, kStreamUnused + n);
    for (const int64_t element : unused) {
      const double u = random.uniform(static_cast<uint64_t>(element));
      store(format, b.payload(), element, size * (scale ? 0.5 + u : 3.4 * (u - 0.5)));
    }
  }
}

}  // namespace

StepEnd::StepEnd(const Backend& backend, const assay_kernel& kernel, const Problem& problem, Unused unused)
    : impl_(new Impl{build_inputs(problem), nullptr, nullptr}) {
  Impl& i = *impl_;
  meet_contracts(i.inputs, contracts_of(kernel));
  if (unused == Unused::kNumbers) put_numbers(i.inputs);
  const assay_problem* view = i.inputs.view->get();
  i.device_case = std::make_unique<DeviceCase>(backend, i.inputs, call_workspace(kernel, view));
  call_arithmetic(backend, kernel, view, i.arithmetic);
  i.expected = make_expectation(i.inputs, 1e8);
  if (const std::string broken = i.expected->impossible(i.arithmetic); !broken.empty())
    throw InputError("declares an impossible arithmetic: " + broken);
  i.expected->prepare(i.arithmetic);
}

StepEnd::~StepEnd() = default;

const Inputs& StepEnd::inputs() const { return impl_->inputs; }
const assay_tensors* StepEnd::tensors() const { return impl_->device_case->tensors(); }
const assay_arithmetic& StepEnd::arithmetic() const { return impl_->arithmetic; }
void StepEnd::clear() { impl_->device_case->upload(); }

StepEnd::Look StepEnd::look() const {
  Look seen;
  RunOutputs out(impl_->inputs, Snapshot(impl_->inputs, *impl_->device_case));
  impl_->expected->ask(out);
  const Objection wrong = objection_of(out, *impl_->expected);
  const std::string unwritten = out.unwritten();
  seen.bad_o = out.values.bad, seen.bad_cache = out.marks.bad;
  seen.checked = out.values.checked + out.marks.checked;
  seen.right = !wrong && unwritten.empty();
  seen.reason = unwritten.empty() ? wrong.reason : unwritten;
  return seen;
}

}  // namespace assay
