// A mount that does not answer, while the recorder starts and while it closes: threads that only register a
// communicator are not held up, and what they lose is counted. The file system is played by this program.
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "../comminsight.h"
#include "atomics.h"
#include "recorder.h"
#include "stage.h"

namespace {

int mount_is_dead = 0;
int n_waiting = 0;

void answer_when_alive() {
  ci::add(n_waiting, 1);
  while (ci::load_acquire(mount_is_dead) != 0) usleep(1000);
  ci::sub(n_waiting, 1);
}

void wait_until_somebody_waits() {
  while (ci::load_acquire(n_waiting) == 0) usleep(1000);
}

uint32_t register_one(uint64_t hash) {
  return ci_comm_register(hash, "name", "desc", 0, 2, nullptr, CI_BACKEND_GLOO, 0);
}

int one_op(uint32_t comm) {
  const uint64_t handle = ci_op_begin_args(comm, CI_RECORDKIND_COLLECTIVE, CI_OP_BARRIER, 0, 0, 0, 0, -1, 0, 0);
  return ci_op_end(handle, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_WAIT);
}

int64_t seconds_of(void (*f)()) {
  const int64_t from = ci::mono_ns();
  f();
  return (ci::mono_ns() - from) / ci::kNsPerS;
}

uint32_t first_comm, late_comm;

// One thread starts the recorder and is stuck; others give up after a bounded time.
void registering_beside_a_stuck_start() {
  ci::store_release(mount_is_dead, 1);
  in_threads(3, [](int thread) {
    if (thread == 0) {
      first_comm = register_one(1);
      return;
    }
    wait_until_somebody_waits();
    if (thread == 1) {
      CHECK(seconds_of([] { CHECK_EQ(register_one(2), 0); }) < 5);
      CHECK_EQ(one_op(0), 0);
      CHECK(strstr(ci_inert_reason(), "starting") != nullptr);
      ci::store_release(mount_is_dead, 0);
    }
  });
  CHECK(first_comm != 0);
  CHECK_EQ(ci_stat(kLossSumStat + CI_LOSSREASON_COMM_TABLE_FULL), 2);  // the communicator and its op
  CHECK(strcmp(ci_inert_reason(), "") == 0);
  CHECK_EQ(one_op(first_comm), 1);
  late_comm = register_one(3);
  CHECK(late_comm != 0 && late_comm != first_comm);
}

void registering_beside_a_close_that_hangs() {
  CHECK_EQ(one_op(late_comm), 1);
  ci::store_release(mount_is_dead, 1);
  CHECK_EQ(one_op(late_comm), 1);
  wait_until_somebody_waits();
  in_threads(2, [](int thread) {
    if (thread == 0) {
      CHECK_EQ(ci_close(), -ETIMEDOUT);
      return;
    }
    usleep(200000);
    CHECK(seconds_of([] { CHECK_EQ(register_one(4), 0); }) < 2);
    CHECK(seconds_of([] { CHECK_EQ(ci_close(), 0); }) < 2);
  });
  ci::store_release(mount_is_dead, 0);
  while (ci::load_acquire(n_waiting) != 0) usleep(1000);
  usleep(200000);  // the drain thread, left behind, comes to its end
}

}  // namespace

extern "C" int statfs(const char* path, struct statfs* out) {
  answer_when_alive();
  return static_cast<int>(syscall(SYS_statfs, path, out));
}

extern "C" ssize_t pwrite(int fd, const void* bytes, size_t n, off_t offset) {
  answer_when_alive();
  return syscall(SYS_pwrite64, fd, bytes, n, offset);
}

int main() {
  Stage stage;
  registering_beside_a_stuck_start();
  registering_beside_a_close_that_hangs();
  return failures();
}
