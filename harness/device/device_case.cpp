// SPDX-License-Identifier: Apache-2.0
// A case's buffers on a device. Each host allocation is copied whole, guards included, so that writes
// past an operand are seen wherever the device is. Several operands may be views into one allocation
// (K and V of a stacked cache): it is uploaded once and every view is rebased into it.
#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"

namespace assay {
namespace {

constexpr int64_t kPage = 4096;
// Inputs are compared in pieces, so that checking a large cache does not double its memory.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

struct Allocation {
  Operand owner{};                      // names it in messages
  const GuardedBuffer* host = nullptr;  // into the Inputs, or the workspace
  void* pointer = nullptr;              // as the backend returned it
  std::byte* raw = nullptr;             // device address of host->raw()
};

}  // namespace

struct DeviceCase::Impl {
  Backend backend;
  const Inputs* inputs;
  GuardedBuffer workspace;
  std::vector<Allocation> allocations;
  int64_t kept_bytes = 0;  // of the workspace, from its start: the kernel's

  void fail(const char* what, const char* error) const {
    throw InfrastructureError(fmt::format("backend {}: {}: {}", backend.name(), what, error));
  }
  // The bytes from begin to end of an allocation, guards counted.
  void to_device(const Allocation& a, int64_t begin, int64_t end) const {
    char error[512] = "";
    if (backend.table()->copy_to_device(a.raw + begin, a.host->raw() + begin, end - begin, error,
                                        sizeof(error)) != ASSAY_OK)
      fail("copy to the device", error);
  }
  void to_host(void* to, const Allocation& a, int64_t offset, int64_t bytes) const {
    char error[512] = "";
    if (backend.table()->copy_to_host(to, a.raw + offset, bytes, error, sizeof(error)) != ASSAY_OK)
      fail("copy to the host", error);
  }
  // Names of the wanted operands whose bytes are not the host's.
  template <class Wanted>
  std::vector<std::string> changed(const Wanted& wanted) const;
  const GuardedBuffer& host_of(Operand op) const {
    return op == Operand::kWorkspace ? workspace : inputs->buffers[static_cast<int>(op)];
  }
  const Allocation* find(const GuardedBuffer& host) const {
    for (const Allocation& a : allocations)
      if (a.host->raw() == host.raw()) return &a;
    return nullptr;
  }
  // The allocation a host view points into.
  const Allocation* containing(const void* data) const {
    const auto* p = static_cast<const std::byte*>(data);
    for (const Allocation& a : allocations)
      if (p >= a.host->raw() && p < a.host->raw() + a.host->raw_bytes()) return &a;
    return nullptr;
  }
  void allocate(Operand owner, const GuardedBuffer& host) {
    if (host.raw_bytes() == 0 || host.raw() == nullptr || find(host) != nullptr) return;
    Allocation a{owner, &host};
    char error[512] = "";
    // One page more than needed: the device address must agree with the host's modulo a page, so that
    // an operand is exactly as aligned as the Inputs promise.
    if (backend.table()->allocate(host.raw_bytes() + kPage, &a.pointer, error, sizeof(error)) != ASSAY_OK ||
        a.pointer == nullptr)
      fail(fmt::format("{} bytes for {}", host.raw_bytes() + kPage, operand_name(owner)).c_str(), error);
    const auto host_address = reinterpret_cast<uintptr_t>(host.raw());
    const auto address = reinterpret_cast<uintptr_t>(a.pointer);
    a.raw = static_cast<std::byte*>(a.pointer) + (host_address - address) % kPage;
    allocations.push_back(a);
  }
  void release() {
    char error[512];
    for (const Allocation& a : allocations) backend.table()->release(a.pointer, error, sizeof(error));
    allocations.clear();
  }
};

DeviceCase::DeviceCase(const Backend& backend, const Inputs& inputs, const WorkspaceSize& wanted)
    : impl_(std::make_unique<Impl>()) {
  impl_->backend = backend;
  impl_->inputs = &inputs;
  const int64_t workspace_bytes = wanted.bytes;
  if (workspace_bytes > 0) impl_->workspace = GuardedBuffer(workspace_bytes);
  try {
    for (int i = 0; i < kOperandCount; ++i) {
      const auto op = static_cast<Operand>(i);
      if (op != Operand::kWorkspace) impl_->allocate(op, inputs.buffers[i]);
    }
    if (workspace_bytes > 0) impl_->allocate(Operand::kWorkspace, impl_->workspace);
  } catch (...) {
    impl_->release();
    throw;
  }
  tensors_ = inputs.tensors;
  tensors_.struct_size = sizeof(tensors_);
  for (int i = 0; i < kOperandCount; ++i) {
    assay_tensor& tensor = tensor_of(tensors_, static_cast<Operand>(i));
    if (tensor.data == nullptr || static_cast<Operand>(i) == Operand::kWorkspace) continue;
    const Allocation* a = impl_->containing(tensor.data);
    ASSAY_CHECK(a != nullptr, "{} is a view of no buffer of the inputs",
                operand_name(static_cast<Operand>(i)));
    tensor.data = a->raw + (static_cast<const std::byte*>(tensor.data) - a->host->raw());
  }
  tensors_.workspace = assay_tensor{};
  if (workspace_bytes > 0) {
    const Allocation* a = impl_->find(impl_->workspace);
    tensors_.workspace.data = a->raw + (impl_->workspace.payload() - impl_->workspace.raw());
    tensors_.workspace.format = ASSAY_UINT8;
    tensors_.workspace.rank = 1;
    tensors_.workspace.shape[0] = workspace_bytes;
    tensors_.workspace.stride[0] = 1;
    const bool kept = wanted.zeroed_bytes > 0 || wanted.refreshed;
    tensors_.workspace.role = kept ? ASSAY_ROLE_IN_OUT : ASSAY_ROLE_OUT;
  }
  upload();
  impl_->kept_bytes = std::clamp<int64_t>(wanted.zeroed_bytes, 0, workspace_bytes);
}

DeviceCase::~DeviceCase() { impl_->release(); }

void DeviceCase::upload() {
  for (const Allocation& a : impl_->allocations)
    if (!is_output(impl_->inputs->problem, a.owner)) impl_->to_device(a, 0, a.host->raw_bytes());
  poison_outputs();
}

void DeviceCase::poison_outputs() {
  // The workspace holds the poison of the LSE, repeated: the Inputs know the poison of the moment only
  // through their buffers. All-ones bytes (a NaN in every float format) where there is no LSE.
  if (!impl_->workspace.empty()) {
    const GuardedBuffer& lse = impl_->host_of(Operand::kLse);
    uint8_t pattern[4] = {0xff, 0xff, 0xff, 0xff};
    if (lse.bytes() >= 4) std::memcpy(pattern, lse.payload(), 4);
    std::byte* to = impl_->workspace.payload();
    for (int64_t i = 0; i < impl_->workspace.bytes(); ++i) to[i] = static_cast<std::byte>(pattern[i % 4]);
  }
  for (const Allocation& a : impl_->allocations) {
    if (!is_output(impl_->inputs->problem, a.owner)) continue;
    const int64_t front = a.host->payload() - a.host->raw();
    if (a.owner == Operand::kWorkspace && impl_->kept_bytes > 0)
      impl_->to_device(a, 0, front), impl_->to_device(a, front + impl_->kept_bytes, a.host->raw_bytes());
    else
      impl_->to_device(a, 0, a.host->raw_bytes());
  }
}

std::vector<std::byte> DeviceCase::download(Operand op) const {
  const Allocation* a = impl_->find(impl_->host_of(op));
  if (a == nullptr) return {};
  std::vector<std::byte> raw(a->host->raw_bytes());
  impl_->to_host(raw.data(), *a, 0, a->host->raw_bytes());
  return raw;
}

template <class Wanted>
std::vector<std::string> DeviceCase::Impl::changed(const Wanted& wanted) const {
  std::vector<std::string> changed;
  std::vector<std::byte> piece;
  for (const Allocation& a : allocations) {
    if (!wanted(a.owner)) continue;
    const int64_t front = a.host->payload() - a.host->raw();
    for (int64_t at = 0; at < a.host->bytes(); at += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, a.host->bytes() - at);
      piece.resize(bytes);
      to_host(piece.data(), a, front + at, bytes);
      const std::byte* expected = a.host->payload() + at;
      if (std::memcmp(piece.data(), expected, bytes) == 0) continue;
      const auto first = std::mismatch(piece.begin(), piece.end(), expected).first - piece.begin();
      changed.push_back(
          fmt::format("{} (first at byte {} of {})", operand_name(a.owner), at + first, a.host->bytes()));
      break;
    }
  }
  return changed;
}

