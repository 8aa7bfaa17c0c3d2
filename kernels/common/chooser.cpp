// SPDX-License-Identifier: Apache-2.0
// See chooser.hpp.
#include "kernels/common/chooser.hpp"

#include <cstring>
#include <list>
#include <memory>

#include "kernels/common/stage_list.hpp"

namespace assay_kernels {
namespace {

struct Entry {
  assay_kernel kernel{};
  std::string name, description;
  int32_t op;
  std::vector<Choice> choices;
  std::vector<assay_stage> stages;  // a kernel for each of them
};
const Entry& entry_of(const assay_kernel* self) { return *static_cast<const Entry*>(self->context); }

// A plan remembers the choice, so that later lengths of the same batch do not change it.
struct Chosen {
  const assay_kernel* kernel;
  assay_plan* plan;
};
Chosen* chosen_of(assay_plan* plan) { return reinterpret_cast<Chosen*>(plan); }

// The row for a problem, or the number of rows and why the last one, the most general, does not fit.
size_t choose(const Entry& entry, const assay_problem& p, char* why, size_t size) {
  size_t at = 0;
  for (; at < entry.choices.size(); ++at) {
    const assay_kernel& k = *entry.stages[at].kernel;
    char text[400] = "";
    const bool meant = p.op == entry.op && entry.choices[at].when(p);
    if (meant && k.supports(&k, &p, nullptr, nullptr, text, sizeof text) == ASSAY_OK) break;
    say(0, meant ? std::string(k.name) + ": " + text : "required a problem that no choice is for", why, size);
  }
  return at;
}

const assay_kernel* kernel_for(const assay_kernel* self, const assay_problem* p, char* why = nullptr,
                               size_t size = 0) {
  const Entry& entry = entry_of(self);
  const size_t at = choose(entry, *p, why, size);
  return at < entry.stages.size() ? entry.stages[at].kernel : nullptr;
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
             const assay_device* device, char* why, size_t size) {
  const assay_kernel* k = kernel_for(self, p, why, size);
  if (k == nullptr) return ASSAY_UNSUPPORTED;
  char text[400] = "";
  const int status = k->supports(k, p, t, device, text, sizeof text);
  return status == ASSAY_OK ? status : say(status, std::string(k->name) + ": " + text, why, size);
}

int arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
  const assay_kernel* k = kernel_for(self, p);
  return k == nullptr || k->arithmetic == nullptr ? ASSAY_UNSUPPORTED : k->arithmetic(k, p, out);
}

int64_t workspace_bytes(const assay_kernel* self, const assay_problem* p) {
  const assay_kernel* k = kernel_for(self, p);
  return k == nullptr || k->workspace_bytes == nullptr ? 0 : k->workspace_bytes(k, p);
}

int64_t workspace_zeroed_bytes(const assay_kernel* self, const assay_problem* p) {
  const assay_kernel* k = kernel_for(self, p);
  return k == nullptr || k->workspace_zeroed_bytes == nullptr ? 0 : k->workspace_zeroed_bytes(k, p);
}

int plan(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan** out,
         char* error, size_t size) {
  const assay_kernel* k = kernel_for(self, p, error, size);
  if (k == nullptr) return ASSAY_UNSUPPORTED;
  auto chosen = std::make_unique<Chosen>(Chosen{k, nullptr});
  if (k->plan != nullptr)
    if (const int status = k->plan(k, p, t, &chosen->plan, error, size); status != ASSAY_OK) return status;
  *out = reinterpret_cast<assay_plan*>(chosen.release());
  return ASSAY_OK;
}

void free_plan(const assay_kernel*, assay_plan* plan) {
  const std::unique_ptr<Chosen> chosen(chosen_of(plan));
  if (chosen->plan != nullptr && chosen->kernel->free_plan != nullptr)
    chosen->kernel->free_plan(chosen->kernel, chosen->plan);
}

int refresh(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
            void* stream, char* error, size_t size) {
  const Chosen& chosen = *chosen_of(plan);
  const assay_kernel* k = chosen.kernel;
  return k->refresh == nullptr ? ASSAY_OK : k->refresh(k, p, t, chosen.plan, stream, error, size);
}

int run(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan* plan, void* stream,
        char* error, size_t size) {
  const Chosen& chosen = *chosen_of(plan);
  return chosen.kernel->run(chosen.kernel, p, t, chosen.plan, stream, error, size);
}

int dispatch(const assay_kernel* self, const assay_problem* p, char* text, size_t size) {
  const Entry& entry = entry_of(self);
  const size_t at = choose(entry, *p, text, size);
  if (at == entry.stages.size()) return ASSAY_UNSUPPORTED;
  const Choice& choice = entry.choices[at];
  return say(ASSAY_OK,
             std::string(choice.place) + ": " + entry.stages[at].kernel->name + ", " + choice.why + "\n",
             text, size);
}

const assay_kernel* make(std::string name, std::string description, int32_t op, std::vector<Choice> choices,
                         std::vector<assay_stage> stages);

int with_stages(const assay_kernel* self, const char* name, const assay_stage* stages, int32_t count,
                const assay_kernel** made, char* error, size_t size) {
  const Entry& entry = entry_of(self);
  std::vector<assay_stage> all = entry.stages;
  const auto fits = [&](size_t, int32_t op) { return op == entry.op; };
  if (const int status = replace_stages(self->name, stages, count, fits, all, error, size);
      status != ASSAY_OK)
    return status;
  *made = make(name, entry.description, entry.op, entry.choices, std::move(all));
  return ASSAY_OK;
}

const assay_kernel* make(std::string name, std::string description, int32_t op, std::vector<Choice> choices,
                         std::vector<assay_stage> stages) {
  static std::list<Entry> entries;  // addresses stay
  Entry& e = entries.emplace_back();
  e.name = std::move(name), e.description = std::move(description), e.op = op;
  e.choices = std::move(choices), e.stages = std::move(stages);
  assay_kernel& k = e.kernel;
  k.struct_size = sizeof k, k.name = e.name.c_str(), k.description = e.description.c_str();
  k.arch = "sm_90a", k.op = op, k.context = &e;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  for (const assay_stage& stage : e.stages) {
    k.promises &= stage.kernel->promises, k.contracts |= stage.kernel->contracts;
    if (stage.kernel->refresh != nullptr) k.refresh = refresh;
  }
  k.supports = supports, k.arithmetic = arithmetic, k.workspace_bytes = workspace_bytes;
  k.workspace_zeroed_bytes = workspace_zeroed_bytes;
  k.plan = plan, k.free_plan = free_plan, k.run = run;
  k.stage_count = static_cast<int32_t>(e.stages.size()), k.stages = e.stages.data();
  k.dispatch = dispatch, k.with_stages = with_stages;
  return &k;
}

}  // namespace

const assay_kernel* make_chooser(const Chooser& c, const std::vector<const assay_kernel*>& all) {
  std::vector<Choice> choices;
  std::vector<assay_stage> stages;
  for (const Choice& choice : c.choices)
    for (const assay_kernel* kernel : all)
      if (std::strcmp(kernel->name, choice.kernel) == 0) {
        choices.push_back(choice);
        stages.push_back({choice.place, kernel});
        break;
      }
  if (stages.empty()) return nullptr;
  return make(c.name, c.description, c.op, std::move(choices), std::move(stages));
}

}  // namespace assay_kernels
