// SPDX-License-Identifier: Apache-2.0
// See step_causes.hpp.
#include "harness/explain/stages/step_causes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/explain/causes.hpp"
#include "harness/explain/stages/row_kinds.hpp"
#include "harness/explain/stages/same_words.hpp"

namespace assay {
namespace {

constexpr StepCause kStepCauses[] = {
    {"lengths_without_new", "lengths of before the new keys were added"},
    {"lengths_with_new", "lengths with the new keys, where those of the context are meant"},
    {"lengths_off_by_one", "lengths are off by one"},
    {"lengths_off_by_page", "lengths are off by a page"},
    {"lengths_are_rows", "numbers of rows are taken for lengths"},
    {"lengths_of_one", "one request's length is taken for all"},
    {"lengths_other", "lengths are other ones: rounded, cut off, or those of something else"},
    {"new_keys_missing", "rows see the context and none of the new keys"},
    {"context_missing", "rows see the new keys and nothing of the context"},
    {"starts_arange", "rows are taken to start at 0, 1, 2, ..., one a request"},
    {"starts_of_one", "where one request begins in a list of rows, keys or pages is taken for all"},
    {"starts_zero",
     "a request's keys, or those of a part of its context, are taken to begin at its first one"},
    {"starts_other", "a request's keys, or those of a part of its context, are taken to begin elsewhere"},
    {"table_of_one", "one request's page table is taken for all"},
    {"table_of_next", "page tables are those of other requests"},
    {"table_shifted", "page tables are read an entry late or early"},
    {"table_first_entry", "the first entry of a page table is taken for all"},
    {"table_units", "slots are taken for pages, or pages for slots"},
    {"table_other", "the page table is another one"},
    {"map_shifted", "the map between pools is read at another place"},
    {"map_missing", "the map between pools is not followed"},
    {"encoder_missing", "the encoder's entries of the table are taken for the request's own"},
    {"encoder_off_by_one", "the encoder's length is off by one"},
    {"encoder_rounded_down", "the encoder's last page, partly filled, is not counted as its own"},
    {"encoder_of_one", "one encoder's length is taken for all"},
    {"last_request_missing", "the last request is missing from a list"},
    {"list_off_by_one", "a list is off by one"},
    {"list_units", "a list counts in another unit: pages for tokens or slots"},
    {"list_order", "entries of a list stand in another order"},
    {"list_base", "a list begins at another base"},
    {"list_unwritten", "a list is not written to its end"},
    {"budget_other", "chunks are cut by another budget"},
    {"threshold_other", "requests are told apart by another threshold"},
    {"chunk_other", "chunks have another length"},
    {"chunk_missing", "attention is not cut into chunks"},
    {"chunk_stale", "behind a short chunk of the context stand keys of the one before"},
    {"mask_causal", "a causal mask, where there is another or none"},
    {"mask_full", "no mask, where there is one"},
    {"mask_tree", "drafts follow another tree than the one that is given"},
    {"drafts_all", "every draft is seen"},
    {"tree_as_causal", "drafts of a tree are taken for a chain"},
    {"tree_of_one", "one request's tree is taken for all"},
    {"drafts_new_alone", "drafts of the steps before are not counted"},
    {"drafts_step_less", "a step of drafts is missing"},
    {"drafts_without_context", "drafts alone are listed, without the context before them"},
    {"drafts_with_context", "the context is listed before the drafts, where drafts alone are meant"},
    {"window_off_by_one", "the window is off by one"},
    {"window_missing", "the window is left out"},
    {"window_added", "a window, where there is none"},
    {"window_other", "the window is another one"},
    {"positions_other", "rows stand at other positions than those given"},
    {"softmax_scale", "the softmax scale is another one"},
    {"cap_missing", "the soft cap is left out"},
    {"cap_other", "the soft cap is another one"},
    {"bias_missing", "the position bias is left out"},
    {"bias_other", "the position bias is another one"},
    {"sink_missing", "the sink is left out"},
    {"sink_extra", "a sink is counted where none is due, or once more"},
    {"scale_missing", "codes are read or written without their scale"},
    {"scale_other", "the scale is that of another tensor, or another number"},
    {"scale_of_one", "one scale is taken for all along an axis"},
    {"scale_twice", "the scale is applied twice"},
    {"scale_unwritten", "computed scales are not written"},
    {"dense_for_cache", "new keys are read as they came, where the cache's are declared"},
    {"cache_for_dense", "new keys are read from the cache, where they are declared to be read as they came"},
    {"state_missing", "a partial result is left out of the merge"},
    {"state_twice", "one partial result counts twice in the merge"},
    {"states_exchanged", "weights of partial results are exchanged"},
    {"merge_unweighted", "partial results are merged without their weights"},
    {"merge_largest", "of the partial results the one of the largest LSE is taken"},
    {"merge_base2", "LSE of another base weigh the partial results"},
    {"lse_turned", "LSE of other rows or heads weigh the partial results"},
    {"row_missing", "slots of new keys in the cache, or rows of O, are left as they lay there"},
    {"rows_beyond", "rows of padding, which belong to no request, are written: to the cache, or in O"},
    {"rows_shifted", "rows are read at another place"},
    {"slots_shifted", "new keys go to slots that are not theirs: those of other rows, or any other ones"},
    {"slots_turned", "block and place within it are exchanged in slots"},
    {"slots_off_by_one", "new keys go to the slot beside theirs"},
    {"beside_rows", "the cache is changed in slots where no new key is to go"},
    {"context_overwritten", "keys of the context, which the cache held before, are changed"},
    {"key_altered",
     "new keys or values are changed before they are written: zeros, scaled, normalised, turned, mixed"},
    {"v_unwritten", "K or V alone is written"},
    {"v_for_k", "K and V are taken for each other"},
    {"codes_rounded", "codes are rounded otherwise than to the nearest one"},
    {"codes_wrap", "numbers beyond the largest code wrap around"},
    {"codes_overflow", "numbers beyond the largest code become NaN or infinity"},
    {"codes_clamped", "codes end at another largest one"},
    {"dims_missing", "the dimensions behind the latent part are left out"},
    {"dims_order", "dimensions are written in another order"},
    {"heads_missing", "heads of K or V are not written: nothing, or another head, lies in their place"},
    {"captured_lengths", "lengths are those of the batch that was captured"},
    {"captured_starts", "starts are those of the batch that was captured"},
    {"captured_table", "page tables are those of the batch that was captured"},
    {"captured_slots", "new keys go to the slots of the batch that was captured"},
    {"captured_tree", "drafts are those of the batch that was captured"},
    {"captured_values", "values are read as they stood when the call was captured"},
    {"captured_extent", "no more rows or keys are served than there were when the call was captured"},
    {"replay_before", "what is read is that of the replay before"},
    {"capture_keeps",
     "right when it is called, wrong when it is replayed: something else of the capture is kept"},
    {"turns_other", "keys are dealt to ranks in turns of another length"},
    {"keys_of_other_rank", "lengths are those of another rank's keys"},
    {"keys_of_all_ranks", "lengths are those of all ranks together"},
    {"keys_of_longest", "lengths are bounds, a rank's share of the longest request"},
    {"foreign_rows", "new keys of other ranks are written too"},
    {"heads_of_one_rank", "heads of one rank are taken for those of all"},
    {"heads_turned", "parts go to other ranks than those whose heads they are"},
    {"total_of_one_rank", "one rank's LSE is taken for that of all"},
    {"empty_as_zero", "a part or a rank without keys counts with a weight"},
    {"exchange_other", "what is exchanged is something else than what was made"},
    {"sum_scaled", "sums over ranks are scaled"},
    {"left_out", "a stage is left out"},
    {"out_of_order", "a stage runs after one that reads what it writes"},
    {"other_operand", "an operand is another one than the step's"},
};

// One mechanism, as it is called of a step and of a kernel: whether the sentences say the same, the first
// says the second as well, or they are only near.
enum class Alike { kSame, kImplies, kNear };
struct SameCause {
  std::string_view a, b;
  Alike alike = Alike::kSame;
};
constexpr SameCause kSameCause[] = {
    {"window_missing", "mask.window_ignored"},
    {"window_added", "mask.window_invented"},
    {"mask_causal", "mask.full_as_causal"},
    {"mask_full", "mask.causal_ignored"},
    {"drafts_all", "mask.tree_ignored"},
    {"tree_as_causal", "mask.tree_ignored", Alike::kImplies},
    {"softmax_scale", "scale.softmax"},
    {"cap_missing", "softcap.ignored"},
    {"bias_missing", "alibi.ignored"},
    {"sink_missing", "sinks.ignored"},
    {"sink_extra", "sinks.per_split", Alike::kNear},
    {"scale_twice", "scale.applied_twice"},
    {"v_for_k", "keys.k_for_v", Alike::kNear},
    {"table_of_next", "page.of_other_request"},
    {"table_of_one", "page.of_other_request", Alike::kImplies},
    {"merge_unweighted", "merge.uniform_weights"},
    {"merge_base2", "merge.base"},
    {"state_missing", "merge.split_dropped"},
    {"new_keys_missing", "lengths_without_new", Alike::kNear},
    {"context_overwritten", "beside_rows", Alike::kImplies},
    {"slots_off_by_one", "slots_shifted", Alike::kImplies},
};

constexpr double kNumberless = 0.96;  // of attention
constexpr double kOfSomeRows = 0.98;  // at most, where the others say nothing
// At most, of what holds in one sort of rows alone; of two that explain as much the one of all rows is said.
constexpr double kOfOneKind = 0.99, kLessOfOneKind = 0.01;

// Where the last of the wrong rows stands in its request: a window that reaches as far hides nothing of them.
int32_t farthest_wrong_row(const StageCase& c, const std::vector<uint8_t>& bad_rows) {
  int32_t farthest = 0;
  size_t row = 0;
  for (int32_t r = 0; r < c.given().problem.requests; ++r) {
    const int32_t rows = c.given().rows_of(r);
    for (int32_t i = 0; i < rows && row < bad_rows.size(); ++i, ++row)
      if (bad_rows[row] != 0) farthest = std::max(farthest, c.given().problem.kv_len[r] - rows + i);
  }
  return farthest;
}

// Zeros in every wrong row, as where a row sees no key: any number of readings lead there, and none of them
// is shown by it.
bool nothing_is_left(const StageVerdict& nothing, const StageVerdict& v) {
  if (v.zero_rows.empty()) return false;
  for (size_t i = 0; i < nothing.bad_rows.size(); ++i)
    if (nothing.bad_rows[i] != 0 && (i >= v.zero_rows.size() || v.zero_rows[i] == 0)) return false;
  return true;
}

template <class Fits>
bool all_of(const std::vector<int32_t>& a, const std::vector<int32_t>& b, const Fits& fits) {
  bool some = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!fits(a[i], b[i], i)) return false;
    some = some || a[i] != b[i];
  }
  return some;
}

}  // namespace

