// SPDX-License-Identifier: Apache-2.0
// Takes operands out of the C tables and remembers the first one that is missing or contradicts the problem.
// For the functions that turn the tables into plain data (operands.cpp, data_op_operands.cpp), on the host.
#pragma once

#include <cstdio>

#include "kernels/common/operands.hpp"

namespace assay_kernels {

class OperandReader {
 public:
  OperandReader(char* error, size_t size) : error_(error), size_(size) {}
  bool ok() const { return ok_; }

  // Checks presence, format and rank. An operand without elements may have no data.
  const void* take(const assay_tensor& t, const char* name, int32_t format, int32_t rank, bool may_be_empty) {
    if (t.data == nullptr && !may_be_empty) fail(name, "is missing");
    if (t.data != nullptr && t.format != format) {
      char text[96];
      snprintf(text, sizeof text, "has format %s, expected %s", format_name(t.format), format_name(format));
      fail(name, text);
    }
    if (t.data != nullptr && t.rank != rank) {
      char text[96];
      snprintf(text, sizeof text, "has rank %d, expected %d", t.rank, rank);
      fail(name, text);
    }
    return t.data;
  }

  void fail(const char* name, const char* what) {
    if (ok_ && error_ != nullptr && size_ > 0) snprintf(error_, size_, "operand %s %s", name, what);
    ok_ = false;
  }

 private:
  char* error_;
  size_t size_;
  bool ok_ = true;
};

// Rank of K or V; its view; a scale as data.
int32_t kv_rank(const assay_problem&, bool is_v);
KvView make_kv_view(const assay_problem&, const assay_tensor&, int32_t format, bool is_v);
ScaleView make_scale(OperandReader&, const assay_problem&, const assay_tensor&, const char* name,
                     int32_t kind, float host, bool is_q);

}  // namespace assay_kernels
