// SPDX-License-Identifier: Apache-2.0
// assay power: how small a mistake is still seen, by each tier of the bounds, by inputs with a known answer
// and by the rules of other projects. Plants faults of every size, counts, and records the curves.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/cli/status_line.hpp"
#include "harness/cli/stop_signals.hpp"
#include "harness/power/curves.hpp"
#include "harness/run/keeper.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/worker_process.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using power::CurveRow;
using power::Power;

struct PowerArguments {
  power::CurveOptions curves;
  std::vector<std::string> formats, keys;
  std::string seed, out, catalogue, show;
  double minutes = 0;
  bool resume = false, quick = false, quiet = false;
};

// The short form: a minute on one core, long enough for what must be seen at 4k keys.
constexpr int kQuickDraws = 2;
constexpr int64_t kQuickMostKeys = 4096;

// The record: a comment, the header and the rows, written anew about once a second.
class Record {
 public:
  Record(const std::string& path, const power::CurveOptions& o, bool resume, const Catalogue& c)
      : path_(path), catalogue_(c) {
    if (path.empty()) return;
    const std::string identity = fmt::format("# assay power --draws {} --seed {}", o.draws, o.seed);
    const nlohmann::json build = build_facts();
    const std::string commit = build["commit"].is_string() ? build["commit"].get<std::string>() : "unknown";
    comment_ = fmt::format("{} # commit {}", identity, commit.substr(0, 12));
    if (fs::exists(path)) {
      if (!resume)
        throw InputError(
            fmt::format("--out {}: exists; --resume goes on with it, or take another name", path));
      check_comment(identity);
      rows_ = power::read_curves(path);
    }
    check_writable("--out", path);
    write();
  }
  ~Record() {
    try {
      write();
    } catch (const std::exception& e) {
      fmt::print(stderr, "{}\n", e.what());
    }
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // A row of the same draw and fault is replaced.
  void add(const std::vector<CurveRow>& found) {
    for (const CurveRow& r : found) {
      const auto at = std::find_if(rows_.begin(), rows_.end(),
                                   [&](const CurveRow& old) { return key_of(old) == key_of(r); });
      if (at == rows_.end())
        rows_.push_back(r);
      else
        *at = r;
    }
    if (Clock::now() - written_ > std::chrono::seconds(1)) write();
  }

  // In order.
  const std::vector<CurveRow>& rows() {
    power::sort_curves(rows_, catalogue_);
    return rows_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Numbers of two trees are no measurement.
  void check_comment(const std::string& identity) const {
    const std::string text = read_text_file({path_}, path_, int64_t{1} << 28, "a record of assay power");
    const std::string first = text.substr(0, text.find('\n'));
    if (first != comment_)
      throw InputError(fmt::format("--resume: {} begins with '{}', not with '{}': another measurement's",
                                   path_, first, first.starts_with(identity + " ") ? comment_ : identity));
  }
  void write() {
    if (path_.empty()) return;
    std::string text = comment_ + "\n" + power::csv_header() + "\n";
    for (const CurveRow& r : rows()) text += power::csv_line(r) + "\n";
    write_file(path_, text);
    written_ = Clock::now();
  }

  std::string path_, comment_;
  const Catalogue& catalogue_;
  std::vector<CurveRow> rows_;
  Clock::time_point written_;
};

int finish(const std::vector<CurveRow>& rows, const Catalogue& c) {
  const std::vector<Power> powers = power::powers_of(rows);
  fmt::print(
      "Smallest fault that is rejected, as an exponent of two: by half of the draws / by 95 % of them.\n"
      ". none, - not asked (no such rule or input), ? not reached, x the kernel without a fault is rejected "
      "as well\n"
      "D, P, R: tiers of the bounds of O, adding up; ours: any column before it; incidence: inputs with a "
      "known answer; then the rules of other projects\n{}\n",
      power::power_text(powers, c));
  const std::vector<power::Behind> behind = power::behind_peers(powers);
  for (const power::Behind& b : behind)
    fmt::print("behind     {}: {} {} at {} keys, {} of the draws\n", power::detector_names()[b.peer],
               b.power->format, b.power->fault, b.power->keys, b.half ? "half" : "95 %");
  const power::Holes holes = power::holes_of(powers);
  const int points = static_cast<int>(powers.size());
  fmt::print("\nreached    of {} points {} on random inputs, {} on inputs with a known answer\n", points,
             points - holes.random, points - holes.known);
  const int alarms = power::false_alarms(rows);
  fmt::print("{} draws with a false alarm, a peer sees smaller faults in {} of {} comparisons\n", alarms,
             behind.size(), powers.size() * kPeerCount);
  return alarms == 0 && behind.empty() ? kExitOk : kExitWrong;
}

int power_command(PowerArguments& a) {
  const StopSignals signals;
  power::CurveOptions& o = a.curves;
  const Catalogue catalogue =
      load_catalogue(library_or(a.catalogue, "faulty/libassay_sized.so", "assay_sized", "--catalogue"));
  if (!a.show.empty()) return finish(power::read_curves(a.show), catalogue);
  if (!a.seed.empty()) o.seed = parse_seed(a.seed);
  if (!a.formats.empty()) o.formats = a.formats;
  if (!a.keys.empty()) o.keys.clear();
  for (const std::string& text : a.keys) {
    try {
      o.keys.push_back(parse_count({text}, "keys", 1, int64_t{1} << 20));
    } catch (const TextError& e) {
      throw InputError(fmt::format("--keys {}: {}", text, e.what()));
    }
  }
  if (a.quick) {
    o.draws = std::min(o.draws, kQuickDraws);
    std::erase_if(o.keys, [](int64_t keys) { return keys > kQuickMostKeys; });
  }
  if (a.resume && a.out.empty()) throw InputError("--resume wants the record to go on with: add --out FILE");

  if (o.jobs <= 0) o.jobs = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  o.seconds = 60 * a.minutes;
  o.memory = 0.8 * static_cast<double>(available_memory_bytes());

  bool complete = false;
  std::vector<CurveRow> rows;
  {
    Record record(a.out, o, a.resume, catalogue);
    StatusLine line(a.quiet);
    const std::vector<CurveRow> done = record.rows();
    complete = power::measure(
        catalogue, o, done, &StopSignals::requested(),
        [&](const auto& p) {
          if (line.due())
            line.show(fmt::format("[{} {}/{} parts, {}]", minutes(line.seconds()), p.done, p.total, p.where));
        },
        [&](const auto& found) { record.add(found); });
    rows = record.rows();
  }
  const int code = finish(rows, catalogue);
  if (complete) return code;
  return stopped(!a.out.empty());
}

}  // namespace

Command add_power(CLI::App& app) {
  const auto arguments = std::make_shared<PowerArguments>();
  PowerArguments& a = *arguments;
  a.curves.jobs = 0;
  CLI::App* sub = app.add_subcommand(
      "power", "how small a fault is still seen: by the bounds, by known answers, by other projects' rules");
  add_repeatable(*sub, "--format", a.formats,
                 "bf16, fp16, fp8, int8_channel, int8_token (cache), mla or serving (default: all)", "NAME");
  add_repeatable(*sub, "--keys", a.keys, "keys of a request (default: 128 1k 4k 16k 64k 256k 1024k)", "N");
  add_repeatable(*sub, "--fault", a.curves.faults, "only this fault (default: all of the catalogue)", "NAME");
  sub->add_option("--draws", a.curves.draws,
                  "draws of a case up to 4k keys; half of them at 16k, 3/10 at 64k, 1/10 above")
      ->capture_default_str()
      ->check(whole_number(1, 10000));
  sub->add_option("--jobs", a.curves.jobs, "processes (default: one per processor)")
      ->check(whole_number(1, 4096));
  sub->add_option(
         "--threads", a.curves.threads,
         "of a process, which ask about several sizes of a fault at a time (default: 1); for few points of "
         "long contexts")
      ->check(whole_number(1, 4096));
  sub->add_option("--minutes", a.minutes,
                  "end after so many: every kind of point first, cheap ones before dear ones; what was not "
                  "reached stays a row of question marks")
      ->check(kPositive);
  sub->add_option("--seed", a.seed, "of the first draw (default: 1)")->type_name("N")->check(kSeed);
  sub->add_option("--catalogue", a.catalogue,
                  "library of faults that come in several sizes (default: that of the build)")
      ->type_name("PATH");
  sub->add_option("--out", a.out, "record of the curves, as CSV")->type_name("FILE");
  sub->add_flag("--resume", a.resume, "go on with --out, which the same program began: what was not reached");
  sub->add_option("--show", a.show, "only show what such a record says")->type_name("FILE");
  sub->add_flag("--quick", a.quick, "two draws, up to 4k keys");
  sub->add_flag("--quiet", a.quiet, "no progress");
  sub->footer(
      "Exit code 0 when no right kernel was rejected and no other project's rule sees a smaller fault of any "
      "kind\n"
      "at any length; 1 otherwise, with a line for each; 5 when stopped. scripts/power_picture.py draws a "
      "record.\nExamples:\n"
      "  assay power --quick\n"
      "  assay power --fault key_weight --format bf16 --keys 4k --keys 64k\n"
      "  assay power --out power.csv\n"
      "  assay power --out power.csv --jobs 16 --minutes 5\n"
      "  assay power --out power.csv --resume\n"
      "  assay power --show results/power/power.csv");
  // Its library is loaded and asked in the child.
  return {sub, [arguments](const std::vector<std::string>&) {
            return run_apart([&] { return power_command(*arguments); });
          }};
}

}  // namespace assay
