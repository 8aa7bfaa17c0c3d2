// SPDX-License-Identifier: Apache-2.0
// A kernel that runs on several ranks, seen as one kernel: its run() shares out the operands of the whole
// step, has every rank, a process of its own, run on its share, and puts together what they wrote. The judge
// needs to know nothing of it. A rank that ends, hangs, fails or writes where it may not makes run() fail
// with the rank's number; all ranks are ended then, and with the group.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/measure/measure.hpp"
#include "harness/run/rank_exchange.hpp"

namespace assay {

class RankOperands;
class WholeOnHost;
class WorkerProcess;

struct RankOptions {
  std::string program = "/proc/self/exe";  // run as `PROGRAM rank LIBRARY DEVICE`
  double limit_s = 30;                     // of one call, and of a rank to be ready
};

// Whether a kernel of op step on this problem is one for a group: several ranks, or one that takes turns with
// itself, which shows what joins ranks where a machine has one device.
bool wants_ranks(const Problem&);
// Whether somebody wants ranks to take turns on the devices there are (ASSAY_RANKS=host).
bool ranks_take_turns();

class RankGroup {
 public:
  // Nothing is started before the first run. Backend and kernel outlive it.
  RankGroup(const Backend&, const assay_kernel&, const RankOptions&);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // An entry to call in place of the kernel's, of the same name, as long as this lives. It has no graphs,
  // plan, workspace or stages of its own.
  const assay_kernel& kernel() const { return entry_; }

  // ---- a call timed by all ranks at once in a mode of TimedCall, whose exceptions name the rank. Refused
  // where ranks that have a device exchange through the host. Runs it once, unless it is the call that the
  // last prepare() was given; the tensors stay with the caller.
  void prepare(const assay_problem&, const assay_tensors&, const std::string& mode);
  // Of every rank: what one of them took, the waiting for others within the call with it. All ranks make the
  // same calls, whatever one of them makes of its clock: more of one would wait for the others for ever.
  Samples sample();
  // One call more, as those were, with poison in the outputs, into the tensors.
  void show();
  struct Seat {
    std::string device, uuid;
    bool knows_throttling = false;
  };
  const std::vector<Seat>& seats() const { return seats_; }  // of the ranks, after prepare()

 private:
  static int supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                      char* why, size_t);
  static int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);
  static int run(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
                 char* error, size_t);
  CallResult start(int32_t ranks);
  CallResult make_id(std::vector<unsigned char>& id);
  CallResult run_all(const assay_problem&, const assay_tensors&);
  CallResult put_back();
  Samples sample_once();
  // An answer of every rank, in their order; why there is not one of each, or "".
  std::string answers(std::vector<nlohmann::json>&, const char* to_what);
  // The same to an order of a timed series; what is wrong is thrown.
  std::vector<nlohmann::json> ask_all(const nlohmann::json& order, const char* to_what);
  std::string silent(const std::vector<bool>& answered) const;  // who keeps the others waiting

  const Backend& backend_;
  const assay_kernel& kernel_;
  RankOptions options_;
  assay_kernel entry_{};
  std::unique_ptr<SharedMemory> exchange_;
  std::vector<std::unique_ptr<WorkerProcess>> ranks_;
  std::vector<std::unique_ptr<RankOperands>> operands_;  // of the call that ran last
  std::unique_ptr<WholeOnHost> whole_;
  std::vector<int64_t> blocks_;  // of the cache, that this call writes to
  assay_problem problem_{};
  bool prepared_ = false;  // nothing was run since prepare()
  std::vector<Seat> seats_;
  std::string broken_;  // why no call can be right any more
};

}  // namespace assay
