// SPDX-License-Identifier: Apache-2.0
// Lists that planted faults put in place of others. See planted_steps.hpp.
#include <list>
#include <utility>

#include "harness/explain/testing/planted_steps.hpp"

namespace planted_steps {

int32_t* kept(std::vector<int32_t> list) {
  static std::list<std::vector<int32_t>> all;
  return all.emplace_back(std::move(list)).data();
}

assay_tensor list_of(const int32_t* data, int64_t count) {
  assay_tensor t{};
  t.data = const_cast<int32_t*>(data), t.format = ASSAY_INT32, t.rank = 1;
  t.shape[0] = count, t.stride[0] = 1, t.role = ASSAY_ROLE_IN;
  return t;
}

int64_t elements(const assay_tensor& t) {
  int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis) last += (t.shape[axis] - 1) * t.stride[axis];
  return last + 1;
}

void set_lengths(assay_problem& p, assay_tensors& t, int32_t (*rule)(const assay_problem&, int32_t)) {
  std::vector<int32_t> lengths;
  for (int32_t r = 0; r < p.requests; ++r) lengths.push_back(rule(p, r));
  t.kv_len = list_of(kept(std::move(lengths)), p.requests);
  p.kv_len = static_cast<const int32_t*>(t.kv_len.data);
}

int32_t* copied(assay_tensor& t) {
  const auto* own = static_cast<const int32_t*>(t.data);
  int32_t* copy = kept(std::vector<int32_t>(own, own + elements(t)));
  t.data = copy;
  return copy;
}

}  // namespace planted_steps
