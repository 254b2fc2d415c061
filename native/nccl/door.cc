#include "door.h"

#include <string.h>
#include <sys/mman.h>

#include "device.h"

namespace ci::nccl {

Door* current_door = nullptr;

namespace {

// Before Linux 4.14 nothing is wiped. The parent's block is left where it is: it may be in use.
void leave_parents_door() { __atomic_store_n(&current_door, nullptr, __ATOMIC_RELEASE); }
__attribute__((constructor)) void watch_forks() { pthread_atfork(nullptr, nullptr, leave_parents_door); }

// A child's recorder is another one than its parent's, so a parent's door is never taken for its own.
Door* door_of(Recorder& r) {
  Door* seen = load_acquire(current_door);
  if (seen != nullptr && load_acquire(seen->is_alive) != 0 && seen->recorder == &r) return seen;
  void* at = mmap(nullptr, sizeof(Door), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, sizeof(Door), MADV_WIPEONFORK);
  auto* fresh = static_cast<Door*>(at);
  fresh->recorder = &r;
  fresh->slots = &r.slots[0];
  fresh->header = r.box.header();
  fresh->salt = r.salt();
  fresh->pid = static_cast<int32_t>(r.facts.pid);
  fresh->applied_mask = r.settings.profiler_mask;
  fresh->guard.set_budget(r.settings.nccl_budget_ppm);
  fresh->guard.set_clock_ns(measured_clock_ns());
  fresh->mask_lock = PTHREAD_MUTEX_INITIALIZER;
  store_release(fresh->is_alive, 1);
  if (cas(current_door, seen, fresh)) {
    store_release(r.net_hook, make_net_record);
    store_release(r.round_hook, round);
    return fresh;
  }
  munmap(at, sizeof(Door));
  return seen->recorder == &r ? seen : nullptr;
}

void go_live(Door& d, uint32_t token, const Identity& identity, const DeviceFacts& facts) {
  CommState& comm = d.comms[token & 0xFFFF];
  store_relaxed(comm.distrusts_p2p, identity.abi_version == 4 && facts.nccl_version >= 22800 ? 1 : 0);
  store_release(comm.token, token);
}

// Read and written under the lock: what the drain thread applies meanwhile is neither missed nor undone.
void ask_for_events(Door& d, bool is_live, uint8_t abi_version, int32_t* mask) {
  pthread_mutex_lock(&d.mask_lock);
  const uint32_t wanted = load_relaxed(d.header->active_profiler_mask);
  if (mask != nullptr) store_relaxed(*mask, mask_for(wanted, abi_version));
  if (is_live) {
    d.n_live_comms++;
    store_relaxed(d.abi_version, abi_version);
    note_mask(d, wanted);
    if (mask != nullptr) __atomic_store_n(&d.mask_word, mask, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&d.mask_lock);
}

// Also after the recorder was closed: NCCL may be unloaded next, and its word with it.
void leave_mask(Door& d) {
  pthread_mutex_lock(&d.mask_lock);
  if (--d.n_live_comms == 0) __atomic_store_n(&d.mask_word, nullptr, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&d.mask_lock);
}

}  // namespace

void* open_context(const Identity& identity, int32_t* mask) {
  const DeviceFacts facts = device_facts();
  CommSpec spec = {};
  spec.hash = identity.comm_hash;
  spec.name = identity.name;
  spec.rank = identity.rank;
  spec.size = identity.n_ranks;
  spec.n_nodes = identity.n_nodes;
  spec.lib_version = facts.nccl_version;
  spec.backend = CI_BACKEND_NCCL;
  spec.abi_version = identity.abi_version;
  spec.device_number = facts.device_number;
  spec.pci_bus_id = facts.pci_bus_id;
  const uint32_t token = register_comm(spec);
  Recorder* r = recorder();
  Door* d = r != nullptr ? door_of(*r) : nullptr;
  const bool is_live = d != nullptr && is_comm_of(*r, token);
  if (is_live) go_live(*d, token, identity, facts);
  if (d != nullptr) ask_for_events(*d, is_live, identity.abi_version, mask);
  else if (mask != nullptr) store_relaxed(*mask, 0);
  return context_token(token);
}

void close_context(void* context) {
  Door* d = door();
  const uint32_t row = d != nullptr ? comm_of(*d, context) : 0;
  if (row == 0 || exchange(d->comms[row].token, 0) == 0) return;
  leave_mask(*d);
  if (recording_door() != d) return;
  settle_fans_of_comm(*d, row);
  settle_comm(*d, row);
  d->recorder->retire_comm(row);
}

}  // namespace ci::nccl
