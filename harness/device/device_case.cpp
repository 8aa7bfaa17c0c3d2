// SPDX-License-Identifier: Apache-2.0
// One call's view of buffers on a device: which of them it may write, and a workspace of its own. What other
// calls keep in the same set must stay as it is like any input.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"
#include "harness/device/device_buffers.hpp"
#include "harness/input/where.hpp"

namespace assay {

struct DeviceCase::Impl {
  const Inputs& inputs;
  std::shared_ptr<DeviceBuffers> buffers;
  std::unique_ptr<DeviceBuffers> workspace;      // null when the kernel wants none
  int64_t kept_bytes = 0;                        // of the workspace, from its start: the kernel's
  std::optional<std::array<uint8_t, 4>> filled;  // what its host's image is full of
  std::vector<bool> bound, output;               // of the buffers

  Impl(std::shared_ptr<DeviceBuffers> device, const Inputs& in)
      : inputs(in),
        buffers(std::move(device)),
        bound(buffers->set().count(), false),
        output(buffers->set().count(), false) {
    for (int i = 0; i < kOperandCount; ++i) {
      const int buffer = index(static_cast<Operand>(i));
      if (buffer < 0) continue;
      bound[buffer] = true;
      if (is_output(inputs.problem, static_cast<Operand>(i))) output[buffer] = true;
    }
  }
  int index(Operand operand) const {
    if (operand == Operand::kWorkspace || inputs.buffers[operand].raw() == nullptr) return -1;
    const int buffer = buffers->set().containing(inputs.buffers[operand].raw());
    ASSAY_CHECK(buffer >= 0, "{} lies in no buffer of the set", operand_name(operand));
    return buffer;
  }
  // "k (first at byte 5 of 96: k block 0 slot 0 head 0 dim 2 (key 0 of request 1))"; empty when the device
  // holds what the host does. Of other calls' buffers nothing is known but the name.
  std::string change(const DeviceBuffers& on, int buffer) const {
    const int64_t at = on.changed_at(buffer);
    if (at < 0) return {};
    std::string where;
    for (int i = 0; i < kOperandCount && where.empty(); ++i)
      if (const auto operand = static_cast<Operand>(i); index(operand) == buffer)
        where = ": " + where_in(inputs.problem, operand, at);
    return fmt::format("{} (first at byte {} of {}{})", on.set().name(buffer), at, on.set()[buffer].bytes(),
                       where);
  }
  void poison_workspace() {
    if (workspace == nullptr) return;
    // The workspace holds the poison of the LSE, repeated, or where there is none of O: the Inputs know the
    // poison of the moment only through their buffers. All-ones bytes (a NaN in every float format) where
    // there is neither.
    GuardedBuffer host = workspace->set()[0];  // a handle
    uint8_t pattern[4] = {0xff, 0xff, 0xff, 0xff};
    for (const Operand operand : {Operand::kLse, Operand::kO}) {
      const GuardedBuffer& poisoned = inputs.buffers[operand];
      if (poisoned.bytes() < 4) continue;
      std::memcpy(pattern, poisoned.payload(), 4);
      break;
    }
    pattern[0] ^= 1;                         // and what is copied from here is no unwritten output
    if (filled != std::to_array(pattern)) {  // repeated calls find it as it was
      std::byte* const to = host.payload();
      const int64_t bytes = host.bytes();
      std::memcpy(to, pattern, static_cast<size_t>(std::min<int64_t>(4, bytes)));
      // What is there once more, behind it.
      for (int64_t done = 4; done < bytes; done *= 2)
        std::memcpy(to + done, to, static_cast<size_t>(std::min(done, bytes - done)));
      filled = std::to_array(pattern);
    }
    const int64_t front = host.payload() - host.raw();
    if (kept_bytes > 0) workspace->upload(0, 0, front);
    workspace->upload(0, kept_bytes > 0 ? front + kept_bytes : 0, host.raw_bytes());
  }
  // Texts of the wanted buffers that have one.
  template <class Wanted, class Text>
  std::vector<std::string> texts(const Wanted& wanted, const Text& text) const {
    std::vector<std::string> all;
    for (int i = 0; i < buffers->set().count(); ++i)
      if (wanted(i))
        if (std::string one = text(*buffers, i); !one.empty()) all.push_back(std::move(one));
    return all;
  }
};

DeviceCase::DeviceCase(const Backend& backend, const Inputs& inputs, const WorkspaceSize& wanted)
    : DeviceCase(backend, std::make_shared<DeviceBuffers>(backend, inputs.buffers.set()), inputs, wanted) {}

DeviceCase::DeviceCase(const Backend& backend, std::shared_ptr<DeviceBuffers> buffers, const Inputs& inputs,
                       const WorkspaceSize& wanted)
    : impl_(std::make_unique<Impl>(std::move(buffers), inputs)) {
  tensors_ = inputs.tensors;
  tensors_.struct_size = sizeof(tensors_);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    assay_tensor& tensor = tensor_of(tensors_, operand);
    if (tensor.data != nullptr && operand != Operand::kWorkspace)
      tensor.data = impl_->buffers->address(tensor.data);
  }
  tensors_.workspace = assay_tensor{};
  if (wanted.bytes > 0) {
    BufferSet own;
    own.add(std::string(operand_name(Operand::kWorkspace)), GuardedBuffer(wanted.bytes));
    impl_->workspace = std::make_unique<DeviceBuffers>(backend, own);
    tensors_.workspace.data = impl_->workspace->address(own[0].payload());
    tensors_.workspace.format = ASSAY_UINT8;
    tensors_.workspace.rank = 1;
    tensors_.workspace.shape[0] = wanted.bytes;
    tensors_.workspace.stride[0] = 1;
    const bool kept = wanted.zeroed_bytes > 0 || wanted.refreshed;
    tensors_.workspace.role = kept ? ASSAY_ROLE_IN_OUT : ASSAY_ROLE_OUT;
  }
  impl_->poison_workspace();  // all of it; everything else was uploaded with its buffers
  impl_->kept_bytes = std::clamp<int64_t>(wanted.zeroed_bytes, 0, wanted.bytes);
}

