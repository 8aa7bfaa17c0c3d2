// SPDX-License-Identifier: Apache-2.0
// A step on several ranks. The judge calls the group as assay check does; then every rank runs once more,
// each a child of one process, with its stages apart and its exchanges noted, and judges what its own stages
// left. Exchanges go through the host's memory, so that one device serves all ranks.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <thread>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/call_once.hpp"
#include "harness/device/exported.hpp"
#include "harness/explain/stages/rank_exchanges.hpp"
#include "harness/explain/stages/step_search.hpp"
#include "harness/explain/stages/watched.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/run/rank_group.hpp"
#include "harness/run/rank_operands.hpp"
#include "harness/run/rank_session.hpp"

namespace assay {
namespace {

using nlohmann::json;

// A plain number in every format, so that what a rank should not have read can be followed.
constexpr unsigned char kUnused = 0x3c;
constexpr double kSecondsOfEnding = 5;

// Keys of a context that a rank holds.
int32_t held(int32_t context, int32_t ranks, int32_t interleave, int32_t rank) {
  int32_t count = 0;
  for (int32_t key = 0; key < context; ++key) count += owner_of(key, ranks, interleave).rank == rank;
  return count;
}

// What a stage may take the keys of its rank for.
std::vector<Misreading> rank_misreadings_of(const StageCase& c, const assay_problem& step, int32_t rank) {
  std::vector<Misreading> list;
  const auto scalar = [&](std::string how, int32_t assay_problem::*field, int32_t value) {
    list.push_back({"turns_other", std::move(how), [=](Reading& r) {
                      if (value < 1 || r.problem.*field == value) return false;
                      r.problem.*field = value;
                      return true;
                    }});
  };
  if (c.kernel().op == ASSAY_OP_DCP_LENGTHS)
    for (const int32_t turn : {1, step.interleave * 2, step.interleave / 2, step.page_size})
      scalar(fmt::format("turns of {} tokens", turn), &assay_problem::interleave, turn);
  const assay_tensor& lengths = c.given().tensors.kv_len;
  if (c.kernel().op != ASSAY_OP_PAGED || lengths.data == nullptr || lengths.rank != 1) return list;
  std::vector<int32_t> context, q(step.q_len, step.q_len + step.requests);
  for (int32_t r = 0; r < step.requests; ++r) context.push_back(step.kv_len[r] - step.q_len[r]);
  const int32_t ranks = step.ranks, turn = std::max(1, step.interleave);
  const auto put = [&](const char* cause, std::string how, auto value) {
    list.push_back({cause, std::move(how), [=](Reading& r) {
                      const std::vector<int32_t> old = r.ints(Operand::kKvLen);
                      std::vector<int32_t> now;
                      for (size_t i = 0; i < old.size(); ++i)
                        now.push_back(i < context.size() ? std::max(0, value(old[i], i)) : old[i]);
                      if (now == old) return false;
                      r.put(Operand::kKvLen, now);
                      return true;
                    }});
  };
  for (int32_t by = 1; by < ranks; ++by) {
    const int32_t other = (rank + by) % ranks;
    put("keys_of_other_rank", fmt::format("lengths of rank {}", other),
        [=](int32_t, size_t i) { return held(context[i], ranks, turn, other); });
  }
  put("keys_of_all_ranks", "lengths of whole contexts", [=](int32_t, size_t i) { return context[i]; });
  put("keys_of_all_ranks", "lengths of whole requests", [=](int32_t, size_t i) { return context[i] + q[i]; });
  const int32_t longest = *std::max_element(context.begin(), context.end());
  const int32_t share = (longest + ranks * turn - 1) / (ranks * turn) * turn;
  int32_t most = 0;
  for (const int32_t n : context) most = std::max(most, held(n, ranks, turn, rank));
  for (const int32_t bound : {share, most, (most + turn - 1) / turn * turn})
    for (const int32_t least : {-1, 0, turn})
      put("keys_of_longest", fmt::format("{} keys where there are more than {}", bound, least),
          [=](int32_t n, size_t) { return n > least ? bound : n; });
  return list;
}

// One rank: what it says of itself.
class RankLook {
 public:
  RankLook(const std::string& library, const std::string& kernel, const assay_group& group,
           const assay_tensors& whole, const std::string& operands)
      : backend_(Backend::load(library)), group_(group), whole_(whole), memory_(operands) {
    const assay_backend& table = *backend_.table();
    char error[512] = "";
    const auto demand = [&](int status) {
      if (status != ASSAY_OK) throw InfrastructureError(error);
    };
    demand(table.use_device(group.rank % std::max(1, table.device_count()), error, sizeof error));
    const auto join = exported<assay_backend_join_fn>(backend_, "assay_backend_join");
    if (join == nullptr) throw InfrastructureError("the library does not export assay_backend_join");
    demand(join(group_.get(), error, sizeof error));
    kernel_ = backend_.find(kernel);
    call_ = *reinterpret_cast<const RankCall*>(memory_.data());
    place(call_, memory_.data());
  }

