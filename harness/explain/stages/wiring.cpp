// SPDX-License-Identifier: Apache-2.0
// See wiring.hpp. Order and presence of stages first, since what is not there cannot be repaired; then every
// operand and scalar of every place.
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <numeric>

#include "harness/explain/stages/wiring_search.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

std::vector<std::string> Wiring::dispatched() const {
  std::vector<std::string> places;
  if (kernel_.dispatch == nullptr) return places;
  std::vector<char> text(1 << 16);
  if (kernel_.dispatch(&kernel_, &step(), text.data(), text.size()) != ASSAY_OK) return places;
  const std::string all = text.data();
  for (size_t at = 0; at < all.size(); at = std::min(all.find('\n', at), all.size() - 1) + 1) {
    const std::string name = all.substr(at, all.find(':', at) - at);
    for (int32_t i = 0; i < kernel_.stage_count; ++i)  // some are the pipeline's own, and not seen
      if (name == kernel_.stages[i].name) places.push_back(name);
  }
  return places;
}

void Wiring::missing() {
  std::multiset<std::string> due, ran;
  for (const std::string& place : dispatched()) due.insert(place);
  for (const StageRun& run : runs_) ran.insert(run.place);
  std::set<std::string> told;
  for (const std::string& place : due)
    if (due.count(place) > ran.count(place) && told.insert(place).second)
      found_.push_back(
          {place,
           {"left_out", fmt::format("runs {} times, and {} are due", ran.count(place), due.count(place)), 1,
            0, ""}});
  if (!found_.empty() || !due.empty()) return;
  // Nobody says what is due: what is read and was never written, and outputs that nobody writes.
  const auto written = [&](const assay_tensor& t) {
    for (const StageRun& run : runs_)
      for (int i = 0; i < kOperandCount; ++i)
        if (writes(run, i) && overlaps(run.before[i], t)) return true;
    return false;
  };
  if (!written(own().o)) found_.push_back({"the last stage", {"left_out", "nobody writes O", 1, 0, ""}});
  if (step().no_write == 0 && !written(own().k))
    found_.push_back({"write", {"left_out", "nobody writes the cache", 1, 0, ""}});
}

bool Wiring::writes(const StageRun& run, int operand) {
  return !run.after[operand].copy.empty() && run.before[operand].copy != run.after[operand].copy;
}

bool Wiring::overlaps(const Bytes& a, const assay_tensor& t) {
  const auto* first = static_cast<const std::byte*>(t.data);
  return first != nullptr && a.address < first + view_bytes(t) && first < a.end();
}

bool Wiring::overlaps(const Bytes& a, const Bytes& b) {
  return !a.copy.empty() && !b.copy.empty() && a.address < b.end() && b.address < a.end();
}

