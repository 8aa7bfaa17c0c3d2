// SPDX-License-Identifier: Apache-2.0
// See rank_group.hpp. Whoever waits for a rank looks at all of them in turns: one that died would otherwise
// be seen only when the time of those that wait for it is over.
#include "harness/run/rank_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "harness/base/error.hpp"
#include "harness/base/now.hpp"
#include "harness/device/exported.hpp"
#include "harness/ops/op.hpp"
#include "harness/run/rank_operands.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

using Kind = WorkerProcess::Event::Kind;
constexpr double kLookSeconds = 0.02;

bool has_group_id(const Backend& backend) {
  return exported<assay_backend_group_id_fn>(backend, "assay_backend_group_id") != nullptr;
}

// Whether the library connects its ranks itself, a device each, or they exchange through the host's memory:
// for libraries that cannot, or where one checks more ranks than the machine has devices.
bool connects_itself(const Backend& backend) { return has_group_id(backend) && !ranks_take_turns(); }

int say(int status, const std::string& text, char* to, size_t size) {
  if (to != nullptr && size > 0) *fmt::format_to_n(to, size - 1, "{}", text).out = '\0';
  return status;
}

// The first answer that is not well.
CallResult first_bad(const std::vector<nlohmann::json>& said, const char* doing) {
  for (size_t rank = 0; rank < said.size(); ++rank)
    if (const int status = said[rank].value("status", static_cast<int>(ASSAY_FAILED)); status != ASSAY_OK)
      return {status, fmt::format("rank {} of {} {}: {}", rank, said.size(), doing,
                                  said[rank].value("text", std::string()))};
  return {};
}

}  // namespace

// Operands of the whole step where the host can read and write them, in memory that serves every call: a
// cache of gigabytes would cost more in fresh pages than in copies.
class WholeOnHost {
 public:
  explicit WholeOnHost(const Backend& backend) : table_(*backend.table()) {}
  void load(const assay_tensors& t) {
    device_ = host_ = t;
    if (table_.host_memory != 0) return;
    copies_.resize(kTensorFields);
    for (size_t i = 0; i < kTensorFields; ++i) {
      assay_tensor& to = fields_of(host_)[i];
      if (to.data == nullptr) continue;
      std::vector<unsigned char>& bytes = copies_[i];
      bytes.resize(std::max(bytes.size(), static_cast<size_t>(extent_bytes(to)) + 1));
      copy(table_.copy_to_host, bytes.data(), to.data, extent_bytes(to));
      to.data = bytes.data();
    }
  }
  const assay_tensors& tensors() const { return host_; }
  // What a step writes, O and some blocks of the cache: as it is on the device, and back.
  void load_written(const std::vector<int64_t>& blocks) {
    each_written(blocks, [&](unsigned char* host, unsigned char* device, int64_t bytes) {
      copy(table_.copy_to_host, host, device, bytes);
    });
  }
  void give_back(const std::vector<int64_t>& blocks) {
    each_written(blocks, [&](unsigned char* host, unsigned char* device, int64_t bytes) {
      copy(table_.copy_to_device, device, host, bytes);
    });
  }

 private:
  template <class F>
  void each_written(const std::vector<int64_t>& blocks, const F& f) {
    for (size_t i = 0; i < kTensorFields && table_.host_memory == 0; ++i) {
      assay_tensor t = fields_of(host_)[i];
      auto* host = static_cast<unsigned char*>(t.data);
      auto* device = static_cast<unsigned char*>(fields_of(device_)[i].data);
      if (host == nullptr || (t.role != ASSAY_ROLE_OUT && t.role != ASSAY_ROLE_IN_OUT)) continue;
      if (host != static_cast<unsigned char*>(host_.k.data) &&
          host != static_cast<unsigned char*>(host_.v.data)) {
        f(host, device, extent_bytes(t));
        continue;
      }
      t.shape[0] = 1;
      for (const int64_t block : blocks) {
        const int64_t at = block * t.stride[0] * format_bytes(t.format);
        f(host + at, device + at, extent_bytes(t));
      }
    }
  }
  template <class Copy>
  static void copy(const Copy& how, void* to, const void* from, int64_t bytes) {
    char error[512] = "";
    if (how(to, from, bytes, error, sizeof error) != ASSAY_OK) throw InfrastructureError(error);
  }
  const assay_backend& table_;
  assay_tensors device_{}, host_{};
  std::vector<std::vector<unsigned char>> copies_;
};

