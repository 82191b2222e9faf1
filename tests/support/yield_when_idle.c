// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Preloaded into tests with more ranks than cores. MPICH over UCX spins while it
/// waits, which takes the core from the very rank it waits for; this gives it away
/// whenever a look at the network found nothing to do. Where yielding took long, others
/// compute on this core: then short sleeps, after which the kernel lets a rank run at
/// once, serve better than a yield, after which it waits for its turn.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <time.h>

static const long kLongYield = 300 * 1000;  // in ns; ranks that all wait take far less
static const struct timespec kSleep = {0, 50 * 1000};
static const int kSleepsAfterLongYield = 1000;

static long elapsed(const struct timespec* from, const struct timespec* to) {
  return (to->tv_sec - from->tv_sec) * 1000000000L + (to->tv_nsec - from->tv_nsec);
}

static void give_core_away(void) {
  static int sleeps_left;
  if (sleeps_left > 0) {
    --sleeps_left;
    nanosleep(&kSleep, NULL);
    return;
  }
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  sched_yield();
  clock_gettime(CLOCK_MONOTONIC, &after);
  if (elapsed(&before, &after) > kLongYield) sleeps_left = kSleepsAfterLongYield;
}

unsigned ucp_worker_progress(void* worker) {
  static unsigned (*look)(void*);
  if (!look) *(void**)&look = dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned events = look(worker);
  if (events == 0) give_core_away();
  return events;
}
