// SPDX-License-Identifier: Apache-2.0
// See rank_session.hpp.
#include "harness/run/rank_session.hpp"

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/device/call_once.hpp"

namespace assay {
namespace {

constexpr int kRankPoison = 0xff;  // NaN in every float

void done(int status, const char* error) {
  if (status != ASSAY_OK) throw InfrastructureError(error);
}

bool is_written(const assay_tensor& t) {
  return t.data != nullptr && (t.role == ASSAY_ROLE_OUT || t.role == ASSAY_ROLE_IN_OUT);
}

}  // namespace

RankDeviceOperands::RankDeviceOperands(const Backend& backend, const assay_tensors& host)
    : table_(*backend.table()), host_(host), tensors_(host) {
  if (table_.host_memory != 0) return;
  for (size_t i = 0; i < kTensorFields; ++i) {
    assay_tensor& t = fields_of(tensors_)[i];
    if (t.data == nullptr) continue;
    const int64_t bytes = extent_bytes(t);
    void* to = room(std::max<int64_t>(bytes, 1));
    put(to, t.data, bytes);
    t.data = to;
  }
}

RankDeviceOperands::~RankDeviceOperands() {
  char error[512] = "";
  for (void* p : owned_) table_.release(p, error, sizeof error);
}

void* RankDeviceOperands::room(int64_t bytes) {
  char error[512] = "";
  void* to = nullptr;
  done(table_.allocate(bytes, &to, error, sizeof error), error);
  owned_.push_back(to);
  return to;
}

void RankDeviceOperands::put(void* to, const void* from, int64_t bytes) {
  char error[512] = "";
  done(table_.copy_to_device(to, from, bytes, error, sizeof error), error);
}

void RankDeviceOperands::make_workspace(int64_t bytes) {
  assay_tensor& workspace = tensors_.workspace;
  workspace.data = room(bytes), workspace.format = ASSAY_UINT8, workspace.rank = 1;
  workspace.shape[0] = bytes, workspace.stride[0] = 1, workspace.role = ASSAY_ROLE_OUT;
  const std::vector<unsigned char> poison(static_cast<size_t>(bytes), kRankPoison);
  put(workspace.data, poison.data(), bytes);
}

void RankDeviceOperands::poison_outputs() {
  for (size_t i = 0; i < kTensorFields; ++i) {
    const assay_tensor& t = fields_of(host_)[i];
    if (t.data == nullptr || t.role != ASSAY_ROLE_OUT) continue;
    std::memset(t.data, kRankPoison, static_cast<size_t>(extent_bytes(t)));
    if (table_.host_memory == 0) put(fields_of(tensors_)[i].data, t.data, extent_bytes(t));
  }
}

void RankDeviceOperands::bring_back() {
  char error[512] = "";
  for (size_t i = 0; i < kTensorFields && table_.host_memory == 0; ++i)
    if (const assay_tensor& t = fields_of(host_)[i]; is_written(t))
      done(table_.copy_to_host(t.data, fields_of(tensors_)[i].data, extent_bytes(t), error, sizeof error),
           error);
}

RankSession::RankSession(const Backend& backend, const assay_device& device, const assay_kernel& kernel,
                         const std::string& operands)
    : backend_(backend),
      device_(device),
      kernel_(kernel),
      memory_(operands),
      call_(*reinterpret_cast<const RankCall*>(memory_.data())) {
  place(call_, memory_.data());
}

CallResult RankSession::run() {
  operands_.emplace(backend_, call_.tensors);
  const assay_problem* p = &call_.problem;
  if (CallResult r = call_supports(kernel_, p, operands_->tensors(), device_); !r.ok()) return r;
  if (const WorkspaceSize size = call_workspace(kernel_, p); size.bytes > 0)
    operands_->make_workspace(size.bytes);
  CallResult r = call_once(backend_, kernel_, p, operands_->tensors());
  if (r.ok()) operands_->bring_back();
  return r;
}

void RankSession::prepare(const std::string& mode, DeviceClock* clock) {
  timed_.reset();  // its graph before another one's
  timed_.emplace(backend_, device_, kernel_, &call_.problem, operands_->tensors(), mode, clock,
                 CallsAgain::kCaller);
}

TimedSample RankSession::sample() { return timed_->sample(); }

void RankSession::show() {
  operands_->poison_outputs();
  timed_->sample();
  operands_->bring_back();
}

}  // namespace assay