bool ranks_take_turns() {
  const char* how = std::getenv("ASSAY_RANKS");
  return how != nullptr && std::string_view(how) == "host";
}

bool wants_ranks(const Problem& p) {
  const Op& op = op_of(p.op);
  return op.attends_rows && takes(op, "ranks") && (p.ranks > 1 || p.interleave > 1);
}

RankGroup::RankGroup(const Backend& backend, const assay_kernel& kernel, const RankOptions& options)
    : backend_(backend), kernel_(kernel), options_(options), whole_(std::make_unique<WholeOnHost>(backend)) {
  entry_.struct_size = sizeof entry_;
  entry_.name = kernel.name, entry_.description = kernel.description, entry_.arch = kernel.arch;
  entry_.op = kernel.op, entry_.context = this;
  entry_.promises = promises_of(kernel) & ASSAY_PROMISE_REPEATABLE;
  entry_.contracts = contracts_of(kernel);
  entry_.supports = supports, entry_.run = run;
  if (kernel.arithmetic != nullptr) entry_.arithmetic = arithmetic;
}

RankGroup::~RankGroup() = default;

int RankGroup::supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                        const assay_device* device, char* why, size_t size) {
  const RankGroup& group = *static_cast<const RankGroup*>(self->context);
  if (exported<assay_backend_join_fn>(group.backend_, "assay_backend_join") == nullptr)
    return say(ASSAY_UNSUPPORTED,
               fmt::format("required {} ranks, supported 1, missing assay_backend_join in {}", p->ranks,
                           group.backend_.path()),
               why, size);
  if (p->ranks > kMostRanks)
    return say(ASSAY_UNSUPPORTED,
               fmt::format("required {} ranks, supported up to {}, missing ranks", p->ranks, kMostRanks), why,
               size);
  const bool own = connects_itself(group.backend_);
  if (const int32_t devices = own ? group.backend_.table()->device_count() : p->ranks; devices < p->ranks)
    return say(
        ASSAY_UNSUPPORTED,
        fmt::format("required {} ranks with a device each, supported {} (the devices of this machine), "
                    "missing devices; with ASSAY_RANKS=host in the environment ranks take turns on those "
                    "there are, exchange through the host's memory, and are checked but not timed",
                    p->ranks, devices),
        why, size);
  return group.kernel_.supports(&group.kernel_, p, nullptr, device, why, size);
}

int RankGroup::arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
  const RankGroup& group = *static_cast<const RankGroup*>(self->context);
  return group.kernel_.arithmetic(&group.kernel_, p, out);
}

int RankGroup::run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
                   void*, char* error, size_t size) {
  RankGroup& group = *static_cast<RankGroup*>(self->context);
  group.prepared_ = false;
  if (group.broken_.empty()) {
    const CallResult r = group.run_all(*p, *t);
    if (r.ok() || r.refused()) return say(r.status, r.error, error, size);
    group.broken_ = r.error;
    group.ranks_.clear();  // ends them all
  }
  return say(ASSAY_FAILED, group.broken_, error, size);
}

// Rank 0 alone.
CallResult RankGroup::make_id(std::vector<unsigned char>& id) {
  std::vector<std::unique_ptr<WorkerProcess>> others;
  while (ranks_.size() > 1) others.push_back(std::move(ranks_.back())), ranks_.pop_back();
  ranks_[0]->send({{"do", "id"}});
  std::vector<nlohmann::json> said;
  const std::string why = answers(said, "make the group's id");
  for (; !others.empty(); others.pop_back()) ranks_.push_back(std::move(others.back()));
  if (!why.empty()) return {ASSAY_FAILED, why};
  if (CallResult bad = first_bad(said, "cannot make the group's id"); !bad.ok())
    return bad.refused() ? CallResult{bad.status, said[0].value("text", std::string())} : bad;
  id = said[0].at("id").get<std::vector<unsigned char>>();
  return {};
}

