// SPDX-License-Identifier: Apache-2.0
// See fault_watch.hpp. The handler only writes a text and lets the fault happen again: what a kernel was
// doing cannot be gone on with.
#include "harness/device/fault_watch.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>

#include "harness/ops/op.hpp"

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
  char text[240] = "";
  if (!sent && nowhere)
    std::snprintf(text, sizeof text, "an access to an address that no memory can have");
  else if (!sent && watched_now != nullptr)
    describe(static_cast<const std::byte*>(info->si_addr), write ? "a write" : "a read", text, sizeof text);
  if (text[0] != '\0') {
    char line[280];
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
    add(std::string(operand_name(operand)), static_cast<const std::byte*>(there.data) - into, buffer.bytes());
  }
  if (of_call.workspace.data != nullptr)
    add("the workspace", static_cast<const std::byte*>(of_call.workspace.data), of_call.workspace.shape[0]);
  return list;
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
