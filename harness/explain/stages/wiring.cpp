// SPDX-License-Identifier: Apache-2.0
// See wiring.hpp. Order and presence of stages first, since what is not there cannot be repaired; then every
// operand and scalar of every place.
#include "harness/explain/stages/wiring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "harness/base/error.hpp"
#include "harness/explain/child.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Changes one run of a place; false: it changes nothing.
using Repair = std::function<bool(const StageRun&, assay_problem&, assay_tensors&)>;

constexpr double kSecondsOfTry = 10;

// Devices' drivers do not survive a fork.
bool in_host_memory(const Backend& backend) {
  const std::string name = backend.name();
  return name.find("cuda") == std::string::npos && name.find("hip") == std::string::npos;
}

// Lists that may stand for each other.
enum class Sort { kLengths, kStarts, kTable, kFirsts, kRequests, kOther };
Sort sort_of(Operand o) {
  switch (o) {
    case Operand::kKvLen:
    case Operand::kContextLen:
    case Operand::kEncoderLen:
    case Operand::kOutLen:
      return Sort::kLengths;
    case Operand::kCuQ:
    case Operand::kCuKv:
    case Operand::kIndptr:
    case Operand::kOutCuQ:
    case Operand::kOutCuKv:
      return Sort::kStarts;
    case Operand::kBlockTable:
    case Operand::kIndices:
    case Operand::kOutTable:
    case Operand::kOutIndices:
      return Sort::kTable;
    case Operand::kSeqStarts:
    case Operand::kOutStarts:
      return Sort::kFirsts;
    case Operand::kTokenToBatch:
    case Operand::kOutRequest:
      return Sort::kRequests;
    default:
      return Sort::kOther;
  }
}

class Wiring {
 public:
  Wiring(StepApart& apart, StepEnd& end, const assay_kernel& kernel, const StepEnd::Look& nothing)
      : apart_(apart), end_(end), kernel_(kernel), nothing_(nothing), runs_(apart.runs()) {
    const Inputs& in = end.inputs();
    for (const Request& r : in.problem.requests) q_.push_back(r.q_len), kv_.push_back(r.kv_len);
  }
  ~Wiring() {
    char why[200];
    for (void* memory : memory_) apart_.backend().table()->release(memory, why, sizeof why);
  }
  Wiring(const Wiring&) = delete;
  Wiring& operator=(const Wiring&) = delete;

  std::vector<WiringCause> all() {
    missing();
    if (found_.empty()) order();
    if (found_.empty()) {
      std::set<std::string> done;
      for (const StageRun& run : runs_)
        if (done.insert(run.place).second) place(run);
    }
    std::stable_sort(found_.begin(), found_.end(), [](const WiringCause& a, const WiringCause& b) {
      return a.ranked.explained > b.ranked.explained;
    });
    return std::move(found_);
  }

 private:
  const assay_problem& step() const { return *end_.inputs().view->get(); }
  const assay_tensors& own() const { return *end_.tensors(); }

  // The places that a run should have, in order, as the kernel says.
  std::vector<std::string> dispatched() const {
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

  void missing() {
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

  static bool writes(const StageRun& run, int operand) {
    return !run.after[operand].copy.empty() && run.before[operand].copy != run.after[operand].copy;
  }
  static bool overlaps(const Bytes& a, const assay_tensor& t) {
    const auto* first = static_cast<const std::byte*>(t.data);
    return first != nullptr && a.address < first + view_bytes(t) && first < a.end();
  }
  static bool overlaps(const Bytes& a, const Bytes& b) {
    return !a.copy.empty() && !b.copy.empty() && a.address < b.end() && b.address < a.end();
  }

  // A stage that runs behind one that reads what it writes: moved before that one.
  void order() {
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
        found_.push_back(
            {runs_[late].place,
             {"out_of_order",
              fmt::format("runs after {}, which reads what it writes; before it, the end is right",
                          runs_[reader].place),
              1, 0, ""}});
        return;
      }
  }

  // The end after `work`, from what stood there before the step; nothing where it changes nothing, or what a
  // stage then reads contradicts the rest. In a process of its own where memory is the host's: a stage may
  // follow what it is given anywhere.
  template <class Work>
  std::optional<StepEnd::Look> tried(const Work& work) {
    std::optional<StepEnd::Look> seen;
    const auto direct = [&]() -> std::optional<StepEnd::Look> {
      try {
        end_.clear();
        if (!work()) return {};
        return end_.look();
      } catch (const std::exception&) {
        return {};
      }
    };
    if (!in_host_memory(apart_.backend())) return direct();
    run_in_child(
        [&](const Report& report) {
          if (const std::optional<StepEnd::Look> l = direct(); l)
            report({{"o", l->bad_o}, {"cache", l->bad_cache}, {"checked", l->checked}, {"right", l->right}});
        },
        [&](const nlohmann::json& j) {
          seen.emplace();
          seen->bad_o = j["o"], seen->bad_cache = j["cache"], seen->checked = j["checked"];
          seen->right = j["right"];
        },
        kSecondsOfTry);
    return seen;
  }

  void attempt(const StageRun& of, const std::string& cause, const std::string& how, const Repair& repair) {
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
          {of.place,
           {cause, how + (now.right ? ", the end is right" : ", less is wrong"), explained, 0, ""}});
  }