// What is wrong where it should be right, too, is no cause unless it holds in one sort of rows alone.
void of_one_kind(const StageCase& c, const std::vector<uint8_t>& in, const std::vector<uint8_t>& out,
                 StepRanked& r) {
  Reading given = c.given();
  const std::vector<std::string> kinds = told_by_kinds(c.problem_of(given), in, out);
  if (kinds.empty() || of_many_numbers(r)) {
    r.explained = std::min(r.explained, StepRanked::kNotSaid);
    return;
  }
  const std::string how = r.how;
  for (const std::string& kind : kinds) r.ways.push_back(fmt::format("{}, in {} alone", how, kind));
  r.how = r.ways.front();
  r.explained = std::max(StepRanked::kSaid, std::min(r.explained - kLessOfOneKind, kOfOneKind)), r.spoilt = 0;
}

std::span<const StepCause> step_causes() { return kStepCauses; }

std::string step_cause_meaning(const std::string& name) {
  for (const StepCause& c : kStepCauses)
    if (name == c.name) return c.meaning;
  const std::string_view of_kernels = meaning_of(name);
  return of_kernels.empty() ? name : std::string(of_kernels);
}

std::vector<std::string> with_other_names(std::vector<std::string> names) {
  for (size_t i = 0, given = names.size(); i < given; ++i)
    for (const SameCause& s : kSameCause)
      if (names[i] == s.a || names[i] == s.b) {
        const std::string other(names[i] == s.a ? s.b : s.a);
        if (std::find(names.begin(), names.end(), other) == names.end()) names.push_back(other);
      }
  return names;
}

