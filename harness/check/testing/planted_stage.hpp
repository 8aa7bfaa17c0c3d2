// SPDX-License-Identifier: Apache-2.0
// A kernel that is wrong in one way: the right one, called with other operands or after something that none
// may do. spoilt() gives it, plant() the step with it in its place; all that they make lives as long as the
// process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/problem/names.hpp"

namespace assay::testkit {

// Changes what the right kernel is about to get.
using Spoil = std::function<void(assay_problem&, assay_tensors&)>;

struct SpoiltKernel {
  assay_kernel kernel{};
  const assay_kernel* right = nullptr;
  std::string name;
  Spoil spoil;
};

inline const assay_kernel* spoilt(const assay_kernel& right, const std::string& name, Spoil spoil) {
  static std::list<SpoiltKernel> all;
  SpoiltKernel& planted = all.emplace_back();
  planted.right = &right;
  EXPECT_EQ(right.plan, nullptr) << "plans are not handed on";
  planted.name = name, planted.spoil = std::move(spoil);
  const auto of = [](const assay_kernel* self) -> const SpoiltKernel& {
    return *static_cast<const SpoiltKernel*>(self->context);
  };
  static const auto known = of;
  assay_kernel& k = planted.kernel;
  k = *planted.right;
  k.name = planted.name.c_str(), k.context = &planted;
  k.supports = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                  const assay_device* d, char* why, size_t size) {
    const assay_kernel& right = *known(self).right;
    return right.supports(&right, p, t, d, why, size);
  };
  if (k.arithmetic != nullptr)
    k.arithmetic = [](const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
      const assay_kernel& right = *known(self).right;
      return right.arithmetic(&right, p, out);
    };
  if (k.workspace_bytes != nullptr)
    k.workspace_bytes = [](const assay_kernel* self, const assay_problem* p) {
      const assay_kernel& right = *known(self).right;
      return right.workspace_bytes(&right, p);
    };
  if (k.workspace_zeroed_bytes != nullptr)
    k.workspace_zeroed_bytes = [](const assay_kernel* self, const assay_problem* p) {
      const assay_kernel& right = *known(self).right;
      return right.workspace_zeroed_bytes(&right, p);
    };
  k.run = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
             void* stream, char* error, size_t size) {
    const SpoiltKernel& own = known(self);
    assay_problem problem = *p;
    assay_tensors tensors = *t;
    own.spoil(problem, tensors);
    return own.right->run(own.right, &problem, &tensors, plan, stream, error, size);
  };
  return &k;
}

inline const assay_kernel* plant(const assay_kernel& step, const std::string& stage, const std::string& name,
                                 Spoil spoil) {
  const assay_kernel* right = nullptr;
  for (int32_t i = 0; i < step.stage_count; ++i)
    if (step.stages[i].name == stage) right = step.stages[i].kernel;
  if (right == nullptr) {
    ADD_FAILURE() << step.name << " has no stage " << stage;
    return nullptr;
  }
  const assay_stage place = {stage.c_str(), spoilt(*right, name, std::move(spoil))};
  const assay_kernel* made = nullptr;
  static std::list<std::string> names;
  char error[400] = "";
  const std::string& whole = names.emplace_back(std::string(step.name) + "(" + stage + "=" + name + ")");
  EXPECT_EQ(step.with_stages(&step, whole.c_str(), &place, 1, &made, error, sizeof error), ASSAY_OK) << error;
  return made;
}

// A dense list that lies elsewhere.
template <class Element>
assay_tensor list_of(const Element* data, int64_t count) {
  assay_tensor t{};
  t.data = const_cast<Element*>(data), t.rank = 1, t.shape[0] = count, t.stride[0] = 1;
  t.format = std::is_same_v<Element, float> ? ASSAY_FP32 : sizeof(Element) == 1 ? ASSAY_UINT8 : ASSAY_INT32;
  t.role = ASSAY_ROLE_IN;
  return t;
}

// A copy of an operand as it stands at the moment, which lives as long as the process; strides are kept.
inline assay_tensor frozen(const assay_tensor& list) {
  static std::list<std::vector<char>> copies;
  int64_t last = 0;
  for (int axis = 0; axis < list.rank; ++axis) last += (list.shape[axis] - 1) * list.stride[axis];
  const int64_t bytes = (last + 1) * format_bytes(list.format);
  const auto* data = static_cast<const char*>(list.data);
  assay_tensor copy = list;
  copy.data = copies.emplace_back(data, data + bytes).data();
  return copy;
}

}  // namespace assay::testkit
