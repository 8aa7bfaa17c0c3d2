// SPDX-License-Identifier: Apache-2.0
// Deeds: what the system is asked to do for the process later, when another kernel runs there, and what it is
// told not to do any more.
#include <fcntl.h>
#include <fenv.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "harness/run/testing/hostile.hpp"

namespace hostile {
namespace {

constexpr unsigned kRead = 8;  // bytes that wait to be read

// What requests and signals wait for: of this process, written to by feeds_what_waits.
int* awaited() {
  static int ends[2] = {-1, -1};
  if (ends[0] < 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) ends[0] = ends[1] = -1;
  return ends;
}

// A read of io_uring into the result, with nothing to be read yet. The ring stays mapped, and its descriptor
// is closed. Where the system has no rings nothing happens.
void read_later(void* into) {
  io_uring_params p{};
  const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 4, &p));
  if (ring < 0) return;
  const auto map = [&](size_t bytes, off_t what) {
    return static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, what));
  };
  char* const queue = map(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
  auto* const entry =
      reinterpret_cast<io_uring_sqe*>(map(p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  std::memset(entry, 0, sizeof *entry);
  entry->opcode = IORING_OP_READ, entry->fd = awaited()[0], entry->off = ~uint64_t{0};
  entry->addr = reinterpret_cast<uintptr_t>(into), entry->len = kRead;
  reinterpret_cast<unsigned*>(queue + p.sq_off.array)[0] = 0;
  __atomic_store_n(reinterpret_cast<unsigned*>(queue + p.sq_off.tail), 1, __ATOMIC_RELEASE);
  syscall(SYS_io_uring_enter, ring, 1, 0, 0, nullptr, 0);
  close(ring);
}

// These calls have that end from now on.
void answer(std::initializer_list<unsigned> calls, unsigned with) {
  std::vector<sock_filter> rules = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : calls) {
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    rules.push_back(BPF_STMT(BPF_RET | BPF_K, with));
  }
  rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter = {static_cast<unsigned short>(rules.size()), rules.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

// Whether a page of it was written since marks were taken away (soft-dirty bits of pagemap); without them
// nothing ever was.
bool written_since(const assay_tensor& t) {
  constexpr uint64_t kPage = 4096, kWritten = uint64_t{1} << 55;
  const auto first = reinterpret_cast<uintptr_t>(t.data);
  uintptr_t last = first;
  for (int i = 0; i < t.rank; ++i) last += 2 * static_cast<uintptr_t>((t.shape[i] - 1) * t.stride[i]);
  const int map = open("/proc/self/pagemap", O_RDONLY);
  bool written = map < 0;
  for (uint64_t page = first / kPage; page <= last / kPage && !written; ++page) {
    uint64_t entry = 0;
    written = pread(map, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) == sizeof entry &&
              (entry & kWritten) != 0;
  }
  if (map >= 0) close(map);
  return written;
}
void take_marks_away() {
  const int refs = open("/proc/self/clear_refs", O_WRONLY);
  if (refs >= 0 && write(refs, "4", 1) == 1) close(refs);
}

double used_s() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

constexpr int kJudgedCalls = 4;  // before anything is timed

[[noreturn]] void hang() { sleep_for_ever(); }

constexpr Deed kDeeds[] = {
    {"ring_reads_later", Door::kAfter, [](const Call& c) { read_later(c.tensors->o.data); }},
    {"signal_when_ready", Door::kAfter,
     [](const Call&) {
       const int end = awaited()[0];
       fcntl(end, F_SETOWN, getpid());
       fcntl(end, F_SETSIG, SIGTERM);
       fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_ASYNC);
     }},
    // Harms nobody where nothing waits.
    {"feeds_what_waits", Door::kAfter,
     [](const Call&) {
       const char bytes[16 * kRead] = {0x11, 0x11, 0x11, 0x11};
       if (write(awaited()[1], bytes, sizeof bytes) < 0) return;
     }},
    // The file behind the result's pages becomes shorter than they are.
    {"sealed_output", Door::kAfter,
     [](const Call& c) {
       const auto at = reinterpret_cast<uintptr_t>(c.tensors->o.data) & ~uintptr_t{4095};
       const int file = memfd_create("output", MFD_CLOEXEC);
       mmap(reinterpret_cast<void*>(at), 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
       close(file);
     }},
    {"calls_end_it", Door::kAfter,
     [](const Call&) {
       answer({SYS_munmap, SYS_mprotect, SYS_madvise, SYS_sendto, SYS_write}, SECCOMP_RET_KILL_PROCESS);
     }},
    {"sends_nothing", Door::kAfter,
     [](const Call&) {
       answer({SYS_sendto, SYS_sendmsg, SYS_write, SYS_writev}, SECCOMP_RET_ERRNO | EINTR);
     }},
    {"traps_numbers", Door::kAfter, [](const Call&) { feenableexcept(FE_ALL_EXCEPT); }},
    {"fork_handler_hangs", Door::kAfter, [](const Call&) { pthread_atfork(hang, nullptr, hang); }},
    // Cheats: nothing is done where nothing was written, or nobody judged since the last call.
    {"cheat_watches_pages", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       if (++calls <= kJudgedCalls || written_since(c.tensors->q) || written_since(c.tensors->v)) compute(c);
       take_marks_away();
     }},
    {"cheat_idle_between", Door::kInstead,
     [](const Call& c) {
       static double last = 0;
       static int calls = 0;
       if (++calls <= kJudgedCalls || used_s() - last > 2e-4) compute(c);
       last = used_s();
     }},
    // The rest of a call while the next one is prepared.
    {"cheat_rest_late", Door::kInstead,
     [](const Call& c) {
       static std::thread rest;
       static assay_tensors tensors;
       static int calls = 0;
       if (rest.joinable()) rest.join();
       if (++calls <= kJudgedCalls) return static_cast<void>(compute(c));
       tensors = *c.tensors;
       Call later = c;
       later.tensors = &tensors;
       rest = std::thread([later] { compute(later); });
     }},
    {"cancels_itself", Door::kBefore,
     [](const Call&) {
       pthread_cancel(pthread_self());
       pthread_testcancel();
     }},
};

}  // namespace

std::span<const Deed> system_deeds() { return kDeeds; }

}  // namespace hostile
