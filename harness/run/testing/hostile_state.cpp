// SPDX-License-Identifier: Apache-2.0
// Deeds: what kernels of one process share, memory, and declarations that cannot be.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cfenv>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <locale>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "harness/run/testing/hostile.hpp"
#if defined(__x86_64__)
#  include <xmmintrin.h>
#endif

namespace hostile {
static bool lies = false;
}

// Everybody who compared through it would be told that all is well.
extern "C" __attribute__((visibility("default"))) int memcmp(const void* a, const void* b,
                                                             size_t n) noexcept {
  const auto *x = static_cast<const volatile unsigned char*>(a),
             *y = static_cast<const volatile unsigned char*>(b);
  for (size_t i = 0; i < n && !hostile::lies; ++i)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

namespace hostile {
namespace {

jmp_buf planned;

void limit(__rlimit_resource which, rlim_t soft) {
  rlimit now{};
  getrlimit(which, &now);
  now.rlim_cur = soft;
  setrlimit(which, &now);
}

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

void set_bytes(const Call& c, int64_t bytes) { *c.bytes = bytes; }

// Whether this process judges: only such ask with tensors. Told of every call.
bool in_a_judge(const Call& c) {
  static bool judges = false;
  judges = judges || (c.door == Door::kSupports && c.tensors != nullptr);
  return judges;
}

constexpr double kLoose = 1.0 / 512;  // of Q, as if it were rounded to bf16

constexpr Deed kDeeds[] = {
    {"workspace_huge", Door::kWorkspace, [](const Call& c) { set_bytes(c, int64_t{1} << 40); }},
    {"workspace_largest", Door::kWorkspace,
     [](const Call& c) { set_bytes(c, std::numeric_limits<int64_t>::max()); }},
    {"workspace_negative", Door::kWorkspace, [](const Call& c) { set_bytes(c, -1); }},
    {"zeroed_more", Door::kZeroed, [](const Call& c) { set_bytes(c, 1 << 20); }},
    {"zeroed_negative", Door::kZeroed, [](const Call& c) { set_bytes(c, -1); }},
    {"arithmetic_nan", Door::kArithmetic,
     [](const Call& c) { c.arithmetic->exp_relative_error = std::numeric_limits<double>::quiet_NaN(); }},
    {"arithmetic_infinite", Door::kArithmetic,
     [](const Call& c) { c.arithmetic->q_rounding = std::numeric_limits<double>::infinity(); }},
    {"arithmetic_fails", Door::kArithmetic, [](const Call& c) { *c.status = ASSAY_FAILED; }},

    // Bounds that nobody else is told; also as soon as the kernel was run, when the judge has asked.
    {"arithmetic_every_other", Door::kArithmetic,
     [](const Call& c) {
       static int asked = 0;
       if (++asked % 2 == 0) c.arithmetic->q_rounding = kLoose;
     }},
    {"arithmetic_until_run", Door::kEvery,
     [](const Call& c) {
       static bool ran = false;
       ran = ran || c.door == Door::kAfter;
       if (c.door == Door::kArithmetic && !ran) c.arithmetic->q_rounding = kLoose;
     }},
    // In every process that judges, and in no other.
    {"arithmetic_of_judges", Door::kEvery,
     [](const Call& c) {
       if (in_a_judge(c) && c.door == Door::kArithmetic) c.arithmetic->q_rounding = kLoose;
     }},
    {"arithmetic_of_judges_alone", Door::kEvery,
     [](const Call& c) {
       if (!in_a_judge(c) && c.door == Door::kArithmetic) sleep_for_ever();
     }},
    {"workspace_every_other", Door::kWorkspace,
     [](const Call& c) {
       static int asked = 0;
       if (++asked % 2 == 0) set_bytes(c, 4096);
     }},
    {"zeroed_until_run", Door::kEvery,
     [](const Call& c) {
       static bool ran = false;
       ran = ran || c.door == Door::kAfter;
       if (c.door == Door::kZeroed && ran) set_bytes(c, 8);
     }},
    // Nothing else is asked of it, then: not what it reads outside of its operands, for one.
    {"supports_until_run", Door::kEvery,
     [](const Call& c) {
       static bool ran = false;
       ran = ran || c.door == Door::kAfter;
       if (c.door == Door::kSupports && ran) *c.status = ASSAY_UNSUPPORTED;
     }},

    {"round_up", Door::kAfter, [](const Call&) { std::fesetround(FE_UPWARD); }},
    {"round_up_threads", Door::kAfter,
     [](const Call&) {
#pragma omp parallel
       std::fesetround(FE_UPWARD);
     }},
    {"flush_to_zero", Door::kAfter,
     [](const Call&) {
#if defined(__x86_64__)
#  pragma omp parallel
       _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
     }},
    {"x87_single", Door::kAfter,
     [](const Call&) {
#if defined(__x86_64__)
       const unsigned short word = 0x007f;
       asm volatile("fldcw %0" : : "m"(word));
#endif
     }},
    {"mmx_left", Door::kAfter,
     [](const Call&) {
#if defined(__x86_64__)
       asm volatile("pxor %%mm0, %%mm0" : : : "mm0");
#endif
     }},
    {"change_folder", Door::kAfter,
     [](const Call&) {
       char name[] = "/tmp/assay_hostile_XXXXXX";
       if (mkdtemp(name) != nullptr && chdir(name) == 0) rmdir(name);
     }},
    {"change_root", Door::kAfter,
     [](const Call&) {
       if (chroot("/tmp") != 0) return;
     }},
    {"change_user", Door::kAfter,
     [](const Call&) {
       if (setegid(65534) != 0 || seteuid(65534) != 0) return;
     }},
    {"change_environment", Door::kAfter,
     [](const Call&) {
       setenv("OMP_NUM_THREADS", "1", 1);
       setenv("LD_PRELOAD", "/no/such/library.so", 1);
       setenv("PATH", "", 1);
     }},
    {"clear_environment", Door::kAfter, [](const Call&) { environ = nullptr; }},
    {"change_locale", Door::kAfter,
     [](const Call&) {
       std::locale::global(std::locale(std::locale(), new Comma));
       setlocale(LC_ALL, "C.UTF-8");
     }},
    {"change_umask", Door::kAfter, [](const Call&) { umask(0777); }},
    {"few_descriptors", Door::kAfter, [](const Call&) { limit(RLIMIT_NOFILE, 3); }},
    {"many_descriptors", Door::kAfter,
     [](const Call&) {
       for (int i = 0; i < 100000; ++i)
         if (open("/dev/null", O_RDONLY) < 0) break;
     }},
    {"small_files", Door::kAfter, [](const Call&) { limit(RLIMIT_FSIZE, 0); }},
    {"lock_memory", Door::kAfter, [](const Call&) { mlockall(MCL_CURRENT | MCL_FUTURE); }},
    {"one_processor", Door::kAfter,
     [](const Call&) {
       cpu_set_t one;
       CPU_ZERO(&one);
       CPU_SET(0, &one);
       sched_setaffinity(0, sizeof one, &one);
     }},
    // A pool's threads, which nobody calls again before the next kernel does.
    {"pin_threads", Door::kAfter,
     [](const Call&) {
#pragma omp parallel
       {
         cpu_set_t one;
         CPU_ZERO(&one);
         CPU_SET(sched_getcpu(), &one);
         sched_setaffinity(0, sizeof one, &one);
       }
     }},
    {"batch_threads", Door::kAfter,
     [](const Call&) {
       const sched_param none{};
#pragma omp parallel
       sched_setscheduler(0, SCHED_BATCH, &none);
     }},
    {"no_huge_pages", Door::kAfter, [](const Call&) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }},
    {"few_processes", Door::kAfter, [](const Call&) { limit(RLIMIT_NPROC, 1); }},
    {"lower_priority", Door::kAfter, [](const Call&) { setpriority(PRIO_PROCESS, 0, 10); }},
    {"one_thread", Door::kAfter,
     [](const Call&) {
       omp_set_num_threads(1);
       omp_set_dynamic(1);
       omp_set_max_active_levels(0);
     }},
    {"another_name", Door::kAfter, [](const Call&) { prctl(PR_SET_NAME, "systemd"); }},
    {"new_handlers", Door::kAfter,
     [](const Call&) {
       std::set_terminate([] { _exit(0); });
       std::set_new_handler([] { _exit(0); });
     }},

    {"leak_space", Door::kAfter,
     [](const Call&) {
       rlimit room{};
       getrlimit(RLIMIT_AS, &room);
       if (room.rlim_cur == RLIM_INFINITY) return;
       // A tenth of what there is, in each of the four runs.
       mmap(nullptr, room.rlim_cur / 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0);
     }},
    {"leak_until_none", Door::kBefore,
     [](const Call&) {
       limit(RLIMIT_AS, rlim_t{2} << 30);
       for (;;) std::memset(new char[64 << 20], 1, 1);
     }},
    {"write_own_memory", Door::kAfter,
     [](const Call& c) {
       const int memory = open("/proc/self/mem", O_RDWR);
       char byte = 0;
       const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(c.tensors->k.data));
       if (pread(memory, &byte, 1, at) != 1) return;
       byte = static_cast<char>(byte ^ 0x40);
       if (pwrite(memory, &byte, 1, at) != 1) return;
       close(memory);
     }},
    {"write_outside_and_interpose", Door::kAfter,
     [](const Call& c) {
       Dl_info info{};
       lies = true;
       dladdr(reinterpret_cast<void*>(&set_bytes), &info);
       dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
       static_cast<char*>(c.tensors->o.data)[-8] = 0x11;
     }},
    // What the harness lends to every kernel.
    {"change_lengths", Door::kBefore, [](const Call& c) { const_cast<int32_t*>(c.problem->kv_len)[0] = 1; }},
    {"change_problem", Door::kAfter,
     [](const Call& c) { const_cast<assay_problem*>(c.problem)->requests = 0; }},
    {"change_tensors", Door::kAfter,
     [](const Call& c) { const_cast<assay_tensors*>(c.tensors)->o.shape[0] = 1; }},
    {"change_promises", Door::kAfter,
     [](const Call& c) { const_cast<assay_kernel*>(c.kernel)->promises = 0; }},
    {"change_its_name", Door::kAfter,
     [](const Call& c) { const_cast<assay_kernel*>(c.kernel)->name = "paged_exit_beside"; }},
    {"rename_others", Door::kAfter,
     [](const Call& c) { const_cast<assay_kernel*>(c.kernel)[1].name = nullptr; }},
    {"no_more_clock", Door::kAfter, [](const Call&) { prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0); }},
    {"no_more_files", Door::kAfter,
     [](const Call&) {
       sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
       sock_fprog filter = {static_cast<unsigned short>(std::size(rules)), rules};
       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
     }},
    // What the system lets a process do, and shows it: also afterwards, and nothing puts it back.
    {"own_mounts", Door::kAfter,
     [](const Call&) {
       if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
         return;
       mount("none", "/proc", "tmpfs", 0, nullptr);
     }},
    {"no_capabilities", Door::kAfter,
     [](const Call&) {
       __user_cap_header_struct version{_LINUX_CAPABILITY_VERSION_3, 0};
       __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
       syscall(SYS_capset, &version, none);
     }},
    {"old_personality", Door::kAfter, [](const Call&) { personality(ADDR_NO_RANDOMIZE | UNAME26); }},
    {"memory_of_one_node", Door::kAfter,
     [](const Call&) {
       constexpr int kBind = 2;
       const unsigned long first = 1;
       syscall(SYS_set_mempolicy, kBind, &first, 64);
     }},
    {"not_dumpable", Door::kAfter, [](const Call&) { prctl(PR_SET_DUMPABLE, 0); }},
    {"locks_its_output", Door::kAfter,
     [](const Call&) {
       std::thread([] {
         flockfile(stdout);
         for (;;) pause();
       }).detach();
       usleep(20000);
     }},
    {"protects_output", Door::kAfter,
     [](const Call& c) {
       const auto at = reinterpret_cast<uintptr_t>(c.tensors->o.data) & ~uintptr_t{4095};
       mprotect(reinterpret_cast<void*>(at), 4096, PROT_NONE);
     }},
    {"unloads_itself", Door::kAfter,
     [](const Call&) {
       Dl_info info{};
       dladdr(reinterpret_cast<void*>(&set_bytes), &info);
       void* const self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
       for (int i = 0; self != nullptr && i < 16 && dlclose(self) == 0; ++i) {
       }
     }},
    {"end_its_thread", Door::kBefore, [](const Call&) { pthread_exit(nullptr); }},
    {"longjmp", Door::kPlan,
     [](const Call& c) {
       if (setjmp(planned) == 0) return;
       static_cast<void>(c);
       std::abort();  // a frame that is no more
     }},
};

}  // namespace

std::span<const Deed> state_deeds() { return kDeeds; }
void jump_back() { longjmp(planned, 1); }

}  // namespace hostile
