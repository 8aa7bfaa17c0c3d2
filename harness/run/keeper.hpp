// SPDX-License-Identifier: Apache-2.0
// What a worker leaves behind: processes that it, its kernels or their children started, in whatever group or
// session they are by now. A keeper is the process between parent and worker: it loads nothing, adopts every
// orphan below it (a child subreaper), and when the worker ends, or the parent closes the connection, it ends
// them all and then itself in the way the worker did. The worker uses the same between kernels.
#pragma once

#include <sys/types.h>

#include <functional>

namespace assay {

// Forks; the child does `work` and ends with its code, this process keeps. `socket`: the worker's connection,
// whose end is watched here and closed for nobody. Returns the code in the child only; the keeper ends
// inside. To be called while the process has one thread.
int keep(int socket, const std::function<int()>& work);

// Does `work` in a child of its own and returns its code, in both processes: the child goes on to end the
// program with it, this process waited for that. What the child leaves running is ended. InfrastructureError
// when a signal ended it. For commands that load foreign code and print themselves; one thread, as above.
int run_apart(const std::function<int()>& work);

// Orphans of processes below this one become its children from now on.
void adopt_orphans();
// Ends all children of this process, and theirs, with SIGKILL, and takes them away. False when some would not
// go within `seconds`. `ended` is told each pid with its status.
bool end_children(double seconds, const std::function<void(pid_t, int)>& ended = {});
// Whether this process has children, dead ones that nobody waited for included.
bool has_children();

}  // namespace assay