std::vector<std::string> said_as_well(const std::string& name) {
  std::vector<std::string> all;
  for (const SameCause& s : kSameCause)
    if (s.alike != Alike::kNear && name == s.a)
      all.emplace_back(s.b);
    else if (s.alike == Alike::kSame && name == s.b)
      all.emplace_back(s.a);
  return all;
}

std::string name_of_difference(const std::vector<int32_t>& given, const std::vector<int32_t>& right,
                               const std::vector<int32_t>& rows, int32_t page_size, bool table) {
  const size_t n = std::min(given.size(), right.size());
  const std::vector<int32_t> a(given.begin(), given.begin() + static_cast<int64_t>(n)),
      b(right.begin(), right.begin() + static_cast<int64_t>(n));
  if (table) {
    if (all_of(a, b, [&](int32_t x, int32_t y, size_t) { return x == y / page_size || y == x / page_size; }))
      return "table_units";
    return "table_other";
  }
  const auto row = [&](size_t i) { return i < rows.size() ? rows[i] : 0; };
  const auto off = [&](int32_t by) {
    return all_of(a, b, [&](int32_t x, int32_t y, size_t) { return x == y || x - y == by; });
  };
  if (rows.size() >= n &&
      all_of(a, b, [&](int32_t x, int32_t y, size_t i) { return x == y - row(i) || (y < row(i) && x == 0); }))
    return "lengths_without_new";
  if (rows.size() >= n && all_of(a, b, [&](int32_t x, int32_t y, size_t i) { return x == y + row(i); }))
    return "lengths_with_new";
  if (off(1) || off(-1)) return "lengths_off_by_one";
  if (off(page_size) || off(-page_size)) return "lengths_off_by_page";
  if (rows.size() >= n && all_of(a, b, [&](int32_t x, int32_t, size_t i) { return x == row(i); }))
    return "lengths_are_rows";
  if (n > 1 && all_of(a, b, [&](int32_t x, int32_t, size_t) { return x == a[0]; })) return "lengths_of_one";
  return "lengths_other";
}