  StepExplanation look(const StepExplanation& of) {
    StepExplanation x = of;
    RankDeviceOperands operands(backend_, call_.tensors);
    if (const WorkspaceSize size = call_workspace(*kernel_, &call_.problem); size.bytes > 0)
      operands.make_workspace(size.bytes);
    if (StepApart::can(*kernel_)) {
      StepApart apart(backend_, *kernel_, &call_.problem, operands.tensors());
      apart.record();
      if (blame_a_stage(apart, x)) return x;
      if (explain_exchanges(group_.all(), apart.runs(), call_.problem, whole_.q, group_.get()->rank, x))
        return x;
      if (wrong_lengths(apart, x)) return x;
      return x;
    }
    whole(operands, x);
    return x;
  }

 private:
  bool blame_a_stage(const StepApart& apart, StepExplanation& x) {
    for (const StageRun& run : apart.runs()) {
      const StageCase c(backend_, run);
      const StageVerdict v = c.judge(c.given());
      x.stages.push_back(stage_text(run, v));
      if (!v.judged || v.right) continue;
      x.blame = StepBlame::kStage;
      explain_stage(c, v, x, rank_misreadings_of(c, call_.problem, group_.get()->rank));
      foreign_rows(c, x.causes);
      return true;
    }
    return false;
  }

  // A slot of -1 is another rank's row: what is written in spite of it lies where nothing may.
  static void foreign_rows(const StageCase& c, std::vector<StepRanked>& causes) {
    const assay_tensor& slots = c.given().tensors.slot_mapping;
    if (c.kernel().op != ASSAY_OP_CACHE_WRITE || slots.data == nullptr) return;
    int64_t own = 0, written = 0;
    for (int64_t i = 0; i < slots.shape[0]; ++i)
      own += static_cast<const int64_t*>(slots.data)[i * slots.stride[0]] >= 0;
    const StageRun& run = c.run();
    const assay_tensor& k = run.tensors.k;
    const Bytes &before = run.before[static_cast<int>(Operand::kK)],
                &after = run.after[static_cast<int>(Operand::kK)];
    // Values of K that changed, in rows of all heads.
    const auto width = static_cast<size_t>(format_bytes(k.format));
    int64_t values = 0;
    for (size_t at = 0; at + width <= after.copy.size(); at += width)
      values += !std::equal(after.copy.begin() + static_cast<int64_t>(at),
                            after.copy.begin() + static_cast<int64_t>(at + width),
                            before.copy.begin() + static_cast<int64_t>(at));
    written = values / std::max(1, run.problem.heads_kv * run.problem.head_dim_qk);
    if (own < slots.shape[0] && written > own)
      causes.push_back(
          {"foreign_rows", fmt::format("{} rows are written, {} are this rank's", written, own), 1, 0, ""});
    sort_causes(causes);
  }

