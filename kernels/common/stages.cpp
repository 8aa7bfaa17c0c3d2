// SPDX-License-Identifier: Apache-2.0
// See stages.hpp.
#include "kernels/common/stages.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/common/stage_arithmetic.hpp"
#include "kernels/common/stage_list.hpp"

namespace assay_kernels {
namespace {

constexpr int64_t kAlignment = 256, kGap = 256;
// Of a piece of the workspace, with the gap behind it.
int64_t aligned(int64_t bytes) { return (bytes + kGap + kAlignment - 1) / kAlignment * kAlignment; }
// An address for a workspace that is not there yet: as aligned as any, and not null.
unsigned char* const kNowhere = reinterpret_cast<unsigned char*>(uintptr_t{1} << 40);

// The plan of a composed kernel is its calls.
Calls* calls_of(assay_plan* plan) { return reinterpret_cast<Calls*>(plan); }

// What an entry is beside its table.
struct Entry {
  assay_kernel kernel{};
  const Pipeline* pipeline;
  std::string name;
  std::vector<assay_stage> stages;
  const Streams* streams;
};
const Entry& entry_of(const assay_kernel* self) { return *static_cast<const Entry*>(self->context); }

// Calls work(calls) for the calls of a problem; refusals and exceptions become statuses.
template <class Work>
int with_calls(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, char* error,
               size_t size, const Work& work, int64_t kept = 0) {
  if (p->struct_size < sizeof(assay_problem) || (t != nullptr && t->struct_size < sizeof(assay_tensors)))
    return say(ASSAY_UNSUPPORTED, "required an older interface, supported one with op step", error, size);
  if (p->op != ASSAY_OP_STEP)
    return say(ASSAY_UNSUPPORTED, "required another op, supported step, missing this op", error, size);
  const uint32_t taken = entry_of(self).pipeline->takes;
  const struct {
    bool wanted;
    uint32_t bit;
    std::string required;
    const char* supported;
    std::string missing = required;
  } features[] = {
      {p->ranks > 1, kTakesRanks, std::to_string(p->ranks) + " ranks", "1", "ranks"},
      {p->mask == ASSAY_MASK_CROSS, kTakesCross, "cross attention", "attention to a request's own tokens"},
      {p->mask == ASSAY_MASK_FULL, kTakesFull, "the rows of an encoder", "those of a decoder"},
      {p->encoder_len != nullptr, kTakesEncoders, "a table that begins with an encoder", "a request's own"},
      {p->full_pool != 0, kTakesPools, "a table of another pool", "tables of the cache"},
      {p->two_sources != 0, kTakesPairs, "latent and rope parts in two tensors", "one tensor"}};
  for (const auto& f : features)
    if (f.wanted && (taken & f.bit) == 0)
      return say(ASSAY_UNSUPPORTED,
                 "required " + f.required + ", supported " + f.supported + ", missing " + f.missing, error,
                 size);
  if (p->mask == ASSAY_MASK_TREE && t != nullptr && t->tree_mask.data != nullptr) {
    int64_t needed = 0;
    for (int32_t r = 0; r < p->requests; ++r) needed += int64_t{p->q_len[r]} * p->q_len[r] * (p->drafted + 1);
    if (t->tree_mask.shape[0] < needed)
      return say(ASSAY_INVALID_ARGUMENT,
                 "tree_mask has " + std::to_string(t->tree_mask.shape[0]) + " entries, the drafts of " +
                     std::to_string(p->requests) + " requests need " + std::to_string(needed),
                 error, size);
  }
  try {
    Calls calls(*self, *p, t, kept);
    entry_of(self).pipeline->add_calls(calls);
    return work(calls);
  } catch (const Refusal& refusal) {
    return say(ASSAY_UNSUPPORTED, refusal.why, error, size);
  } catch (const std::exception& e) {
    return say(ASSAY_FAILED, e.what(), error, size);
  }
}

// Others are the pipeline's own, and lie behind those.
bool is_open(const StagePlace& place) { return place.ops[0] != 0; }

std::string of_stage(const StageCall& call, const char* text) {
  return std::string("stage ") + call.stage + ", " + call.kernel->name + ": " + text;
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
             const assay_device* device, char* why, size_t size) {
  return with_calls(self, p, t, why, size, [&](Calls& calls) {
    for (const StageCall& call : calls.calls()) {
      char text[400] = "";
      const assay_kernel& k = *call.kernel;
      const int status =
          k.supports(&k, &call.problem, t != nullptr ? &call.tensors : nullptr, device, text, sizeof text);
      if (status != ASSAY_OK) return say(status, of_stage(call, text), why, size);
    }
    return static_cast<int>(ASSAY_OK);
  });
}

int arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
  return with_calls(self, p, nullptr, nullptr, 0, [&](Calls& calls) {
    fill_struct(out, arithmetic_of(calls, *p));
    return static_cast<int>(ASSAY_OK);
  });
}

// Workspaces of which a stage wants a part zero and for itself between runs lie first, each as a whole.
int64_t kept_bytes(const StageCall& call) {
  const assay_kernel& k = *call.kernel;
  const bool keeps = k.workspace_zeroed_bytes != nullptr && k.workspace_zeroed_bytes(&k, &call.problem) > 0;
  return keeps ? aligned(k.workspace_bytes(&k, &call.problem)) : 0;
}

int64_t workspace_zeroed_bytes(const assay_kernel* self, const assay_problem* p) {
  const std::vector<assay_stage>& stages = entry_of(self).stages;
  if (std::none_of(stages.begin(), stages.end(),
                   [](const assay_stage& s) { return s.kernel->workspace_zeroed_bytes != nullptr; }))
    return 0;
  int64_t bytes = 0;
  with_calls(self, p, nullptr, nullptr, 0, [&](Calls& calls) {
    for (const StageCall& call : calls.calls()) bytes += kept_bytes(call);
    return static_cast<int>(ASSAY_OK);
  });
  return bytes;
}

int64_t workspace_bytes(const assay_kernel* self, const assay_problem* p) {
  int64_t bytes = 0;
  const auto count = [&](Calls& calls) {
    calls.plan(nullptr, 0);
    bytes = calls.bytes();
    return static_cast<int>(ASSAY_OK);
  };
  with_calls(self, p, nullptr, nullptr, 0, count, workspace_zeroed_bytes(self, p));
  return bytes;
}

int dispatch(const assay_kernel* self, const assay_problem* p, char* text, size_t size) {
  return with_calls(self, p, nullptr, text, size, [&](Calls& calls) {
    std::string lines;
    for (const StageCall& call : calls.calls())
      lines += std::string(call.stage) + ": " + call.kernel->name + ", " + call.what + "\n";
    return say(ASSAY_OK, lines, text, size);
  });
}

int plan(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan** out,
         char* error, size_t size) {
  if (const int status = supports(self, p, t, nullptr, error, size); status != ASSAY_OK) return status;
  try {
    auto made = std::make_unique<Calls>(*self, *p, t, workspace_zeroed_bytes(self, p));
    entry_of(self).pipeline->add_calls(*made);
    if (const int status = made->plan(error, size); status != ASSAY_OK) return status;
    if (made->bytes() > (t->workspace.data != nullptr ? t->workspace.shape[0] : 0))
      return say(ASSAY_INVALID_ARGUMENT, "the workspace is too small", error, size);
    *out = reinterpret_cast<assay_plan*>(made.release());
    return ASSAY_OK;
  } catch (const Refusal& refusal) {
    return say(ASSAY_UNSUPPORTED, refusal.why, error, size);
  } catch (const std::exception& e) {
    return say(ASSAY_FAILED, e.what(), error, size);
  }
}

void free_plan(const assay_kernel*, assay_plan* plan) { delete calls_of(plan); }

int run(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan* plan, void* stream,
        char* error, size_t size) {
  return calls_of(plan)->run(stream, error, size);
}

int with_stages(const assay_kernel* self, const char* name, const assay_stage* stages, int32_t count,
                const assay_kernel** made, char* error, size_t size) {
  const Entry& entry = entry_of(self);
  std::vector<assay_stage> all = entry.stages;
  const auto fits = [&](size_t at, int32_t op) {
    const StagePlace& place = entry.pipeline->places[at];
    return is_open(place) && std::find(std::begin(place.ops), std::end(place.ops), op) != std::end(place.ops);
  };
  if (const int status = replace_stages(self->name, stages, count, fits, all, error, size);
      status != ASSAY_OK)
    return status;
  *made = make_composed(entry.pipeline, name, self->arch, std::move(all), entry.streams);
  return ASSAY_OK;
}

}  // namespace

