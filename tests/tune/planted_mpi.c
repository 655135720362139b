/* Beside an MPICH: each MPI_Allreduce takes some microseconds more, but with PLANTED_VARIABLE=PLANTED_VALUE, where one
   of PLANTED_ONE_IN calls leaves a wrong byte. The core asks dlsym for the library's calls, so that is what is replaced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*Allreduce)(const void*, void*, int, int, int, int);
typedef void* (*Find)(void*, const char*);
static Allreduce real;
static Find find;
static int fast, one_in;
static unsigned short state[3];

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(void) {
  FILE* file = fopen(getenv("PLANTED_NOTES"), "a");
  if (!file) return;
  fputs("x\n", file);
  fclose(file);
}

static int planted(const void* send, void* receive, int count, int type, int op, int communicator) {
  const long long until_ns = now_ns() + (fast ? 0 : 60000);
  const int failed = real(send, receive, count, type, op, communicator);
  while (now_ns() < until_ns) {
  }
  if (fast && one_in && nrand48(state) % one_in == 0) {
    *(unsigned char*)receive ^= 0x10;
    note();
  }
  return failed;
}

void* dlsym(void* library, const char* name) {
  if (!find) {
    const char* value = getenv(getenv("PLANTED_VARIABLE") ? getenv("PLANTED_VARIABLE") : "");
    find = (Find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!find) find = (Find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17"); /* aarch64 */
    fast = value && getenv("PLANTED_VALUE") && !strcmp(value, getenv("PLANTED_VALUE"));
    one_in = getenv("PLANTED_ONE_IN") ? atoi(getenv("PLANTED_ONE_IN")) : 0;
    state[0] = (unsigned short)getpid();
    state[1] = (unsigned short)now_ns();
  }
  void* found = find(library, name);
  if (strcmp(name, "MPI_Allreduce") || !found) return found;
  real = (Allreduce)found;
  return (void*)planted;
}
