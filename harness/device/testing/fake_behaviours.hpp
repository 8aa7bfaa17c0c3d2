// SPDX-License-Identifier: Apache-2.0
// What the kernels of the fake backend do wrong, one row each (fake_backend.cpp does it).
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay_fake {

enum class Behaviour {
  kOk,
  kSilent,       // returns OK and writes nothing
  kSkipRow,      // leaves the last row unwritten
  kNan,          // writes NaN everywhere
  kOneNan,       // one NaN in the last row, the rest right
  kZeros,        // O = 0, LSE = 0
  kOverrunNear,  // right, and 4 bytes past the end of O
  kOverrunFar,   // right, and 3000 bytes past the end of LSE
  kUnderrun,     // right, and 8 bytes before the start of O
  kWriteInput,   // right, and flips a byte of K
  kThrow,        // lets a C++ exception escape
  kThrowInt,     // lets something escape that is no std::exception
  kFail,         // returns ASSAY_FAILED with a text
  kRefuse,       // supports() says no
  kFlaky,        // changes low bits from run to run, promises repeatability
  kDropPage,     // ignores the last page (16 keys for prefill)
  kLeak,         // multiplies P = 0 with the unused slots of the last page
  kPeek,         // the last bit of the LSE follows the sign of an unused slot
  kVague,        // right, but declares an exponential so bad that nothing could be wrong
  kLse2,         // LSE in base 2
  kUnscaled,     // O is not rescaled when the maximum moves, key by key
  kSegfault,
  kAbort,
  kExit,          // calls exit(0)
  kHang,          // never returns
  kAllocate,      // allocates and touches memory without end
  kLose,          // right, but the device answers nothing from then on
  kPending,       // right, but leaves an error for whoever asks next
  kNoisy,         // right, but prints to stdout and stderr
  kUndeclared,    // right, declares no arithmetic
  kLean,          // O too large by 0.13 %, declares P in bf16: within every bound
  kLeanOnce,      // the same where the first element of Q is positive
  kFrozen,        // right when called; a replay keeps the lengths the host had at capture
  kGridBound,     // right when called; a replay leaves out requests longer than at capture
  kPadding,       // right when called; a replay for fewer rows writes the last of those captured
  kRefusePlan,    // plan() says no
  kRefuseRun,     // run() says no
  kRefuseWrote,   // run() says no after it wrote O
  kRefuseLater,   // run() says no from the second time on
  kPackedOnly,    // supports() says no to a strided Q, run() as well
  kDefaults,      // right, and leaves the declaration as it was given
  kSemaphore,     // right where its counter in the workspace is zero; leaves it zero
  kDirty,         // the same, but counts up
  kGreedy,        // wants more zeroed bytes than workspace
  kRefreshed,     // lengths come from what refresh() put into the workspace
  kStale,         // the same, kept in the plan and from the first refresh only
  kPlanned,       // right for what Q held when the plan was made
  kSpill,         // right, and one element of the spare head behind the first row of a strided O
  kNoLse,         // O alone
  kHeadsFirst,    // LSE as dense [heads, rows], whatever its strides
  kRowsFirst,     // LSE as dense [rows, heads], whatever its strides
  kNoEmpty,       // NaN where a request has no keys
  kRefreshOut,    // refresh() writes an element of O
  kEatsRefresh,   // a run destroys what refresh() left
  kOneBadRow,     // row 137 is half as large again
  kReadPast,      // right, and reads 64 bytes behind the end of Q
  kRestore,       // right, and changes a byte of K and puts it back
  kSeldom,        // ignores the last page in one call of twenty, promises repeatability
  kKept,          // in every third call O is that of the call before
  kSlotsInOrder,  // takes the tokens of a page from the slot of its first one on, whatever a token table says
  kLastPacked,    // dimensions one element apart, whatever the last stride
  kElements32,    // offsets in elements wrap at 2^31
  kBytes32,       // offsets in bytes wrap at 2^32
  kCopiesNan,     // O of the last row is the first element behind the last key of request 0
  kBeside,        // aborts in a worker that has a part of the processors
  kWildRead,      // reads the first page behind Q that is nobody's
  kNullRead,      // reads through a null pointer
  kWildAddress,   // reads at an address that cannot be
  kLastWords,     // prints, and aborts before the line is written out
  kOneShape,      // right, for groups of 4 heads, dimension 128, pages of 16
};

struct Entry {
  Behaviour behaviour;
  const char* name;
  const char* description;
  uint32_t contracts = 0;
};
inline Entry kBehaviours[] = {
    // not const: a context is a pointer to what the kernel may change
    {Behaviour::kOk, "ok", "right"},
    {Behaviour::kSilent, "silent", "writes nothing"},
    {Behaviour::kSkipRow, "skiprow", "leaves the last row unwritten"},
    {Behaviour::kNan, "nan", "writes NaN"},
    {Behaviour::kOneNan, "onenan", "writes one NaN"},
    {Behaviour::kZeros, "zeros", "writes zeros"},
    {Behaviour::kOverrunNear, "overrun", "writes 4 bytes past the end of O"},
    {Behaviour::kOverrunFar, "overrunfar", "writes 3000 bytes past the end of LSE"},
    {Behaviour::kUnderrun, "underrun", "writes 8 bytes before the start of O"},
    {Behaviour::kWriteInput, "writeinput", "changes a byte of K"},
    {Behaviour::kThrow, "throw", "throws std::runtime_error"},
    {Behaviour::kThrowInt, "throwint", "throws an int"},
    {Behaviour::kFail, "fail", "returns ASSAY_FAILED"},
    {Behaviour::kRefuse, "refuse", "refuses every problem"},
    {Behaviour::kFlaky, "flaky", "different low bits in every run"},
    {Behaviour::kDropPage, "droppage", "ignores the last page"},
    {Behaviour::kSeldom, "seldom", "ignores the last page in one call of twenty"},
    {Behaviour::kKept, "kept", "every third call leaves O of the call before"},
    {Behaviour::kLeak, "leak", "multiplies P = 0 with unused slots"},
    {Behaviour::kPeek, "peek", "last bit of the LSE follows an unused slot"},
    {Behaviour::kVague, "vague", "declares an exponential of no accuracy"},
    {Behaviour::kLse2, "lse2", "LSE in base 2"},
    {Behaviour::kUnscaled, "unscaled", "O is not rescaled when the maximum moves"},
    {Behaviour::kSegfault, "segfault", "writes to address 0"},
    {Behaviour::kAbort, "abort", "calls abort"},
    {Behaviour::kExit, "exit", "calls exit(0)"},
    {Behaviour::kHang, "hang", "never returns"},
    {Behaviour::kAllocate, "allocate", "allocates without end"},
    {Behaviour::kLose, "lose", "right, and the device is gone"},
    {Behaviour::kPending, "pending", "right, and leaves an error behind"},
    {Behaviour::kNoisy, "noisy", "prints to stdout and stderr"},
    {Behaviour::kUndeclared, "undeclared", "declares no arithmetic"},
    {Behaviour::kLean, "lean", "O too large by 0.13 %, P declared in bf16"},
    {Behaviour::kLeanOnce, "leanonce", "the same where the first element of Q is positive"},
    {Behaviour::kFrozen, "frozen", "replays with the lengths of the capture"},
    {Behaviour::kGridBound, "gridbound", "replays cut off at the lengths of the capture"},
    {Behaviour::kPadding, "padding", "writes behind the last request of a replay"},
    {Behaviour::kRefusePlan, "refuseplan", "refuses when planning"},
    {Behaviour::kRefuseRun, "refuserun", "refuses when run"},
    {Behaviour::kRefuseWrote, "refusewrote", "refuses when run, after writing O"},
    {Behaviour::kRefuseLater, "refuselater", "refuses from the second run on"},
    {Behaviour::kPackedOnly, "packedonly", "refuses a strided Q"},
    {Behaviour::kDefaults, "defaults", "leaves the declaration as it is"},
    {Behaviour::kSemaphore, "semaphore", "a counter in zeroed workspace, left zero"},
    {Behaviour::kDirty, "dirty", "a counter in zeroed workspace, left dirty"},
    {Behaviour::kGreedy, "greedy", "wants more zeroed bytes than workspace"},
    {Behaviour::kRefreshed, "refreshed", "lengths from refresh"},
    {Behaviour::kStale, "stale", "lengths from the first refresh"},
    {Behaviour::kSlotsInOrder, "slotsinorder", "reads slots of a page in order"},
    {Behaviour::kSlotsInOrder, "slotsinordersaid", "reads slots of a page in order, and says so",
     ASSAY_CONTRACT_SLOTS_IN_ORDER},
    {Behaviour::kLastPacked, "lastpacked", "ignores the last stride"},
    {Behaviour::kElements32, "elements32", "offsets in 31 bits of elements"},
    {Behaviour::kBytes32, "bytes32", "offsets in 32 bits of bytes"},
    {Behaviour::kCopiesNan, "copiesnan", "copies an unused slot to O"},
    {Behaviour::kPlanned, "planned", "Q as the plan found it"},
    {Behaviour::kSpill, "spill", "writes between the rows of a strided O"},
    // Contracts: said, kept silent, and lies. What a behaviour without a contract does is above.
    {Behaviour::kLeak, "leaksaid", "multiplies P = 0 with unused slots, and says so",
     ASSAY_CONTRACT_FINITE_UNUSED},
    {Behaviour::kPeek, "peeksaid", "its result follows unused slots, said to be finite",
     ASSAY_CONTRACT_FINITE_UNUSED},
    {Behaviour::kLse2, "lse2said", "LSE in base 2, and says so", ASSAY_CONTRACT_LSE_BASE_2},
    {Behaviour::kOk, "lse2lie", "natural LSE, said to be in base 2", ASSAY_CONTRACT_LSE_BASE_2},
    {Behaviour::kNoLse, "nolse", "no LSE, and does not say so"},
    {Behaviour::kNoLse, "nolsesaid", "no LSE, and says so", ASSAY_CONTRACT_NO_LSE},
    {Behaviour::kHeadsFirst, "headsfirst", "LSE with heads first, and does not say so"},
    {Behaviour::kHeadsFirst, "headsfirstsaid", "LSE with heads first, and says so",
     ASSAY_CONTRACT_LSE_HEADS_FIRST},
    {Behaviour::kRowsFirst, "headsfirstlie", "LSE with rows first, said to have heads first",
     ASSAY_CONTRACT_LSE_HEADS_FIRST},
    {Behaviour::kRefreshOut, "refreshout", "writes O in refresh"},
    {Behaviour::kEatsRefresh, "eatsrefresh", "destroys what refresh left"},
    {Behaviour::kOneBadRow, "onebadrow", "one wrong row"},
    {Behaviour::kWildRead, "wildread", "reads the first page behind Q that is nobody's"},
    {Behaviour::kNullRead, "nullread", "reads 24 bytes from a null pointer"},
    {Behaviour::kWildAddress, "wildaddress", "reads at an address that no memory can have"},
    {Behaviour::kLastWords, "lastwords", "prints to stdout, does not flush, and aborts"},
    {Behaviour::kReadPast, "readpast", "right, and reads 64 bytes behind Q"},
    {Behaviour::kRestore, "restore", "right, and changes K and puts it back"},
    {Behaviour::kBeside, "beside", "aborts beside other workers"},
    {Behaviour::kOneShape, "oneshape", "right, at one shape"},
    {Behaviour::kNoEmpty, "noempty", "NaN for requests without keys"},
    {Behaviour::kNoEmpty, "noemptysaid", "the same, and says so", ASSAY_CONTRACT_NO_EMPTY_REQUESTS},
    {Behaviour::kPadding, "paddingsaid", "writes behind the last request, and says so",
     ASSAY_CONTRACT_ROWS_BEHIND_LOST},
    {Behaviour::kFrozen, "frozensaid", "keeps the lengths of the capture, rows behind said to be lost",
     ASSAY_CONTRACT_ROWS_BEHIND_LOST},
    {Behaviour::kOk, "contradiction", "no LSE and that in base 2",
     ASSAY_CONTRACT_NO_LSE | ASSAY_CONTRACT_LSE_BASE_2},
    {Behaviour::kOk, "unheardof", "a contract that nobody knows", 1u << 30},
    {Behaviour::kDropPage, "droppagenolse", "ignores the last page and gives no LSE", ASSAY_CONTRACT_NO_LSE},
    {Behaviour::kLean, "leanfinite", "leans, with finite unused memory", ASSAY_CONTRACT_FINITE_UNUSED},
    {Behaviour::kLean, "leannolse", "leans, and gives no LSE", ASSAY_CONTRACT_NO_LSE},
};

}  // namespace assay_fake