void refuse(const std::string& required, const std::string& supported) {
  throw Refusal{"required " + required + ", supported " + supported + ", missing " + required};
}

assay_tensor slice(const assay_tensor& t, int64_t first, int64_t count) {
  assay_tensor part = t;
  if (t.data == nullptr) return part;
  part.data = static_cast<unsigned char*>(t.data) + first * t.stride[0] * element_bytes(t.format);
  part.shape[0] = count;
  return part;
}

assay_tensor entry_of(const assay_tensor& t, int64_t at) {
  assay_tensor part = slice(t, at, 1);
  for (int axis = 1; axis < t.rank; ++axis)
    part.shape[axis - 1] = t.shape[axis], part.stride[axis - 1] = t.stride[axis];
  --part.rank;
  return part;
}

assay_tensor read_only(assay_tensor t) {
  if (t.data != nullptr) t.role = ASSAY_ROLE_IN;
  return t;
}

void StageCall::set_lengths(std::vector<int32_t> q, std::vector<int32_t> kv) {
  q_len = std::move(q), kv_len = std::move(kv);
  const auto sum = [](const std::vector<int32_t>& list) {
    return std::accumulate(list.begin(), list.end(), int64_t{0});
  };
  const auto most = [](const std::vector<int32_t>& list) {
    return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
  };
  problem.requests = static_cast<int32_t>(q_len.size());
  problem.q_len = q_len.data(), problem.kv_len = kv_len.data();
  problem.total_q = problem.rows = sum(q_len), problem.total_kv = sum(kv_len);
  problem.max_q_len = most(q_len), problem.max_kv_len = most(kv_len);
}

