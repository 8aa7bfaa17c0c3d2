// SPDX-License-Identifier: Apache-2.0
// assay describe: what a scenario line turns into, for people: lengths of the requests, who sees what,
// work and bytes, where the pages lie, which rows are judged. `assay describe fields` is the language.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <span>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/device/backend.hpp"
#include "harness/input/beyond_codes.hpp"
#include "harness/input/tables.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"
#include "harness/run/case_runner.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/field_needs.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/text.hpp"
#include "harness/scenario/value_notes.hpp"
#include "reference/attention/attention.hpp"

namespace assay {
namespace {

constexpr int64_t kDefaultCases = 5;
constexpr size_t kRequestsShown = 12, kMasksShown = 4, kPagesShown = 12;
constexpr size_t kNumbersShown = 24;                // of a request: positions, slots
constexpr double kMostCountedBytes = 0x1p27;        // values are drawn in less than a second
constexpr int32_t kMaskRows = 48, kMaskKeys = 120;  // larger masks are no picture any more

// 1.5 k, 2.25 G: three digits.
std::string amount(double value, const char* unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  int p = 0;
  while (value >= 1000 && p < 5) value /= 1000, ++p;
  return fmt::format("{:.3g} {}{}", value, prefixes[p], unit);
}

void print_field(const Field& f) {
  fmt::print("{:<9} {}{}\n", f.name, f.meaning,
             names_of(f.ops) == "all" ? "" : fmt::format(" ({})", names_of(f.ops)));
  if (!f.syntax.empty()) fmt::print("          value:    {}\n", f.syntax);
  if (!f.accepted.empty()) fmt::print("          accepted: {}\n", f.accepted);
  for (const ValueNote& note : value_notes(f.name))
    fmt::print("            {:<11} {}\n", note.value, note.meaning);
  fmt::print("          default:  {}\n", f.default_text.empty() ? "none: it must be given" : f.default_text);
  for (const FieldNeed& need : field_needs(f))
    fmt::print("          needs{}{}: {}\n", need.values.empty() ? "" : " for " + need.values,
               need.ops == f.ops ? "" : fmt::format(" in {}", names_of(need.ops)), need.message);
}

// All fields, or those named.
void print_fields(std::span<const std::string> names) {
  for (const std::string& name : names) {
    const int index = field_index(name);
    if (index < 0)
      throw InputError(fmt::format("there is no field {}{}; fields: {}", name,
                                   did_you_mean(name, field_names()), join(field_names())));
    print_field(fields()[static_cast<size_t>(index)]);
  }
  if (!names.empty()) return;
  fmt::print("A scenario line is an op and fields in any order; the canonical line leaves defaults out.\n\n");
  for (const Field& f : fields()) print_field(f);
}

// " 50 49 48 36", of long lists the first ones and the last.
std::string listed(const std::vector<int64_t>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.size() > kNumbersShown && i + 1 == kNumbersShown) text += " ...", i = all.size() - 1;
    text += fmt::format(" {}", all[i]);
  }
  return text;
}

void print_requests(const Problem& p) {
  Row row;
  fill_batch(row, p);
  fmt::print("batch     {} ({} decode, {} extend, {} prefill), {}, {}\n", counted(row.requests, "request"),
             row.decodes, row.extends, row.prefills, counted(p.total_q(), "new token"),
             counted(p.total_kv(), "visible token"));
  fmt::print("          request   q_len  kv_len  shares\n");
  for (size_t r = 0; r < p.requests.size() && r < kRequestsShown; ++r) {
    const Request& q = p.requests[r];
    std::string stand;
    if (!p.first_key.empty()) stand += fmt::format("  keys from position {}", p.first_key[r]);
    if (!p.encoder_len.empty()) stand += fmt::format("  behind an encoder of {}", p.encoder_len[r]);
    if (!p.positions.empty() && q.q_len > 0)
      stand += "  rows at" + listed({p.positions[r].begin(), p.positions[r].end()});
    fmt::print("          {:>7} {:>7} {:>7}{}{}\n", r, q.q_len, q.kv_len, stand,
               q.shared_with >= 0
                   ? fmt::format("  first {} tokens with request {}", q.shared_tokens, q.shared_with)
                   : "");
  }
  if (p.requests.size() > kRequestsShown)
    fmt::print("          ... {} more\n", p.requests.size() - kRequestsShown);
}