CallResult RankGroup::start(int32_t ranks) {
  const bool own = connects_itself(backend_);
  const int32_t devices = own ? ranks : std::max(1, backend_.table()->device_count());
  exchange_ = std::make_unique<SharedMemory>(exchange_bytes(ranks));
  prepare_exchange(*exchange_, ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    WorkerCommand command;
    command.argv = {options_.program, "rank", backend_.path(), std::to_string(rank % devices)};
    // What connects devices reserves addresses by the memory of all of them, far beyond a worker's limit, and
    // shares files as large as it likes.
    if (own) command.memory_bytes = command.file_bytes = kNoLimit;
    ranks_.push_back(std::make_unique<WorkerProcess>(command, STDERR_FILENO));
  }
  std::vector<unsigned char> id;
  if (own)
    if (CallResult r = make_id(id); !r.ok()) return r;
  for (int32_t rank = 0; rank < ranks; ++rank)
    ranks_[static_cast<size_t>(rank)]->send(
        {{"do", "join"}, {"rank", rank}, {"ranks", ranks}, {"exchange", exchange_->path()}, {"id", id}});
  std::vector<nlohmann::json> said;
  if (const std::string why = answers(said, "join"); !why.empty()) return {ASSAY_FAILED, why};
  return first_bad(said, "cannot join");
}

std::string RankGroup::silent(const std::vector<bool>& answered) const {
  int64_t most = 0, least = -1;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int64_t entered = exchanges_entered(*exchange_, static_cast<int32_t>(rank));
    most = std::max(most, entered);
    if (!answered[rank] && (least < 0 || entered < least)) least = entered;
  }
  std::string list;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!answered[rank] && exchanges_entered(*exchange_, static_cast<int32_t>(rank)) == least)
      list += (list.empty() ? "rank " : " and ") + std::to_string(rank);
  return list + (least < most
                     ? fmt::format(", which entered {} exchanges where others entered {},", least, most)
                     : std::string());
}

std::string RankGroup::answers(std::vector<nlohmann::json>& said, const char* to_what) {
  const double until = now_s() + options_.limit_s;
  said.assign(ranks_.size(), {});
  std::vector<bool> answered(ranks_.size(), false);
  while (std::find(answered.begin(), answered.end(), false) != answered.end()) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (answered[rank]) continue;
      const WorkerProcess::Event e = ranks_[rank]->next(kLookSeconds);
      const std::string who = fmt::format("rank {} of {}", rank, ranks_.size());
      if (e.kind == Kind::kDied)
        return fmt::format("{} ended with {} when it was to {}", who, e.death, to_what);
      if (e.kind == Kind::kGarbage) return fmt::format("{} was to {} and said: {}", who, to_what, e.death);
      if (e.kind != Kind::kMessage) continue;
      if (e.message.contains("event")) {  // its greeting, or why there is none
        if (e.message.at("event") == "here") continue;
        return fmt::format("{} said something unexpected: {}", who, e.message.dump());
      }
      said[rank] = e.message, answered[rank] = true;
      // The others may wait for it in an exchange for ever.
      const int status = e.message.value("status", static_cast<int>(ASSAY_FAILED));
      if (status != ASSAY_OK && status != ASSAY_UNSUPPORTED && !e.message.contains("implausible"))
        return fmt::format("{} failed to {}: {}", who, to_what, e.message.value("text", std::string()));
    }
    if (now_s() > until)
      return fmt::format("{} did not {} within {:.3g} s", silent(answered), to_what, options_.limit_s);
  }
  return "";
}