  // Right on what they were given, and given the lengths of other keys.
  bool wrong_lengths(const StepApart& apart, StepExplanation& x) {
    for (const StageRun& run : apart.runs()) {
      if (run.kernel->op != ASSAY_OP_PAGED) continue;
      const StageCase c(backend_, run);
      const auto due = [&](Reading& r) {
        const std::vector<int32_t> old = r.ints(Operand::kKvLen);
        std::vector<int32_t> now = old;
        for (size_t i = 0; i < now.size() && i < static_cast<size_t>(call_.problem.requests); ++i)
          now[i] = held(call_.problem.kv_len[i] - call_.problem.q_len[i], call_.problem.ranks,
                        std::max(1, call_.problem.interleave), group_.get()->rank);
        return std::pair(old, now);
      };
      Reading given = c.given();
      if (!given.has(Operand::kKvLen) || given.tensors.kv_len.rank != 1) continue;
      const auto [old, right] = due(given);
      if (old == right) continue;
      x.blame = StepBlame::kWiring, x.place = run.place, x.stage_kernel = run.kernel->name;
      for (const Misreading& m : rank_misreadings_of(c, call_.problem, group_.get()->rank)) {
        Reading as = c.given();
        as.lists = std::make_shared<std::list<std::vector<std::byte>>>();
        as.put(Operand::kKvLen, right);
        if (m.make(as) && as.ints(Operand::kKvLen) == old) x.causes.push_back({m.cause, m.how, 1, 0, ""});
      }
      x.causes.push_back({name_of_difference(old, right, run.q_len, run.problem.page_size, false),
                          "given other lengths than this rank has keys", 0.95, 0, ""});
      sort_causes(x.causes);
      return true;
    }
    return false;
  }

  // A step whose stages nobody sees: its cache is a write of the rank's own rows.
  void whole(RankDeviceOperands& operands, StepExplanation& x) {
    StageRun run;
    run.kernel = kernel_, run.problem = call_.problem, run.tensors = *operands.tensors();
    run.q_len.assign(call_.problem.q_len, call_.problem.q_len + call_.problem.requests);
    run.kv_len.assign(call_.problem.kv_len, call_.problem.kv_len + call_.problem.requests);
    copy_operands(backend_, run.tensors, run.before);
    const CallResult r = call_once(backend_, *kernel_, &run.problem, operands.tensors());
    if (!r.ok()) throw InfrastructureError(fmt::format("{}: {}", kernel_->name, r.error));
    copy_operands(backend_, run.tensors, run.after);
    assay_arithmetic arithmetic = default_arithmetic();
    call_arithmetic(backend_, *kernel_, &run.problem, arithmetic);
    const StageRun write = Halves::as_write(run, call_.problem.total_q);
    const StageCase c(backend_, write, &arithmetic);
    const StageVerdict v = c.judge(c.given());
    x.stages.push_back("the cache: " + (v.right ? "right" : v.reason));
    if (!v.judged || v.right) return;
    x.blame = StepBlame::kEnd;
    explain_stage(c, v, x);
    foreign_rows(c, x.causes);
  }

  Backend backend_;
  NotedGroup group_;
  const assay_tensors& whole_;
  SharedMemory memory_;
  const assay_kernel* kernel_ = nullptr;
  RankCall call_{};
};

// What all ranks say of themselves; one that ends says so.
std::vector<StepExplanation> look_at_ranks(const Problem& problem, uint32_t contracts,
                                           const std::string& backend, const std::string& kernel,
                                           const StepExplanation& of, double timeout_s) {
  Inputs inputs = build_inputs(problem);
  meet_contracts(inputs, contracts);
  const assay_problem& view = *inputs.view->get();
  const int32_t ranks = problem.ranks;
  const SharedMemory memory(exchange_bytes(ranks));
  prepare_exchange(memory, ranks);
  std::vector<std::unique_ptr<RankOperands>> operands;
  for (int32_t rank = 0; rank < ranks; ++rank)
    operands.push_back(std::make_unique<RankOperands>(view, inputs.tensors, rank, kUnused));
  std::vector<StepExplanation> said(static_cast<size_t>(ranks), of);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      StepExplanation& own = said[static_cast<size_t>(rank)];
      const ChildEnd end = run_in_child(
          [&](const Report& report) {
            omp_set_num_threads(1);
            RankLook look(backend, kernel, exchange_of(memory, rank, ranks), inputs.tensors,
                          operands[static_cast<size_t>(rank)]->path());
            report(explanation_json(look.look(of)));
          },
          [&](const json& j) { own = step_explanation(j); }, timeout_s);
      sort_causes(own.causes);
      if (!end.fine()) own.blame = StepBlame::kUnknown, own.stage_reason = end.text();
    });
  for (std::thread& t : threads) t.join();
  return said;
}

