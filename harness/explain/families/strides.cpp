// SPDX-License-Identifier: Apache-2.0
// Hypotheses about operands read or written with the wrong strides, codes read in another format, and rows of
// the batch placed by a wrong table of starts.
#include <algorithm>
#include <map>

#include "harness/explain/families/sister_format.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

void make_dense(assay_tensor& t) {
  int64_t step = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.stride[axis] = std::min(step, t.stride[axis]);
    step *= t.shape[axis];
  }
}

bool is_dense(const assay_tensor& t) {
  int64_t step = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    if (t.shape[axis] > 1 && t.stride[axis] != step) return false;
    step *= t.shape[axis];
  }
  return true;
}

void add_world(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
               std::function<void(const Problem&, assay_tensors&)> change) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.rules.world = std::make_shared<World>(World{std::move(change)});
  out.push_back(std::move(h));
}

void inputs(const Clues& clues, Hypotheses& out) {
  const assay_tensors& t = *clues.evidence.operands(false).tensors;
  const auto dense = [&](std::string text, std::vector<assay_tensor assay_tensors::*> members) {
    bool strided = false;
    for (const auto m : members) strided = strided || ((t.*m).data != nullptr && !is_dense(t.*m));
    if (strided)
      add_world(clues, out, "memory.stride_ignored", std::move(text), 0.1,
                [members](const Problem&, assay_tensors& a) {
                  for (const auto m : members)
                    if ((a.*m).data != nullptr) make_dense(a.*m);
                });
  };
  dense("Q read as if it were packed", {&assay_tensors::q});
  dense("K and V read as if they were packed", {&assay_tensors::k, &assay_tensors::v});
  dense("K read as if it were packed", {&assay_tensors::k});
  dense("V read as if it were packed", {&assay_tensors::v});
  dense("scales read as if they were packed",
        {&assay_tensors::q_scale, &assay_tensors::k_scale, &assay_tensors::v_scale});
  dense("page table read as if it were packed", {&assay_tensors::block_table});
  const Problem& p = clues.problem();
  if (op_of(p).has_cache && p.table == ASSAY_TABLE_BLOCK) {
    const int64_t used = (int64_t{p.max_kv_len()} + p.page_size - 1) / p.page_size;
    if (used > 0 && used < t.block_table.stride[0])
      add_world(clues, out, "memory.stride_ignored",
                "rows of the page table taken as long as the longest request", 0.1,
                [used](const Problem&, assay_tensors& a) { a.block_table.stride[0] = used; });
  }
}

void formats(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (sister(p.k_format) == p.k_format && sister(p.v_format) == p.v_format &&
      sister(p.q_format) == p.q_format)
    return;
  for (bool with_q : {true, false})
    add_world(clues, out, "format.fnuz_as_fn",
              with_q ? "codes read in the sister format" : "codes of the cache read in the sister format",
              with_q ? 0.05 : 0.1, [with_q](const Problem&, assay_tensors& a) {
                a.k.format = sister(a.k.format);
                a.v.format = sister(a.v.format);
                if (with_q) a.q.format = sister(a.q.format);
              });
}

// Which element of the right result ends at an address of the output when it is stored with other strides.
void outputs(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const assay_tensors t = *clues.evidence.operands(false).tensors;
  const std::vector<int32_t>* first = &clues.evidence.first_rows;
  const int64_t total = p.total_q(), heads = p.heads_q, dims = p.head_dim_v;
  const auto cell_of = [first](int64_t packed, int64_t head) {
    return cell_of_row(*first, packed, static_cast<int32_t>(head));
  };
  if (!is_dense(t.lse) && t.lse.data != nullptr) {
    Hypothesis h = propose(clues, "memory.stride_ignored", "LSE stored as if it were packed", 0.1);
    h.rules.finish = [=, s0 = t.lse.stride[0], s1 = t.lse.stride[1]](const Scene& s, std::vector<double>&,
                                                                     double& lse) {
      const int64_t at = ((*first)[s.cell.request] + s.cell.row) * s0 + s.cell.head * s1;
      if (at / heads >= total)
        lse = s.predictor->unwritten_lse();
      else
        lse = s.predictor->predict(s.predictor->right(), cell_of(at / heads, at % heads)).lse;
    };
    out.push_back(std::move(h));
  }
  const auto stored = [&](std::string text, int64_t q0, int64_t q1, int64_t q2) {
    if (q0 == t.o.stride[0] && q1 == t.o.stride[1] && q2 == t.o.stride[2]) return;
    const int64_t last =
        (total - 1) * t.o.stride[0] + (heads - 1) * t.o.stride[1] + (dims - 1) * t.o.stride[2];
    if (last > 20'000'000) return;
    auto owner = std::make_shared<std::vector<int64_t>>(last + 1, -1);
    // Stores that leave the operand wrap round it: where they go in truth nobody knows.
    for (int64_t row = 0; row < total; ++row)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dims; ++d)
          (*owner)[(row * q0 + h * q1 + d * q2) % (last + 1)] = (row * heads + h) * dims + d;
    Hypothesis h = propose(clues, "memory.stride_ignored", std::move(text), 0.1);
    h.rules.finish = [=, o0 = t.o.stride[0], o1 = t.o.stride[1], o2 = t.o.stride[2]](
                         const Scene& s, std::vector<double>& o, double&) {
      std::map<int64_t, Prediction> known;
      const Rules right = s.predictor->right();
      for (int64_t d = 0; d < dims; ++d) {
        const int64_t from =
            (*owner)[((*first)[s.cell.request] + s.cell.row) * o0 + s.cell.head * o1 + d * o2];
        if (from < 0) {
          o[d] = s.predictor->unwritten_o();
          continue;
        }
        const int64_t cell = from / dims;
        if (!known.contains(cell))
          known[cell] = s.predictor->predict(right, cell_of(cell / heads, cell % heads));
        o[d] = known[cell].o[from % dims];
      }
    };
    out.push_back(std::move(h));
  };
  stored("O stored with the strides of Q", t.q.stride[0], t.q.stride[1], t.q.stride[2]);
  stored("O stored as if it were packed", heads * dims, dims, 1);
}

