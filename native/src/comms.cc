#include "comms.h"

#include <cstring>

#include "text.h"

namespace ci {
namespace {

constexpr uint32_t kMaxProbes = 64;

// Position of the pair's counter, -1 when its neighbourhood is full. Keys are never removed, so a pair
// that found no place never finds one later: its numbers are all unknown, not some of them wrong.
int find_peer(CommState& state, uint32_t key) {
  uint32_t at = (key * 2654435761u) >> 22;
  for (uint32_t probe = 0; probe < kMaxProbes; probe++, at = (at + 1) % CommState::kPeers) {
    uint32_t seen = load_acquire(state.peer_keys[at]);
    if (seen == 0 && cas(state.peer_keys[at], seen, key)) return static_cast<int>(at);
    if (seen == key) return static_cast<int>(at);
  }
  return -1;
}

}  // namespace

void CommTable::attach(ci_box_header* header, ci_comm_row* rows) {
  count_ = &header->comm_count;
  rows_ = rows;
}

uint32_t CommTable::add_row(const CommSpec& spec) {
  const uint32_t n = count();
  if (n >= CI_COMM_CAPACITY) return 0;
  uint32_t ordinal = 0;
  for (uint32_t i = 0; i < n; i++) ordinal += rows_[i].comm_hash == spec.hash && rows_[i].comm_rank == spec.rank;
  ci_comm_row& row = rows_[n];
  row.comm_hash = spec.hash;
  row.created_ns = mono_ns();
  row.comm_index = n + 1;
  row.ordinal = ordinal;
  row.comm_rank = spec.rank;
  row.comm_size = spec.size;
  row.n_nodes = spec.n_nodes;
  row.lib_version = spec.lib_version;
  row.backend = spec.backend;
  row.abi_version = spec.abi_version;
  row.device_number = spec.device_number;
  copy_field(row.pci_bus_id, spec.pci_bus_id);
  copy_field(row.name, spec.name);
  copy_field(row.desc, spec.desc);
  // Half a member list would read as a smaller communicator: none is better.
  const bool fits = spec.members == nullptr || strlen(spec.members) < sizeof row.members;
  copy_field(row.members, fits ? spec.members : nullptr);
  row.flags = fits ? 0 : CI_COMM_FLAG_MEMBERS_TRUNCATED;
  store_release(*count_, n + 1);
  mark_changed(n + 1);
  return n + 1;
}

void CommTable::note_first_op(uint32_t comm, int64_t now) {
  int64_t none = 0;
  if (load_relaxed(row(comm).first_op_ns) == 0 && cas(row(comm).first_op_ns, none, now)) mark_changed(comm);
}

void CommTable::retire(uint32_t comm, int64_t now) {
  int64_t none = 0;
  if (cas(row(comm).retired_ns, none, now)) mark_changed(comm);
}

uint32_t CommTable::next_match(uint32_t comm, uint8_t kind, uint8_t op, int32_t peer, bool is_graph) {
  CommState& own = state(comm);
  if (kind != CI_RECORDKIND_P2P) return add(is_graph ? own.graph_collective_seq : own.collective_seq, 1) + 1;
  // Never 0: the lowest bit tells a used key from an empty place, the next ones the direction and the graph.
  const uint32_t key = static_cast<uint32_t>(peer + 1) << 3 | (is_graph ? 4u : 0u) | (op == CI_OP_SEND ? 2u : 0u) | 1u;
  const int at = find_peer(own, key);
  if (at < 0) {
    add(peers_unplaced_, 1);
    return 0;
  }
  return add(own.peer_seqs[at], 1) + 1;
}

void CommTable::mark_changed(uint32_t comm) {
  __atomic_fetch_or(&changed_[(comm - 1) / 64], uint64_t{1} << ((comm - 1) % 64), __ATOMIC_ACQ_REL);
  store_release(any_changed_, 1);
}

bool CommTable::take_changed(uint64_t (&bits)[CI_COMM_CAPACITY / 64]) {
  if (load_acquire(any_changed_) == 0) return false;
  exchange(any_changed_, 0);
  for (size_t i = 0; i < CI_COMM_CAPACITY / 64; i++) bits[i] = exchange(changed_[i], 0);
  return true;
}

}  // namespace ci