void print_masks(const Problem& p) {
  size_t shown = 0;
  std::set<std::pair<int32_t, int32_t>> seen;  // equal lengths look equal, trees aside
  for (size_t r = 0; r < p.requests.size() && shown < kMasksShown; ++r) {
    const Request& q = p.requests[r];
    if (q.q_len == 0 || q.kv_len == 0 || q.q_len > kMaskRows || q.kv_len > kMaskKeys) continue;
    if (p.mask != ASSAY_MASK_TREE && !seen.insert({q.q_len, q.kv_len}).second) continue;
    fmt::print("mask      request {}: row down, key across, # visible\n", r);
    for (int32_t i = 0; i < q.q_len; ++i) {
      std::string line;
      for (int32_t j = 0; j < q.kv_len; ++j) line += visible(p, static_cast<int>(r), i, j) ? '#' : '.';
      fmt::print("          {:>3} {}\n", i, line);
    }
    ++shown;
  }
  if (shown == 0)
    fmt::print("mask      no request is small enough for a picture (up to {} rows x {} keys)\n", kMaskRows,
               kMaskKeys);
}

void print_pages(const Problem& p) {
  if (!op_of(p).has_cache) return;
  const PagedCache cache(p);
  double bytes = static_cast<double>(cache.k().allocation) * format_bytes(p.k_format);
  if (!cache.shared_allocation())
    bytes += static_cast<double>(cache.v().allocation) * format_bytes(p.v_format);
  fmt::print("cache     {} blocks of {} tokens, {}\n", p.num_blocks, p.page_size, amount(bytes, "B"));
  for (size_t r = 0; r < p.pages.size() && r < kMasksShown; ++r) {
    std::string blocks;
    for (size_t i = 0; i < p.pages[r].size() && i < kPagesShown; ++i)
      blocks += fmt::format(" {}", p.pages[r][i]);
    if (p.pages[r].size() > kPagesShown) blocks += fmt::format(" ... ({} pages)", p.pages[r].size());
    fmt::print("          request {} blocks:{}\n", r, blocks.empty() ? " none" : blocks);
  }
}

// Where new keys go, and the map between the pool that a table names and the cache.
void print_slots(const Problem& p, const Op& op) {
  if (p.full_pool) {
    const std::vector<int32_t> ids = full_ids(p);
    std::string map;
    for (size_t own = 0; own < ids.size() && own < kNumbersShown; ++own)
      map += fmt::format(" {}>{}", ids[own], own);
    fmt::print("pool      block of the table > of the cache:{}{}, all others > {}\n", map,
               ids.size() > kNumbersShown ? fmt::format(" ... ({} of them)", ids.size()) : "",
               spare_block(p));
  }
  if (p.no_write || find_operand(op, Operand::kSlotMapping) == nullptr) return;
  const std::vector<int64_t> slots = slot_mapping(p);
  const std::vector<PackedRow> rows = new_key_rows(p);
  std::vector<int64_t> of;
  size_t shown = 0;
  for (size_t i = 0; i < rows.size() && shown < kRequestsShown; ++i) {
    of.push_back(slots[i]);
    if (i + 1 < rows.size() && rows[i + 1].request == rows[i].request) continue;
    fmt::print("{:<9} {}:{}\n", shown++ == 0 ? "slots" : "",
               rows[i].request < 0 ? "padded rows" : fmt::format("new keys of request {}", rows[i].request),
               listed(of));
    of.clear();
  }
}

