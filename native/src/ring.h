// The broadcast ring of finished records: many producers, any number of readers, always overwriting.
//
// A producer takes a number from the head and owns its cell from the moment it swaps the older number in
// word 0 for -1, so that two producers a lap apart never write one cell together. Body words are stored
// release and read acquire: that orders them against word 0 without fences.
#ifndef COMMINSIGHT_RING_H
#define COMMINSIGHT_RING_H
#include "atomics.h"
#include "wire.h"

namespace ci {

class Ring {
 public:
  enum Read { kGot, kPending, kLost };

  void attach(ci_box_header* header, ci_record* cells) {
    head_ = &header->ring_head;
    cells_ = cells;
  }
  int64_t head() const { return load_acquire(*head_); }
  // Takes the next arrival number; `put` must follow.
  int64_t take() { return add(*head_, 1) + 1; }
  // Writes the record under its number. False when the cell belongs to a producer a lap before or behind.
  bool put(int64_t seq, ci_record* record);
  // Copies record `seq` out. kPending: its producer is not done; kLost: a newer one stands there.
  Read read(int64_t seq, ci_record* out) const;

 private:
  word_t* cell(int64_t seq) const {
    return reinterpret_cast<word_t*>(cells_ + static_cast<uint64_t>(seq - 1) % CI_RING_CAPACITY);
  }
  int64_t* head_;
  ci_record* cells_;
};

}  // namespace ci
#endif
