// The table of ops in flight, in the black box. A handle is a tagged integer, never a pointer:
//   type 4 | communicator row 10 | slot 12 | generation 22 | process salt 16
// so a stale or foreign handle is recognised without reading anything it could point to.
//
// Life of a slot: FREE -> CLAIMED (being filled) -> IN_FLIGHT [-> OVERDUE] -> ENDING (owned by whoever
// ends it) -> FREE. The drain thread writes markers of ops that may end at the same moment. It announces
// that in `marking`; an end that meets it leaves its result in `handover` and the drain thread completes
// the op after the marker. So a marker never follows the record of its own op, and no end ever waits.
#ifndef COMMINSIGHT_SLOTS_H
#define COMMINSIGHT_SLOTS_H
#include "atomics.h"
#include "wire.h"

namespace ci {

constexpr uint32_t kGenerationMask = (1u << 22) - 1;

struct Handle {
  uint32_t type;
  uint32_t comm;
  uint32_t slot;
  uint32_t generation;
  uint32_t salt;

  uint64_t encode() const {
    return uint64_t{type} << 60 | uint64_t{comm} << 50 | uint64_t{slot} << 38 | uint64_t{generation} << 16 | salt;
  }
  static Handle decode(uint64_t h) {
    return {static_cast<uint32_t>(h >> 60), static_cast<uint32_t>(h >> 50) & 1023, static_cast<uint32_t>(h >> 38) & 4095,
            static_cast<uint32_t>(h >> 16) & kGenerationMask, static_cast<uint32_t>(h) & 65535};
  }
};
constexpr uint32_t kHandleOp = 1;
static_assert(CI_SLOT_CAPACITY <= 4096 && CI_COMM_CAPACITY < 1024, "fields of the handle");

struct Outcome {
  int64_t end_ns;
  uint8_t state;
  uint8_t timing_source;
  uint8_t reason = 0;           // EndReason
  uint32_t clock_error_ns = 0;
  int64_t start_ns = 0;         // 0: as it stands in the slot
  int64_t gpu_start_ns = 0;
  int64_t gpu_end_ns = 0;
};

inline uint32_t slot_state(uint32_t word) { return word & 255; }
inline uint32_t slot_generation(uint32_t word) { return (word >> 8) & kGenerationMask; }

class SlotTable {
 public:
  // `overdue` counts the slots in state OVERDUE, for whoever watches the box.
  void attach(ci_slot* slots, uint32_t* overdue);
  // A slot in state CLAIMED, -1 when all are taken. `hint` spreads communicators over the table.
  int claim(uint32_t hint);
  void release(int slot);
  // Takes an op of this generation out of flight (state ENDING). False when it is not there any more.
  bool take(int slot, uint32_t generation);
  // Keeps an op from being ended or recycled while what it stands for is changed: its state, 0 when it is not there any
  // more. `let_go` follows with that state.
  uint32_t hold(int slot, uint32_t generation);
  void let_go(int slot, uint32_t state);
  // Called by the owner of an ENDING slot: true when the drain thread is writing a marker of it and
  // completes the op in its place.
  bool hand_over(int slot, const Outcome& end);
  // Drain thread: keeps an op in flight from being completed by others while its marker is written. False
  // when it ended before. Either way end_marking follows; it returns true when `end` was handed over.
  bool begin_marking(int slot, uint32_t word);
  bool end_marking(int slot, Outcome* end);

  // Drain thread, between the two: IN_FLIGHT -> OVERDUE. False when the op ended before.
  bool set_overdue(int slot, uint32_t word);

  // Calls f(slot index, state word) for every slot that is in flight or overdue.
  template <class F>
  void each_in_flight(F f) {
    for (int w = 0; w < kFreeWords; w++)
      for (uint64_t used = ~load_relaxed(free_[w]); used != 0; used &= used - 1) {
        const int slot = w * 64 + __builtin_ctzll(used);
        const uint32_t word = load_acquire(slots_[slot].state_word);
        if (slot_state(word) == CI_SLOT_IN_FLIGHT || slot_state(word) == CI_SLOT_OVERDUE) f(slot, word);
      }
  }
  ci_slot& operator[](int slot) { return slots_[slot]; }
  uint32_t in_use() const { return load_relaxed(in_use_); }

 private:
  static constexpr int kFreeWords = CI_SLOT_CAPACITY / 64;
  enum : uint32_t { kIdle, kMarking, kHandedOver };

  ci_slot* slots_;
  uint32_t* overdue_;
  uint64_t free_[kFreeWords];  // bit set: free. Owning the bit is owning the slot
  alignas(64) uint32_t in_use_;
  alignas(64) uint32_t marking_[CI_SLOT_CAPACITY];
  Outcome handover_[CI_SLOT_CAPACITY];
};

}  // namespace ci
#endif