// What kernels made of kernels would enqueue, of the backends named; no device is touched.
void print_stages(const Problem& p, const std::vector<Backend>& backends, const RunOptions& options) {
  const ProblemView view(p);
  const auto print = [&](const assay_kernel& kernel) {
    if (kernel.op != p.op || !has_stages(kernel)) return;
    std::string text(size_t{1} << 16, '\0');
    const int status = kernel.dispatch(&kernel, view.get(), text.data(), text.size());
    text.resize(text.find('\0'));
    fmt::print("stages    {}{}\n", kernel.name, status == ASSAY_OK ? "" : ": " + text);
    for (size_t at = 0; status == ASSAY_OK && at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      fmt::print("          {}\n", text.substr(at, end - at));
      at = end + 1;
    }
  };
  for (const Backend& backend : backends) {
    for (const assay_kernel* kernel : backend.kernels())
      if (chosen_by(kernel->name, options.kernels)) print(*kernel);
    for (const std::string& name : options.kernels)
      if (name.find('(') != std::string::npos)
        if (const assay_kernel* composed = backend.find(name); composed != nullptr) print(*composed);
  }
}

// What this case cannot show: a softmax scale that loses nothing wherever it is multiplied in.
void print_hidden(const Problem& p) {
  const bool scaled = (fields()[static_cast<size_t>(field_index("scale"))].ops & op_bit(p.op)) != 0;
  int exponent = 0;
  if (!scaled || std::frexp(std::fabs(p.softmax_scale), &exponent) != 0.5f) return;
  if (p.softmax_scale == 1)
    fmt::print("hides     a softmax scale that is left out: it is 1 (scale=0.1 shows that)\n");
  else if (p.q_scale == ASSAY_SCALE_NONE && format_is_float16(p.q_format))
    fmt::print(
        "hides     that Q is rounded to {} once it is multiplied by the softmax scale: {:g} is a power of "
        "two (scale=0.1 "
        "shows that)\n",
        name_of(format_names(), p.q_format), p.softmax_scale);
}

// What this case holds of values that saturate, which is seen in its values alone.
void print_beyond(const Scenario& s, const Problem& p) {
  if (p.no_write || find_operand(op_of(p), Operand::kSlotMapping) == nullptr) return;
  if (!format_is_quantized(p.k_format) && !format_is_quantized(p.v_format)) return;
  if (case_bytes(s, extent_of(p.requests)) > kMostCountedBytes) {
    fmt::print("codes     values beyond the largest code are not counted in a case of this size\n");
    return;
  }
  std::string counted, none;
  try {
    const Inputs inputs = build_inputs(p);
    for (const bool of_v : {false, true}) {
      const BeyondCodes n = beyond_codes(inputs, of_v);
      if (n.values == 0) continue;
      const std::string which = fmt::format("{} new values of {}", n.values, of_v ? "v" : "k");
      std::string& list = n.beyond > 0 ? counted : none;
      list += list.empty() ? "" : " and ";
      list += n.beyond > 0 ? fmt::format("{} of {}", n.beyond, which) : which;
    }
  } catch (const InputError&) {
    return;  // a known answer that cannot be realised: the check says so
  }
  if (!counted.empty()) fmt::print("codes     {} lie beyond the largest code and saturate\n", counted);
  if (!none.empty())
    fmt::print("hides     what becomes of values beyond the largest code: none of {} is\n", none);
}

