// SPDX-License-Identifier: Apache-2.0
// The inner end of the connection to whoever started this process as a WorkerProcess: lines of JSON, each of
// ours with the secret that came first and its number. Workers and ranks speak through it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/run/messages.hpp"

namespace assay {

class Channel {
 public:
  // To be made before anything foreign is loaded: it hears the parent's hello and answers it.
  explicit Channel(int fd);
  void say(const WorkerAnswer& answer) { say_json(encode_message(answer, "event")); }
  void say_json(const nlohmann::json&);
  // False at the end of the conversation.
  bool hear(WorkerRequest&);
  bool hear_json(nlohmann::json&);

 private:
  int fd_;
  pid_t owner_;
  std::string secret_, buffer_;
  int64_t lines_ = 0;
};

}  // namespace assay