DeviceCase::~DeviceCase() = default;

void DeviceCase::upload() {
  upload_inputs();
  poison_outputs();
}

void DeviceCase::upload_inputs() {
  for (int i = 0; i < impl_->buffers->set().count(); ++i)
    if (impl_->bound[i] && !impl_->output[i]) impl_->buffers->upload(i);
}

void DeviceCase::upload(Operand operand, int64_t first, int64_t last) {
  const GuardedBuffer& buffer = impl_->inputs.buffers[operand];
  const int64_t front = buffer.payload() - buffer.raw();
  impl_->buffers->upload(impl_->index(operand), front + first, front + last);
}

void DeviceCase::poison_outputs(bool workspace) {
  for (int i = 0; i < impl_->buffers->set().count(); ++i)
    if (impl_->output[i]) impl_->buffers->upload(i);
  if (workspace) impl_->poison_workspace();
}

void DeviceCase::accept_outputs() {
  for (int i = 0; i < impl_->buffers->set().count(); ++i)
    if (impl_->output[i]) impl_->buffers->accept(i);
}

std::vector<std::byte> DeviceCase::download(Operand operand) const {
  if (operand == Operand::kWorkspace)
    return impl_->workspace != nullptr ? impl_->workspace->download(0) : std::vector<std::byte>();
  const int buffer = impl_->index(operand);
  return buffer < 0 ? std::vector<std::byte>() : impl_->buffers->download(buffer);
}

std::vector<std::string> DeviceCase::changed_inputs() const {
  return impl_->texts([&](int i) { return !impl_->output[i]; },
                      [this](const DeviceBuffers& on, int i) { return impl_->change(on, i); });
}

std::vector<std::string> DeviceCase::changed_outputs() const {
  return impl_->texts([&](int i) { return impl_->output[i]; },
                      [this](const DeviceBuffers& on, int i) { return impl_->change(on, i); });
}

std::vector<std::string> DeviceCase::broken_guards() const {
  const auto guard = [](const DeviceBuffers& on, int i) { return on.broken_guard(i); };
  std::vector<std::string> broken = impl_->texts([](int) { return true; }, guard);
  if (impl_->workspace != nullptr)
    if (std::string one = guard(*impl_->workspace, 0); !one.empty()) broken.push_back(std::move(one));
  return broken;
}

}  // namespace assay
