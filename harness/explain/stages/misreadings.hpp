// SPDX-License-Identifier: Apache-2.0
// How the misreadings of a stage are listed (step_causes.hpp): lengths, tables and scalars in
// misreadings.cpp, values and their scales in misread_values.cpp, orders and extents in misread_orders.cpp,
// where a key lies in misread_slots.cpp, draft trees in misread_trees.cpp. A new one: an add() where its sort
// is.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/explain/stages/step_causes.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/request_class.hpp"

namespace assay {

// A copy of a tensor whose entries along an axis are others of the same: from(i) in place of i.
void reorder(Reading&, Operand, int axis, const std::function<int64_t(int64_t)>& from);

class Misreadings {
 public:
  explicit Misreadings(const StageCase& c) : case_(c), given_(c.given()), op_(op_of(c.kernel().op)) {}

  // The plainest first. What they refer to lives in this and in the case.
  std::vector<Misreading> all() {
    masks();
    lengths();
    starts();
    other_slots();
    tables();
    scalars();
    scales();
    one_side_as_it_came();
    merges();
    rows();
    drafts();
    heads();
    orders();
    return std::move(list_);
  }

 private:
  void add(const char* cause, std::string how, std::function<bool(Reading&)> make) {
    list_.push_back({cause, std::move(how), std::move(make)});
  }
  bool has(Operand o) const { return given_.has(o); }
  assay_request_class class_of(int32_t request) const {
    Problem step;  // the stage's own says no classes
    step.threshold = p().threshold;
    return request_class(step, {given_.rows_of(request), p().kv_len[request]});
  }
  const assay_problem& p() const { return given_.problem; }

  template <class Value>
  void set(const char* cause, const std::string& how, Value assay_problem::*field, Value value) {
    add(cause, how, [=](Reading& r) {
      if (r.problem.*field == value) return false;
      r.problem.*field = value;
      return true;
    });
  }
  // Every entry of a list by a rule (value, index).
  void change(const char* cause, const std::string& how, Operand o,
              const std::function<int32_t(const Reading&, int32_t, int32_t)>& rule) {
    if (!has(o)) return;
    add(cause, how, [=](Reading& r) {
      std::vector<int32_t> old = r.ints(o), now;
      for (size_t i = 0; i < old.size(); ++i) now.push_back(rule(r, old[i], static_cast<int32_t>(i)));
      if (now == old) return false;
      r.put(o, now);
      return true;
    });
  }
  void one_for_all(const char* cause, const std::string& how, Operand o, int axis) {
    const assay_tensor& t = tensor_of(given_.tensors, o);
    if (t.data == nullptr || axis >= t.rank || t.shape[axis] < 2) return;
    add(cause, how, [=](Reading& r) {
      tensor_of(r.tensors, o).stride[axis] = 0;
      return true;
    });
  }

  void of_one(const char* cause, const char* what, Operand);  // a request's number for all

  void masks();
  void one_position();
  void lengths();
  void seen_keys();
  void starts();
  void tables();
  void tables_of_lists();  // of CSR
  // What two requests hold first, exchanged: of one page each.
  void first_entries_exchanged(Operand table);
  // Where the cache holds each key, by another rule than the table's: (entries of the request's row, key) to
  // a slot of the cache, negative: nothing is said.
  using SlotOfKey = std::function<int64_t(const Reading&, int32_t request, int32_t key)>;
  void slots_of_keys(const char* cause, const std::string& how, const SlotOfKey&);
  void other_slots();
  void one_side_as_it_came();
  void scalars();
  // One logit of every head that joins the sum, found from the first row that says it; the same of all heads
  // is what a part of zeros has.
  void fitted_sinks();
  bool put_fitted_sinks(Reading&, bool one_for_all) const;
  void scales();
  void merges();
  // Of all states, or of one.
  static bool scale_lse(Reading& r, double by, int32_t state = -1);
  void rows();
  void drafts();
  void heads();
  // misread_orders.cpp
  void orders();
  void head_orders();
  void dense_rows();
  void dense_rows_of_first();
  void table_rows();  // entries of each request's row
  void trees();
  void extents();

  const StageCase& case_;
  const Reading& given_;
  const Op& op_;
  std::vector<Misreading> list_;
};

}  // namespace assay
