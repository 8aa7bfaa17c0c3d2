// SPDX-License-Identifier: Apache-2.0
// See fault_watch.hpp. The handler only writes a text and lets the fault happen again: what a kernel was
// doing cannot be gone on with.
#include "harness/device/fault_watch.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "harness/input/poison.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
constexpr uintptr_t kNullBytes = 64 << 10;       // no system maps anything below
constexpr int64_t kFarBytes = int64_t{1} << 30;  // beyond it no operand is named
const std::vector<WatchedMemory>* watched_now = nullptr;

int64_t distance(const WatchedMemory& m, const std::byte* at) {
  const auto address = reinterpret_cast<intptr_t>(at), begin = reinterpret_cast<intptr_t>(m.begin),
             end = reinterpret_cast<intptr_t>(m.end);
  return address < begin ? begin - address : address < end ? 0 : address - end + 1;
}

// Which unit of a memory an address is, counted on beyond its ends.
int64_t unit_of(const WatchedMemory& m, const std::byte* at) {
  const int64_t offset = reinterpret_cast<intptr_t>(at) - reinterpret_cast<intptr_t>(m.payload) - m.first;
  return offset >= 0 ? offset / m.unit_bytes : -((m.unit_bytes - 1 - offset) / m.unit_bytes);
}

// " (block 3 of 8)", " (where block 9 would be, of 8)".
void describe_unit(const WatchedMemory& m, const std::byte* at, char* text, size_t size) {
  if (m.unit == nullptr) return;
  const auto unit = static_cast<long long>(unit_of(m, at)), units = static_cast<long long>(m.units);
  if (unit >= 0 && unit < units)
    std::snprintf(text, size, " (%s %lld of %lld)", m.unit, unit, units);
  else
    std::snprintf(text, size, " (where %s %lld would be, of %lld)", m.unit, unit, units);
}

// Called in a signal handler: no memory is asked for.
void describe(const std::byte* at, const char* what, char* text, size_t size) {
  const WatchedMemory* nearest = nullptr;
  for (const WatchedMemory& m : *watched_now)
    if (nearest == nullptr || distance(m, at) < distance(*nearest, at)) nearest = &m;
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address < kNullBytes) {
    std::snprintf(text, size, "%s %llu bytes from a null pointer", what,
                  static_cast<unsigned long long>(address));
    return;
  }
  const int64_t off = nearest == nullptr ? kFarBytes : distance(*nearest, at);
  if (off >= kFarBytes) {
    for (const WatchedMemory& m : *watched_now)
      if (m.unit != nullptr && m.absurd >= 0 && unit_of(m, at) == m.absurd) {
        std::snprintf(
            text, size,
            "%s at %p, where %s %lld of %s would be: the table names it behind the last page of a request",
            what, static_cast<const void*>(at), m.unit, static_cast<long long>(m.absurd), m.name.c_str());
        return;
      }
    std::snprintf(text, size, "%s at %p, which is no operand's", what, static_cast<const void*>(at));
    return;
  }
  const auto offset = static_cast<long long>(at - nearest->payload);
  const char* beside = off > 0 ? ", the nearest operand" : "";
  if (offset >= nearest->bytes)
    std::snprintf(text, size, "%s %lld bytes past the end of %s%s", what, offset - nearest->bytes,
                  nearest->name.c_str(), beside);
  else if (offset < 0)
    std::snprintf(text, size, "%s %lld bytes before the start of %s%s", what, -offset, nearest->name.c_str(),
                  beside);
  else
    std::snprintf(text, size, "%s to byte %lld of %s, which is only to be read", what, offset,
                  nearest->name.c_str());
  if (off > 0) return;  // an address of nobody's is no unit of the operand that happens to be near
  const size_t used = std::strlen(text);
  describe_unit(*nearest, at, text + used, size - used);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  bool write = false;
#if defined(__x86_64__)
  write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  (void)context;
