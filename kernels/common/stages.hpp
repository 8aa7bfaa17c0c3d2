// SPDX-License-Identifier: Apache-2.0
// A kernel made of kernels: an ordinary entry of the C table whose run() enqueues the runs of other entries
// on the caller's stream, each on its part of the operands, with what passes between them in the workspace.
// Host code for any device: it launches nothing itself and looks at no device memory. What is enqueued
// follows from the problem alone, and plan() keeps it. A new pipeline: its places and a function that adds
// its calls (unified_step.cpp is the smallest), and a line in the table of pipelines.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

// Thrown while calls are added: the pipeline does not take the problem.
struct Refusal {
  std::string why;  // "required ..., supported ..., missing ..."
};
[[noreturn]] void refuse(const std::string& required, const std::string& supported);

// Elements first .. first + count - 1 of the first axis.
assay_tensor slice(const assay_tensor&, int64_t first, int64_t count);
// Entry `at` of the first axis, which is gone.
assay_tensor entry_of(const assay_tensor&, int64_t at);
assay_tensor read_only(assay_tensor);

// One run of a stage's kernel.
struct StageCall {
  const char* stage;
  const assay_kernel* kernel;
  std::string what;  // of the batch it works on, for people
  assay_problem problem;
  assay_tensors tensors;
  std::vector<int32_t> q_len, kv_len;  // of the problem
  assay_plan* plan = nullptr;
  bool bounded = false;  // lengths are known to memory alone, the host's are bounds
  // Whose keys the call's requests have, which decides where their tiles begin: kSameKeys, those of a request
  // of the step, the first one first; > 0, what lies between two multiples of so many; kPickedKeys, some.
  static constexpr int32_t kSameKeys = 0, kPickedKeys = -1;
  int32_t keys_from = kSameKeys;
  // Lane 0 is the caller's stream, others are streams of the library's, 1 to kLanes - 1. Calls of a lane
  // follow each other in the order of the list, and what the caller enqueued before the step; a call also
  // follows those of other lanes in `behind`. The caller's has followed all of a lane by the end of the step.
  static constexpr int32_t kLanes = 2;
  int32_t lane = 0;
  std::vector<StageCall*> behind;
  void* mark = nullptr;  // what others wait for; null where nobody does

  // Tokens of each request, and all figures of the problem that follow from them.
  void set_lengths(std::vector<int32_t> q, std::vector<int32_t> kv);
};

// What a composed kernel does for one problem.
class Calls {
 public:
  // Without tensors the addresses mean nothing, and only formats, shapes and sizes do. `kept`: bytes at the
  // start of the workspace for stages that keep something there from run to run.
  Calls(const assay_kernel& self, const assay_problem&, const assay_tensors*, int64_t kept);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  const assay_problem& problem() const { return problem_; }
  const assay_tensors& tensors() const { return tensors_; }  // of the step
  const assay_kernel& at(const char* stage) const;
  // A dense intermediate of its own in the workspace, apart from its neighbours by kGap bytes that nobody
  // writes. Poison lies there before every run, as in all of the workspace.
  assay_tensor room(int32_t format, std::initializer_list<int64_t> shape);
  // The rest of the step is this one, which stages before made of it.
  void goes_on_as(const assay_problem& p, const assay_tensors& t) { problem_ = p, tensors_ = t; }
  // A run of the stage's kernel on the step's problem, under the kernel's op and without operands.
  StageCall& add(const char* stage, std::string what);
  // The same where lengths are known to memory alone, as a stage before it left them: the host's are bounds.
  // Refuses kernels that do not promise to read them there.
  StageCall& add_bounded(const char* stage, std::string what);

  // What a bound must know beyond the arithmetic of the stages: partial results of one row that are merged,
  // how often such a result is rounded to `partial_format` on its way, which requests see dense new keys, the
  // format that a gather dequantises to.
  int32_t parts = 1, levels = 1, partial_format = ASSAY_FP32, dense_new_keys = 0;
  int32_t dequant_format = ASSAY_FORMAT_NONE;
  // Classes of requests all of whose keys in the cache come from such a gather (enum assay_request_class).
  int32_t gathers = 0;
  // Classes of requests whose contexts go through a chain of chunks (attend_in_chunks), cut among them alone.
  int32_t chained = 0;
  // What a stage rounded Q to, by a scale of 1; NONE: Q is attended as it came.
  int32_t cast_q = ASSAY_FORMAT_NONE;

