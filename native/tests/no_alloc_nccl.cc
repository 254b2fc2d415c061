// What the callbacks ask of the C library, counted by standing in for it: no memory, no lock, no system call, and at
// most four readings of the clock per collective, but for the one in kSampledOf of each kind of callback that is timed
// for the overhead guard.
// Collectives, then random callbacks of all kinds.
//
// Left out, as it happens once per thread: the first op asks for the thread's number (gettid). A full ring may wake
// the drain thread, so the ring is kept from filling up here.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../comminsight.h"
#include "nccl/guard.h"
#include "nccl_fuzz.h"
#include "recorder.h"
#include "stage.h"

namespace {

enum Call { kMemory, kLock, kSystemCall, kClock, kCalls };
constexpr const char* kNames[kCalls] = {"memory", "lock", "system call", "clock"};

thread_local bool is_inside = false;
thread_local int64_t counts[kCalls];
thread_local const char* last[kCalls];

void note(Call call, const char* name) {
  if (!is_inside) return;
  counts[call]++;
  last[call] = name;
}

template <class F>
F next(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

// Inside of callbacks alone.
struct Watch {
  void enter() { is_inside = true; }
  void leave() { is_inside = false; }
};

}  // namespace

// glibc's own names for what is replaced below: dlsym itself needs memory.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void __libc_free(void*);

#define COMMINSIGHT_SHOWN __attribute__((visibility("default")))

COMMINSIGHT_SHOWN void* malloc(size_t n) {
  note(kMemory, "malloc");
  return __libc_malloc(n);
}
COMMINSIGHT_SHOWN void* calloc(size_t n, size_t each) {
  note(kMemory, "calloc");
  return __libc_calloc(n, each);
}
COMMINSIGHT_SHOWN void* realloc(void* p, size_t n) {
  note(kMemory, "realloc");
  return __libc_realloc(p, n);
}
COMMINSIGHT_SHOWN void free(void* p) {
  note(kMemory, "free");
  __libc_free(p);
}

#define COMMINSIGHT_STAND_IN(kind, result, name, parameters, arguments) \
  COMMINSIGHT_SHOWN result name parameters {                            \
    static auto real = next(&name, #name);                              \
    note(kind, #name);                                                  \
    return real arguments;                                              \
  }

COMMINSIGHT_STAND_IN(kClock, int, clock_gettime, (clockid_t id, timespec* t), (id, t))
COMMINSIGHT_STAND_IN(kLock, int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
COMMINSIGHT_STAND_IN(kLock, int, pthread_mutex_trylock, (pthread_mutex_t * m), (m))
COMMINSIGHT_STAND_IN(kLock, int, pthread_rwlock_rdlock, (pthread_rwlock_t * m), (m))
COMMINSIGHT_STAND_IN(kLock, int, pthread_rwlock_wrlock, (pthread_rwlock_t * m), (m))
COMMINSIGHT_STAND_IN(kLock, int, sched_yield, (), ())
COMMINSIGHT_STAND_IN(kSystemCall, void*, mmap, (void* at, size_t n, int p, int f, int fd, off_t o),
                     (at, n, p, f, fd, o))
COMMINSIGHT_STAND_IN(kSystemCall, int, munmap, (void* at, size_t n), (at, n))
COMMINSIGHT_STAND_IN(kSystemCall, int, madvise, (void* at, size_t n, int advice), (at, n, advice))
COMMINSIGHT_STAND_IN(kSystemCall, ssize_t, write, (int fd, const void* p, size_t n), (fd, p, n))
COMMINSIGHT_STAND_IN(kSystemCall, ssize_t, pwrite, (int fd, const void* p, size_t n, off_t o), (fd, p, n, o))
COMMINSIGHT_STAND_IN(kSystemCall, ssize_t, read, (int fd, void* p, size_t n), (fd, p, n))
COMMINSIGHT_STAND_IN(kSystemCall, ssize_t, pread, (int fd, void* p, size_t n, off_t o), (fd, p, n, o))
COMMINSIGHT_STAND_IN(kSystemCall, int, close, (int fd), (fd))
COMMINSIGHT_STAND_IN(kSystemCall, int, access, (const char* path, int mode), (path, mode))
COMMINSIGHT_STAND_IN(kSystemCall, pid_t, getpid, (), ())
COMMINSIGHT_STAND_IN(kSystemCall, int, usleep, (useconds_t us), (us))
COMMINSIGHT_STAND_IN(kSystemCall, int, nanosleep, (const timespec* t, timespec* left), (t, left))
COMMINSIGHT_STAND_IN(kSystemCall, int, pthread_create,
                     (pthread_t * thread, const pthread_attr_t* how, void* (*f)(void*), void* with),
                     (thread, how, f, with))

COMMINSIGHT_SHOWN int open(const char* path, int flags, ...) {
  static auto real = next(&open, "open");
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  note(kSystemCall, "open");
  return real(path, flags, mode);
}
COMMINSIGHT_SHOWN long syscall(long number, ...) {
  static auto real = next(&syscall, "syscall");
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  note(kSystemCall, "syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}

namespace {

constexpr int kRandom = 200000;
constexpr int kCollectives = 4000;

void expect_none(const char* what) {
  for (const Call call : {kMemory, kLock, kSystemCall}) {
    if (counts[call] != 0)
      fprintf(stderr, "%s: %lld calls inside of callbacks (%s), the last to %s\n", what,
              static_cast<long long>(counts[call]), kNames[call], last[call]);
    CHECK_EQ(counts[call], 0);
  }
}

void random_callbacks_ask_for_nothing() {
  static fuzz::Shared shared;
  fuzz::Players players(shared, 4711);
  Watch watch;
  for (int i = 0; i < kRandom; i++) {
    if (i % 2000 == 0) players.renew_context();
    if (i % 500 == 0) ci_flush(5000);
    players.one(watch);
  }
  CHECK(ci_stat(CI_STAT_OPS_BEGUN) > kRandom / 50);
  expect_none("random callbacks");
  for (const uint64_t context : shared.contexts) ncclProfiler_v7.finalize(reinterpret_cast<void*>(context));
}

constexpr int kOwnReadings = 2;  // of the harness, for its GPU's stamps
constexpr int kTimedKinds = 5;   // group call, call, launch, plan; task and channels with their op

template <int kVersion>
void a_collective_reads_the_clock_four_times() {
  static int32_t mask;
  const auto& table = play::Abi<kVersion>::ours();
  void* context = play::init<kVersion>(table, 5, &mask, "dp", 8, 0);
  play::Collective<kVersion> collective(table, context);
  for (int64_t& count : counts) count = 0;
  int n_above = 0;
  const int64_t from = ci::mono_ns();
  for (int i = 0; i < kCollectives; i++) {
    if (i % 500 == 0) ci_flush(5000);
    const int64_t before = counts[kClock];
    is_inside = true;
    collective.play(8);
    is_inside = false;
    n_above += counts[kClock] - before - kOwnReadings > 4;
  }
  const double each = static_cast<double>(counts[kClock]) / kCollectives - kOwnReadings;
  printf("v%d: %.2f readings of the clock per collective, more than 4 in %d of %d\n", kVersion, each, n_above,
         kCollectives);
  // A tick of the coarse clock between call and launch asks for a second look.
  timespec tick;
  clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
  const int64_t n_ticks = (ci::mono_ns() - from) / tick.tv_nsec + 1;
  CHECK(n_above <= kTimedKinds * (kCollectives / ci::nccl::kSampledOf + 1) + n_ticks);
  CHECK(each <= 4.08);
  expect_none("collectives");
  table.finalize(context);
}

// What counts must be able to count.
void the_stand_ins_stand_in() {
  is_inside = true;
  free(malloc(10));
  ci::mono_ns();
  syscall(SYS_gettid);
  is_inside = false;
  CHECK(counts[kMemory] == 2 && counts[kClock] == 1 && counts[kSystemCall] == 1);
  for (int64_t& count : counts) count = 0;
}

void warm_up() {
  const uint32_t comm = ci_comm_register(1, "", "", 0, 8, nullptr, CI_BACKEND_NCCL, 0);
  ci_op_end(ci_op_begin_args(comm, CI_RECORDKIND_COLLECTIVE, CI_OP_BARRIER, 0, 0, 0, 0, -1, 0, 0), CI_OPSTATE_DONE, 0);
  ci_flush(5000);
}

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_NCCL_MASK", "deep", 1);
  warm_up();
  the_stand_ins_stand_in();
  a_collective_reads_the_clock_four_times<4>();
  a_collective_reads_the_clock_four_times<5>();
  a_collective_reads_the_clock_four_times<6>();
  a_collective_reads_the_clock_four_times<7>();
  random_callbacks_ask_for_nothing();  // leaves group calls open
  CHECK_EQ(ci_close(), 0);
  return failures() != 0;
}