// Rows placed by wrong starts: the last request that claims a packed row writes it.
void starts(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const std::vector<int32_t>& first = clues.evidence.first_rows;
  const auto total = static_cast<int32_t>(p.total_q());
  const auto requests = static_cast<int32_t>(p.requests.size());
  const std::vector<int32_t> keys = p.cu_kv();
  struct Plan {
    std::string name;
    std::string_view cause;
    std::function<std::pair<int32_t, int32_t>(int32_t r)> rows;  // start and count
  };
  const auto padded = [&](int32_t to) {
    return [&p, to](int32_t r) {
      int32_t start = 0;
      for (int32_t i = 0; i < r; ++i) start += (p.requests[i].q_len + to - 1) / to * to;
      return std::pair{start, p.requests[r].q_len};
    };
  };
  std::vector<Plan> plans = {
      {"every request starts at a multiple of the longest one's rows", "rows.written_to_other_row",
       [&p](int32_t r) {
         return std::pair{r * p.max_q_len(), p.requests[r].q_len};
       }},
      {"requests start at 0, 1, 2, ... with one row each", "output.row_dropped",
       [&p](int32_t r) {
         return std::pair{r, std::min(1, p.requests[r].q_len)};
       }},
      {"rows start where the keys of the request start", "rows.written_to_other_row",
       [&p, keys, total](int32_t r) {
         const int32_t n = p.requests[r].q_len;
         return std::pair{keys[r] % (total - n + 1), n};
       }},
  };
  for (int32_t to : {2, 4, 8, 16})
    plans.push_back(
        {fmt::format("rows of a request padded to {}", to), "rows.written_to_other_row", padded(to)});
  for (const Plan& plan : plans)
    for (bool wrap : {false, true})
      for (bool query_too : {true, false}) {
        auto source = std::make_shared<std::vector<Cell>>(total, Cell{-1, 0, 0});
        for (int32_t r = 0; r < requests; ++r) {
          auto [start, count] = plan.rows(r);
          if (!wrap && start + count > total) start = std::max(0, total - count);
          for (int32_t i = 0; i < count; ++i) (*source)[(start + i) % total] = {r, i, 0};
        }
        Hypothesis h =
            propose(clues, plan.cause,
                    plan.name + (query_too ? "" : ", results only") + (wrap ? ", round the batch" : ""),
                    0.2 + (wrap ? 0.05 : 0));
        h.rules.result_of = [source, &first](const Cell& c) {
          Cell from = (*source)[first[c.request] + c.row];
          if (from.request < 0) return c;
          from.head = c.head;
          return from;
        };
        // The hooks below see the cell that is computed; the place it goes to is found by the search itself.
        if (query_too) h.rules.query_at_place = true;
        h.rules.never_written = [source, &first](const Cell& c) {
          return (*source)[first[c.request] + c.row].request < 0;
        };
        out.push_back(std::move(h));
      }
}

}  // namespace

void stride_family(const Clues& clues, Hypotheses& out) {
  inputs(clues, out);
  formats(clues, out);
  outputs(clues, out);
  starts(clues, out);
}

}  // namespace assay