  std::list<StageCall>& calls() { return calls_; }
  int64_t bytes() const { return bytes_; }  // of the workspace
  int plan(char* error, size_t size);       // of every stage, and marks for those that others wait for
  int run(void* stream, char* error, size_t size);

 private:
  const assay_kernel& self_;
  assay_problem problem_;
  assay_tensors tensors_;
  unsigned char* base_;
  bool placed_;
  int64_t bytes_ = 0;
  std::list<StageCall> calls_;
  void* begin_ = nullptr;  // a mark, where there are lanes
};

// What stands in a place where nobody has put another kernel, of those a kit has (pipelines.hpp).
enum class Role {
  kOfOp,     // the kernel of the first op that fits
  kFewRows,  // of paged attention the one for requests of few rows
  // Kernels of no op, for places behind all others that are the pipeline's own: nobody sees or replaces them.
  kJoin,     // join_heads.hpp
  kCorrect,  // parts of a rank as addends of all ranks' sum (ixformer_dcp.cpp)
  kAllGather,
  kReduceScatter,  // group.hpp
};
// A place of a pipeline, with the ops that fit there (0: none).
struct StagePlace {
  const char* name;
  int32_t ops[3];
  Role role = Role::kOfOp;
};
// Places that several pipelines have, and those between and behind them, as one list.
template <size_t... kCounts>
constexpr auto all_places(const StagePlace (&... lists)[kCounts]) {
  std::array<StagePlace, (kCounts + ...)> all{};
  size_t at = 0;
  const auto append = [&](const auto& list) {
    for (const StagePlace& place : list) all[at++] = place;
  };
  (append(lists), ...);
  return all;
}
// What a step has to be made for; pipelines without the bit refuse it.
enum Takes : uint32_t {
  kTakesCross = 1,     // attention to an encoder's tokens
  kTakesFull = 2,      // the rows of an encoder, which see each other
  kTakesEncoders = 4,  // tables in which an encoder's tokens stand before a request's own
  kTakesPools = 8,     // tables of another pool, and the map to this one
  kTakesPairs = 16,    // latent and rope parts in two tensors (join_stages.hpp)
  kTakesRanks = 32,    // works as one rank of several (group.hpp)
};
struct Pipeline {
  const char* description;
  std::span<const StagePlace> places;
  void (*add_calls)(Calls&);  // throws Refusal
  uint32_t promises;          // bits of enum assay_promise, as far as the stages promise them too
  uint32_t contracts = 0;     // bits of enum assay_contract
  uint32_t takes = 0;         // bits of enum Takes
};

// What a library does with streams. No function may be null; where a library has none (a CPU) there is no
// such struct, and every call runs on the caller's stream.
struct Streams {
  // After every stage: whether what it enqueued on a stream that is captured could be recorded; if not, why.
  int (*intact)(void* stream, char* error, size_t size);
  // The stream of a lane, of the calling thread's own: the same one each time.
  int (*lane)(int32_t lane, void** stream, char* error, size_t size);
  int (*make_mark)(void** mark, char* error, size_t size);
  void (*free_mark)(void* mark);
  // Puts the mark behind what was enqueued on the stream so far; again and again, the last place counts.
  int (*put_mark)(void* mark, void* stream, char* error, size_t size);
  // What is enqueued on the stream from here on begins behind the mark; also where the mark stands on a
  // stream that is captured, which then captures this one too.
  int (*follow)(void* stream, void* mark, char* error, size_t size);
};

// An entry of op step that lives as long as the process. `stages`: a kernel for every place, in their order
// (stages_of() of pipelines.hpp). `streams` may be null.
const assay_kernel* make_composed(const Pipeline*, std::string name, const char* arch,
                                  std::vector<assay_stage> stages, const Streams* streams);

// The pipelines there are.
extern const Pipeline kUnifiedStep;      // cache_write, then paged over everything
extern const Pipeline kAiterFa;          // vLLM's AITER flash attention
extern const Pipeline kSglangFa;         // SGLang's flash attention
extern const Pipeline kMlaPrefill;       // prefill of latent attention, context in chunks
extern const Pipeline kIxformerFa;       // iXFormer's flash attention, three types of cache
extern const Pipeline kIxformerDcp;      // the same on ranks that share the keys
extern const Pipeline kAiterMla;         // vLLM's AITER latent attention, heads absorbed
extern const Pipeline kAiterMlaPrefill;  // the same with heads unfolded, prefill

}  // namespace assay_kernels
