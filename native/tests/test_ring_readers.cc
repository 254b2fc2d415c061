// Producers overwrite the ring as fast as they can while readers with cursors of their own follow: what a
// reader accepts is whole, numbers are unique, and got + lost = written.
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "stage.h"

using namespace ci;

namespace {

constexpr int kProducers = 4;
constexpr int kReaders = 2;
constexpr int64_t kEach = 60000;

struct Shared {
  alignas(64) ci_box_header header;
  alignas(64) ci_record cells[CI_RING_CAPACITY];
};
Shared shared;
Ring ring;
int running = kProducers;
int64_t dropped = 0;

void produce(int producer) {
  ci_record record = {};
  for (int64_t i = 0; i < kEach; i++) {
    const int64_t seq = ring.take();
    int64_t* words = &record.enqueue_ns;  // every word tells the same story
    for (int w = 0; w < 8; w++) words[w] = seq * 8 + w;
    record.comm_index = static_cast<uint32_t>(producer);
    if (!ring.put(seq, &record)) add(dropped, 1);
  }
  sub(running, 1);
}

void follow() {
  int64_t got = 0, lost = 0, seq = 1;
  ci_record record;
  for (bool is_over = false; !is_over || seq <= ring.head();) {
    is_over = load_acquire(running) == 0;
    if (seq > ring.head()) continue;
    const Ring::Read read = ring.read(seq, &record);
    if (read == Ring::kPending && !is_over) continue;
    seq++;
    lost += read != Ring::kGot;
    if (read != Ring::kGot) continue;
    got++;
    const int64_t* words = &record.enqueue_ns;
    for (int w = 0; w < 8; w++) CHECK_EQ(words[w], record.seq * 8 + w);
  }
  CHECK_EQ(got + lost, kProducers * kEach);
  CHECK(got >= CI_RING_CAPACITY - load_relaxed(dropped));
}

}  // namespace

int main() {
  ring.attach(&shared.header, shared.cells);
  in_threads(kProducers + kReaders, [](int i) { i < kProducers ? produce(i) : follow(); });
  return failures();
}
