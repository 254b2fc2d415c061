#include "slots.h"

#include <cstring>

namespace ci {

void SlotTable::attach(ci_slot* slots, uint32_t* overdue) {
  slots_ = slots;
  overdue_ = overdue;
  memset(free_, 0xFF, sizeof free_);
}

int SlotTable::claim(uint32_t hint) {
  add(in_use_, 1);
  for (int i = 0; i < kFreeWords; i++) {
    const auto w = static_cast<int>((hint + static_cast<uint32_t>(i)) % kFreeWords);
    for (uint64_t free = load_relaxed(free_[w]); free != 0; free = load_relaxed(free_[w])) {
      const uint64_t bit = free & -free;
      if ((__atomic_fetch_and(&free_[w], ~bit, __ATOMIC_ACQ_REL) & bit) == 0) continue;
      const int slot = w * 64 + __builtin_ctzll(bit);
      const uint32_t generation = slot_generation(load_relaxed(slots_[slot].state_word)) + 1;
      store_release(slots_[slot].state_word, (generation & kGenerationMask) << 8 | CI_SLOT_CLAIMED);
      return slot;
    }
  }
  sub(in_use_, 1);
  return -1;
}

void SlotTable::release(int slot) {
  const uint32_t word = load_relaxed(slots_[slot].state_word);
  store_release(slots_[slot].state_word, (word & ~255u) | CI_SLOT_FREE);
  __atomic_fetch_or(&free_[slot / 64], uint64_t{1} << (slot % 64), __ATOMIC_ACQ_REL);
  sub(in_use_, 1);
}

bool SlotTable::take(int slot, uint32_t generation) {
  uint32_t word = load_ordered(slots_[slot].state_word);
  do {
    const uint32_t state = slot_state(word);
    if (slot_generation(word) != generation || (state != CI_SLOT_IN_FLIGHT && state != CI_SLOT_OVERDUE)) return false;
  } while (!cas(slots_[slot].state_word, word, (word & ~255u) | CI_SLOT_ENDING));
  if (slot_state(word) == CI_SLOT_OVERDUE) sub(*overdue_, 1);
  return true;
}

uint32_t SlotTable::hold(int slot, uint32_t generation) {
  uint32_t word = load_ordered(slots_[slot].state_word);
  do {
    const uint32_t state = slot_state(word);
    if (slot_generation(word) != generation || (state != CI_SLOT_IN_FLIGHT && state != CI_SLOT_OVERDUE)) return 0;
  } while (!cas(slots_[slot].state_word, word, (word & ~255u) | CI_SLOT_ENDING));
  return slot_state(word);
}

void SlotTable::let_go(int slot, uint32_t state) {
  store_release(slots_[slot].state_word, (load_relaxed(slots_[slot].state_word) & ~255u) | state);
}

bool SlotTable::hand_over(int slot, const Outcome& end) {
  if (load_ordered(marking_[slot]) != kMarking) return false;
  handover_[slot] = end;
  uint32_t expected = kMarking;
  return cas(marking_[slot], expected, kHandedOver);
}

bool SlotTable::begin_marking(int slot, uint32_t word) {
  exchange(marking_[slot], kMarking);
  return load_ordered(slots_[slot].state_word) == word;
}

bool SlotTable::set_overdue(int slot, uint32_t word) {
  add(*overdue_, 1);  // before the state, so that the count never falls below zero
  if (cas(slots_[slot].state_word, word, (word & ~255u) | CI_SLOT_OVERDUE)) return true;
  sub(*overdue_, 1);
  return false;
}

bool SlotTable::end_marking(int slot, Outcome* end) {
  uint32_t expected = kMarking;
  if (cas(marking_[slot], expected, kIdle)) return false;
  *end = handover_[slot];
  exchange(marking_[slot], kIdle);
  return true;
}

}  // namespace ci
