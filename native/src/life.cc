#include "life.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drain.h"
#include "text.h"

namespace ci {
namespace {

constexpr int64_t kCloseNs = 5 * kNsPerS;
constexpr int64_t kPatienceNs = 2 * kNsPerS;  // of a registration that meets another thread's start

// Everything of one recorder, born as zeroed pages: untouched parts cost nothing, and a forked child
// can let go of it as a whole.
struct World {
  Recorder recorder;
  Drain drain;
};

// Start and close wait for file systems, so no lock is held across them. A start under way names its process:
// a child made without fork handlers sees that nobody goes on with it there.
constexpr uint32_t kUnborn = 0;
constexpr uint32_t kSettled = 1;  // no (further) start is tried in this process
uint32_t starting() { return static_cast<uint32_t>(getpid()) << 1; }

World* world = nullptr;
uint32_t phase = kUnborn;  // or starting() of the process that does
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // serialises registrations; held for memory alone
uint32_t fork_depth = 0;
int64_t n_forked_ops = 0;
int64_t n_early = 0;  // communicators and ops that came while the start took too long
char reason[kPathBytes] = "no communicator yet";

void say_inert(const char* why, bool with_log) {
  copy_field(reason, why);
  if (with_log) log_line("nothing is recorded: %s", why);
}

// Whoever held them in the parent is not in the child.
void renew_locks() {
  lock = PTHREAD_MUTEX_INITIALIZER;
  identity_after_fork();
  if (phase != kSettled) phase = kUnborn;  // a start goes on in the parent only
}

// In a forked child: the parent's box and segments stay untouched, this process starts with nothing.
void leave_parent(World* parents, bool directly_after_fork) {
  if (!__atomic_compare_exchange_n(&world, &parents, nullptr, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
  store_release(*parents->recorder.alive, 0);  // before Linux 4.14 the page came over
  parents->recorder.box.forget(directly_after_fork);
  parents->drain.forget(directly_after_fork);
  phase = kUnborn;
  renew_locks();
  fork_depth++;
  n_forked_ops = n_early = 0;
  say_inert("forked: no communicator of its own yet", false);
}

void after_fork_in_child() {
  World* parents = __atomic_load_n(&world, __ATOMIC_ACQUIRE);
  if (parents != nullptr) leave_parent(parents, true);
  else renew_locks();
}

// At load and not at start: a fork beside a start must not leave a locked lock behind.
__attribute__((constructor)) void watch_forks() { pthread_atfork(nullptr, nullptr, after_fork_in_child); }

// At an orderly exit nobody need ask for it: the plugin alone has no other end. -z nodelete keeps the library until
// then; threads that still call in find nothing to record.
__attribute__((destructor)) void close_at_exit() { close_recorder(); }

// One page that reads 1 in this process and 0 in every child, even one made without fork handlers.
uint32_t* new_alive_page() {
  const long page = sysconf(_SC_PAGESIZE);
  void* at = mmap(nullptr, static_cast<size_t>(page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, static_cast<size_t>(page), MADV_WIPEONFORK);  // before Linux 4.14 only the fork handler helps
  return static_cast<uint32_t*>(at);
}

World* new_world() {
  void* at = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<World*>(at);
}

void* drain_main(void* drain) {
  pthread_setname_np(pthread_self(), "comminsight");
  static_cast<Drain*>(drain)->run();
  return nullptr;
}

// All signals stay with the application's threads.
bool start_drain(World& w) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  int error = pthread_create(&w.recorder.drain_thread, &attributes, drain_main, &w.drain);
  if (error != 0) error = pthread_create(&w.recorder.drain_thread, nullptr, drain_main, &w.drain);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) log_line("no drain thread (%s): only the black box is written", strerror(error));
  return error == 0;
}

bool is_switched_off(const Settings& settings) {
  if (env_is_true("COMMINSIGHT_DISABLE")) {
    say_inert("disabled by COMMINSIGHT_DISABLE", false);
    return true;
  }
  if (access(settings.disable_file, F_OK) != 0) return false;
  char why[kPathBytes + 32] = "disabled by file ";
  strcat(why, settings.disable_file);
  say_inert(why, false);
  return true;
}

World* start() {
  Settings settings;
  read_settings(&settings);
  if (is_switched_off(settings)) return nullptr;
  World* w = new_world();
  uint32_t* alive = w != nullptr ? new_alive_page() : nullptr;
  char why[3 * kPathBytes] = "out of memory";
  if (alive == nullptr || !w->recorder.start(settings, fork_depth, why, sizeof why)) {
    say_inert(why, true);
    if (w != nullptr) munmap(w, sizeof(World));
    return nullptr;
  }
  w->recorder.alive = alive;
  w->drain.prepare(&w->recorder);
  store_release(*alive, 1);
  w->recorder.box.go_live();
  store_release(w->recorder.progress_ns, mono_ns());  // the thread may be scheduled later than the first ops
  w->recorder.drain_runs = start_drain(*w) ? 1 : 0;
  if (w->recorder.drain_runs == 0) store_release(w->recorder.progress_ns, 0);
  reason[0] = 0;
  return w;
}

// Counted where a communicator without a row is, as soon as there is a place to count in.
void hand_over_early(Recorder& r) {
  const int64_t n = exchange(n_early, 0);
  if (n != 0) r.lose(0, CI_LOSSREASON_COMM_TABLE_FULL, n);
}

void note_early() {
  add(n_early, 1);
  World* w = __atomic_load_n(&world, __ATOMIC_SEQ_CST);
  if (w != nullptr) hand_over_early(w->recorder);
}

void start_and_publish() {
  say_inert("starting", false);
  World* started = start();
  __atomic_store_n(&world, started, __ATOMIC_SEQ_CST);
  exchange(phase, kSettled);
  futex_wake(phase);
  if (started == nullptr) return;
  if (const int64_t n = load_acquire(n_forked_ops)) started->recorder.lose(0, CI_LOSSREASON_FORKED, n);
  hand_over_early(started->recorder);
}

// Starts the recorder if nobody did, or waits a while for the thread that does.
void start_once() {
  const int64_t deadline = mono_ns() + kPatienceNs;
  for (uint32_t seen = load_acquire(phase); seen != kSettled; seen = load_acquire(phase)) {
    if (seen != starting()) {
      if (cas(phase, seen, starting())) return start_and_publish();
      continue;
    }
    const int64_t left = deadline - mono_ns();
    if (left <= 0) return note_early();
    futex_wait(phase, seen, left);
  }
}

int join_drain(Recorder& r) {
  timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kCloseNs / kNsPerS;
  store_release(r.stop, 1);
  r.wake_drain();
  const int error = pthread_timedjoin_np(r.drain_thread, nullptr, &deadline);
  if (error != 0) pthread_detach(r.drain_thread);  // stuck in a dead disk: nobody waits for that
  return -error;
}

}  // namespace

Recorder* recorder() {
  World* w = __atomic_load_n(&world, __ATOMIC_ACQUIRE);
  if (w == nullptr) return nullptr;
  if (load_acquire(*w->recorder.alive) == 1) return &w->recorder;
  if (load_acquire(w->recorder.is_closed) == 0) leave_parent(w, false);  // a child made without fork handlers
  return nullptr;
}

uint32_t register_comm(const CommSpec& spec) {
  recorder();  // notices a fork
  start_once();
  Recorder* r = recorder();
  if (r == nullptr) return 0;
  pthread_mutex_lock(&lock);
  const uint32_t comm = r->register_comm(spec);
  pthread_mutex_unlock(&lock);
  return comm;
}

const char* inert_reason() {
  recorder();  // notices a fork
  return reason;
}

int flush(int32_t timeout_ms) {
  Recorder* r = recorder();
  if (r == nullptr || r->drain_runs == 0) return 0;
  const int64_t target = r->ring.head();
  const int64_t deadline = mono_ns() + timeout_ms * kNsPerMs;
  for (;;) {
    const uint32_t ticket = add(r->flush_asked, 1) + 1;
    r->wake_drain();
    uint32_t done = load_acquire(r->flush_done);
    for (int64_t now = mono_ns(); static_cast<int32_t>(done - ticket) < 0; now = mono_ns()) {
      if (now >= deadline) return -ETIMEDOUT;
      futex_wait(r->flush_done, done, deadline - now);
      done = load_acquire(r->flush_done);
    }
    const auto error = static_cast<int>(load_acquire(r->box.header()->segment_errno));
    if (error != 0 && error != EREMOTE) return -error;
    if (load_acquire(r->consumed_seq) >= target) return 0;
    if (mono_ns() >= deadline) return -ETIMEDOUT;
    usleep(1000);  // a producer holds its number and has not written yet
  }
}

int close_recorder() {
  Recorder* r = recorder();
  if (r == nullptr || exchange(r->is_closed, 1) != 0) return 0;
  say_inert("closed", false);
  store_release(*r->alive, 0);
  if (r->drain_runs != 0) return join_drain(*r);
  r->box.mark_closed();
  return 0;
}

bool is_comm_of(const Recorder& r, uint32_t comm_token) {
  const uint32_t comm = comm_token & 0xFFFF;
  return comm_token >> 16 == r.fork_depth && comm != 0 && comm <= r.comms.count();
}

uint32_t comm_row(Recorder& r, uint32_t comm_token) {
  if (is_comm_of(r, comm_token)) return comm_token & 0xFFFF;
  const bool is_parents = comm_token != 0 && comm_token >> 16 != r.fork_depth;
  r.lose(0, is_parents ? CI_LOSSREASON_FORKED : CI_LOSSREASON_COMM_TABLE_FULL);
  return 0;
}

void note_unrecorded_op() {
  const uint32_t now = load_relaxed(phase);
  if (load_relaxed(fork_depth) != 0) add(n_forked_ops, 1);
  else if (now != kUnborn && now != kSettled) note_early();
}

int64_t forked_ops() { return load_relaxed(n_forked_ops); }

}  // namespace ci