std::vector<std::string> DeviceCase::changed_inputs() const {
  return impl_->changed([&](Operand op) { return !is_output(impl_->inputs->problem, op); });
}

std::vector<std::string> DeviceCase::changed_outputs() const {
  return impl_->changed(
      [&](Operand op) { return op != Operand::kWorkspace && is_output(impl_->inputs->problem, op); });
}

std::vector<std::string> DeviceCase::broken_guards() const {
  std::vector<std::string> broken;
  for (const Allocation& a : impl_->allocations) {
    // Only the guards travel; the payload in between is left unread and need not be looked at.
    const int64_t front = a.host->payload() - a.host->raw();
    const int64_t back = a.host->raw_bytes() - front - a.host->bytes();
    std::vector<std::byte> guards(front + back);
    impl_->to_host(guards.data(), a, 0, front);
    impl_->to_host(guards.data() + front, a, front + a.host->bytes(), back);
    std::vector<std::byte> expected(front + back);
    std::memcpy(expected.data(), a.host->raw(), front);
    std::memcpy(expected.data() + front, a.host->payload() + a.host->bytes(), back);
    const auto first = std::mismatch(guards.begin(), guards.end(), expected.begin()).first - guards.begin();
    if (first == front + back) continue;
    broken.push_back(
        first < front ? fmt::format("{} (byte {} before its start)", operand_name(a.owner), front - first)
                      : fmt::format("{} (byte {} past its end)", operand_name(a.owner), first - front + 1));
  }
  return broken;
}

}  // namespace assay
