// SPDX-License-Identifier: Apache-2.0
// Where the lengths of a batch come from, beside the groups written out in batch=: drawn lengths and trace
// files. draw_requests() itself is declared in batch.hpp.
//
// Draws use the counter generator (stream kStreamLengths), so request i of a batch does not depend on n:
//   uniform   q uniform in [q.low, q.high], s uniform in [s.low, s.high]
//   zipf      q as above; P(s = x) proportional to x^-a for the whole numbers x in [s.low, s.high] (the
//             Zipf distribution truncated to the range): many short requests and a heavy tail
//   both      kv_len = max(s, q)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/trace/trace.hpp"

namespace assay {

// A further folder to look for trace files in, after the current folder and those of ASSAY_TRACE_PATH
// (colon separated). The program adds the traces it ships.
void add_trace_folder(std::string folder);

// The file a trace name stands for; InputError listing every folder searched.
std::string find_trace(const std::string& file);
bool trace_available(const std::string& file);

// Parsed once per process and file version (path, size, time of last change).
std::shared_ptr<const std::vector<TraceRequest>> load_trace(const std::string& file);

}  // namespace assay
