// Without a drain thread the ring overwrites from the start; with one that hangs in a dead disk shares hold
// for two observed seconds, then the ring overwrites too: the newest record is always there to read.
#include <sys/mman.h>

#include "recorder.h"
#include "stage.h"

using namespace ci;

namespace {

bool one_op(Recorder& r, uint32_t comm) {
  ci_record op = {};
  op.kind = CI_RECORDKIND_COLLECTIVE;
  op.op = CI_OP_ALL_REDUCE;
  const uint64_t handle = r.begin(comm, &op);
  return handle != 0 && r.end(handle, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_FUTURE);
}

bool newest_is_readable(Recorder& r) {
  ci_record out;
  return r.ring.read(r.ring.head(), &out) == Ring::kGot;
}

}  // namespace

int main() {
  Stage stage;
  void* memory = mmap(nullptr, sizeof(Recorder), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Recorder& r = *static_cast<Recorder*>(memory);
  Settings settings;
  read_settings(&settings);
  char why[512] = "";
  CHECK(r.start(settings, 0, why, sizeof why));
  const uint32_t comm = r.register_comm({1, "", "", nullptr, 0, 2, 0, 0, CI_BACKEND_GLOO, 0});
  for (int i = 0; i < 3 * CI_RING_CAPACITY; i++) CHECK(one_op(r, comm));
  CHECK(newest_is_readable(r));
  CHECK_EQ(r.stat(CI_STAT_LOST), 0);

  r.consumed_seq = r.ring.head();
  r.progress_ns = 1;  // it drained once and never again
  int64_t recorded = 0;
  while (one_op(r, comm)) recorded++;
  CHECK(recorded > CI_RING_CAPACITY / 2 && recorded < CI_RING_CAPACITY);
  const int64_t from = mono_ns();
  while (!one_op(r, comm) && mono_ns() - from < 20 * kNsPerS) usleep(10000);
  CHECK(mono_ns() - from >= 2 * kNsPerS);
  for (int i = 0; i < 2 * CI_RING_CAPACITY; i++) CHECK(one_op(r, comm));
  CHECK(newest_is_readable(r));
  r.progress_ns = 2;  // the disk is back: shares hold again
  CHECK(!one_op(r, comm));
  return failures();
}
