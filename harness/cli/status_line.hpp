// SPDX-License-Identifier: Apache-2.0
// What a command of minutes says on stderr while it runs: on a terminal one line that is rewritten, elsewhere
// a plain line now and then. Also the words of such a command when a signal ends it.
#pragma once

#include <chrono>
#include <string>

namespace assay {

class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool quiet() const { return quiet_; }
  bool terminal() const { return terminal_; }
  double seconds() const;  // since this object was made

  // True when the next line is wanted: never of a quiet command, a few times a second on a terminal, every
  // quarter of a minute elsewhere.
  bool due() const;
  void show(std::string text);          // cut to the terminal's width
  void print(const std::string& text);  // a line that stays, also of a quiet command
  void clear();                         // takes the rewritten line away before other output

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_, drawn_ = false;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

// "0:07", "12:03", "1:02:03"
std::string minutes(double seconds);

// "stopped by SIGINT", and how to go on where the command keeps a record; returns kExitIncomplete.
int stopped(bool resumable);

}  // namespace assay
