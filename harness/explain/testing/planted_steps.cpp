// SPDX-License-Identifier: Apache-2.0
// libassay_planted_steps.so: the steps of planted_stages.cpp, planted_wiring.cpp and planted_wholes.cpp with
// their catalogue. A stage that is wrong stands in its place like any other. A pipeline that is wrong spoils
// what reaches the place, whichever kernel stands there: with_stages() of it gives the right ones, as those
// of a third party would.
#include "harness/explain/testing/planted_steps.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>

#include "harness/explain/testing/handed_on.hpp"
#include "harness/explain/testing/planted_library.hpp"
#include "kernels/device/host_memory.hpp"

namespace planted_steps {

namespace {

// A kernel in a place, and what is done before and after it. Of a call that is late: kept until the last
// stage, whose kernel gets the same context, has run.
struct Spoilt : HandedOn {
  const PlantedStep* fault;
};
const Spoilt& spoilt(const assay_kernel* self) { return static_cast<const Spoilt&>(handed_on(self)); }

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const Spoilt& s = spoilt(self);
  if (s.fault->where == Where::kLeftOut) return ASSAY_OK;
  assay_problem problem = *p;
  assay_tensors tensors = *t;
  if (s.fault->before != nullptr) s.fault->before(problem, tensors);
  const int status = s.right->run(s.right, &problem, &tensors, plan, stream, error, size);
  if (s.fault->after != nullptr) s.fault->after(problem, tensors);
  return status;
}

// Hands everything on to `right`, but for run.
const assay_kernel* spoilt_by(const assay_kernel& right, const PlantedStep& fault,
                              decltype(assay_kernel::run) run_of) {
  static std::list<Spoilt> all;
  Spoilt& s = all.emplace_back();
  s.fault = &fault;
  return hand_on(s, right, run_of);
}

// ---- a call that is late
struct Waiting {
  const assay_kernel* kernel = nullptr;
  assay_problem problem{};
  assay_tensors tensors{};
  std::vector<int32_t> q_len, kv_len;
  assay_plan* plan = nullptr;
};
Waiting waiting;

int run_later(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
              void*, char*, size_t) {
  waiting = {handed_on(self).right,
             *p,
             *t,
             {p->q_len, p->q_len + p->requests},
             {p->kv_len, p->kv_len + p->requests},
             plan};
  waiting.problem.q_len = waiting.q_len.data(), waiting.problem.kv_len = waiting.kv_len.data();
  return ASSAY_OK;
}
int run_last(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
             void* stream, char* error, size_t size) {
  const assay_kernel* right = handed_on(self).right;
  const int status = right->run(right, p, t, plan, stream, error, size);
  if (waiting.kernel == nullptr || status != ASSAY_OK) return status;
  const assay_kernel* late = waiting.kernel;
  waiting.kernel = nullptr;
  return late->run(late, &waiting.problem, &waiting.tensors, waiting.plan, stream, error, size);
}

// The base with these stages, spoilt where they go into their places.
int compose(const PlantedStep& fault, const char* name, std::vector<assay_stage> stages,
            const assay_kernel** made, char* error, size_t size) {
  for (assay_stage& stage : stages) {
    const bool here = std::strcmp(stage.name, fault.stage) == 0;
    if (fault.where == Where::kLate) {
      const bool last = std::strcmp(stage.name, "merge") == 0 || std::strcmp(stage.name, "attend") == 0;
      if (here || last) stage.kernel = spoilt_by(*stage.kernel, fault, here ? run_later : run_last);
    } else if (here) {
      stage.kernel = spoilt_by(*stage.kernel, fault, run);
    }
  }
  const assay_kernel& base = base_of(fault.base);
  return base.with_stages(&base, name, stages.data(), static_cast<int32_t>(stages.size()), made, error, size);
}

// What an entry is, by its name: its context is that of the kernel that it hands on.
std::map<std::string, const PlantedStep*>& by_name() {
  static std::map<std::string, const PlantedStep*> all;
  return all;
}

int with_stages(const assay_kernel* self, const char* name, const assay_stage* stages, int32_t count,
                const assay_kernel** made, char* error, size_t size) {
  const PlantedStep& fault = *by_name().at(self->name);
  return compose(fault, name, replaced(self, stages, count), made, error, size);
}

int plan_of_another(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                    assay_plan** plan, char* error, size_t size) {
  const Spoilt& s = spoilt(self);
  assay_problem problem = *p;
  assay_tensors tensors = *t;
  s.fault->before(problem, tensors);
  return s.right->plan(s.right, &problem, &tensors, plan, error, size);
}
int run_as_planned(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                   void* stream, char* error, size_t size) {
  const assay_kernel* right = handed_on(self).right;
  return right->run(right, p, t, plan, stream, error, size);
}

assay_kernel made_of(const PlantedStep& fault) {
  const assay_kernel& base = base_of(fault.base);
  assay_kernel entry{};
  if (fault.where == Where::kWhole) {
    entry = *spoilt_by(base, fault, run_as_planned);
    entry.plan = plan_of_another;
    entry.stage_count = 0, entry.stages = nullptr, entry.dispatch = nullptr, entry.with_stages = nullptr;
  } else {
    const assay_kernel* made = nullptr;
    char error[400] = "";
    if (compose(fault, fault.name, {base.stages, base.stages + base.stage_count}, &made, error,
                sizeof error) != ASSAY_OK)
      return entry;
    entry = *made;
    if (fault.where != Where::kStage) entry.stages = base.stages, entry.with_stages = with_stages;
  }
  entry.name = fault.name, entry.description = "wrong in one way";
  return entry;
}

struct Library : PlantedLibrary {
  Library() {
    std::vector<PlantedStep> all;
    for (const auto list : {planted_stages(), planted_wiring(), planted_wholes(), drawn_wholes()})
      for (const PlantedStep& fault : list) by_name()[fault.name] = &fault, all.push_back(fault);
    for (const PlantedStep& fault : all) kernels.push_back(made_of(*by_name().at(fault.name)));
    for (size_t i = 0; i < all.size(); ++i) {
      const PlantedStep& fault = all[i];
      const char* where = fault.where == Where::kStage   ? ""
                          : fault.where == Where::kWhole ? "end "
                                                         : "wiring ";
      add(i, fault.name, "wrong in one way", fault.causes, fault.line, std::string(where) + fault.stage);
    }
    publish("planted_steps");
  }
};

}  // namespace

const PlantedLibrary& planted_library() {
  static const Library& all = *new Library;
  return all;
}

}  // namespace planted_steps
