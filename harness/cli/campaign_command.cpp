// SPDX-License-Identifier: Apache-2.0
// assay campaign: is nothing right called wrong? Judges kernels that are taken to be right on lines nobody
// chose, counts, and keeps every line that condemns one. The last line of stdout is for scripts.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/program.hpp"
#include "harness/campaign/hunt.hpp"
#include "harness/campaign/recorded.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/status_line.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/keeper.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/worker_process.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using campaign::Alarm;
using campaign::Counts;
using campaign::Totals;

struct CampaignArguments {
  campaign::HuntOptions hunt;
  std::string seed, shard, set, out, alarms, replay, near, program;
  std::vector<std::string> sum;
  double minutes = 1;
  double near_share = 1;
  bool minutes_given = false, near_given = false, resume = false, quiet = false, json = false;
  int64_t at_least = 0;
  double cases = 0;  // 1e6 is a number people type
};

class HuntLine {
 public:
  explicit HuntLine(const CampaignArguments& a) : a_(a), line_(a.quiet) {}

  void show(const campaign::HuntProgress& p) {
    if (p.alarm != nullptr) alarm(*p.alarm);
    if (!line_.due()) return;
    const Counts sum = p.totals.sum();
    line_.show(fmt::format("[{} {} lines, {} judged ({:.0f} a second), {} alarms]", minutes(p.seconds),
                           p.totals.lines, sum.judged(),
                           p.seconds > 0 ? static_cast<double>(sum.judged()) / p.seconds : 0, sum.alarms));
  }

  void clear() { line_.clear(); }
  const std::vector<Alarm>& shown() const { return shown_; }

 private:
  // Also with --quiet: it is a result, and a long campaign may never reach its end.
  void alarm(const Alarm& x) {
    shown_.push_back(x);
    line_.print(fmt::format(
        "alarm     {} {} ({})  {}\n          {}\n          repeat: {} check {} --backend {} --kernel {}",
        clean_text(x.kernel), x.outcome, x.check, x.line, clean_text(x.reason), shell_quote(a_.program),
        shell_quote(x.line), shell_quote(x.library), shell_quote(x.kernel)));
    if (!a_.alarms.empty() && a_.replay.empty()) campaign::record(a_.alarms, x);
  }

  const CampaignArguments& a_;
  StatusLine line_;
  std::vector<Alarm> shown_;
};

// Beside the program: what the build put into faulty/.
std::vector<std::string> default_catalogues() {
  const fs::path folder = program_folder() / "faulty";
  std::vector<std::string> all;
  for (const char* name : {"libassay_faulty.so", "libassay_drawn.so"})
    if (fs::exists(folder / name)) all.push_back((folder / name).string());
  if (all.empty())
    throw InfrastructureError(fmt::format(
        "campaign: no catalogue of legal kernels in {}; build the targets assay_faulty and assay_drawn, "
        "or name one with --catalogue PATH",
        folder.string()));
  return all;
}

std::string rate_text(int64_t alarms, int64_t cases) {
  return fmt::format("{} in {}, below {:.2g} (95 %, Clopper-Pearson)", alarms, cases,
                     campaign::rate_bound(alarms, cases));
}

nlohmann::json totals_json(const Totals& t) {
  nlohmann::json kernels = nlohmann::json::object();
  for (const auto& [kernel, c] : t.kernels)
    kernels[kernel] = {{"passed", c.passed},           {"alarms", c.alarms},   {"untrusted", c.untrusted},
                       {"unsupported", c.unsupported}, {"useless", c.useless}, {"largest", c.largest},
                       {"unrounded", c.unrounded}};
  const Counts sum = t.sum();
  nlohmann::json alarms = nlohmann::json::array();
  for (const Alarm& a : t.alarms) alarms.push_back(encode(a));
  return {{"lines", t.lines},
          {"unbuilt", t.unbuilt},
          {"judged", sum.judged()},
          {"passed", sum.passed},
          {"untrusted", sum.untrusted},
          {"unsupported", sum.unsupported},
          {"alarms", sum.alarms},
          {"alarm_lines", t.alarm_lines},
          {"rate_bound", campaign::rate_bound(sum.alarms, sum.judged())},
          {"line_rate_bound", campaign::rate_bound(t.alarm_lines, t.lines - t.unbuilt)},
          {"untrusted_reasons", t.untrusted},
          {"kernels", kernels},
          {"alarm_list", alarms}};
}

