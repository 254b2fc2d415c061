// Communicators: the published rows of the black box and, beside them in private memory, what the hot
// path counts for each of them.
#ifndef COMMINSIGHT_COMMS_H
#define COMMINSIGHT_COMMS_H
#include "atomics.h"
#include "wire.h"

namespace ci {

struct CommSpec {
  uint64_t hash;
  const char* name;
  const char* desc;
  const char* members;
  int32_t rank;
  int32_t size;
  int32_t n_nodes;
  uint32_t lib_version;
  uint8_t backend;
  uint8_t abi_version;
  uint32_t device_number = 0;  // CUDA ordinal + 1; 0: unknown
  const char* pci_bus_id = nullptr;
};

// Sequence numbers and shares of one communicator.
struct alignas(64) CommState {
  uint32_t op_seq;
  uint32_t collective_seq;
  uint32_t graph_collective_seq;  // replays: told by another thread than the calls, so in another order on each rank
  int32_t slots_held;
  int32_t ring_backlog;  // its records in the ring that the drain thread has not consumed
  uint32_t slot_pressure;  // set when an op was refused for want of slots, taken by the drain thread
  enum : uint32_t { kShareUsedUp = 1, kTableFull = 2 };

  static constexpr uint32_t kPeers = 1024;  // (peer, direction) pairs that are told apart
  uint32_t peer_keys[kPeers];
  uint32_t peer_seqs[kPeers];
};

class CommTable {
 public:
  void attach(ci_box_header* header, ci_comm_row* rows);
  // The new row's comm_index, 0 when the table is full. Registrations are serialised by the caller.
  uint32_t add_row(const CommSpec& spec);
  uint32_t count() const { return load_acquire(*count_); }
  ci_comm_row& row(uint32_t comm) { return rows_[comm - 1]; }
  // States 1 to capacity; 0 stands for "no communicator".
  CommState& state(uint32_t comm) { return states_[comm]; }

  void note_first_op(uint32_t comm, int64_t now);
  void retire(uint32_t comm, int64_t now);
  // The next match_seq: nth collective, or nth op with this peer in this direction, replays of graphs apart from
  // the rest; 0 when the peer table has no place for the pair (counted in peers_unplaced).
  uint32_t next_match(uint32_t comm, uint8_t kind, uint8_t op, int32_t peer, bool is_graph = false);

  // Rows changed since they were last written. Drain thread only: takes the marks, and puts them back
  // when the rows could not be written.
  void mark_changed(uint32_t comm);
  bool take_changed(uint64_t (&bits)[CI_COMM_CAPACITY / 64]);
  uint64_t peers_unplaced() const { return load_relaxed(peers_unplaced_); }

 private:
  uint32_t* count_;
  ci_comm_row* rows_;
  uint64_t peers_unplaced_;
  uint32_t any_changed_;
  uint64_t changed_[CI_COMM_CAPACITY / 64];
  CommState states_[CI_COMM_CAPACITY + 1];
};

}  // namespace ci
#endif
