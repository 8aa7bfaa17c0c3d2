/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode context parallelism: what a library exports whose steps (op step) run on several ranks, a process
 * each, that share the keys of every request and the heads of Q. A library that does not is asked for one
 * rank only. assay_problem::ranks says how many there are and ::interleave in turns of how many tokens they
 * hold keys: key j lies on rank (j / interleave) % ranks. One rank whose turns are of one token is a step
 * like any other; with longer turns it is a group of one.
 *
 * Every rank gets the same problem, that of the whole step, and operands of its own:
 *
 * - q, o: [T, heads_q / ranks, dim], dense: heads rank * heads_q / ranks and on. alibi_slopes, sinks: theirs.
 * - k, v: a cache with all heads of K and V and the keys of this rank alone, close together: its i-th key of
 *   request r lies where table and page_size put key i of r. Everything else there is poison.
 * - slot_mapping: where a new key lies in that cache, -1 where it is another rank's.
 * - dense_k, dense_v, kv_len, context_len, last_page_len, tables and scales: those of the whole step, which
 *   says nothing yet of how many keys a rank has (op dcp_lengths does; it may be none).
 */
#ifndef ASSAY_GROUP_H_
#define ASSAY_GROUP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's end of what connects them. The functions enqueue on `stream` (host memory: NULL, done when they
 * return) and are called by all ranks in the same order with the same sizes; enum assay_status. With an id
 * they are NULL, and the library connects its ranks itself; with zeros they are assay's and work on host
 * memory, whatever the library's kernels work on. Lives as long as the process. */
typedef struct assay_group assay_group;
struct assay_group {
  uint32_t struct_size;
  int32_t rank, ranks;
  void* context; /* of the functions */
  /* receive [ranks][bytes]: what every rank sent, in their order. */
  int (*all_gather)(const assay_group*, const void* send, void* receive, int64_t bytes, void* stream,
                    char* error, size_t size);
  /* send [ranks][count]; receive [count]: the sum over all ranks of the part that is this rank's. */
  int (*reduce_scatter)(const assay_group*, const float* send, float* receive, int64_t count, void* stream,
                        char* error, size_t size);
  /* Returns, or lets the stream go on, when all ranks have come here. */
  int (*barrier)(const assay_group*, void* stream, char* error, size_t size);
  unsigned char id[128]; /* what assay_backend_group_id() of rank 0 gave, else zeros */
  /* Counts what this rank entered, joining and exchanges: it adds 1 (atomically, others read it) before it
   * begins one that may wait for others. Where ranks wait for ever, the one with fewest is named. */
  int64_t* entered;
};

/* Called once in a process, after use_device, before any kernel runs; waits for all ranks, if at all, with
 * its own `entered` counted up. ASSAY_UNSUPPORTED and a text where something must be installed first. */
typedef int (*assay_backend_join_fn)(const assay_group*, char* error, size_t size);
int assay_backend_join(const assay_group*, char* error, size_t size);

/* Only of libraries that connect their ranks themselves, a device each: called on rank 0, whose answer all
 * get. Another than ASSAY_OK, with its text, as above. */
typedef int (*assay_backend_group_id_fn)(unsigned char id[128], char* error, size_t size);
int assay_backend_group_id(unsigned char id[128], char* error, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_GROUP_H_ */
