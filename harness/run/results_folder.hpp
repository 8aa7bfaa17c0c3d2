// SPDX-License-Identifier: Apache-2.0
// A results folder: rows.csv grows by one whole line per row, run.json says what the run is about, and
// the pages people and CI read are written at the end from all rows. One process writes it at a time
// (a lock), and it can be continued after any kind of death, but only by the same run.
//
//   rows.csv run.json          while it runs
//   samples.bin                every timed call behind the rows (samples.hpp), when something is timed
//   worker.log                 what kernels printed
//   table.txt summary.md failures.txt junit.xml     at the end
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "harness/measure/measure.hpp"
#include "harness/report/row.hpp"

namespace assay {

inline constexpr int kSchemaVersion = 1;
// Row::check of rows that say nothing about their kernel: --resume runs them again.
inline constexpr std::string_view kMemoryCheck = "memory", kAssayCheck = "assay";

class ResultsFolder {
 public:
  // `identity`: flat object of everything that must agree for rows to belong together (see
  // identity_of in sweep.hpp). `facts`: what run.json holds from the first moment, so that a run that ends
  // before its first row can be resumed. InputError: the folder cannot be made, is not empty, is in use.
  static ResultsFolder create(const std::string& path, const nlohmann::json& identity,
                              nlohmann::json facts = nlohmann::json::object());
  // Continues a folder: cuts a half-written last line off, reads what is finished, takes back rows that ended
  // for want of memory or because assay failed. InputError: no such run, another run (says what differs), in
  // use, damaged rows, other rows or columns than the run wrote.
  static ResultsFolder resume(const std::string& path, const nlohmann::json& identity);
  ResultsFolder(ResultsFolder&&) noexcept;
  ~ResultsFolder();

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  int log_fd() const;                                        // of worker.log, appending
  const std::vector<Row>& rows() const { return rows_; }     // those found by resume, then those appended
  const std::string& repaired() const { return repaired_; }  // the tail that resume cut off; "" none
  int64_t taken_back() const { return taken_back_; }         // rows that resume took back

  // One write() of the whole line, after its samples. InfrastructureError when the disk is full, or the
  // folder is no longer where it was.
  void append(const Row&, const Samples& = {});
  // What is left to do of `modes` (cache modes; empty: check only): nothing when an untimed row stands
  // for the kernel (it was only checked, or failed), or all modes have rows.
  struct Left {
    bool done = false;
    std::vector<std::string> modes;
  };
  Left left(const std::string& scenario, const std::string& kernel, const std::string& backend,
            const std::vector<std::string>& modes) const;

  const nlohmann::json& run_json() const { return run_; }
  void write_run_json(const nlohmann::json&);  // atomically: a reader sees the old or the new file
  // table.txt, summary.md, failures.txt, junit.xml.
  void write_pages() const;

 private:
  ResultsFolder() = default;
  void open_files();
  void remember(const Row&);
  void check_in_place() const;
  void take_back(const std::vector<Samples>&);
  struct Files;
  std::string path_, repaired_;
  std::unique_ptr<Files> files_;
  nlohmann::json run_;
  std::vector<Row> rows_;
  int64_t rows_end_ = 0;  // bytes of rows.csv, as this program left it
  int64_t taken_back_ = 0;
  std::unordered_set<std::string> keys_;
};

// run.json of a folder. InputError when there is none or it is damaged.
nlohmann::json read_run_json(const std::string& folder);
// "kernels: [a] there, [b] here; seed: ..." ; "" when equal. `but`: keys that may differ.
std::string identity_difference(const nlohmann::json& there, const nlohmann::json& here,
                                const std::vector<std::string>& but = {});
// What run.json records about its rows when a run ends; resume and merge compute it again.
std::string rows_fingerprint(std::span<const Row>);  // of the set of keys, in any order

}  // namespace assay