// Of all ranks the ones that are wrong alike; a stage that is wrong comes before what follows from it.
void put_together(const std::vector<StepExplanation>& said, StepExplanation& x) {
  for (const StepBlame blame :
       {StepBlame::kStage, StepBlame::kExchange, StepBlame::kWiring, StepBlame::kEnd, StepBlame::kUnknown}) {
    const auto first =
        std::find_if(said.begin(), said.end(), [&](const StepExplanation& s) { return s.blame == blame; });
    if (first == said.end()) continue;
    x.blame = blame, x.place = first->place, x.stage_kernel = first->stage_kernel;
    x.stage_reason = first->stage_reason, x.entries = first->entries;
    int32_t alike = 0;
    for (size_t rank = 0; rank < said.size(); ++rank) {
      const bool same = said[rank].blame == blame && said[rank].place == x.place;
      for (const std::string& stage : said[rank].stages)
        if (same || &said[rank] == &*first) x.stages.push_back(fmt::format("rank {}: {}", rank, stage));
      if (!same) continue;
      ++alike, x.ranks.push_back(static_cast<int32_t>(rank));
      for (const StepRanked& r : said[rank].causes) {
        const auto known = std::find_if(x.causes.begin(), x.causes.end(),
                                        [&](const StepRanked& k) { return k.cause == r.cause; });
        if (known == x.causes.end())
          x.causes.push_back({r.cause, r.how, r.explained, r.spoilt, r.meaning});
        else
          known->explained += r.explained, known->spoilt += r.spoilt;
      }
    }
    for (StepRanked& r : x.causes) r.explained /= alike;
    sort_causes(x.causes);
    if (alike == static_cast<int32_t>(said.size())) x.ranks.clear();
    return;
  }
}

}  // namespace

StepExplanation explain_ranks(const std::string& line, const Problem& problem, const std::string& backend,
                              const std::string& kernel, const CaptureOptions& options,
                              const std::string& program) {
  const auto start = std::chrono::steady_clock::now();
  StepExplanation x;
  x.line = line, x.kernel = kernel;
  std::string refused;
  uint32_t contracts = 0;
  const ChildEnd judged = run_in_child(
      [&](const Report& report) {
        omp_set_num_threads(1);
        const Backend loaded = Backend::load(backend);
        const assay_kernel* found = kernel_of_step(loaded, kernel, report);
        if (found == nullptr) return;
        RankOptions how;
        how.program = program, how.limit_s = options.timeout_s / 2;
        RankGroup group(loaded, *found, how);
        Judge judge(problem, options.rows_budget);
        const Verdict v = judge.judge(loaded, group.kernel(), loaded.device(0));
        report({{"outcome", static_cast<int>(v.outcome)},
                {"reason", v.reason},
                {"contracts", contracts_of(*found)}});
      },
      [&](const json& j) {
        if (j.contains("refused"))
          refused = j["refused"];
        else
          x.outcome = static_cast<Outcome>(j["outcome"].get<int>()), x.reason = j["reason"],
          contracts = j["contracts"];
      },
      options.timeout_s);
  if (!refused.empty()) throw InputError(refused);
  if (!judged.fine()) throw InfrastructureError(judged.text());
  if (x.outcome == Outcome::kWrong || x.outcome == Outcome::kCrashed || x.outcome == Outcome::kTimedOut) {
    const StepExplanation of = x;
    x.blame = StepBlame::kUnknown;
    const ChildEnd looked = run_in_child(
        [&](const Report& report) {
          omp_set_num_threads(1);  // ranks are children of this one, which inherit no threads
          StepExplanation own = of;
          // One that ends leaves the others waiting.
          const double limit = of.outcome == Outcome::kWrong ? options.timeout_s / 2 : kSecondsOfEnding;
          put_together(look_at_ranks(problem, contracts, backend, kernel, of, limit), own);
          if (own.blame == StepBlame::kNothing) own.blame = StepBlame::kUnknown;
          report(explanation_json(own));
        },
        [&](const json& j) { x = step_explanation(j); }, options.timeout_s);
    if (!looked.fine()) x.stage_reason = looked.text();
  }
  x.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return x;
}

}  // namespace assay