#endif
  const bool sent = info->si_code <= 0;             // by somebody: there is no access
  const bool nowhere = info->si_code == SI_KERNEL;  // the system tells no address of such an access
  char text[320] = "";
  if (!sent && nowhere)
    std::snprintf(text, sizeof text, "an access to an address that no memory can have");
  else if (!sent && watched_now != nullptr)
    describe(static_cast<const std::byte*>(info->si_addr), write ? "a write" : "a read", text, sizeof text);
  if (text[0] != '\0') {
    char line[360];
    // Whatever a kernel printed last may not have ended its line.
    const int n = std::snprintf(line, sizeof line, "\n%.*s%s\n", static_cast<int>(kFaultMark.size()),
                                kFaultMark.data(), text);
    (void)!::write(STDERR_FILENO, line, static_cast<size_t>(n));
  }
  ::signal(signal, SIG_DFL);  // and the access comes again
  if (sent) raise(signal);
}

}  // namespace

std::vector<WatchedMemory> watched_operands(const Backend& backend, const Inputs& inputs,
                                            const assay_tensors& of_call) {
  std::vector<WatchedMemory> list;
  if (backend.table()->host_memory != 1) return list;
  const auto add = [&](std::string name, const std::byte* payload, int64_t bytes) {
    for (const WatchedMemory& m : list)
      if (m.payload == payload) return;
    list.push_back({std::move(name), payload, bytes, payload, payload + bytes});
  };
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const assay_tensor &host = tensor_of(inputs.tensors, operand), &there = tensor_of(of_call, operand);
    const GuardedBuffer& buffer = inputs.buffers[i];
    if (operand == Operand::kWorkspace || host.data == nullptr || there.data == nullptr ||
        buffer.raw() == nullptr)
      continue;
    const auto into = static_cast<const std::byte*>(host.data) - buffer.payload();
    const auto* payload = static_cast<const std::byte*>(there.data) - into;
    add(std::string(operand_name(operand)), payload, buffer.bytes());
    if (list.back().payload == payload && list.back().unit == nullptr)
      count_units(list.back(), inputs.problem, operand);
  }
  if (of_call.workspace.data != nullptr)
    add("the workspace", static_cast<const std::byte*>(of_call.workspace.data), of_call.workspace.shape[0]);
  return list;
}

void count_units(WatchedMemory& m, const Problem& p, Operand operand) {
  const TensorLayout t = operand_layout(p, operand);
  const int64_t bytes = format_bytes(t.format);
  if (t.rank == 0 || bytes == 0 || *std::max_element(t.stride, t.stride + t.rank) != t.stride[0]) return;
  const bool plane = operand == Operand::kK || operand == Operand::kV, cached = op_of(p).has_cache;
  const bool cache = cached && (plane || operand == Operand::kKScale || operand == Operand::kVScale);
  m.unit = cache && t.rank >= 3              ? "block"
           : operand == Operand::kBlockTable ? "request"
           : t.rank == 1                     ? "entry"
                                             : "row";
  m.unit_bytes = t.stride[0] * bytes, m.units = t.shape[0];
  m.first = cached && plane && p.layers > 1 ? 0 : t.offset * bytes;
  if (m.unit_bytes <= 0) m.unit = nullptr;
  if (cached && plane) m.absurd = p.table == ASSAY_TABLE_TOKEN ? kAbsurdBlock / p.page_size : kAbsurdBlock;
}

struct FaultWatch::Before {
  struct sigaction of[std::size(kSignals)] = {};
};

FaultWatch::FaultWatch(const std::vector<WatchedMemory>& list) : outer_(watched_now) {
  if (list.empty()) return;
  before_ = std::make_unique<Before>();
  watched_now = &list;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_->of[i]);
}

FaultWatch::~FaultWatch() {
  if (before_ == nullptr) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_->of[i], nullptr);
  watched_now = outer_;
}

}  // namespace assay
