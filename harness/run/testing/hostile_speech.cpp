// SPDX-License-Identifier: Apache-2.0
// Deeds: the connection of the worker, which a kernel finds among the descriptors, output, exceptions, texts.
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/run/testing/hostile.hpp"

namespace hostile {
namespace {

std::vector<int> sockets() {
  std::vector<int> found;
  for (int fd = 3; fd < 5000; ++fd) {
    struct stat s {};
    if (fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode)) found.push_back(fd);
  }
  return found;
}

void tell(const std::string& text) {
  for (const int fd : sockets())
    if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) continue;
}

[[noreturn]] void tell_for_ever(const std::string& text) {
  for (;;) {
    const auto all = sockets();
    if (all.empty()) _exit(5);
    for (const int fd : all)
      if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(5);
  }
}

const char kRow[] =
    "{\"event\":\"row\",\"row\":{\"scenario\":\"\",\"kernel\":\"paged_forged_row_hostile\",\"outcome\":"
    "\"passed\"},\"samples\":[],\"short_of_memory\":false}\n";

struct Speechless : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

constexpr Deed kDeeds[] = {
    {"child_speaks", Door::kAfter,
     [](const Call&) {
       const pid_t child = fork();
       if (child == 0) {
         mark_child();
         tell("{\"event\":\"done\"}\n");
         sleep_for_ever();
       }
       usleep(20000);
     }},
    {"child_hangs_up", Door::kAfter,
     [](const Call&) {
       if (fork() == 0) {
         for (const int fd : sockets()) shutdown(fd, SHUT_RDWR);
         _exit(0);
       }
       wait(nullptr);
     }},
    {"close_all", Door::kAfter,
     [](const Call&) {
       for (int fd = 0; fd < 5000; ++fd) close(fd);
     }},
    {"close_sockets", Door::kAfter,
     [](const Call&) {
       for (const int fd : sockets()) close(fd);
     }},
    {"shut_down", Door::kAfter,
     [](const Call&) {
       for (const int fd : sockets()) shutdown(fd, SHUT_RDWR);
     }},
    // The next to read or to write finds nothing, or no room.
    {"sockets_wait_not", Door::kAfter,
     [](const Call&) {
       const timeval soon{0, 1};
       for (const int fd : sockets()) {
         fcntl(fd, F_SETFL, O_NONBLOCK);
         setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
         setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
       }
     }},
    {"null_over_sockets", Door::kAfter,
     [](const Call&) {
       const int null = open("/dev/null", O_RDWR);
       for (const int fd : sockets()) dup2(null, fd);
     }},
    {"forged_done", Door::kAfter, [](const Call&) { tell("{\"event\":\"done\"}\n"); }},
    {"forged_row", Door::kBefore, [](const Call&) { tell(kRow); }},
    {"forged_start", Door::kAfter,
     [](const Call&) {
       tell(
           "{\"event\":\"starting\",\"kernel\":\"paged_beside_hostile\",\"stage\":\"check\",\"allow_s\":1e9}"
           "\n");
     }},
    {"forged_failure", Door::kAfter,
     [](const Call&) { tell("{\"event\":\"failed\",\"message\":\"assay\"}\n"); }},
    {"torn_message", Door::kAfter, [](const Call&) { tell("{\"event\":\"ro"); }},
    {"empty_lines", Door::kAfter, [](const Call&) { tell("\n\n\n"); }},
    {"endless_lines", Door::kBefore, [](const Call&) { tell_for_ever("{\"event\":\"done\"}\n"); }},
    {"endless_line", Door::kBefore, [](const Call&) { tell_for_ever(std::string(1 << 20, '[')); }},
    {"sends_descriptors", Door::kAfter,
     [](const Call&) {
       char text[] = "{}\n";
       iovec part{text, 3};
       alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
       msghdr header{};
       header.msg_iov = &part, header.msg_iovlen = 1;
       header.msg_control = control, header.msg_controllen = sizeof control;
       cmsghdr* c = CMSG_FIRSTHDR(&header);
       c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
       const int fd = 1;
       std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
       for (const int s : sockets())
         if (sendmsg(s, &header, MSG_NOSIGNAL) < 0) continue;
     }},
    {"writes_everywhere", Door::kAfter,
     [](const Call&) {
       for (int fd = 3; fd < 5000; ++fd)
         if (write(fd, "\xff\xfe\0 nonsense\n", 12) < 0) continue;
     }},
    {"endless_output", Door::kBefore,
     [](const Call&) {
       const std::string much(1 << 20, 'z');
       // Most of what a file may hold is a hole: a slow disk is not the point.
       if (ftruncate(1, off_t{250} << 20) != 0) _exit(8);
       for (;;)
         if (write(1, much.data(), much.size()) < 0) _exit(6);
     }},
    {"forged_output", Door::kAfter,
     [](const Call&) {
       std::printf("{\"event\":\"done\"}\n\033[2J\033]0;title\a");
       std::fflush(nullptr);
     }},
    {"closes_output", Door::kAfter,
     [](const Call&) {
       for (int fd = 0; fd < 3; ++fd) close(fd);
     }},
    {"text_without_end", Door::kBefore,
     [](const Call& c) {
       std::memset(c.error, 'x', c.size);
       *c.status = ASSAY_FAILED;
     }},
    {"text_of_codes", Door::kBefore,
     [](const Call& c) {
       std::snprintf(c.error, c.size, "line\n=2+3,\"\033[31m\r\xff\xfe\",\ttab");
       *c.status = ASSAY_FAILED;
     }},
    // As UTF-8 alone: a C1 control that begins an escape, and what is behind it from right to left.
    {"text_of_orders", Door::kBefore,
     [](const Call& c) {
       std::snprintf(c.error, c.size, "says\xc2\x9b[31mred and\xe2\x80\xaeturned");
       *c.status = ASSAY_FAILED;
     }},
    {"throw_run", Door::kBefore, [](const Call&) { throw std::runtime_error("from run"); }},
    {"throw_int_run", Door::kBefore, [](const Call&) { throw 42; }},
    {"throw_supports", Door::kSupports, [](const Call&) { throw std::runtime_error("from supports"); }},
    {"throw_int_supports", Door::kSupports, [](const Call&) { throw 42; }},
    {"throw_arithmetic", Door::kArithmetic, [](const Call&) { throw std::runtime_error("from arithmetic"); }},
    {"throw_workspace", Door::kWorkspace, [](const Call&) { throw std::runtime_error("from workspace"); }},
    {"throw_plan", Door::kPlan, [](const Call&) { throw std::runtime_error("from plan"); }},
    {"throw_free_plan", Door::kFreePlan, [](const Call&) { throw std::runtime_error("from free_plan"); }},
    {"throw_nothing", Door::kBefore, [](const Call&) { throw Speechless(); }},
    {"throw_huge", Door::kBefore, [](const Call&) { throw std::runtime_error(std::string(8 << 20, 'y')); }},
    {"status_unknown", Door::kBefore, [](const Call& c) { *c.status = 12345; }},
};

}  // namespace

std::span<const Deed> speech_deeds() { return kDeeds; }

}  // namespace hostile