Calls::Calls(const assay_kernel& self, const assay_problem& p, const assay_tensors* t, int64_t kept)
    : self_(self), problem_(p), tensors_{}, base_(kNowhere), placed_(t != nullptr), bytes_(kept) {
  tensors_.struct_size = sizeof tensors_;
  // Stages take the formats of what they read from its tensors.
  tensors_.q.format = p.q_format, tensors_.o.format = p.o_format;
  tensors_.k.format = p.k_format, tensors_.v.format = p.v_format;
  tensors_.dense_k.format = tensors_.dense_v.format = p.source_format;
  if (t == nullptr) return;
  tensors_ = *t;
  if (t->workspace.data != nullptr) base_ = static_cast<unsigned char*>(t->workspace.data);
}

Calls::~Calls() {
  for (StageCall& call : calls_) {
    if (call.plan != nullptr) call.kernel->free_plan(call.kernel, call.plan);
    if (call.mark != nullptr) entry_of(&self_).streams->free_mark(call.mark);
  }
  if (begin_ != nullptr) entry_of(&self_).streams->free_mark(begin_);
}

const assay_kernel& Calls::at(const char* stage) const {
  for (const assay_stage& s : entry_of(&self_).stages)
    if (std::strcmp(s.name, stage) == 0) return *s.kernel;
  throw Refusal{std::string("no stage ") + stage};
}

assay_tensor Calls::room(int32_t format, std::initializer_list<int64_t> shape) {
  assay_tensor t{};
  t.format = format, t.role = ASSAY_ROLE_OUT;
  int64_t elements = 1;
  for (const int64_t extent : shape) t.shape[t.rank++] = extent;
  for (int axis = t.rank - 1; axis >= 0; --axis) t.stride[axis] = elements, elements *= t.shape[axis];
  t.data = base_ + bytes_;
  bytes_ += aligned(elements * element_bytes(format));
  return t;
}

StageCall& Calls::add(const char* stage, std::string what) {
  StageCall& call = calls_.emplace_back();
  call.stage = stage, call.kernel = &at(stage), call.what = std::move(what);
  call.problem = problem_, call.problem.op = call.kernel->op;
  if (!attends(call.kernel->op)) call.problem.positions = nullptr;
  call.problem.drafted = call.problem.no_write = 0;  // of the step, or a stage that says so
  call.problem.encoder_len = nullptr, call.problem.full_pool = 0;
  call.tensors = {}, call.tensors.struct_size = sizeof call.tensors;
  call.set_lengths({problem_.q_len, problem_.q_len + problem_.requests},
                   {problem_.kv_len, problem_.kv_len + problem_.requests});
  return call;
}

StageCall& Calls::add_bounded(const char* stage, std::string what) {
  const assay_kernel& k = at(stage);
  if ((k.promises & ASSAY_PROMISE_GRAPH) == 0)
    refuse(std::string("stage ") + stage + " by " + k.name +
               ", which does not promise to read lengths in memory",
           "kernels that promise replays of captured runs");
  StageCall& call = add(stage, std::move(what));
  call.bounded = true;
  return call;
}

