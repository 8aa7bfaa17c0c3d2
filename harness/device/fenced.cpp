// SPDX-License-Identifier: Apache-2.0
// See fenced.hpp.
#include "harness/device/fenced.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "harness/device/fault_watch.hpp"
#include "harness/device/staging.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// Memory between two pages that nobody may touch; the payload ends at the second.
class Fence {
 public:
  // Holds a copy of `content`, where there is any.
  Fence(std::string name, int64_t bytes, bool output, const std::byte* content = nullptr)
      : name_(std::move(name)), bytes_(bytes), output_(output) {
    page_ = sysconf(_SC_PAGESIZE);
    const int64_t inner = (bytes + kFenceAlignment + page_ - 1) / page_ * page_;
    whole_ = inner + 2 * page_;
    void* at = mmap(nullptr, static_cast<size_t>(whole_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    base_ = static_cast<std::byte*>(at);
    mprotect(base_ + page_, static_cast<size_t>(inner), PROT_READ | PROT_WRITE);
    std::byte* end = base_ + page_ + inner;
    payload_ = end - (bytes + kFenceAlignment - 1) / kFenceAlignment * kFenceAlignment;
    const auto fill = [](std::byte* from, const std::byte* to) {
      std::memset(from, 0xa5, static_cast<size_t>(to - from));
    };
    if (content == nullptr) {
      fill(base_ + page_, end);
    } else {
      fill(base_ + page_, payload_), fill(payload_ + bytes, end);
      copy_bytes(payload_, content, bytes);
    }
  }
  ~Fence() {
    if (base_ != nullptr) munmap(base_, static_cast<size_t>(whole_));
  }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  std::byte* payload() const { return payload_; }
  void close() const {
    if (!output_) mprotect(base_ + page_, static_cast<size_t>(whole_ - 2 * page_), PROT_READ);
  }
  WatchedMemory watched() const { return {name_, payload_, bytes_, base_, base_ + whole_}; }

 private:
  std::string name_;
  int64_t bytes_, page_ = 4096, whole_ = 0;
  bool output_;
  std::byte *base_ = nullptr, *payload_ = nullptr;
};

}  // namespace

CallResult fenced_call(const Backend& backend, const assay_kernel& kernel, const Inputs& inputs,
                       const assay_device& device) {
  if (backend.table()->host_memory != 1) return {ASSAY_UNSUPPORTED, "the backend has memory of its own"};
  const BufferSet& set = inputs.buffers.set();
  const assay_problem* problem = inputs.view->get();
  const WorkspaceSize workspace = call_workspace(kernel, problem);
  int64_t bytes = workspace.bytes;
  for (int i = 0; i < set.count(); ++i) bytes += set[i].bytes();
  if (bytes > kMostFencedBytes) return {ASSAY_UNSUPPORTED, "too large to be laid out twice"};

  assay_tensors tensors = inputs.tensors;
  std::vector<bool> output(static_cast<size_t>(set.count()), false);
  for (int i = 0; i < kOperandCount; ++i)
    if (const GuardedBuffer& buffer = inputs.buffers[i];
        buffer.raw() != nullptr && is_output(inputs.problem, static_cast<Operand>(i)))
      if (const int at = set.containing(buffer.raw()); at >= 0) output[static_cast<size_t>(at)] = true;
  std::vector<std::unique_ptr<Fence>> fences;
  for (int i = 0; i < set.count(); ++i) {
    fences.push_back(std::make_unique<Fence>(set.name(i), set[i].bytes(), output[static_cast<size_t>(i)],
                                             set[i].payload()));
    if (fences.back()->payload() == nullptr) return {ASSAY_UNSUPPORTED, "no memory to lay it out twice"};
  }
  for (int i = 0; i < kOperandCount; ++i) {
    assay_tensor& t = tensor_of(tensors, static_cast<Operand>(i));
    if (t.data == nullptr) continue;
    const int at = set.containing(t.data);
    ASSAY_CHECK(at >= 0, "{} lies in no buffer of the set", operand_name(static_cast<Operand>(i)));
    t.data =
        fences[static_cast<size_t>(at)]->payload() + (static_cast<std::byte*>(t.data) - set[at].payload());
  }
  if (const CallResult r = call_supports(kernel, problem, &tensors, device); !r.ok()) return r;
  if (workspace.bytes > 0) {
    fences.push_back(std::make_unique<Fence>("the workspace", workspace.bytes, true));
    if (fences.back()->payload() == nullptr) return {ASSAY_UNSUPPORTED, "no memory for a workspace"};
    tensors.workspace = assay_tensor{};
    tensors.workspace.data = fences.back()->payload();
    tensors.workspace.format = ASSAY_UINT8;
    tensors.workspace.rank = 1;
    tensors.workspace.shape[0] = workspace.bytes;
    tensors.workspace.stride[0] = 1;
    tensors.workspace.role =
        workspace.zeroed_bytes > 0 || workspace.refreshed ? ASSAY_ROLE_IN_OUT : ASSAY_ROLE_OUT;
  }
  std::vector<WatchedMemory> places;
  for (const auto& fence : fences) fence->close(), places.push_back(fence->watched());
  const FaultWatch watch(places);
  assay_plan* plan = nullptr;
  CallResult r = call_plan(backend, kernel, problem, &tensors, &plan);
  if (r.ok()) r = call_run(backend, kernel, problem, &tensors, plan);
  call_free_plan(kernel, plan);
  return r;
}

}  // namespace assay
