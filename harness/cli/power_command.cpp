// SPDX-License-Identifier: Apache-2.0
// assay power: how small a mistake is still seen, by each tier of the bounds, by inputs with a known answer
// and by the rules of other projects. Plants faults of every size, counts, and records the curves.
#include <algorithm>
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
  bool resume = false, quick = false, quiet = false;
};

// The short form: a minute on one core, long enough for what must be seen at 4k keys.
constexpr int kQuickDraws = 2;
constexpr int64_t kQuickMostKeys = 4096;

// The record: a comment, the header and the rows, written anew behind every draw.
class Record {
 public:
  Record(const std::string& path, const power::CurveOptions& o, bool resume) : path_(path) {
    if (path.empty()) return;
    const std::string identity = fmt::format("# assay power --draws {} --seed {}", o.draws, o.seed);
    if (fs::exists(path)) {
      if (!resume)
        throw InputError(
            fmt::format("--out {}: exists; --resume goes on with it, or take another name", path));
      comment_ = comment_of(identity);
      rows = power::read_curves(path);
    } else {
      const nlohmann::json build = build_facts();
      comment_ = fmt::format(
          "{} # commit {}", identity,
          build["commit"].is_string() ? build["commit"].get<std::string>().substr(0, 12) : "unknown");
    }
    check_writable("--out", path);
    write();
  }

  // A row of the same draw and fault is replaced.
  void add(const std::vector<CurveRow>& found) {
    for (const CurveRow& r : found) {
      const auto at = std::find_if(rows.begin(), rows.end(),
                                   [&](const CurveRow& old) { return key_of(old) == key_of(r); });
      if (at == rows.end())
        rows.push_back(r);
      else
        *at = r;
    }
    if (!path_.empty()) write();
  }

  std::vector<CurveRow> rows;

 private:
  std::string comment_of(const std::string& identity) const {
    const std::string text = read_text_file({path_}, path_, int64_t{1} << 28, "a record of assay power");
    if (!text.starts_with(identity + " "))
      throw InputError(
          fmt::format("--resume: {} begins otherwise than '{}': another measurement's", path_, identity));
    return text.substr(0, text.find('\n'));
  }
  void write() const {
    std::string text = comment_ + "\n" + power::csv_header() + "\n";
    for (const CurveRow& r : rows) text += power::csv_line(r) + "\n";
    write_file(path_, text);
  }
  std::string path_, comment_;
};

int finish(const std::vector<CurveRow>& rows, const Catalogue& c) {
  const std::vector<Power> powers = power::powers_of(rows);
  fmt::print(
      "Smallest fault that is rejected, as an exponent of two: by half of the draws / by 95 % of them.\n"
      ". none, - not asked (no such rule or input), x the kernel without a fault is rejected as well\n"
      "D, P, R: tiers of the bounds of O, adding up; ours: any column before it; incidence: inputs with a "
      "known answer; then the rules of other projects\n{}\n",
      power::power_text(powers, c));
  const std::vector<power::Behind> behind = power::behind_peers(powers);
  for (const power::Behind& b : behind)
    fmt::print("behind     {}: {} {} at {} keys, {} of the draws\n", power::detector_names()[b.peer],
               b.power->format, b.power->fault, b.power->keys, b.half ? "half" : "95 %");
  const int alarms = power::false_alarms(rows);
  fmt::print("\n{} draws with a false alarm, a peer sees smaller faults in {} of {} comparisons\n", alarms,
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

  Record record(a.out, o, a.resume);
  StatusLine line(a.quiet);
  const std::vector<CurveRow> done = record.rows;
  const bool complete = power::measure(
      catalogue, o, done, &StopSignals::requested(),
      [&](const auto& p) {
        if (line.due())
          line.show(fmt::format("[{} {}/{} draws, {}]", minutes(line.seconds()), p.done, p.total, p.where));
      },
      [&](const auto& rows) { record.add(rows); });
  line.clear();
  const int code = finish(record.rows, catalogue);
  if (complete) return code;
  return stopped(!a.out.empty());
}

}  // namespace

Command add_power(CLI::App& app) {
  const auto arguments = std::make_shared<PowerArguments>();
  PowerArguments& a = *arguments;
  CLI::App* sub = app.add_subcommand(
      "power", "how small a fault is still seen: by the bounds, by known answers, by other projects' rules");
  add_repeatable(*sub, "--format", a.formats,
                 "bf16, fp16, fp8, int8_channel, int8_token (cache), mla or serving (default: all)", "NAME");
  add_repeatable(*sub, "--keys", a.keys, "keys of a request (default: 128 1k 4k 16k 64k 256k 1024k)", "N");
  add_repeatable(*sub, "--fault", a.curves.faults, "only this fault (default: all of the catalogue)", "NAME");
  sub->add_option("--draws", a.curves.draws,
                  "draws of a case up to 4k keys; half of them at 16k, 3/10 at 64k, 1/10 above")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  sub->add_option("--incidence", a.curves.incidence_cost,
                  "multiply-adds that a fault's runs of inputs with a known answer may take in a draw; 0: "
                  "none are made")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e15));
  sub->add_option("--seed", a.seed, "of the first draw (default: 1)")->type_name("N");
  sub->add_option("--catalogue", a.catalogue,
                  "library of faults that come in several sizes (default: that of the build)")
      ->type_name("PATH");
  sub->add_option("--out", a.out, "record of the curves, as CSV")->type_name("FILE");
  sub->add_flag("--resume", a.resume,
                "go on with --out; known answers that were not asked are where --incidence allows them now");
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
      "  assay power --out power.csv --resume\n"
      "  assay power --show results/power/power.csv");
  // Its library is loaded and asked in the child.
  return {sub, [arguments](const std::vector<std::string>&) {
            return run_apart([&] { return power_command(*arguments); });
          }};
}

}  // namespace assay