CallResult RankGroup::run_all(const assay_problem& p, const assay_tensors& t) {
  try {
    if (ranks_.empty())
      if (CallResult r = start(p.ranks); !r.ok()) return ranks_.clear(), r;
    whole_->load(t);
    blocks_ = written_blocks(p, whole_->tensors());
    const unsigned char unused = (entry_.contracts & ASSAY_CONTRACT_FINITE_UNUSED) != 0 ? 0 : 0xff;
    operands_.resize(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (std::unique_ptr<RankOperands>& own = operands_[rank];
          own == nullptr || !own->refill(p, whole_->tensors(), unused))
        own = std::make_unique<RankOperands>(p, whole_->tensors(), static_cast<int32_t>(rank), unused);
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank]->send({{"do", "run"}, {"kernel", kernel_.name}, {"operands", operands_[rank]->path()}});
    std::vector<nlohmann::json> said;
    if (std::string why = answers(said, "run"); !why.empty()) return {ASSAY_FAILED, why};
    const auto refused = std::count_if(said.begin(), said.end(), [](const nlohmann::json& answer) {
      return answer.at("status") == ASSAY_UNSUPPORTED;
    });
    if (CallResult bad = first_bad(said, "refuses"); !bad.ok())
      return {refused == p.ranks ? ASSAY_UNSUPPORTED : ASSAY_FAILED, bad.error};
    problem_ = p;
    return put_back();
  } catch (const std::exception& e) {
    return {ASSAY_FAILED, e.what()};
  }
}

// What the ranks brought back of the call that ran last, into its tensors.
CallResult RankGroup::put_back() {
  for (size_t rank = 0; rank < operands_.size(); ++rank)
    if (const std::string why = operands_[rank]->put_back(problem_, whole_->tensors()); !why.empty())
      return {ASSAY_FAILED, fmt::format("rank {} of {} {}", rank, operands_.size(), why)};
  whole_->give_back(blocks_);
  return {};
}

std::vector<nlohmann::json> RankGroup::ask_all(const nlohmann::json& order, const char* to_what) {
  if (!broken_.empty() || operands_.empty()) throw TimedCallFailed{"no call ran that could be timed"};
  for (const auto& rank : ranks_) rank->send(order);
  std::vector<nlohmann::json> said;
  if (const std::string why = answers(said, to_what); !why.empty()) {
    broken_ = why;
    ranks_.clear();
    throw TimedCallFailed{why};
  }
  const CallResult bad = first_bad(said, fmt::format("was to {}", to_what).c_str());
  if (bad.ok()) return said;
  if (bad.refused()) throw ModeRefused{bad.error};
  throw TimeImplausible{bad.error};
}

void RankGroup::prepare(const assay_problem& p, const assay_tensors& t, const std::string& mode) {
  const bool of_devices = has_group_id(backend_);
  if (of_devices && !connects_itself(backend_))
    throw ModeRefused{"ranks that exchange through the host's memory (ASSAY_RANKS=host) have no times"};
  // Behind another mode's times the ranks hold the same call.
  if (!prepared_)
    if (const CallResult r = run_all(p, t); !r.ok())
      throw TimedCallFailed{"failed when repeated: " + r.error};
  prepared_ = true;
  seats_.clear();
  for (const nlohmann::json& said : ask_all({{"do", "prepare"}, {"mode", mode}}, "be ready to be timed"))
    seats_.push_back({said.at("device").get<std::string>(), said.at("uuid").get<std::string>()});
}

Samples RankGroup::sample_once() {
  Samples all;
  for (const nlohmann::json& said : ask_all({{"do", "sample"}}, "run while it was timed")) {
    TimedSample s(said.at("us").get<double>());
    s.dropped = said.at("dropped").get<bool>();
    if (const nlohmann::json& mhz = said.at("sm_mhz"); mhz.is_number()) s.sm_mhz = mhz.get<double>();
    if (const nlohmann::json& host = said.at("host_us"); host.is_number()) s.host_us = host.get<double>();
    seats_[all.size()].knows_throttling = said.at("knows_throttling").get<bool>();
    all.push_back(s);
  }
  return all;
}

// The host's clock of whoever came last has no waiting for others in it, and the longest time of them all is
// held against that.
Samples RankGroup::sample() {
  for (HostBeside beside;;) {
    Samples all = sample_once();
    TimedSample whole = all[0];
    for (const TimedSample& s : all)
      whole.us = std::max(whole.us, s.us), whole.host_us = std::fmin(whole.host_us, s.host_us);
    if (!beside.again(whole.us, whole.host_us)) return all;
  }
}

void RankGroup::show() {
  ask_all({{"do", "show"}}, "run after it was timed");
  whole_->load_written(blocks_);
  if (const CallResult r = put_back(); !r.ok()) throw TimedCallFailed{r.error};
}

}  // namespace assay
