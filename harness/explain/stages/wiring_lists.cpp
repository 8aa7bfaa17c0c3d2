// SPDX-License-Identifier: Apache-2.0
// Repairs of int32 lists and tables: what the step has of their sort, what stages before made, and what
// differs from it in a way that has a name. See wiring_search.hpp.
#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/explain/stages/wiring_search.hpp"

namespace assay {
namespace {

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

}  // namespace

std::vector<int32_t> Wiring::numbers(const Bytes& bytes, const assay_tensor& t) {
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

assay_tensor Wiring::on_device(const assay_tensor& like, const std::vector<int32_t>& list) {
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

// Whether a list may be what it would stand for: what is not leads a stage anywhere.
bool Wiring::sane(Operand o, const std::vector<int32_t>& list, const StageRun& of) const {
  const int64_t keys = std::max<int64_t>({step().max_kv_len, of.problem.max_kv_len, 1});
  const int64_t all =
      std::max<int64_t>({step().total_q, step().total_kv, of.problem.total_q, of.problem.total_kv});
  const auto within = [&](int64_t least, int64_t most) {
    return std::all_of(list.begin(), list.end(), [&](int32_t x) { return least <= x && x <= most; });
  };
  switch (sort_of(o)) {
    case Sort::kLengths:
    case Sort::kFirsts:
      return within(0, keys);
    case Sort::kStarts:
      return within(0, all) && std::is_sorted(list.begin(), list.end());
    case Sort::kRequests:
      return within(-1, of.problem.requests - 1);
    case Sort::kTable:
    case Sort::kOther:
      return true;
  }
  return true;
}

void Wiring::put(
    const StageRun& of, Operand o, const std::string& cause, const std::string& how,
    const std::function<std::vector<int32_t>(const StageRun&, const std::vector<int32_t>&)>& rule) {
  const int i = static_cast<int>(o);
  // Of all runs of the place: the first may be as it should be.
  std::vector<int32_t> given, now;
  for (const StageRun& run : runs_) {
    if (run.place != of.place || tensor_of(run.tensors, o).data == nullptr) continue;
    const std::vector<int32_t> old = numbers(run.before[i], tensor_of(run.tensors, o)), then = rule(run, old);
    if (then != old && !sane(o, then, run)) return;
    given.insert(given.end(), old.begin(), old.end()), now.insert(now.end(), then.begin(), then.end());
  }
  if (now == given || !tried_[of.place + name_of(o)].insert(now).second) return;
  attempt(of, cause, how, [&, i, o](const StageRun& run, assay_problem&, assay_tensors& t) {
    assay_tensor& given = tensor_of(t, o);
    if (given.data == nullptr) return false;
    const std::vector<int32_t> old = numbers(run.before[i], tensor_of(run.tensors, o)), now = rule(run, old);
    if (now == old || now.size() != old.size()) return false;
    given = on_device(given, now);
    return true;
  });
}

std::string Wiring::name_of(Operand o) { return std::string(operand_name(o)); }

void Wiring::lists(const StageRun& of, Operand o) {
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
          [part, old](const StageRun&, const std::vector<int32_t>& now) { return now == old ? part : now; });
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

int64_t Wiring::count_of(const std::string& place) const {
  return std::count_if(runs_.begin(), runs_.end(), [&](const StageRun& r) { return r.place == place; });
}

int64_t Wiring::ordinal_of(const StageRun& run) const {  // among the runs of its place
  int64_t before = 0;
  for (const StageRun& r : runs_) {
    if (&r == &run) break;
    before += r.place == run.place;
  }
  return before;
}

bool Wiring::alike_but_rows(const assay_tensor& a, const assay_tensor& b) {
  return a.shape[0] >= b.shape[0] && a.shape[1] == b.shape[1];
}

bool Wiring::arange(const std::vector<int32_t>& list) {
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i] != static_cast<int32_t>(i)) return false;
  return true;
}

std::string Wiring::name_of_table(const std::vector<int32_t>& given, const std::vector<int32_t>& right,
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

std::vector<int32_t> Wiring::contents(const assay_tensor& t, const StageRun* maker, int operand) const {
  if (maker != nullptr) return numbers(maker->after[operand], t);
  Bytes bytes;
  bytes.address = static_cast<const std::byte*>(t.data);
  bytes.copy.resize(static_cast<size_t>(view_bytes(t)));
  char why[200];
  apart_.backend().table()->copy_to_host(bytes.copy.data(), bytes.address,
                                         static_cast<int64_t>(bytes.copy.size()), why, sizeof why);
  return numbers(bytes, t);
}

void Wiring::derived_lengths(const StageRun& of, Operand o, const std::vector<int32_t>& rows, int32_t page) {
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

}  // namespace assay