std::vector<StepRanked> rank_misreadings(const StageCase& c, const StageVerdict& nothing,
                                         const std::vector<Misreading>& further) {
  std::vector<StepRanked> list;
  const bool by_rows =
      std::find(nothing.bad_rows.begin(), nothing.bad_rows.end(), 1) != nothing.bad_rows.end();
  const int32_t farthest = c.attends() && by_rows ? farthest_wrong_row(c, nothing.bad_rows) : 0;
  std::vector<Misreading> all = further;
  for (Misreading& m : misreadings(c)) all.push_back(std::move(m));
  for (const Misreading& m : all) {
    Reading reading = c.given();
    reading.lists = std::make_shared<std::list<std::vector<std::byte>>>();
    StepRanked r{m.cause, m.how, 0, 0, ""};
    StageVerdict v;
    try {
      if (!m.make(reading)) continue;
      if (farthest > 0 && r.cause == "window_other" && reading.problem.window_left >= farthest)
        r.cause = "window_missing";
      v = c.judge(reading);
    } catch (const std::exception&) {  // this misreading contradicts the rest of what it was given
      continue;
    }
    if ((!v.judged && !v.numberless) || v.uncounted) continue;
    if (by_rows && !v.bad_rows.empty()) {
      int64_t left = 0, known = 0, open = 0;
      std::vector<uint8_t> spoilt(nothing.bad_rows.size(), 0);
      for (size_t i = 0; i < nothing.bad_rows.size(); ++i) {
        if (i < v.open_rows.size() && v.open_rows[i] != 0) continue;
        known += nothing.bad_rows[i] != 0;
        const bool vague = i < v.vague_rows.size() && v.vague_rows[i] != 0;
        // What lies unused under replay is as large as numbers go: where it is read nothing speaks against
        // it.
        if (c.run().replayed && vague && v.bad_rows[i] == 0) {
          open += nothing.bad_rows[i] != 0, known -= nothing.bad_rows[i] != 0;
          continue;
        }
        const bool still = vague || (i < v.bad_rows.size() && v.bad_rows[i] != 0);
        left += still && nothing.bad_rows[i] != 0;
        spoilt[i] = still && nothing.bad_rows[i] == 0;
        r.spoilt += spoilt[i];
      }
      if (known == 0 || known < open) continue;
      const auto vague_rows = std::count(v.vague_rows.begin(), v.vague_rows.end(), 1);
      r.explained = 1 - static_cast<double>(left) / static_cast<double>(known);
      if (open > 0) r.explained = std::min(r.explained, kOfSomeRows);
      // Of a row a part may fit: an element that is left says that it does not.
      if (r.spoilt == 0 && left > 0 && vague_rows == 0)
        r.explained = std::max(
            r.explained,
            0.99 * (1 - static_cast<double>(v.bad) / static_cast<double>(std::max<int64_t>(1, nothing.bad))));
      if (c.attends() && !c.run().replayed && r.spoilt > 0 && r.explained >= StepRanked::kSaid)
        of_one_kind(c, nothing.bad_rows, spoilt, r);
      r.whole = left == 0 && open == 0 && vague_rows == 0 && v.judged && r.spoilt == 0;
      if (!c.run().replayed && nothing_is_left(nothing, v))
        r.explained = std::min(r.explained, StepRanked::kNotSaid);
      // Any number of readings lead to memory that holds none.
      r.numberless = v.numberless;
      if (v.numberless) r.explained = std::min(r.explained, c.attends() ? kNumberless : kNumberlessRows);
    } else {
      // A write that stays wrong was not looked at for what it touched: rows that this reading has not are
      // not explained.
      const int64_t undue =
          c.kernel().op == ASSAY_OP_CACHE_WRITE ? std::max<int64_t>(0, nothing.checked - v.checked) : 0;
      r.explained = v.right ? 1
                            : 0.99 * (1 - static_cast<double>(v.bad + undue) /
                                              static_cast<double>(std::max<int64_t>(1, nothing.bad)));
      // Wrong in nobody knows how many elements: what leaves any is no answer.
      if (nothing.uncounted && !v.right) r.explained = std::min(r.explained, StepRanked::kNotSaid);
      r.whole = v.right;
    }
    if (r.explained > 0.02) list.push_back(std::move(r));
  }
  std::stable_sort(list.begin(), list.end(), [](const StepRanked& a, const StepRanked& b) {
    return a.explained != b.explained ? a.explained > b.explained : a.spoilt < b.spoilt;
  });
  return list;
}

}  // namespace assay
