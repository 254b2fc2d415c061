// Checksum, text, sequence numbers, slots and ring, each alone.
#include <stdlib.h>
#include <string.h>

#include <memory>

#include "check.h"
#include "comms.h"
#include "crc32.h"
#include "host.h"
#include "ring.h"
#include "slots.h"
#include "text.h"

using namespace ci;

namespace {

template <class T>
std::unique_ptr<T, decltype(&free)> zeroed(size_t n = 1) {
  return {static_cast<T*>(aligned_alloc(64, (sizeof(T) * n + 63) / 64 * 64)), &free};
}
template <class T>
T* clear(T* p, size_t n = 1) {
  memset(static_cast<void*>(p), 0, sizeof(T) * n);
  return p;
}

void checksum_is_zlibs() {
  CHECK_EQ(crc32(0, "123456789", 9), 0xCBF43926u);
  CHECK_EQ(crc32(crc32(0, "1234", 4), "56789", 5), 0xCBF43926u);
  CHECK_EQ(crc32(0, "", 0), 0);
}

void text_escapes_and_cuts() {
  char out[64];
  Text text(out, sizeof out);
  text.quoted("a\"b\\c\n\xC3\xA9\xFFz");
  CHECK(strcmp(text.c_str(), "\"a\\\"b\\\\c?\xC3\xA9?z\"") == 0);
  text.rewind(0);
  text.quoted("\xC3\xA9\xC3\xA9", 3);  // never half a character
  CHECK(strcmp(text.c_str(), "\"\xC3\xA9\"") == 0);
  text.rewind(0);
  for (int i = 0; i < 20; i++) text.raw("1234");
  CHECK(text.full());
  CHECK_EQ(strlen(out), sizeof out - 1);
  char field[4];
  copy_field(field, "ab\xC3\xA9");
  CHECK(strcmp(field, "ab") == 0);
}

void matches_count_per_peer_and_direction() {
  auto table = zeroed<CommTable>();
  auto header = zeroed<ci_box_header>();
  auto rows = zeroed<ci_comm_row>(CI_COMM_CAPACITY);
  CommTable& comms = *clear(table.get());
  comms.attach(clear(header.get()), clear(rows.get(), CI_COMM_CAPACITY));
  CommSpec spec = {7, "n", "d", nullptr, 0, 4, 0, 0, CI_BACKEND_GLOO, 0};
  CHECK_EQ(comms.add_row(spec), 1);
  CHECK_EQ(comms.add_row(spec), 2);
  CHECK_EQ(comms.row(2).ordinal, 1);
  spec.rank = 1;
  CHECK_EQ(comms.add_row(spec), 3);
  CHECK_EQ(comms.row(3).ordinal, 0);
  auto p2p = [&](uint8_t op, int peer) { return comms.next_match(1, CI_RECORDKIND_P2P, op, peer); };
  CHECK_EQ(p2p(CI_OP_SEND, 1), 1);
  CHECK_EQ(p2p(CI_OP_RECV, 1), 1);
  CHECK_EQ(p2p(CI_OP_SEND, 2), 1);
  CHECK_EQ(p2p(CI_OP_SEND, 1), 2);
  CHECK_EQ(comms.next_match(1, CI_RECORDKIND_COLLECTIVE, CI_OP_ALL_REDUCE, -1), 1);
  CHECK_EQ(comms.next_match(1, CI_RECORDKIND_COLLECTIVE, CI_OP_BROADCAST, 0), 2);
  CHECK_EQ(comms.next_match(2, CI_RECORDKIND_COLLECTIVE, CI_OP_ALL_REDUCE, -1), 1);
  uint64_t placed = 0;
  for (int peer = 0; peer < 4096; peer++) placed += comms.next_match(3, CI_RECORDKIND_P2P, CI_OP_SEND, peer) != 0;
  CHECK(placed > CommState::kPeers / 2 && placed <= CommState::kPeers);
  CHECK_EQ(placed + comms.peers_unplaced(), 4096);
  for (int n = 4; n <= CI_COMM_CAPACITY; n++) CHECK_EQ(comms.add_row(spec), n);
  CHECK_EQ(comms.add_row(spec), 0);
}

void slots_come_back_with_new_generations() {
  auto table = zeroed<SlotTable>();
  auto memory = zeroed<ci_slot>(CI_SLOT_CAPACITY);
  uint32_t overdue = 0;
  SlotTable& slots = *clear(table.get());
  slots.attach(clear(memory.get(), CI_SLOT_CAPACITY), &overdue);
  for (int i = 0; i < CI_SLOT_CAPACITY; i++) CHECK(slots.claim(static_cast<uint32_t>(i)) >= 0);
  CHECK_EQ(slots.claim(0), -1);
  CHECK_EQ(slots.in_use(), CI_SLOT_CAPACITY);
  slots.release(77);
  CHECK_EQ(slots.claim(5), 77);
  CHECK_EQ(slot_generation(slots[77].state_word), 2);
  CHECK(!slots.take(77, 2));  // claimed, not in flight
  slots[77].state_word = 2 << 8 | CI_SLOT_IN_FLIGHT;
  CHECK(!slots.take(77, 1));
  CHECK(slots.begin_marking(77, 2 << 8 | CI_SLOT_IN_FLIGHT));
  CHECK(slots.set_overdue(77, 2 << 8 | CI_SLOT_IN_FLIGHT));
  CHECK_EQ(overdue, 1);
  CHECK(slots.take(77, 2));
  CHECK_EQ(overdue, 0);
  CHECK(!slots.take(77, 2));
  CHECK(slots.hand_over(77, {5, CI_OPSTATE_DONE, 1}));
  Outcome end;
  CHECK(slots.end_marking(77, &end));
  CHECK_EQ(end.end_ns, 5);
  CHECK(!slots.hand_over(77, {6, CI_OPSTATE_DONE, 1}));  // nobody marks: the owner completes it
  const Handle h = Handle::decode(Handle{kHandleOp, 512, 4095, kGenerationMask, 65535}.encode());
  CHECK(h.type == kHandleOp && h.comm == 512 && h.slot == 4095 && h.generation == kGenerationMask && h.salt == 65535);
}

void ring_overwrites_and_says_so() {
  auto header = zeroed<ci_box_header>();
  auto cells = zeroed<ci_record>(CI_RING_CAPACITY);
  Ring ring;
  ring.attach(clear(header.get()), clear(cells.get(), CI_RING_CAPACITY));
  ci_record record = {};
  const int64_t first = ring.take();
  CHECK_EQ(ring.read(first, &record), Ring::kPending);
  record.count = 42;
  CHECK(ring.put(first, &record));
  ci_record out;
  CHECK_EQ(ring.read(first, &out), Ring::kGot);
  CHECK(out.seq == 1 && out.seq_low == 1 && out.count == 42);
  for (int i = 0; i < CI_RING_CAPACITY; i++) CHECK(ring.put(ring.take(), &record));
  CHECK_EQ(ring.read(first, &out), Ring::kLost);
  CHECK(!ring.put(first, &record));  // a producer a whole lap late leaves the newer record alone
  CHECK_EQ(ring.read(first + CI_RING_CAPACITY, &out), Ring::kGot);
  cells.get()[first].seq = -1;  // a producer that died between its two stores
  CHECK(!ring.put(first + 1 + 2 * CI_RING_CAPACITY, &record));
}

void any_two_times_can_be_compared() {
  CHECK(has_lasted(10, 5, 5) && !has_lasted(10, 6, 5));
  CHECK(!has_lasted(5, 10, 0));
  CHECK(has_lasted(INT64_MAX, INT64_MIN, INT64_MAX) && has_lasted(INT64_MAX, -1, 1));
  CHECK(!has_lasted(INT64_MIN, INT64_MAX, 1) && !has_lasted(0, INT64_MAX, 1));
}

void file_system_of_a_path_that_is_not_there_yet() {
  const char* const paths[] = {"absent", "absent/below", "./absent", "/absent", "/absent/below", "x", ".", "/"};
  for (const char* path : paths) {
    const char* name = network_file_system(path, "0x6969");
    CHECK(name != nullptr && strcmp(name, "nfs") == 0);
  }
  CHECK(network_file_system("absent", "0x01021994") == nullptr);  // tmpfs
}

}  // namespace

int main() {
  any_two_times_can_be_compared();
  file_system_of_a_path_that_is_not_there_yet();
  checksum_is_zlibs();
  text_escapes_and_cuts();
  matches_count_per_peer_and_direction();
  slots_come_back_with_new_generations();
  ring_overwrites_and_says_so();
  return failures();
}