void Wiring::order() {
  for (size_t late = 1; late < runs_.size(); ++late)
    for (size_t reader = 0; reader < late; ++reader) {
      bool reads = false;
      for (int i = 0; i < kOperandCount && !reads; ++i)
        for (int j = 0; j < kOperandCount && !reads; ++j)
          reads = writes(runs_[late], i) && overlaps(runs_[late].before[i], runs_[reader].before[j]);
      if (!reads) continue;
      std::vector<size_t> order(runs_.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::rotate(order.begin() + static_cast<int64_t>(reader), order.begin() + static_cast<int64_t>(late),
                  order.begin() + static_cast<int64_t>(late) + 1);
      const std::optional<StepEnd::Look> then = tried([&] {
        apart_.run_in_order(order);
        return true;
      });
      if (!then || !then->right) continue;
      found_.push_back({runs_[late].place,
                        {"out_of_order",
                         fmt::format("runs after {}, which reads what it writes; before it, the end is right",
                                     runs_[reader].place),
                         1, 0, ""}});
      return;
    }
}

void Wiring::attempt(const StageRun& of, const std::string& cause, const std::string& how,
                     const Repair& repair) {
  const std::optional<StepEnd::Look> then = tried([&] {
    bool changed = false;
    apart_.run([&](size_t at, assay_problem& p, assay_tensors& t) {
      if (at < runs_.size() && runs_[at].place == of.place) changed = repair(runs_[at], p, t) || changed;
      return true;
    });
    return changed;
  });
  if (!then) return;
  const StepEnd::Look now = *then;
  const auto bad = [](const StepEnd::Look& l) { return static_cast<double>(l.bad_o + l.bad_cache); };
  // A sink that a merge lacks may join one of its parts as well.
  const double whole = cause == "sink_missing" && op_of(of.kernel->op).attends_rows ? 0.99 : 1;
  const double explained = now.right ? whole : 0.95 * (1 - bad(now) / std::max(1.0, bad(nothing_)));
  if (explained > 0.3)
    found_.push_back(
        {of.place, {cause, how + (now.right ? ", the end is right" : ", less is wrong"), explained, 0, ""}});
}

void Wiring::scalars_of(const StageRun& of) {
  const Op& op = op_of(of.kernel->op);
  const assay_problem &p = of.problem, &s = step();
  if (op.attends_rows) {
    const char* mask = p.mask == ASSAY_MASK_CAUSAL ? "mask_causal"
                       : p.mask == ASSAY_MASK_TREE ? "mask_tree"
                                                   : "mask_full";
    for (const int32_t m : {s.mask, int32_t{ASSAY_MASK_CAUSAL}, int32_t{ASSAY_MASK_FULL}})
      scalar(of, mask, "mask", &assay_problem::mask, m);
    const auto window = [&](const char* name, int32_t assay_problem::*field) {
      const int32_t given = p.*field;
      std::set<int32_t> candidates = {s.*field, -1, 0, given + 1, std::max(0, given - 1)};
      for (const int32_t right : candidates) {
        const char* cause = given < 0                                  ? "window_missing"
                            : right < 0                                ? "window_added"
                            : right == given + 1 || right == given - 1 ? "window_off_by_one"
                                                                       : "window_other";
        scalar(of, cause, name, field, right);
      }
    };
    window("window to the left", &assay_problem::window_left);
    window("window to the right", &assay_problem::window_right);
    scalar(of, "softmax_scale", "softmax scale", &assay_problem::softmax_scale, s.softmax_scale);
    scalar(of, p.softcap == 0 ? "cap_missing" : "cap_other", "soft cap", &assay_problem::softcap, s.softcap);
    scalar(of, p.alibi == ASSAY_ALIBI_NONE ? "bias_missing" : "bias_other", "bias", &assay_problem::alibi,
           s.alibi);
    scalar(of, "dims_missing", "head dimension", &assay_problem::head_dim_qk, s.head_dim_qk);
  }
  for (const int32_t chunk : {s.chunk, 0}) scalar(of, "chunk_other", "chunk", &assay_problem::chunk, chunk);
  scalar(of, "budget_other", "budget", &assay_problem::token_budget, s.token_budget);
  scalar(of, "threshold_other", "threshold", &assay_problem::threshold, s.threshold);
  scalar(of, "drafts_step_less", "steps of drafts", &assay_problem::drafted, s.drafted);
  scalar(of, "list_units", "page size", &assay_problem::page_size, s.page_size);
  for (const int32_t states : {p.states + 1, p.states - 1, 2})
    if (op.id == ASSAY_OP_MERGE_STATES && states > 0 && states <= of.tensors.partial_o.shape[0])
      scalar(of, "state_missing", "states", &assay_problem::states, states);
  if (op.id == ASSAY_OP_CACHE_WRITE)
    for (const int64_t rows : {s.rows, s.total_q, s.total_kv, p.rows + 1})
      if (rows <= of.tensors.slot_mapping.shape[0])
        scalar(of, "row_missing", "rows", &assay_problem::rows, rows);
  if (find_operand(op, Operand::kSinks) != nullptr) sinks(of);
  kinds(of);
}

void Wiring::operands_of(const StageRun& of) {
  for (int i = 0; i < kOperandCount; ++i) operand(of, static_cast<Operand>(i), op_of(of.kernel->op));
}

void Wiring::limit_processor_time() {
  // This process has judged and run the step: what it took so far is more than one run takes.
  const auto seconds = static_cast<rlim_t>(2 + 2 * std::clock() / CLOCKS_PER_SEC);
  const rlimit limit{seconds, seconds};
  setrlimit(RLIMIT_CPU, &limit);
}

void Wiring::sinks(const StageRun& of) {
  if (of.problem.has_sinks != 0)
    attempt(of, "sink_extra", "given sinks; without",
            [](const StageRun&, assay_problem& p, assay_tensors& t) {
              p.has_sinks = 0, t.sinks = assay_tensor{};
              return true;
            });
  else if (own().sinks.data != nullptr)
    attempt(of, "sink_missing", "given no sinks; with those of the step",
            [&](const StageRun&, assay_problem& p, assay_tensors& t) {
              p.has_sinks = 1, t.sinks = own().sinks;
              return true;
            });
}

void Wiring::kinds(const StageRun& of) {
  const struct {
    Operand o;
    int32_t assay_problem::*kind;
    float assay_problem::*host;
  } all[] = {{Operand::kQScale, &assay_problem::q_scale_kind, &assay_problem::q_scale_host},
             {Operand::kKScale, &assay_problem::k_scale_kind, &assay_problem::k_scale_host},
             {Operand::kVScale, &assay_problem::v_scale_kind, &assay_problem::v_scale_host}};
  for (const auto& s : all) {
    const int32_t right = step().*s.kind;
    const float host = step().*s.host;
    if (of.problem.*s.kind == right && (right != ASSAY_SCALE_HOST || of.problem.*s.host == host)) continue;
    attempt(of, of.problem.*s.kind == ASSAY_SCALE_NONE ? "scale_missing" : "scale_other",
            fmt::format("given scales of another kind; with {} of the step", operand_name(s.o)),
            [&, s](const StageRun&, assay_problem& p, assay_tensors& t) {
              p.*s.kind = right, p.*s.host = host;
              tensor_of(t, s.o) = tensor_of(own(), s.o);
              return true;
            });
  }
}

bool Wiring::alike(const assay_tensor& a, const assay_tensor& b) {
  return a.data != nullptr && b.data != nullptr && a.format == b.format && a.rank == b.rank &&
         std::equal(a.shape, a.shape + a.rank, b.shape);
}

void Wiring::operand(const StageRun& of, Operand o, const Op& op) {
  const assay_tensor& given = tensor_of(of.tensors, o);
  const OperandUse* use = find_operand(op, o);
  if (given.data == nullptr || given.rank == 0 || use == nullptr) return;
  const std::string name(operand_name(o));
  strides(of, o);
  // The step's operand of that name, in whole or the part that is as large.
  const assay_tensor& right = tensor_of(own(), o);
  if (right.data != nullptr && right.format == given.format && right.rank == given.rank &&
      right.data != given.data && std::equal(given.shape + 1, given.shape + given.rank, right.shape + 1) &&
      given.format != ASSAY_INT32)
    for (int64_t first = 0; first + given.shape[0] <= right.shape[0];
         first += std::max<int64_t>(1, right.shape[0] - given.shape[0]))
      attempt(of, name_of_other(o), fmt::format("given another {}; with that of the step", name),
              [=](const StageRun&, assay_problem&, assay_tensors& t) {
                tensor_of(t, o) = right;
                tensor_of(t, o).shape[0] = given.shape[0];
                tensor_of(t, o).data = static_cast<std::byte*>(right.data) +
                                       first * right.stride[0] * format_bytes(right.format);
                return true;
              });
  if (o == Operand::kPartialO || o == Operand::kPartialLse) states(of, o);
  if (given.format == ASSAY_INT32 && use->role == Role::kIn) lists(of, o);
}

const char* Wiring::name_of_other(Operand o) {
  switch (o) {
    case Operand::kQScale:
    case Operand::kKScale:
    case Operand::kVScale:
      return "scale_other";
    case Operand::kK:
    case Operand::kV:
    case Operand::kDenseK:
    case Operand::kDenseV:
      return "v_for_k";
    case Operand::kSlotMapping:
      return "slots_shifted";
    case Operand::kTreeMask:
      return "drafts_all";
    case Operand::kTreeIndptr:
      return "tree_of_one";
    case Operand::kSinks:
      return "sink_extra";
    default:
      return "other_operand";
  }
}

void Wiring::strides(const StageRun& of, Operand o) {
  const assay_tensor& given = tensor_of(of.tensors, o);
  for (int axis = 0; axis < given.rank; ++axis) {
    if (given.stride[axis] != 0 || given.shape[axis] < 2) continue;
    int64_t dense = 1;
    for (int inner = axis + 1; inner < given.rank; ++inner)
      dense = std::max(dense, given.stride[inner] * given.shape[inner]);
    const assay_tensor& step_own = tensor_of(own(), o);
    const char* cause = o == Operand::kPartialO || o == Operand::kPartialLse ? "state_twice"
                        : o == Operand::kBlockTable                          ? "table_of_one"
                        : o == Operand::kKvLen                               ? "lengths_of_one"
                        : o == Operand::kTreeIndptr                          ? "tree_of_one"
                        : o == Operand::kCuQ || o == Operand::kIndptr        ? "starts_of_one"
                                                                             : "scale_of_one";
    for (const int64_t stride : {alike(step_own, given) ? step_own.stride[axis] : dense, dense})
      attempt(
          of, cause,
          fmt::format("given {} with one entry for all of axis {}; with each its own", operand_name(o), axis),
          [=](const StageRun&, assay_problem&, assay_tensors& t) {
            tensor_of(t, o).stride[axis] = stride;
            // Of a merge: both of its operands.
            if (o == Operand::kPartialO && t.partial_lse.stride[0] == 0)
              t.partial_lse.stride[0] = t.partial_lse.shape[1] * t.partial_lse.stride[1];
            return true;
          });
  }
}

void Wiring::states(const StageRun& of, Operand o) {
  const assay_tensor& given = tensor_of(of.tensors, o);
  if (given.rank == 0 || given.shape[0] < 2 || given.stride[0] == 0) return;
  attempt(of, "states_exchanged", fmt::format("given {} in the opposite order; turned", operand_name(o)),
          [=](const StageRun&, assay_problem&, assay_tensors& t) {
            assay_tensor& own = tensor_of(t, o);
            own.data = static_cast<std::byte*>(own.data) +
                       (own.shape[0] - 1) * own.stride[0] * format_bytes(own.format);
            own.stride[0] = -own.stride[0];
            return true;
          });
}

std::vector<WiringCause> rank_wiring(StepApart& apart, StepEnd& end, const assay_kernel& kernel,
                                     const StepEnd::Look& nothing) {
  return Wiring(apart, end, kernel, nothing).all();
}

}  // namespace assay