// `shown`: alarms that were printed when they came.
void print_totals(const Totals& t, const std::vector<Alarm>& shown) {
  const Counts sum = t.sum();
  fmt::print("{:<34} {:>10} {:>10} {:>11} {:>7} {:>7} {:>9} {:>9}\n", "kernel", "judged", "untrusted",
             "unsupported", "alarms", "useless", "largest", "unrounded");
  for (const auto& [kernel, c] : t.kernels)
    fmt::print("{:<34} {:>10} {:>10} {:>11} {:>7} {:>7} {:>9.3f} {:>9.3f}\n", clean_text(kernel), c.judged(),
               c.untrusted, c.unsupported, c.alarms, c.useless, c.largest, c.unrounded);
  fmt::print("\nlines      {}, of which {} cannot be built\n", t.lines, t.unbuilt);
  fmt::print("judged     {}, passed {}; untrusted {}, unsupported {}\n", sum.judged(), sum.passed,
             sum.untrusted, sum.unsupported);
  for (const auto& [reason, count] : t.untrusted)
    fmt::print("untrusted  {:>8}  {}\n", count, clean_text(reason));
  for (const Alarm& a : t.alarms)
    if (std::find(shown.begin(), shown.end(), a) == shown.end())
      fmt::print("alarm      {} {} ({})  {}\n           {}\n", clean_text(a.kernel), a.outcome, a.check,
                 a.line, clean_text(a.reason));
  fmt::print("rate       cases {}\n           lines {}\n", rate_text(sum.alarms, sum.judged()),
             rate_text(t.alarm_lines, t.lines - t.unbuilt));
}

int finish(const CampaignArguments& a, const Totals& t, const std::vector<Alarm>& shown = {}) {
  const Counts sum = t.sum();
  if (a.json)
    print_json(totals_json(t));
  else
    print_totals(t, shown);
  const bool few = sum.judged() < a.at_least;
  if (few)
    fmt::print(stderr, "only {} cases were judged, --at-least {} were asked for\n", sum.judged(), a.at_least);
  if (!a.json) fmt::print("\n{} false alarms in {} judged cases\n", sum.alarms, sum.judged());
  return sum.alarms > 0 || few ? kExitWrong : kExitOk;
}

int sum_command(const CampaignArguments& a) {
  Totals all;
  std::vector<campaign::Identity> seen;
  for (const std::string& path : a.sum) {
    campaign::Identity identity;
    all.add(campaign::read_totals(path, &identity));
    if (std::find(seen.begin(), seen.end(), identity) != seen.end())
      throw InputError(fmt::format("--sum {}: the same campaign and shard stands in a file before it", path));
    seen.push_back(identity);
  }
  return finish(a, all);
}

campaign::Identity identity_of(const campaign::HuntOptions& o, const std::string& set) {
  campaign::Identity i;
  i.seed = o.draw.seed;
  i.largest = o.draw.largest;
  i.lines_per_chunk = campaign::kLinesPerChunk;
  i.per_line = o.suspects.per_line;
  i.backends = o.suspects.backends;
  for (const std::string& path : o.suspects.catalogues)
    i.catalogues.push_back(fs::path(path).filename().string());
  i.shard = fmt::format("{}/{}", o.shard.index, o.shard.count);
  i.set = set;
  if (o.draw.near_share > 0)
    i.set += fmt::format("{}near {} recorded lines, {} of the lines", set.empty() ? "" : "; ",
                         o.draw.near.size(), o.draw.near_share);
  i.most_keys = o.draw.corner.most_keys;
  const nlohmann::json build = build_facts();
  i.commit = build["commit"].is_string() ? build["commit"].get<std::string>().substr(0, 12) : "unknown";
  return i;
}

uint64_t fresh_seed() {
  std::random_device source;
  return (uint64_t{source()} << 16 ^ source()) % 1'000'000'000;  // short enough to be typed
}