  template <class Value>
  void scalar(const StageRun& of, const char* cause, const char* name, Value assay_problem::*field,
              Value right) {
    const Value given = of.problem.*field;
    if (given == right) return;
    attempt(of, cause, fmt::format("given {} {}; with {}", name, given, right),
            [=](const StageRun&, assay_problem& p, assay_tensors&) {
              p.*field = right;
              return true;
            });
  }

  void place(const StageRun& of) {
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
      scalar(of, p.softcap == 0 ? "cap_missing" : "cap_other", "soft cap", &assay_problem::softcap,
             s.softcap);
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
    for (int i = 0; i < kOperandCount; ++i) operand(of, static_cast<Operand>(i), op);
  }

  void sinks(const StageRun& of) {
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

  void kinds(const StageRun& of) {
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

  static bool alike(const assay_tensor& a, const assay_tensor& b) {
    return a.data != nullptr && b.data != nullptr && a.format == b.format && a.rank == b.rank &&
           std::equal(a.shape, a.shape + a.rank, b.shape);
  }

  void operand(const StageRun& of, Operand o, const Op& op) {
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

  static const char* name_of_other(Operand o) {
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

  // A stride of 0 reads one entry for all.
  void strides(const StageRun& of, Operand o) {
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
        attempt(of, cause,
                fmt::format("given {} with one entry for all of axis {}; with each its own", operand_name(o),
                            axis),
                [=](const StageRun&, assay_problem&, assay_tensors& t) {
                  tensor_of(t, o).stride[axis] = stride;
                  // Of a merge: both of its operands.
                  if (o == Operand::kPartialO && t.partial_lse.stride[0] == 0)
                    t.partial_lse.stride[0] = t.partial_lse.shape[1] * t.partial_lse.stride[1];
                  return true;
                });
    }
  }

  // Partial results as earlier stages left them, in another order.
  void states(const StageRun& of, Operand o) {
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

  // ---- int32 lists and tables
  static std::vector<int32_t> numbers(const Bytes& bytes, const assay_tensor& t) {
    std::vector<int32_t> all;
    const int64_t back = static_cast<const std::byte*>(t.data) - bytes.address;
    const int64_t rows = t.rank > 1 ? t.shape[0] : 1, columns = t.shape[t.rank > 1 ? 1 : 0];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t at = back + 4 * (t.rank > 1 ? i * t.stride[0] + j * t.stride[1] : j * t.stride[0]);
        int32_t value = 0;
        if (at >= 0 && at + 4 <= static_cast<int64_t>(bytes.copy.size()))
          std::memcpy(&value, bytes.copy.data() + at, 4);
        all.push_back(value);
      }
    return all;
  }
  assay_tensor on_device(const assay_tensor& like, const std::vector<int32_t>& list) {
    char why[200];
    const assay_backend& table = *apart_.backend().table();
    void* memory = nullptr;
    const auto bytes = static_cast<int64_t>(list.size() * 4);
    if (table.allocate(bytes + 256, &memory, why, sizeof why) != ASSAY_OK)
      throw InfrastructureError(fmt::format("no memory for a list: {}", why));
    memory_.push_back(memory);
    if (table.copy_to_device(memory, list.data(), bytes, why, sizeof why) != ASSAY_OK)
      throw InfrastructureError(fmt::format("a list cannot be copied: {}", why));
    assay_tensor t = like;
    t.data = memory, t.stride[t.rank > 1 ? 1 : 0] = 1;
    if (t.rank > 1) t.stride[0] = t.shape[1];
    return t;
  }
  void put(const StageRun& of, Operand o, const std::string& cause, const std::string& how,
           const std::function<std::vector<int32_t>(const StageRun&, const std::vector<int32_t>&)>& rule) {
    const int i = static_cast<int>(o);
    const std::vector<int32_t> first = numbers(of.before[i], tensor_of(of.tensors, o));
    if (rule(of, first) == first || !tried_[of.place + name_of(o)].insert(rule(of, first)).second) return;
    attempt(of, cause, how, [&, i, o](const StageRun& run, assay_problem&, assay_tensors& t) {
      assay_tensor& given = tensor_of(t, o);
      if (given.data == nullptr) return false;
      const std::vector<int32_t> old = numbers(run.before[i], tensor_of(run.tensors, o)),
                                 now = rule(run, old);
      if (now == old || now.size() != old.size()) return false;
      given = on_device(given, now);
      return true;
    });
  }
  static std::string name_of(Operand o) { return std::string(operand_name(o)); }

  void lists(const StageRun& of, Operand o) {
    const int i = static_cast<int>(o);
    const assay_tensor& given = tensor_of(of.tensors, o);
    const std::vector<int32_t> old = numbers(of.before[i], given);
    const bool lengths = o == Operand::kKvLen || o == Operand::kContextLen;
    const bool starts = o == Operand::kCuQ || o == Operand::kCuKv || o == Operand::kIndptr;
    const bool table = o == Operand::kBlockTable || o == Operand::kIndices;
    const int32_t page = std::max(1, step().page_size);
    std::vector<int32_t> rows = of.q_len;
    // Of the step and of stages before: lists of the same form.
    const auto named = [&](const std::vector<int32_t>& is, const std::vector<int32_t>& due) {
      if (starts) return std::string(arange(is) ? "starts_arange" : "starts_other");
      if (o == Operand::kSeqStarts)
        return std::string(std::all_of(is.begin(), is.end(), [](int32_t x) { return x == 0; })
                               ? "starts_zero"
                               : "starts_other");
      const std::string cause = name_of_difference(is, due, rows, page, table);
      return table ? name_of_table(is, due, given, cause) : cause;
    };
    const auto pool = [&](const std::string& of_what, const std::vector<int32_t>& right) {
      if (right.size() < old.size() || right == old) return;
      for (size_t first = 0; first + old.size() <= right.size(); ++first) {
        const std::vector<int32_t> part(right.begin() + static_cast<int64_t>(first),
                                        right.begin() + static_cast<int64_t>(first + old.size()));
        const std::string cause = named(old, part);
        put(of, o, cause, fmt::format("given another {}; with {}", operand_name(o), of_what),
            [part, old](const StageRun&, const std::vector<int32_t>& now) {
              return now == old ? part : now;
            });
        if (given.rank > 1) break;
      }
    };
    const auto pool_of = [&](const assay_tensors& t, const std::string& of_what, const StageRun* maker) {
      for (int j = 0; j < kOperandCount; ++j) {
        const auto other = static_cast<Operand>(j);
        const assay_tensor& list = tensor_of(t, other);
        if (list.data == nullptr || list.format != ASSAY_INT32 || list.data == given.data) continue;
        if (sort_of(other) != sort_of(o) || (sort_of(o) == Sort::kOther && other != o)) continue;
        if (maker != nullptr ? !writes(*maker, j) : other == Operand::kPositions) continue;
        if (list.rank == given.rank && (list.rank == 1 || alike_but_rows(list, given)))
          pool(fmt::format("{} of {}", operand_name(other), of_what), contents(list, maker, j));
        if (list.rank == 2 && given.rank == 1 && maker != nullptr && list.shape[1] >= given.shape[0] &&
            count_of(of.place) > 1) {  // to each run of the place its row
          const std::vector<int32_t> all = contents(list, maker, j);
          const int64_t columns = list.shape[1];
          put(of, o, named(old, {all.begin(), all.begin() + given.shape[0]}),
              fmt::format("given another {}; with rows of {} of {}", operand_name(o), operand_name(other),
                          of_what),
              [this, all, columns](const StageRun& run, const std::vector<int32_t>& now) {
                const int64_t at = ordinal_of(run) * columns;
                if (at + static_cast<int64_t>(now.size()) > static_cast<int64_t>(all.size())) return now;
                return std::vector<int32_t>(all.begin() + at,
                                            all.begin() + at + static_cast<int64_t>(now.size()));
              });
        } else if (list.rank == 2 && given.rank == 1) {  // a row of it
          const std::vector<int32_t> all = contents(list, maker, j);
          for (int64_t row = 0; row < list.shape[0]; ++row)
            pool(fmt::format("row {} of {} of {}", row, operand_name(other), of_what),
                 {all.begin() + row * list.shape[1], all.begin() + (row + 1) * list.shape[1]});
        }
      }
    };
    pool_of(own(), "the step", nullptr);
    for (const StageRun& maker : runs_) {
      if (&maker == &of) break;
      pool_of(maker.tensors, maker.place, &maker);
    }
    if (lengths) derived_lengths(of, o, rows, page);
    if (starts) {
      std::vector<int32_t> sums = {0};
      for (const int32_t n : rows) sums.push_back(sums.back() + n);
      pool("sums of the rows", sums);
    }
    if (o == Operand::kSeqStarts)
      for (const int32_t by : {1, -1, page, -page})
        put(of, o, "starts_other", fmt::format("given starts {:+} off; without", -by),
            [=](const StageRun&, std::vector<int32_t> list) {
              for (int32_t& x : list) x += by;
              return list;
            });
  }
  int64_t count_of(const std::string& place) const {
    return std::count_if(runs_.begin(), runs_.end(), [&](const StageRun& r) { return r.place == place; });
  }
  int64_t ordinal_of(const StageRun& run) const {  // among the runs of its place
    int64_t before = 0;
    for (const StageRun& r : runs_) {
      if (&r == &run) break;
      before += r.place == run.place;
    }
    return before;
  }
  static bool alike_but_rows(const assay_tensor& a, const assay_tensor& b) {
    return a.shape[0] >= b.shape[0] && a.shape[1] == b.shape[1];
  }
  static bool arange(const std::vector<int32_t>& list) {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i] != static_cast<int32_t>(i)) return false;
    return true;
  }
  static std::string name_of_table(const std::vector<int32_t>& given, const std::vector<int32_t>& right,
                                   const assay_tensor& t, const std::string& otherwise) {
    if (t.rank != 2) return "table_shifted";
    const int64_t columns = t.shape[1], rows = t.shape[0];
    const auto same = [&](int64_t a, int64_t b) {
      return std::equal(given.begin() + a * columns, given.begin() + a * columns + 1,
                        right.begin() + b * columns);
    };
    bool all_one = rows > 1, of_others = rows > 1;
    for (int64_t a = 0; a < rows; ++a) {
      all_one = all_one && given[static_cast<size_t>(a * columns)] == given[0];
      bool some = false;
      for (int64_t b = 0; b < rows; ++b) some = some || same(a, b);
      of_others = of_others && some;
    }
    return otherwise == "table_units" ? otherwise
           : all_one                  ? "table_of_one"
           : of_others                ? "table_of_next"
                                      : "table_other";
  }
  std::vector<int32_t> contents(const assay_tensor& t, const StageRun* maker, int operand) const {
    if (maker != nullptr) return numbers(maker->after[operand], t);
    Bytes bytes;
    bytes.address = static_cast<const std::byte*>(t.data);
    bytes.copy.resize(static_cast<size_t>(view_bytes(t)));
    char why[200];
    apart_.backend().table()->copy_to_host(bytes.copy.data(), bytes.address,
                                           static_cast<int64_t>(bytes.copy.size()), why, sizeof why);
    return numbers(bytes, t);
  }
  void derived_lengths(const StageRun& of, Operand o, const std::vector<int32_t>& rows, int32_t page) {
    const auto rule = [&](const char* cause, const std::string& how, auto each) {
      put(of, o, cause, how, [=](const StageRun& run, std::vector<int32_t> list) {
        for (size_t n = 0; n < list.size(); ++n)
          list[n] = std::max(0, each(list[n], n < run.q_len.size() ? run.q_len[n] : 0));
        return list;
      });
    };
    (void)rows;
    rule("lengths_without_new", "given lengths without the new keys; with them",
         [](int32_t n, int32_t q) { return n + q; });
    rule("lengths_with_new", "given lengths with the new keys; without them",
         [](int32_t n, int32_t q) { return n - q; });
    for (const int32_t by : {1, -1})
      rule("lengths_off_by_one", fmt::format("given lengths {:+} off; without", -by),
           [=](int32_t n, int32_t) { return n + by; });
    for (const int32_t by : {page, -page})
      rule("lengths_off_by_page", fmt::format("given lengths {:+} off; without", -by),
           [=](int32_t n, int32_t) { return n + by; });
  }

  StepApart& apart_;
  StepEnd& end_;
  const assay_kernel& kernel_;
  const StepEnd::Look& nothing_;
  const std::vector<StageRun>& runs_;
  std::vector<int32_t> q_, kv_;
  std::vector<WiringCause> found_;
  std::vector<void*> memory_;
  std::map<std::string, std::set<std::vector<int32_t>>> tried_;
};

}  // namespace

std::vector<WiringCause> rank_wiring(StepApart& apart, StepEnd& end, const assay_kernel& kernel,
                                     const StepEnd::Look& nothing) {
  return Wiring(apart, end, kernel, nothing).all();
}

}  // namespace assay