int Calls::plan(char* error, size_t size) {
  int64_t kept = 0;
  for (StageCall& call : calls_) {
    const assay_kernel& k = *call.kernel;
    if (k.workspace_bytes != nullptr)
      if (const int64_t bytes = k.workspace_bytes(&k, &call.problem); bytes > 0) {
        const int64_t own = kept_bytes(call), behind = bytes_;
        if (own > 0) bytes_ = kept;
        call.tensors.workspace = room(ASSAY_UINT8, {bytes});
        if (own > 0) bytes_ = behind, kept += own, call.tensors.workspace.role = ASSAY_ROLE_IN_OUT;
      }
    if (!placed_ || k.plan == nullptr) continue;
    char text[400] = "";
    const int status = k.plan(&k, &call.problem, &call.tensors, &call.plan, text, sizeof text);
    if (status != ASSAY_OK) return say(status, of_stage(call, text), error, size);
  }
  const Streams* const streams = entry_of(&self_).streams;
  if (!placed_ || streams == nullptr) return ASSAY_OK;
  for (StageCall& call : calls_) {
    int status = ASSAY_OK;
    if (call.lane > 0 && begin_ == nullptr) status = streams->make_mark(&begin_, error, size);
    for (StageCall* before : call.behind)
      if (status == ASSAY_OK && before->mark == nullptr)
        status = streams->make_mark(&before->mark, error, size);
    if (status != ASSAY_OK) return status;
  }
  return ASSAY_OK;
}

namespace {

// The stream of a call's lane, behind all that the call waits for; `begun`: behind the beginning it is
// already.
int enter_lane(const Streams& streams, const StageCall& call, void* begin, bool& begun, void** stream,
               char* error, size_t size) {
  int status = ASSAY_OK;
  if (call.lane > 0) status = streams.lane(call.lane, stream, error, size);
  if (status == ASSAY_OK && !begun) begun = true, status = streams.follow(*stream, begin, error, size);
  for (const StageCall* before : call.behind)
    if (status == ASSAY_OK) status = streams.follow(*stream, before->mark, error, size);
  return status;
}

}  // namespace

int Calls::run(void* caller, char* error, size_t size) {
  const Streams* const streams = entry_of(&self_).streams;
  bool begun[StageCall::kLanes] = {true};
  if (begin_ != nullptr)
    if (const int status = streams->put_mark(begin_, caller, error, size); status != ASSAY_OK) return status;
  for (StageCall& call : calls_) {
    const assay_kernel& k = *call.kernel;
    char text[400] = "";
    int status = ASSAY_OK;
    void* stream = caller;
    if (streams != nullptr)
      status = enter_lane(*streams, call, begin_, begun[call.lane], &stream, text, sizeof text);
    if (status == ASSAY_OK && k.refresh != nullptr)
      status = k.refresh(&k, &call.problem, &call.tensors, call.plan, stream, text, sizeof text);
    if (status == ASSAY_OK)
      status = k.run(&k, &call.problem, &call.tensors, call.plan, stream, text, sizeof text);
    if (status == ASSAY_OK && call.mark != nullptr)
      status = streams->put_mark(call.mark, stream, text, sizeof text);
    if (status == ASSAY_OK && streams != nullptr) status = streams->intact(stream, text, sizeof text);
    if (status != ASSAY_OK) return say(status, of_stage(call, text), error, size);
  }
  return ASSAY_OK;
}

const assay_kernel* make_composed(const Pipeline* pipeline, std::string name, const char* arch,
                                  std::vector<assay_stage> stages, const Streams* streams) {
  static std::list<Entry> entries;  // addresses stay
  Entry& e = entries.emplace_back();
  e.pipeline = pipeline, e.name = std::move(name), e.stages = std::move(stages), e.streams = streams;
  assay_kernel& k = e.kernel;
  k.struct_size = sizeof k, k.name = e.name.c_str(), k.description = pipeline->description, k.arch = arch;
  k.op = ASSAY_OP_STEP, k.promises = pipeline->promises, k.context = &e;
  for (const assay_stage& stage : e.stages) {
    k.promises &= stage.kernel->promises;
    // A refresh of a stage would be captured with the host's lengths of that moment.
    if (stage.kernel->refresh != nullptr) k.promises &= ~uint32_t{ASSAY_PROMISE_GRAPH};
  }
  k.contracts = pipeline->contracts;
  k.supports = supports, k.arithmetic = arithmetic, k.workspace_bytes = workspace_bytes;
  k.workspace_zeroed_bytes = workspace_zeroed_bytes;
  k.plan = plan, k.free_plan = free_plan, k.run = run;
  k.stage_count =
      static_cast<int32_t>(std::count_if(pipeline->places.begin(), pipeline->places.end(), is_open));
  k.stages = e.stages.data();
  k.dispatch = dispatch, k.with_stages = with_stages;
  return &k;
}

}  // namespace assay_kernels