int campaign_command(CampaignArguments& a) {
  if (!a.sum.empty()) return sum_command(a);
  const StopSignals signals;
  campaign::HuntOptions& o = a.hunt;
  if (!a.alarms.empty()) check_writable("--alarms", a.alarms);  // now, not when there is one
  if (!a.seed.empty()) o.draw.seed = parse_seed(a.seed);
  if (!a.shard.empty()) o.shard = parse_shard(a.shard);
  if (!a.set.empty()) {
    o.draw.corner.set = ReAim(a.set);
    campaign::draw_line(o.draw.seed, 0, o.draw.largest, o.draw.corner);  // says what no line can have
  }
  if (o.suspects.catalogues.empty()) o.suspects.catalogues = default_catalogues();
  for (const std::string& path : o.suspects.catalogues)
    if (!fs::is_regular_file(path)) throw InputError(fmt::format("--catalogue {}: no such file", path));
  for (const std::string& backend : o.suspects.backends)
    if (installed_path(backend).empty() && !fs::is_regular_file(backend))
      throw InputError(fmt::format("--backend {}: neither installed nor a file", backend));
  if (o.jobs <= 0) o.jobs = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  o.cases = static_cast<int64_t>(std::min(a.cases, 9e15));
  o.seconds = o.cases > 0 && !a.minutes_given ? 0 : 60 * a.minutes;
  if (a.resume && a.out.empty()) throw InputError("--resume wants the file to go on with: add --out FILE");
  std::optional<campaign::TotalsFile> file;
  bool left_out = false;
  const auto recorded = [&](const std::string& path) {
    std::vector<std::string> illegal;
    std::vector<campaign::Recorded> all = campaign::read_recorded(path, &illegal);
    for (const std::string& why : illegal) fmt::print(stderr, "left out: {}\n", why);
    left_out |= !illegal.empty();
    return all;
  };
  if (a.near_given) {
    o.draw.near = recorded(a.near.empty() ? "scenarios/alarms.suite" : a.near);
    o.draw.near_share = a.near_share;
  }
  if (!a.replay.empty()) {
    o.again = recorded(a.replay);
    if (o.again.empty()) throw InputError(fmt::format("--replay {}: holds no line", a.replay));
    if (!a.out.empty()) throw InputError("--replay judges a few known lines; leave out --out");
  } else {
    if (a.seed.empty() && a.resume) {
      campaign::Identity before;
      campaign::read_totals(a.out, &before);
      o.draw.seed = before.seed;
    } else if (a.seed.empty()) {
      o.draw.seed = fresh_seed();
    }
    if (!a.out.empty()) file.emplace(a.out, identity_of(o, a.set), a.resume);
    if (!a.quiet) fmt::print(stderr, "seed {}\n", o.draw.seed);
  }

  HuntLine progress(a);
  const campaign::HuntResult result = campaign::hunt(o, file ? &*file : nullptr, &StopSignals::requested(),
                                                     [&](const auto& p) { progress.show(p); });
  progress.clear();
  if (!a.json && a.replay.empty())
    fmt::print("seed       {}, shard {}/{}, {} with {} processes\n", o.draw.seed, o.shard.index,
               o.shard.count, minutes(result.seconds), o.jobs);
  const int code = finish(a, result.totals, progress.shown());
  if (result.complete) return code == kExitOk && left_out ? kExitUsage : code;
  return stopped(!a.out.empty());
}

}  // namespace

