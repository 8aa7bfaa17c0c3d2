// SPDX-License-Identifier: Apache-2.0
// See streams.hpp.
#include "kernels/emulator/streams.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/emulator/disorder.hpp"

namespace gpu::emulator {
namespace {

struct Streams {
  Recording* graph = nullptr;           // of the capture under way
  std::map<Stream, Recording> waiting;  // what other streams have not done yet
  std::set<Stream> reached;             // of the capture
  std::set<const void*> marks;          // put in the capture
  bool strayed = false;                 // something was enqueued on a stream that is not of the capture

  bool late() const { return graph != nullptr || disorder.blocks != 0; }

  // The stream on which the mark is still to come, or null.
  Recording* waits_with(const void* mark) {
    for (auto& [stream, list] : waiting)
      if (std::any_of(list.begin(), list.end(), [&](const Recorded& r) { return r.put == mark; }))
        return &list;
    return nullptr;
  }
  // Everything before the mark, and what that waits for.
  Status reach(const void* mark) {
    Status status = emulatorSuccess;
    for (Recording* list = waits_with(mark); list != nullptr; list = waits_with(mark)) {
      const Recorded entry = list->front();
      list->erase(list->begin());
      if (entry.awaited != nullptr) status = std::max(status, reach(entry.awaited));
      if (!entry.launch) continue;
      if (graph != nullptr)
        graph->push_back(entry);
      else
        status = std::max(status, entry.launch());
    }
    return status;
  }
};

Streams& streams() {
  static thread_local Streams all;
  return all;
}

}  // namespace

Stream lane(int32_t number) { return reinterpret_cast<Stream>(static_cast<uintptr_t>(number)); }

Recording* recording(Stream stream) {
  Streams& all = streams();
  if (stream == nullptr) return all.graph;
  if (!all.late()) return nullptr;
  all.strayed = all.strayed || (all.graph != nullptr && !all.reached.contains(stream));
  return &all.waiting[stream];
}

void begin_recording(Recording* to) {
  streams() = {};
  streams().graph = to;
}

bool end_recording() {
  const Streams& all = streams();
  const bool joined = !all.strayed && std::all_of(all.waiting.begin(), all.waiting.end(), [](const auto& s) {
    return std::none_of(s.second.begin(), s.second.end(),
                        [](const Recorded& r) { return static_cast<bool>(r.launch); });
  });
  streams() = {};
  return joined;
}

void put_mark(void* mark, Stream stream) {
  Streams& all = streams();
  if (all.graph != nullptr) all.marks.insert(mark);
  if (stream != nullptr && all.late()) all.waiting[stream].push_back({nullptr, mark});
}

Status follow(Stream stream, void* mark) {
  Streams& all = streams();
  if (all.graph != nullptr && !all.marks.contains(mark)) all.strayed = true;
  if (stream == nullptr) return all.reach(mark);
  if (all.graph != nullptr) all.reached.insert(stream);
  if (all.late() && all.waits_with(mark) != nullptr) all.waiting[stream].push_back({nullptr, nullptr, mark});
  return emulatorSuccess;
}

}  // namespace gpu::emulator
