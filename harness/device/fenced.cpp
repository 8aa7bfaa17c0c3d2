// SPDX-License-Identifier: Apache-2.0
// See fenced.hpp.
#include "harness/device/fenced.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "harness/device/call_once.hpp"
#include "harness/device/fault_watch.hpp"
#include "harness/device/staging.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// Addresses between two pages that nobody may touch, kept from call to call: pages that were touched once are
// there, and need no clearing. Nobody may touch any of it while no fence has it.
struct Area {
  std::byte* base = nullptr;
  int64_t inner = 0;  // bytes between the two pages
  int64_t page() const { return sysconf(_SC_PAGESIZE); }
  int64_t whole() const { return inner + 2 * page(); }
  std::byte* end() const { return base + page() + inner; }
};

class Areas {
 public:
  // The smallest that has room and is not for something far larger; null where there is no memory.
  Area take(int64_t inner) {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->inner >= inner && it->inner <= 4 * room(inner) &&
          (best == free_.end() || it->inner < best->inner))
        best = it;
    if (best != free_.end()) {
      const Area area = *best;
      free_.erase(best), kept_ -= area.inner;
      return area;
    }
    Area area{nullptr, room(inner)};
    void* at =
        mmap(nullptr, static_cast<size_t>(area.whole()), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) area.base = static_cast<std::byte*>(at);
    return area;
  }
  void give_back(const Area& area) {
    mprotect(area.base, static_cast<size_t>(area.whole()), PROT_NONE);
    const std::lock_guard lock(mutex_);
    free_.push_back(area), kept_ += area.inner;
    for (; kept_ > kMostKept; free_.erase(free_.begin())) {  // of the longest unused
      kept_ -= free_.front().inner;
      munmap(free_.front().base, static_cast<size_t>(free_.front().whole()));
    }
  }

 private:
  static constexpr int64_t kMostKept = int64_t{128} << 20;
  // A little more, so that the next case's operands fit: addresses that nobody touches take no memory.
  static int64_t room(int64_t inner) {
    constexpr int64_t kStep = int64_t{1} << 20;
    return inner < kStep ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(inner)))
                         : (inner + kStep - 1) / kStep * kStep;
  }
  std::mutex mutex_;
  std::vector<Area> free_;
  int64_t kept_ = 0;
};

Areas& areas() {
  static Areas all;
  return all;
}

// Memory between two pages that nobody may touch; the payload ends at the second.
class Fence {
 public:
  // Holds a copy of `content`, where there is any.
  Fence(std::string name, int64_t bytes, bool output, const std::byte* content = nullptr)
      : name_(std::move(name)), bytes_(bytes), output_(output) {
    const int64_t page = area_.page();
    inner_ = (bytes + kFenceAlignment + page - 1) / page * page;
    area_ = areas().take(inner_);
    if (area_.base == nullptr) return;
    std::byte *const end = area_.end(), *const begin = end - inner_;
    mprotect(begin, static_cast<size_t>(inner_), PROT_READ | PROT_WRITE);
    payload_ = end - (bytes + kFenceAlignment - 1) / kFenceAlignment * kFenceAlignment;
    const auto fill = [](std::byte* from, const std::byte* to) {
      std::memset(from, 0xa5, static_cast<size_t>(to - from));
    };
    if (content == nullptr) {
      fill(begin, end);
    } else {
      fill(begin, payload_), fill(payload_ + bytes, end);
      copy_bytes(payload_, content, bytes);
    }
  }
  ~Fence() {
    if (area_.base != nullptr) areas().give_back(area_);
  }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  std::byte* payload() const { return payload_; }
  void close() const {
    if (!output_) mprotect(area_.end() - inner_, static_cast<size_t>(inner_), PROT_READ);
  }
  WatchedMemory watched() const { return {name_, payload_, bytes_, area_.base, area_.base + area_.whole()}; }

 private:
  std::string name_;
  int64_t bytes_, inner_ = 0;
  bool output_;
  Area area_;
  std::byte* payload_ = nullptr;
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
  for (int i = 0; i < kOperandCount; ++i) {
    const GuardedBuffer& buffer = inputs.buffers[i];
    const int at = buffer.raw() == nullptr ? -1 : set.containing(buffer.raw());
    if (at >= 0 && places[static_cast<size_t>(at)].unit == nullptr)
      count_units(places[static_cast<size_t>(at)], inputs.problem, static_cast<Operand>(i));
  }
  const FaultWatch watch(places);
  return call_once(backend, kernel, problem, &tensors);
}

}  // namespace assay