Command add_campaign(CLI::App& app) {
  const auto arguments = std::make_shared<CampaignArguments>();
  CampaignArguments& a = *arguments;
  campaign::HuntOptions& o = a.hunt;
  o.jobs = 0;
  CLI::App* sub = app.add_subcommand(
      "campaign", "random legal lines, kernels that are right: is any of them called wrong?");
  sub->add_option("--minutes", a.minutes, "begin no chunk of lines after so many minutes")
      ->capture_default_str()
      ->check(kPositive);
  sub->add_option("--cases", a.cases, "nor after so many judged cases (without --minutes: no limit of time)")
      ->check(kPositive);
  sub->add_option("--at-least", a.at_least, "exit 1 when fewer cases than this were judged")
      ->check(kNotNegative);
  sub->add_option("--seed", a.seed, "lines of this campaign (default: a fresh one, printed)")
      ->type_name("N")
      ->check(kSeed);
  sub->add_option("--shard", a.shard, "part I of N of the same campaign")->type_name("I/N")->check(kShard);
  sub->add_option("--jobs", o.jobs, "processes (default: one per processor)")->check(whole_number(1, 4096));
  sub->add_option("--largest", o.draw.largest,
                  "most a line may cost, in multiply-adds (and 4 a byte of operands)")
      ->capture_default_str()
      ->check(kPositive);
  sub->add_option("--set", a.set, "fields that every line has ('d=2 sinks=on out=fp32')")
      ->type_name("FIELDS");
  sub->add_option("--keys", o.draw.corner.most_keys, "most keys of a request before fields are set")
      ->capture_default_str()
      ->check(whole_number(1, int64_t{1} << 20));
  add_repeatable(*sub, "--backend", o.suspects.backends,
                 "all kernels of this backend, by name or path (default: cpu)", "NAME|PATH");
  add_repeatable(
      *sub, "--catalogue", o.suspects.catalogues,
      "library of legal variants (default: those of the build: the listed ones and the drawn ones)", "PATH");
  sub->add_option("--per-line", o.suspects.per_line, "kernels of each catalogue for one line")
      ->capture_default_str()
      ->check(whole_number(0, 1000));
  sub->add_option("--rows-budget", o.draw.rows_budget,
                  "row x key x head products of reference per case; more: rows are sampled")
      ->capture_default_str()
      ->check(kPositive);
  sub->add_option("--out", a.out, "file of totals, one line per chunk of lines")->type_name("FILE");
  sub->add_flag("--resume", a.resume, "go on with --out");
  sub->add_option("--alarms", a.alarms, "append the lines of alarms to this suite")->type_name("FILE");
  sub->add_option("--replay", a.replay, "judge the lines and kernels of such a suite instead of drawn ones")
      ->type_name("FILE");
  sub->add_option(
         "--near", a.near,
         "lines beside those of this suite of alarms, for their kernels and others, and at the corners "
         "of the catalogues' kernels: their tiles, parts, lags, steps of P (default: "
         "scenarios/alarms.suite)")
      ->type_name("[FILE]")
      ->expected(0, 1);
  sub->add_option("--near-share", a.near_share, "with --near: so many of all lines")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  add_repeatable(*sub, "--sum", a.sum, "only add up and show files of totals", "FILE");
  sub->add_option("--timeout", o.silent_s, "seconds of silence after which a kernel hangs")
      ->capture_default_str()
      ->check(kPositive);
  sub->add_flag("--json", a.json, "totals as one JSON document on stdout");
  sub->add_flag("--quiet", a.quiet, "no progress (alarms are shown)");
  sub->footer(
      "Every kernel is taken to be right: wrong, crashed, timed out, or untrusted because the tiers of its "
      "bounds\n"
      "exclude each other is an alarm, shown with the command that repeats it and with its line made "
      "smaller.\n"
      "Exit code 0 without alarms, 1 with any (or with too few cases), 5 when stopped.\nExamples:\n"
      "  assay campaign --minutes 5\n"
      "  assay campaign --cases 1e6 --seed 7 --shard 1/4 --out part1.jsonl --alarms alarms.suite\n"
      "  assay campaign --resume --cases 1e6 --shard 1/4 --out part1.jsonl\n"
      "  assay campaign --sum part1.jsonl --sum part2.jsonl\n"
      "  assay campaign --keys 3 --set 'd=2 sinks=on out=fp32'\n"
      "  assay campaign --backend emu32 --largest 2e4\n"
      "  assay campaign --replay scenarios/alarms.suite\n"
      "  assay campaign --near scenarios/alarms.suite --cases 2e4\n"
      "  assay campaign --minutes 60 --near --near-share 0.25");
  return {sub, [arguments, sub](const std::vector<std::string>& words) {
            arguments->minutes_given = sub->count("--minutes") > 0;
            arguments->near_given = sub->count("--near") > 0;
            arguments->program = words[0];
            // Its libraries are loaded and asked in the child.
            return run_apart([&] { return campaign_command(*arguments); });
          }};
}

}  // namespace assay
