// SPDX-License-Identifier: Apache-2.0
// A pipeline whose stages are kernels that never run, over requests of so many rows and keys: for tests of
// what steps declare and of what their calls are given.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/common/pipelines.hpp"
#include "kernels/common/stage_arithmetic.hpp"

namespace assay_kernels {

struct FakeStep {
  using Declaration = void (*)(const assay_problem&, assay_arithmetic&);

  const Pipeline& pipeline;
  Declaration declaration;
  std::array<assay_kernel, ASSAY_OP_REDUCE + 2> fakes{};  // one of every op, and the joins
  std::vector<int32_t> q_len, kv_len;
  assay_problem p{};
  const assay_kernel* kernel;

  FakeStep(const Pipeline& of, Declaration of_stages, std::vector<int32_t> rows, std::vector<int32_t> keys)
      : pipeline(of), declaration(of_stages), q_len(std::move(rows)), kv_len(std::move(keys)) {
    Kit kit = {"any", "fake", {}, nullptr, &fakes.back(), &fakes.back(), nullptr};
    for (size_t op = 0; op < fakes.size(); ++op) {
      assay_kernel& k = fakes[op];
      k.struct_size = sizeof k, k.name = "fake", k.op = static_cast<int32_t>(op);
      k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH, k.context = &declaration;
      k.supports = [](const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                      char*, size_t) -> int { return ASSAY_OK; };
      if (attends(k.op))
        k.arithmetic = [](const assay_kernel* self, const assay_problem* problem,
                          assay_arithmetic* a) -> int {
          (*static_cast<const Declaration*>(self->context))(*problem, *a);
          return ASSAY_OK;
        };
      kit.of_op.push_back(&k);
    }
    kit.few_rows = &fakes[ASSAY_OP_PAGED];
    kernel = make_composed(&pipeline, "step_fake", "any", stages_of(pipeline, kit), nullptr);
    p.struct_size = sizeof p, p.op = ASSAY_OP_STEP, p.mask = ASSAY_MASK_CAUSAL, p.threshold = 1;
    p.heads_q = 4, p.heads_kv = 2, p.head_dim_qk = p.head_dim_v = 64, p.page_size = 8;
    p.q_format = p.k_format = p.v_format = p.o_format = p.source_format = ASSAY_BF16;
    p.window_left = p.window_right = -1, p.softmax_scale = 0.125f, p.token_budget = 4096;
    p.requests = static_cast<int32_t>(q_len.size());
    for (const int32_t n : q_len) p.total_q += n;
    for (const int32_t n : kv_len) p.total_kv += n;
    p.rows = p.total_q, p.q_len = q_len.data(), p.kv_len = kv_len.data();
    p.max_q_len = *std::max_element(q_len.begin(), q_len.end());
    p.max_kv_len = *std::max_element(kv_len.begin(), kv_len.end());
  }
};

}  // namespace assay_kernels