void print_case(const RunCase& c, const std::vector<Backend>& backends, const RunOptions& options) {
  const Problem p = make_problem(c.scenario);
  const Op& op = op_of(p);
  const Work w = work_of(p);
  fmt::print("{}\nfrom      {}\n{}\n", c.line, c.place, op.describe(p));
  print_hidden(p);
  print_beyond(c.scenario, p);
  print_requests(p);
  print_stages(p, backends, options);
  if (op.attends_rows) print_masks(p);
  if (!op.whole_context) {
    print_pages(p);
    print_slots(p, op);
    fmt::print("work      {} moved\njudged    all {} rows\n", amount(w.total_bytes, "B"), p.rows());
    return;
  }
  print_pages(p);
  fmt::print("work      {} visible pairs per head, {}, {} moved ({} of K and V)", w.visible_pairs,
             amount(w.flops, "FLOP"), amount(w.total_bytes, "B"), amount(w.kv_bytes, "B"));
  if (w.total_bytes > 0) fmt::print(", {:.3g} FLOP/B", w.flops / w.total_bytes);
  fmt::print("\n");
  const RowSelection rows = select_rows(p, options.rows_budget);
  fmt::print("judged    {} of {} query rows{}\n", rows.rows.size(), rows.total_rows,
             rows.sampled() ? " (edges always, the rest drawn from the seed)" : "");
  fmt::print("rules     all {} hold\n", rules().size());
}

// A name that nothing answers to would print nothing.
void check_kernels(const std::vector<Backend>& backends, const std::vector<std::string>& globs) {
  if (globs.empty()) return;
  if (backends.empty())
    throw InputError(
        fmt::format("--kernel {}: a kernel of which backend? Add --backend NAME or PATH", globs.front()));
  std::vector<std::string_view> names;
  for (const Backend& backend : backends)
    for (const assay_kernel* kernel : backend.kernels()) names.push_back(kernel->name);
  for (const std::string& glob : globs) {
    const bool known = std::any_of(names.begin(), names.end(),
                                   [&](std::string_view name) { return fits_glob(name, glob); }) ||
                       std::any_of(backends.begin(), backends.end(),
                                   [&](const Backend& backend) { return backend.find(glob) != nullptr; });
    if (!known)
      throw InputError(fmt::format("--kernel {}: no kernel of that name{}; there are: {}", glob,
                                   did_you_mean(glob, names), join(names)));
  }
}

int describe_command(const RunOptions& given) {
  if (!given.suites.empty() && given.suites[0] == "fields") {
    print_fields(std::span(given.suites).subspan(1));
    return kExitOk;
  }
  RunOptions options = given;
  const int64_t most = options.limit >= 0 ? options.limit : kDefaultCases;
  options.limit = -1;
  std::vector<Backend> backends;
  for (const std::string& name : options.backends) backends.push_back(Backend::load(name));
  check_kernels(backends, options.kernels);
  CaseStream cases(options, {.keep_repeats = true});
  int64_t shown = 0;
  while (const auto c = cases.next()) {
    if (shown == most) {
      fmt::print("\n(more cases follow; --limit N shows N of them)\n");
      break;
    }
    if (shown++ > 0) fmt::print("\n");
    print_case(*c, backends, options);
  }
  for (const std::string& line : cases.partly_set()) fmt::print(stderr, "{}\n", line);
  if (shown > 0) return kExitOk;
  fmt::print(stderr, "no case to describe: {}\n", cases.why_none());
  return kExitUsage;
}

}  // namespace

Command add_describe(CLI::App& app) {
  const auto t = std::make_shared<Typed>();
  CLI::App* describe =
      app.add_subcommand("describe", "the concrete problem of a case: lengths, mask, work, pages");
  add_selection(*describe, *t);
  add_repeatable(*describe, "--backend", t->args.run.backends,
                 "also what its kernels made of kernels (steps) would enqueue", "NAME|PATH");
  add_repeatable(*describe, "--kernel", t->args.run.kernels, "with --backend: only these", "GLOB");
  describe->footer(
      "`describe fields` prints the fields of a scenario line, `describe fields NAME` one of "
      "them.\nExamples:\n  assay describe fields\n"
      "  assay describe fields window\n"
      "  assay describe 'step batch=2q1s40_1q9s30' --backend cpu\n"
      "  assay describe 'paged window=3 page=4 batch=1q4s10_2q1s7'\n  assay describe smoke --limit 2");
  return {describe, [t](const auto&) {
            settle(*t, "");
            return describe_command(t->args.run);
          }};
}

}  // namespace assay
